"""What is told of audits and of releases of quarantined rows, which are no runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sluice.datasets import Dataset
from sluice.runs.record import QualityRecord


@dataclass(frozen=True, kw_only=True)
class TableWork:
    """An audit or a release, as far as it is done."""

    kind: Literal["audit", "release"]
    work_id: str
    began_at: datetime
    reads: Dataset
    writes: Dataset | None = None
    rows: int | None = None
    """How many rows were written."""
    quality: QualityRecord | None = None
    """What an audit has found."""
    ended_at: datetime | None = None
    """None while it is at work."""
    error: str | None = None
    """Why it failed."""
