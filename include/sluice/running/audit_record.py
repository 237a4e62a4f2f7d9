"""What run records keep of quality, and what later runs read from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from sluice.home import StreamHome
from sluice.quality.gate import Judgement, former_values
from sluice.running.record import QualityRecord, RunRecords
from sluice.stream import OutputMode

T = TypeVar("T")

QUALITY_METRICS = "sluice.quality"
"""What the measures of a batch are observed as, and their key in a batch's record."""


def counted(batches: Sequence[T], output_mode: OutputMode) -> Sequence[T]:
    """The batches of a run that make up its result: in `complete` mode each one has all rows anew."""
    return batches[-1:] if output_mode == "complete" else batches


def quality_record(
    judged: Judgement, suite: str, gate: str, columns: Mapping[str, str], *, released_by: str | None = None
) -> QualityRecord:
    """A verdict as a run record has it."""
    return QualityRecord(
        verdict=judged.verdict,
        checks=tuple(result.as_json() for result in judged.results),
        suite=suite,
        gate=gate,
        rows=judged.rows,
        dropped=judged.removed.get("drop", 0),
        quarantined=judged.removed.get("quarantine", 0),
        columns=dict(columns),
        released_by=released_by,
    )


def former_runs(home: StreamHome, run_id: str, most: int) -> list[dict[str, float]]:
    """The numbers of former runs of the live stream that were judged by their history, oldest first."""
    found: list[dict[str, float]] = []
    records = RunRecords(home)
    for former_id in records.run_ids():
        if len(found) >= most:
            break
        record = records.read(former_id) if former_id < run_id else None
        if record is None or record.interval is not None or record.quality is None:
            continue
        if values := former_values(record.quality.checks):
            found.append(values)
    return found[::-1]
