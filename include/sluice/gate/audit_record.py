"""What run records keep of quality, and what later runs read from there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from sluice.errors import RefusedError
from sluice.home import StreamHome
from sluice.quality.compile import QualityPlan
from sluice.quality.judgement import Judgement, history_values
from sluice.runs.record import BatchRecord, QualityRecord, RunRecord, RunRecords
from sluice.sinks.contract import OutputMode

logger = logging.getLogger(__name__)

T = TypeVar("T")

QUALITY_METRICS = "sluice.quality"
"""What the measures of a batch are observed as, and their key in a batch's record."""


def counted(batches: Sequence[T], output_mode: OutputMode) -> Sequence[T]:
    """The batches of a run that make up its result: in `complete` mode each one has all rows anew."""
    return batches[-1:] if output_mode == "complete" else batches


def quality_record(
    judged: Judgement, suite: str, where: str, columns: Mapping[str, str], *, released_by: str | None = None
) -> QualityRecord:
    """A verdict as a run record has it."""
    return QualityRecord(
        verdict=judged.verdict,
        checks=tuple(result.record for result in judged.results),
        suite=suite,
        where=where,
        rows=judged.rows,
        dropped=judged.removed.get("drop", 0),
        quarantined=judged.removed.get("quarantine", 0),
        columns=dict(columns),
        released_by=released_by,
    )


def together(earlier: Sequence[BatchRecord], later: Sequence[BatchRecord]) -> tuple[BatchRecord, ...]:
    """Batches by their ids; where both have one, the later record of it."""
    by_id = {batch.batch_id: batch for batch in (*earlier, *later)}
    return tuple(by_id[batch_id] for batch_id in sorted(by_id))


def is_measured(plan: QualityPlan, values: Mapping[str, Any] | None) -> bool:
    """Whether all was measured that the suite asks for today."""
    return values is not None and all(measure.name in values for measure in plan.measures)


def with_measures(batch: BatchRecord, values: Mapping[str, Any] | None) -> BatchRecord:
    """A batch's record with what was measured of it in place of what Spark may have told; None when nothing was."""
    observed = {name: found for name, found in batch.observed.items() if name != QUALITY_METRICS}
    if values is not None:
        observed[QUALITY_METRICS] = dict(values)
    return msgspec.structs.replace(batch, observed=observed)


def with_columns(record: RunRecord, suite: str, columns: Mapping[str, str]) -> RunRecord:
    """The record of a run that died before it was judged, with what its rows are judged by."""
    if record.quality is not None:
        return record
    where = record.plan.quality.where if record.plan.quality is not None else ""
    quality = QualityRecord(verdict="pass", suite=suite, where=where, columns=dict(columns))
    return msgspec.structs.replace(record, quality=quality)


def runs_before(home: StreamHome, run_id: str, plan: QualityPlan) -> list[dict[str, float]]:
    """The numbers of the live runs before, oldest first: as many as the rules about history look back at."""
    most = max((check.rule.last for check in plan.history), default=0)
    if not most:
        return []
    found: list[dict[str, float]] = []
    records = RunRecords(home)
    for earlier_id in records.run_ids():
        if len(found) >= most:
            break
        try:
            record = records.read(earlier_id) if earlier_id < run_id else None
        except RefusedError:
            logger.warning("the numbers of run %s are not known: its record is damaged", earlier_id)
            continue
        if record is None or record.interval is not None or record.quality is None:
            continue
        if record.quality.verdict == "fail" and record.quality.released_by is None:
            # What was not let through is no measure for what comes after: trying often must not make it one.
            continue
        if values := history_values(record.quality.checks):
            found.append(values)
    return found[::-1]
