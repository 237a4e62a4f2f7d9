"""The balance of a batch: every row that was read was published, put aside, dropped, or left out by the transform."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from sluice.gate.decided_batch import Decision
from sluice.project import Project
from sluice.quality.compile import QualityPlan
from sluice.runs.record import BatchRecord
from sluice.spark.row_flow import RowFlow
from sluice.storage import Storage

logger = logging.getLogger(__name__)
_LOOK = "look at the sink before anything is built on it"


def balanced(
    batch: BatchRecord,
    plan: QualityPlan,
    values: Mapping[str, Any] | None,
    decided: Mapping[str, int] | None = None,
    *,
    in_quarantine: int | None = None,
) -> BatchRecord:
    """A batch's record with where its rows went, and a warning where some went nowhere, or to several places.

    What came out was measured on the way; what was published and put aside is what the tables' own logs say. Nothing is
    said where one of the two is not known.

    Args:
        batch: As committed.
        plan: The suite that split it.
        values: What was measured of it.
        decided: How many rows each policy took out, where another suite has split it.
        in_quarantine: How many rows of it the quarantine's log tells of; None where it does not tell.
    """
    found = values or {}
    removed = {policy: found.get(name) for policy, name in plan.removals.items()} if decided is None else decided
    result = found.get(plan.rows)
    if not isinstance(result, int) or not all(isinstance(count, int) for count in removed.values()):
        return batch
    dropped, quarantined = removed.get("drop") or 0, removed.get("quarantine") or 0
    if in_quarantine is not None:
        quarantined = in_quarantine
    batch = msgspec.structs.replace(batch, result_rows=result, dropped_rows=dropped, quarantined_rows=quarantined)
    if batch.output_rows is None or batch.output_rows + dropped + quarantined == result:
        return batch
    return _warned(
        batch,
        f"the transform gave {result:,} rows; {batch.output_rows:,} were published, {quarantined:,} put into quarantine"
        f" and {dropped:,} dropped: {_LOOK}",
    )


def rows_in_quarantine(decision: Decision, project: Project, *, storage: Storage) -> int | None:
    """How many rows of a batch that was split its quarantine has taken, by the table's own log.

    Asked for after the batch's commit; None where the log does not tell any more.

    Raises:
        StorageError: It can't be read.
        RefusedError: Its log is damaged.
    """
    table, batch_id = decision.quarantine.sink(project), decision.batch_id
    last = table.state(decision.query_id, storage=storage).last_batch
    if last is None or last < batch_id:
        is_known = (
            not decision.quarantined or table.why_unknown(decision.query_id, batch_id, None, storage=storage) is None
        )
        return 0 if is_known else None
    outcome = table.outcome(decision.query_id, batch_id, storage=storage) if last == batch_id else None
    return None if outcome is None else outcome.output_rows


def as_decided(batch: BatchRecord, decision: Decision, in_quarantine: int | None) -> BatchRecord:
    """A batch's record with where its rows went, where an earlier driver has split it, whatever suite there is today.

    Args:
        batch: As committed.
        decision: What that driver had decided.
        in_quarantine: How many rows of it the quarantine's log tells of; None where it does not tell.
    """
    quarantined = decision.quarantined if in_quarantine is None else in_quarantine
    batch = msgspec.structs.replace(batch, quarantined_rows=quarantined, dropped_rows=decision.dropped)
    # A balance that today's suite has told of is told.
    if quarantined == decision.quarantined or batch.result_rows is not None:
        return batch
    told = f"{decision.quarantined:,} rows were to go into quarantine, and its log tells of {quarantined:,}: {_LOOK}"
    return _warned(batch, told)


def tied_to_input(
    batch: BatchRecord, flow: RowFlow | None, *, promised: int | None = None, reads_more: bool
) -> BatchRecord:
    """A batch's record with how many rows the transform left out, and a warning where more are missing.

    Args:
        batch: With where the rows of the result went.
        flow: What the transform makes of a row; None where it is not known.
        promised: How many rows the logs of its sources told of when it was planned; None where they do not tell.
        reads_more: Whether Spark may count rows that a source does not give, as the deleted ones in Delta's files.
    """
    read, made, gone = batch.input_rows, batch.result_rows, None
    if batch.output_rows is not None:
        gone = batch.output_rows + batch.quarantined_rows + batch.dropped_rows
    if flow is None or read is None or (not read and (made or gone)):
        # Of a batch that Delta's own writer fits into its table, Spark counts no row of the sources.
        return batch
    if flow == "each":
        return _each_kept(batch, gone if made is None else made, promised=promised, reads_more=reads_more)
    if made is None:
        # What was lost on the way to the table looks like what the filter left out.
        return batch
    batch = msgspec.structs.replace(batch, unmatched_rows=max(read - made, 0))
    if made > read:
        return _warned(batch, _told(read, "of each of which the transform makes one or none", made))
    if gone is not None and gone != made and not batch.warnings:
        return _warned(batch, f"the transform gave {made:,} rows, and {gone:,} came to the sink: {_LOOK}")
    return batch


def _each_kept(batch: BatchRecord, made: int | None, *, promised: int | None, reads_more: bool) -> BatchRecord:
    """The same where the transform keeps every row."""
    read = batch.input_rows or 0
    is_promise = promised is not None and promised <= read
    if made is None or (reads_more and not is_promise and made < read):
        return batch
    expected = promised if is_promise and promised is not None else read
    if made == expected != read:
        # A row counts as often as it is read: the surplus is told of elsewhere.
        return batch
    batch = msgspec.structs.replace(batch, unmatched_rows=0)
    if made == expected:
        return batch
    return _warned(batch, _told(expected, "each of which the transform keeps", made))


def _told(read: int, kept: str, made: int) -> str:
    return f"the sources gave {read:,} rows, {kept}, and {made:,} came out: {_LOOK}"


def _warned(batch: BatchRecord, warning: str) -> BatchRecord:
    logger.error("batch %d: %s", batch.batch_id, warning)
    return msgspec.structs.replace(batch, warnings=(*batch.warnings, warning))
