"""Backfills: recomputes the rows of an interval from all that the live stream has read, and replaces them.

The live checkpoint is read and never written. A kill at any step leaves files that count for nobody, or a commit that
the retry finds in the sink's own log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sluice.auditing.backfill_audit import BackfillAudit, audit_interval
from sluice.auditing.dead_backfills import tidy_quarantine
from sluice.errors import BatchFailedError, QueryRefusedError, RefusedError, SluiceError
from sluice.locations import join
from sluice.planning.backfill import BackfillPlan
from sluice.planning.backfill_refusals import duplicates_problem
from sluice.planning.begun_stream import as_begun
from sluice.project import Project
from sluice.quality.gate import quality_failed
from sluice.running.backfill_as_stream import run_bounded_stream
from sluice.running.backfill_preparation import BackfillPreparation, BackfillRequest, dropped_late
from sluice.running.observers import Observer, Silent
from sluice.runs.backfill_names import application_of
from sluice.runs.driver import following_requests
from sluice.runs.kept_table import Table
from sluice.runs.lease import Lease
from sluice.runs.record import BackfillRecord, RecordedPhase, RunRecord
from sluice.runs.stop import StopEvent
from sluice.sinks.contract import Replaced, Replacement
from sluice.spark.duplicates import drops_duplicates, find_dropped
from sluice.spark.java_options import Work
from sluice.spark.query import build_batch, build_query, explain_frame, plan_reader, spark_failed
from sluice.spark.session import close_session, open_session
from sluice.spark.writers import check_home, name_writer
from sluice.stream import Stream
from sluice.times import Clock, iso_time, system_clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
_MOST_ATTEMPTS = 5
"""How often a backfill starts again because the rows that it was about to replace were changed by others."""


def backfill_stream(
    project: Project,
    request: BackfillRequest,
    *,
    observer: Observer | None = None,
    stop: StopEvent | None = None,
    session: SparkSession | None = None,
    clock: Clock = system_clock,
) -> RunRecord:
    """Recompute the rows of an interval, and replace them in the sink in one step.

    Runs beside the live stream and beside backfills of other intervals. An interval that is not whole partitions of
    the sink is replaced by Spark instead, under the live stream's lease, which is waited for.

    Args:
        project: The project of the stream.
        request: What to recompute.
        observer: Is told how it goes on.
        stop: Is set when a request in the home asks the run to end; there is no step in between to end after.
        session: A Spark session to use in place of one that the project's settings describe.
        clock: Tells the time.

    Returns:
        The run record, with status `succeeded`, or `skipped` when the live stream has written nothing yet. A skip
        leaves no record file.

    Raises:
        DeclarationError: The declaration does not support it, or the transform does not fit the sink.
        RefusedError: Rows would be lost or doubled; the record says why.
        LeaseTakenError: Another backfill of the interval is under way; or the interval needs the live stream's lease,
            and a run had it for too long.
        QualityFailedError: The suite failed, and nothing was replaced; the record says how.
        RunError: It failed; nothing was replaced, or the record says what was.
    """
    preparation = BackfillPreparation.of(project, request, clock)
    if (done := preparation.done()) is not None:
        return done
    observer = observer or Silent()
    plan = None
    if not preparation.has_replaced:
        observer.phase("planning the backfill")
        plan = preparation.plan()
        if (ended := preparation.end_without_spark(plan)) is not None:
            return ended
    record = preparation.open_record(plan)
    with preparation.take_lease(record.run_id) as lease:
        preparation = preparation.under(lease)
        preparation.close_dead(lease, record.run_id)
        preparation.check_no_release()
        with following_requests(preparation.home, record.run_id, stop or StopEvent(), lease):
            return _Backfill(preparation, observer, session, record, lease).execute(plan)


@dataclass
class _Backfill:
    preparation: BackfillPreparation
    observer: Observer
    session: SparkSession | None
    record: RunRecord
    lease: Lease
    """The right to backfill the interval."""
    size_bytes: int | None = None
    """How much is going to be read; None when nobody knows."""
    _opened: SparkSession | None = None
    """The session, if it is this backfill's own."""

    def execute(self, plan: BackfillPlan | None) -> RunRecord:
        """Do what is planned; nothing is where the rows are replaced already, and only the quarantine is left."""
        self._save(token=self.lease.token)
        try:
            if plan is not None:
                # A wrong reference need not wait for Spark.
                self.preparation.project.check_function(self.preparation.request.stream.transform)
            self._save(status="running", started_at=iso_time(self.preparation.journal.clock()))
            return self._run(plan)
        except BaseException as exc:
            self.preparation.journal.close_failed(self.record, exc)
            raise
        finally:
            self.preparation.clean_up(self.record.run_id)
            if self._opened is not None:
                close_session(self._opened)

    def _run(self, plan: BackfillPlan | None) -> RunRecord:
        if (found := self.preparation.find_replaced(self.record)) is not None:
            # A try before has replaced the rows, and died before it was done with the quarantine.
            return self._finish(found)
        plan = plan or self._plan_again()
        self.size_bytes = plan.size_bytes
        for _ in range(_MOST_ATTEMPTS):
            if plan.publish == "metadata":
                replaced = self._replace_beside(plan)
            else:
                waiting = self._phase
                with self.preparation.take_live_lease(plan.generation, self.record.run_id, waiting) as lease:
                    replaced = self._replace_alone(lease)
            if replaced is not None and replaced.conflict is None:
                return self._finish(replaced)
            self._note_damage(plan, replaced)
            self._phase(f"starting again: {replaced.conflict if replaced else 'the rows were changed'}")
            plan = self._plan_again()
        damage = self.record.backfill.damage if self.record.backfill else None
        raise BatchFailedError(
            f"the rows of the interval were changed by others {_MOST_ATTEMPTS} times while they were recomputed"
            + ("" if damage is None else f"; {damage}"),
            where=self.preparation.sink.location,
            remedy="let no compaction and no other backfill of these rows run beside this one, then try again"
            + ("" if damage is None else ": the rows are wrong until a backfill of the interval succeeds"),
        )

    def _finish(self, replaced: Replaced) -> RunRecord:
        """Close the run, once the quarantine has no row of the interval that is elsewhere now."""
        preparation = self.preparation
        table = preparation.quarantine_left(self.record, replaced)
        if table is not None:
            session, stream, storage = self._open_session(), preparation.request.stream, preparation.home.storage
            self._phase("settling the quarantine")
            self._write(lambda: tidy_quarantine(self.record, replaced, table, stream, session, storage=storage))
        return preparation.close(self.record, replaced)

    def _note_damage(self, plan: BackfillPlan, replaced: Replaced | None) -> None:
        """Record what a commit has done that was not alone: a kill, or a later attempt's failure, leaves it so."""
        if replaced is None or self.record.backfill is None:
            return
        what = "there twice" if plan.publish == "metadata" else "missing"
        damage = f"rows of the interval may be {what} since version {replaced.version}: {replaced.conflict}"
        noted = msgspec.structs.replace(self.record.backfill, sink_version=replaced.version, damage=damage)
        self._save(backfill=noted)

    def _plan_again(self) -> BackfillPlan:
        plan = self.preparation.plan()
        if plan.problem is not None:
            raise RefusedError(plan.problem)
        return plan

    def _replace_beside(self, plan: BackfillPlan) -> Replaced | None:
        """Replace whole partitions by one commit of metadata; the live stream may go on meanwhile."""
        sink, storage = self.preparation.sink, self.preparation.home.storage
        wanted = self._begin(plan)
        with self._audited(plan, wanted) as (frame, put_aside):
            self._phase("writing the rows aside")
            aside = self._write(lambda: sink.write_aside(frame, wanted, storage=storage))
            put_aside()
        self._phase("publishing")
        self.lease.check()
        return sink.publish(wanted, aside, storage=storage)

    def _replace_alone(self, lease: Lease) -> Replaced | None:
        """Let Spark replace the rows, while the lease keeps the live stream from writing."""
        self.preparation.close_dead(lease, self.record.run_id)
        name_writer(self.preparation.project, self._open_session(), lease)
        sink = self.preparation.sink
        plan = self._plan_again()
        wanted = self._begin(plan)
        with self._audited(plan, wanted) as (frame, put_aside):
            lease.check()
            # Other columns are refused before anything of it is in the quarantine.
            rows = sink.interval_rows(frame, wanted)
            put_aside()
            self._phase("replacing the rows")
            self._write(lambda: sink.replace_rows(rows, wanted))
        return sink.find_replacement(wanted.application, wanted.version, storage=self.preparation.home.storage)

    def _begin(self, plan: BackfillPlan) -> Replacement:
        """Note what is going to be replaced, before anything is written."""
        before = self.record.backfill
        attempt = before.attempt + 1 if before is not None else 0
        version = plan.version or 0
        damage = before.damage if before is not None else None
        stream = self.preparation.request.stream
        table = stream.quarantine_table if stream.quality is not None else None
        begun = BackfillRecord(
            attempt=attempt,
            version=version,
            batch_id=plan.batch_id,
            interval_column=stream.interval_column,
            quarantine=None if table is None else Table.of(table, self.preparation.project),
            damage=damage,
        )
        self._save(plan=plan.document, backfill=begun)
        return self._replacement(version, attempt)

    def _replacement(self, version: int, attempt: int) -> Replacement:
        request = self.preparation.request
        return Replacement(
            column=request.stream.interval_column or "",
            interval=request.interval,
            version=version,
            application=application_of(self.record.run_id),
            attempt=attempt,
        )

    @contextmanager
    def _audited(self, plan: BackfillPlan, wanted: Replacement) -> Iterator[tuple[DataFrame, Callable[[], None]]]:
        """The rows to be published, once they are judged, and what puts the others into the quarantine.

        Raises:
            QualityFailedError: They fail.
        """
        preparation = self.preparation
        frame, storage = self._result(plan, wanted.attempt), preparation.home.storage
        found: list[BackfillAudit | None] = []

        def judge() -> None:
            now = preparation.journal.clock()
            found.append(audit_interval(preparation.declared(), frame, wanted, now=now, storage=storage))

        if plan.quality is not None:
            self._phase("auditing")
            self._write(judge)
        audit = found[0] if found else None
        if audit is None:
            yield frame, lambda: None
            return
        try:
            self._save(quality=audit.recorded())
            self.observer.audited(audit.recorded())
            if audit.judged.verdict == "fail":
                remedy = "nothing was replaced; correct the transform or the suite, and run the backfill again"
                raise quality_failed(audit.judged, audit.plan.suite, remedy)
            batch_id, run_id = plan.batch_id or 0, self.record.run_id
            yield (
                audit.kept,
                lambda: self._write(
                    lambda: audit.put_aside(wanted, run_id, batch_id, preparation.project, preparation.home)
                ),
            )
        finally:
            audit.end()

    def _result(self, plan: BackfillPlan, attempt: int) -> DataFrame:
        request, project, session = self.preparation.request, self.preparation.project, self._open_session()
        if plan.watermark_ms is None:
            try:
                frame = build_batch(project, self._stream, session, plan.slices)
            except QueryRefusedError:
                self._phase("running it as a stream: Spark does not run it as a batch")
            else:
                if drops_duplicates(frame, plan_reader(session)):
                    self._check_duplicates(plan)
                self._save(explain=explain_frame(frame))
                return frame
        self._check_duplicates(plan)
        return run_bounded_stream(
            project,
            self._stream,
            session,
            plan.slices,
            interval=request.interval,
            watermark_ms=plan.watermark_ms,
            now=self.record.planned_at,
            folder=join(self.preparation.folder, f"{self.record.run_id}-{attempt}"),
            storage=self.preparation.home.storage,
        )

    @cached_property
    def _stream(self) -> Stream:
        """The stream, whose sources read as its generation began to."""
        home = self.preparation.home
        return as_begun(self.preparation.request.stream, home.generation(home.current_generation()))

    def _check_duplicates(self, plan: BackfillPlan) -> None:
        """Ask Spark by what keys: the plan knows of the transform's own module alone, and a batch has no watermark."""
        stream, session = self._stream, self._open_session()
        frame = build_query(self.preparation.project, stream, session, {}).frame
        found = find_dropped(frame, stream.interval_column or "", plan_reader(session))
        late_rows = partial(dropped_late, self.preparation.journal.records, plan.generation, plan.batch_id or 0)
        problem = duplicates_problem(stream, found.across, found.timeless, late_rows)
        if problem is not None:
            raise RefusedError(problem)

    def _write(self, write: Callable[[], T]) -> T:
        try:
            return write()
        except SluiceError:
            raise
        except Exception as exc:
            where = f"stream `{self.record.stream}`"
            raise spark_failed(exc, where=where, consequence="this attempt replaced nothing") from exc

    def _open_session(self) -> SparkSession:
        if self.session is None:
            self._phase("starting Spark")
            request = self.preparation.request
            project = self.preparation.project
            work = None if self.size_bytes is None else Work(self.size_bytes)
            self.session = self._opened = open_session(project, request.stream, work=work)
            name_writer(self.preparation.project, self.session, self.lease)
            check_home(project, self.session, self.preparation.journal.records.file(self.record.run_id))
        return self.session

    def _phase(self, text: str) -> None:
        """Tell whoever looks on, here or at the record, what begins."""
        begun = RecordedPhase(text, iso_time(self.preparation.journal.clock()))
        self._save(phases=(*self.record.phases, begun))
        self.observer.phase(text)

    def _save(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        self.preparation.journal.records.save(self.record)
