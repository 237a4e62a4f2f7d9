"""What a backfill does before Spark: finds its try before, plans, and ends what needs no Spark. Starts no JVM."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec

from sluice.auditing.dead_backfills import are_aside_gone, is_later_gone, is_undone, quarantine_left, seal_backfills
from sluice.errors import LeaseTakenError, RefusedError, SluiceError
from sluice.gate.judging import choose_backfill_judging
from sluice.gate.quarantine_places import rows_elsewhere
from sluice.gate.returned_rows import check_returns, read_returns
from sluice.home import StreamHome
from sluice.interval import Interval
from sluice.lineage.sending import lineage_sent
from sluice.locations import join
from sluice.planning.backfill import (
    BackfillPlan,
    LateRows,
    build_backfill_plan,
    check_declaration,
    survey_backfill,
)
from sluice.planning.backfill_refusals import duplicates_problem
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.planning.missing_checkpoint import LEAVE_NO_RECORD, why_missing
from sluice.planning.stages import backfill_stages
from sluice.planning.transform_text import transform_digest
from sluice.planning.unnoted_sink import unnoted_now
from sluice.project import Project
from sluice.runs.backfill_names import application_of
from sluice.runs.journal import Journal
from sluice.runs.lease import Lease, may_wake_up
from sluice.runs.record import BackfillRecord, RunRecord, RunRecords, new_run_id
from sluice.runs.summary import RecordedInterval
from sluice.sinks.replaceable import ReplaceableSink, Replaced
from sluice.sinks.splitting import SplittingSink
from sluice.spark.writers import open_journal
from sluice.stream import Stream
from sluice.times import Clock, iso_time, system_clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_LIVE_LEASE_PATIENCE = timedelta(minutes=30)
"""How long a backfill waits for the live stream's lease: most runs are over by then, and one that waits has no JVM yet.
To give up sooner would use up the retries of every other interval of the same backfill."""
_LEASE_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class BackfillRequest:
    """Which rows somebody wants to be recomputed."""

    stream: Stream
    interval: Interval
    run_key: str | None = None
    """Names the run for its retries: one that succeeded is not done again, unless somebody has undone it."""


def plan_backfill(project: Project, request: BackfillRequest) -> BackfillPlan:
    """Plan a backfill without a JVM, and change nothing.

    Raises:
        SluiceError: See `CheckedDeclaration`, `survey_backfill` and `build_backfill_plan`.
    """
    check_declaration(request.stream)
    return _plan(CheckedDeclaration.of(project, request.stream, project.streams()), request.interval)


def _plan(declared: CheckedDeclaration, interval: Interval) -> BackfillPlan:
    project, stream = declared.project, declared.stream
    home = project.stream_home(stream)
    late_rows = partial(dropped_late, RunRecords(home))
    plan = build_backfill_plan(survey_backfill(stream, home, interval, declared.streams, late_rows=late_rows))
    if plan.verdict == "skip" and (problem := why_missing(project, stream, home)) is not None:
        return plan.refused(problem)
    if plan.verdict != "refuse" and (problem := unnoted_now(project, stream, home)) is not None:
        return plan.refused(problem)
    if plan.verdict != "refuse":
        declared.check_table(storage=home.storage)
    if plan.verdict == "run":
        problem = check_returns(home, read_returns(home), stream, interval)
        problem = problem or rows_elsewhere(project, stream, home)
        if problem is not None:
            plan = plan.refused(problem)
    if plan.verdict != "run":
        return plan
    plan = _with_what_spark_tells(project, stream, home, plan, late_rows)
    suite = declared.suite if plan.verdict == "run" else None
    if suite is not None:
        plan = replace(plan, quality=choose_backfill_judging(project, stream, suite))
    return replace(plan, stages=backfill_stages(plan, stream))


def _with_what_spark_tells(
    project: Project, stream: Stream, home: StreamHome, plan: BackfillPlan, late_rows: LateRows
) -> BackfillPlan:
    """A plan that knows what the newest run of the live stream has learned from Spark, and what is left to it."""
    live = home.generation(plan.generation)
    found = live.drops_duplicates if live is not None else None
    now = transform_digest(project, stream)
    is_known = found is not None and now is not None and found.is_about(stream.interval_column, now)
    known = found if is_known else None
    if known is not None:
        timeless = None if known.timeless is msgspec.UNSET else known.timeless
        dropped = partial(late_rows, plan.generation, plan.batch_id or 0)
        problem = duplicates_problem(stream, known.across, timeless, dropped)
        if problem is not None:
            return plan.refused(problem)
    keys = f"duplicates are dropped by keys that tell `{stream.interval_column}` (BACKFILL_DUPLICATES)"
    late = "no key that came too late may come again in time (BACKFILL_LATE_ROWS)"
    knows_time = known is not None and known.timeless is not msgspec.UNSET
    left = [
        *([] if known else [keys]),
        *([] if knows_time else [late]),
        "the result has the columns and types of the table",
    ]
    return replace(plan, left_to_spark=tuple(left))


@lineage_sent()
def prepare_backfill(project: Project, request: BackfillRequest, *, clock: Clock = system_clock) -> RunRecord:
    """Plan a backfill, and finish it here if it needs no Spark: nothing to do, done by a try before, or to be refused.

    Args:
        project: The project of the stream.
        request: What is to be recomputed, with a run key: the driver finds the record by it.
        clock: Tells the time.

    Returns:
        The run record. Its status is `planned`, and it is on disk, when Spark is needed; else `succeeded` or `skipped`.

    Raises:
        RefusedError: Rows would be lost or doubled; the record says why.
        LeaseTakenError: Another backfill of the interval is at work.
        SluiceError: See `plan_backfill`.
    """
    preparation = BackfillPreparation.of(project, request, clock)
    if (done := preparation.done()) is not None:
        return done
    preparation.check_not_taken()
    plan = None if preparation.has_replaced else preparation.plan()
    ended = preparation.end_without_spark(plan) if plan is not None else None
    return ended or preparation.journal.keep_planned(preparation.open_record(plan), preparation.try_before)


@dataclass(frozen=True)
class BackfillPreparation:
    """One backfill on its way to Spark."""

    project: Project
    request: BackfillRequest
    journal: Journal
    now: datetime
    """The clock of the plan."""
    try_before: RunRecord | None
    """The record of the try before, where there was one."""
    declared: Callable[[], CheckedDeclaration]
    """Looks at the declaration, once for all of the backfill; raises what is wrong with it."""

    @classmethod
    def of(cls, project: Project, request: BackfillRequest, clock: Clock) -> BackfillPreparation:
        """Prepare a backfill.

        Raises:
            DeclarationError: The stream can't be backfilled, or the run key names another run.
        """
        check_declaration(request.stream)
        journal = open_journal(project, request.stream, clock)
        try_before = journal.records.find_try(request.run_key, _recorded(request.interval))
        declared = cache(lambda: CheckedDeclaration.of(project, request.stream, project.streams()))
        return cls(project, request, journal, clock(), try_before, declared)

    @property
    def home(self) -> StreamHome:
        """The stream's folder in the home."""
        return self.journal.home

    @property
    def sink(self) -> ReplaceableSink:
        """The sink, which can replace rows."""
        sink = self.request.stream.sink
        if not isinstance(sink, ReplaceableSink):  # pragma: no cover - checked when it was requested
            raise TypeError(sink.kind)
        return sink

    @property
    def folder(self) -> str:
        """Where this interval's streams have their checkpoints: one for each run and attempt."""
        return self.home.backfill_folder(self.request.interval.start, self.request.interval.end)

    def done(self) -> RunRecord | None:
        """The record of a try before that has replaced the rows; a retry of it has nothing to do."""
        if self.try_before is None:
            return None
        if self._was_done and not self._is_undone(self.try_before):
            return self.journal.told_again(self.try_before)
        found = self.find_replaced(self.try_before)
        if found is None or self.quarantine_left(self.try_before, found) is not None:
            return None
        self.clean_up(self.try_before.run_id)
        return self.close(self.try_before, found)

    @property
    def _was_done(self) -> bool:
        return self.try_before is not None and self.try_before.status == "succeeded"

    def _is_undone(self, record: RunRecord) -> bool:
        return is_undone(record, self.sink, self._quarantine, self.project, storage=self.home.storage)

    @property
    def _quarantine(self) -> SplittingSink | None:
        stream = self.request.stream
        return stream.quarantine_table if stream.quality is not None else None

    @property
    def has_replaced(self) -> bool:
        """Whether a try before has replaced the rows: then nothing is to be planned, whatever is declared by now."""
        return self.try_before is not None and self.find_replaced(self.try_before) is not None

    def plan(self) -> BackfillPlan:
        """Look at everything, and plan.

        Raises:
            LeaseTakenError: Rows are being released.
        """
        plan = _plan(self.declared(), self.request.interval)
        if plan.problem is not None and plan.problem.code == "RELEASE_UNFINISHED":
            self.journal.check_not_taken()
        return plan

    def end_without_spark(self, plan: BackfillPlan) -> RunRecord | None:
        """End the run here if its plan needs no Spark.

        Raises:
            RefusedError: The plan is to refuse; the record says so.
        """
        if plan.verdict == "skip":
            skipped = self.open_record(plan)
            if self.try_before is not None and not self._was_done:
                self.journal.records.forget(skipped.run_id)
            return msgspec.structs.replace(skipped, status="skipped", ended_at=iso_time(self.journal.clock()))
        if plan.problem is not None:
            refused = RefusedError(plan.problem)
            # Of one that was done, the record stays: what it has left in the tables is told by it.
            if plan.problem.code not in LEAVE_NO_RECORD and not self._was_done:
                self.journal.close_failed(self.open_record(plan), refused)
            raise refused
        return None

    def take_lease(self, run_id: str) -> Lease:
        """Take the right to backfill the interval.

        Raises:
            LeaseTakenError: Another backfill of the interval has taken it.
        """
        return self.journal.take_lease(self._lease_folder, run_id, self.try_before)

    def take_live_lease(self, generation: int, run_id: str, waiting: Callable[[str], None]) -> Lease:
        """Take the live stream's lease, and wait for whoever has taken it: a run, or a backfill of another interval.

        Args:
            generation: The live generation.
            run_id: The backfill.
            waiting: Is told, once for each owner, what is waited for.

        Raises:
            LeaseTakenError: It was not to be had in time.
        """
        deadline = time.monotonic() + _LIVE_LEASE_PATIENCE.total_seconds()
        told = None
        while True:
            try:
                return self.journal.take_lease(self.home.lease_folder(generation), run_id, None)
            except LeaseTakenError as exc:
                if time.monotonic() >= deadline:
                    raise
                if exc.where != told:
                    waiting(f"waiting for the live stream's lease, for {_LIVE_LEASE_PATIENCE} at most: {exc.problem}")
                    told = exc.where
            time.sleep(_LEASE_POLL_SECONDS)

    def check_no_return(self) -> None:
        """Make sure that no rows are being released, once this backfill has the lease of its interval.

        A release looks for such leases after it has said that it begins: one of the two sees the other.

        Raises:
            LeaseTakenError: Some are.
            RefusedError: A release that was killed is not finished.
        """
        problem = check_returns(self.home, read_returns(self.home), self.request.stream, self.request.interval)
        if problem is None:
            return
        try:
            self.journal.check_not_taken()
            raise RefusedError(problem)
        except SluiceError as exc:
            if self.try_before is not None:
                # Whoever planned it follows the record.
                self.journal.close_failed(self.try_before, exc)
            raise

    def close_dead(self, lease: Lease, run_id: str) -> None:
        """Close the record of another run whose driver died with the lease; a retry goes on with its own record."""
        self.journal.close_dead(lease, run_id)

    def seal_earlier_tries(self, lease: Lease, session: Callable[[], SparkSession]) -> None:
        """Let nothing count that backfills of the interval may write yet which stand still, past their lease."""
        run_ids = may_wake_up(self.home.storage, lease.folder, but=lease.token)
        seal_backfills(run_ids, self.project, self.request.stream, self.home, session)

    def under(self, lease: Lease) -> BackfillPreparation:
        """The same for the owner of the interval's lease: see `Journal.under`."""
        return replace(self, journal=self.journal.under(lease))

    def check_not_taken(self) -> None:
        """Make sure that no other backfill of the interval is at work.

        Raises:
            LeaseTakenError: One is.
        """
        self.journal.check_not_taken(self._lease_folder)

    @property
    def _lease_folder(self) -> str:
        return self.home.interval_lease_folder(self.request.interval.start, self.request.interval.end)

    def open_record(self, plan: BackfillPlan | None) -> RunRecord:
        """The record that a backfill begins with, not saved yet; without a plan, it goes by that of its try before."""
        if self.try_before is not None:
            record = msgspec.structs.replace(
                self.try_before, status="planned", tries=self.try_before.tries + 1, ended_at=None, error=None, phases=()
            )
            if plan is None:
                return record
            return msgspec.structs.replace(record, generation=plan.generation, plan=plan.document)
        if plan is None:  # pragma: no cover - a first try has replaced nothing
            raise ValueError(self.request.stream.name)
        live = self.home.generation(plan.generation)
        return RunRecord(
            run_id=new_run_id(self.now, self.request.run_key),
            stream=plan.stream,
            generation=plan.generation,
            query_id=live.query_id if live else None,
            run_key=self.request.run_key,
            planned_at=self.now,
            plan=plan.document,
            status="planned",
            interval=_recorded(self.request.interval),
        )

    def close(self, record: RunRecord, found: Replaced) -> RunRecord:
        """Save a record as succeeded, with what was replaced."""
        late_rows = _late_rows(self.journal.records, record.generation)
        begun = record.backfill or BackfillRecord(attempt=found.attempt, version=found.read_version)
        done = msgspec.structs.replace(
            begun,
            attempt=found.attempt,
            version=found.read_version,
            sink_version=found.version,
            damage=None,
            rows_replaced=found.rows_replaced,
            rows_written=found.rows_written,
            late_rows=sum(late_rows.values()) if late_rows else None,
        )
        return self.journal.close(msgspec.structs.replace(record, backfill=done, error=None), "succeeded")

    def clean_up(self, run_id: str) -> None:
        """Delete the checkpoints and rows of a run's attempts; never raises."""
        storage = self.home.storage
        try:
            listed = storage.list_folder(self.folder)
            for name in listed.folders if listed is not None else ():
                if name.startswith(run_id):
                    storage.delete_folder(join(self.folder, name))
        except SluiceError:
            logger.warning("what the backfill left in %s could not be deleted", self.folder, exc_info=True)

    def quarantine_left(self, record: RunRecord, found: Replaced) -> SplittingSink | None:
        """See `dead_backfills.quarantine_left`."""
        return quarantine_left(record, found, self.project, self.request.stream, storage=self.home.storage)

    def find_replaced(self, record: RunRecord) -> Replaced | None:
        """What a try before has replaced before it died, if that is right as it is."""
        if record.backfill is None:
            return None
        application = application_of(record.run_id)
        found = self.sink.find_replacement(application, record.backfill.version, storage=self.home.storage)
        if found is None or found.conflict is not None:
            return None
        records, storage = self.journal.records, self.home.storage
        if are_aside_gone(record, found.attempt, self._quarantine, self.project, storage=storage):
            return None
        others = (other for other in map(records.read, records.run_ids()) if other is not None)
        return None if is_later_gone(record, found, self.sink, others, storage=storage) else found


def dropped_late(records: RunRecords, generation: int, batch_id: int) -> int | None:
    """How many rows the live stream has dropped as late up to a batch; None when nobody knows."""
    found = _late_rows(records, generation)
    return sum(found.values()) if found.keys() >= set(range(batch_id + 1)) else None


def _late_rows(records: RunRecords, generation: int) -> dict[int, int]:
    """By batch, how many late rows the live stream has dropped; nobody knows it of runs without a readable record."""
    found: dict[int, int] = {}
    for run_id in records.run_ids():
        try:
            record = records.read(run_id)
        except SluiceError:
            logger.warning("the late rows of run %s are not known", run_id, exc_info=True)
            continue
        if record is not None and record.interval is None and record.generation == generation:
            found |= {batch.batch_id: batch.late_rows for batch in record.batches if batch.late_rows is not None}
    return found


def _recorded(interval: Interval) -> RecordedInterval:
    return RecordedInterval(interval.start, interval.end)
