"""The balance of a batch: every row that came out of the transform was published, put into quarantine, or dropped."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from sluice.quality.compile import QualityPlan
from sluice.runs.record import BatchRecord

logger = logging.getLogger(__name__)


def balanced(
    batch: BatchRecord,
    plan: QualityPlan,
    values: Mapping[str, Any] | None,
    decided: Mapping[str, int] | None = None,
) -> BatchRecord:
    """A batch's record with where its rows went, and a warning where some went nowhere, or to several places.

    What came out was measured on the way; what was published is what the sink's own log says. Nothing is said where
    one of the two is not known.

    Args:
        batch: As committed.
        plan: The suite that split it.
        values: What was measured of it.
        decided: How many rows each policy took out, where another suite has split it.
    """
    found = values or {}
    removed = {policy: found.get(name) for policy, name in plan.removals.items()} if decided is None else decided
    result = found.get(plan.rows)
    if not isinstance(result, int) or not all(isinstance(count, int) for count in removed.values()):
        return batch
    dropped, quarantined = removed.get("drop") or 0, removed.get("quarantine") or 0
    batch = msgspec.structs.replace(batch, result_rows=result, dropped_rows=dropped, quarantined_rows=quarantined)
    if batch.output_rows is None or batch.output_rows + dropped + quarantined == result:
        return batch
    warning = (
        f"the transform gave {result:,} rows; {batch.output_rows:,} were published, {quarantined:,} put into quarantine"
        f" and {dropped:,} dropped: look at the sink before anything is built on it"
    )
    logger.error("batch %d: %s", batch.batch_id, warning)
    return msgspec.structs.replace(batch, warnings=(*batch.warnings, warning))
