"""Backfills: recomputes the rows of an interval from all that the live stream has read, and replaces them.

The live checkpoint is read and never written. A kill at any step leaves files that count for nobody, or a commit that
the retry finds in the sink's own log.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sluice.auditing.backfill_audit import BackfillAudit, audit_interval
from sluice.auditing.dead_backfills import tidy_quarantine
from sluice.errors import BatchFailedError, QueryRefusedError, RefusedError, SluiceError
from sluice.lineage.sending import lineage_sent
from sluice.locations import join
from sluice.plan import Stage
from sluice.planning.backfill import BackfillPlan
from sluice.planning.backfill_refusals import duplicates_problem, undated_problem
from sluice.planning.begun_stream import as_begun
from sluice.planning.stages import stages_after_replacing
from sluice.project import Project
from sluice.quality.judgement import quality_failed
from sluice.running.backfill_as_stream import run_bounded_stream
from sluice.running.backfill_preparation import BackfillPreparation, BackfillRequest, dropped_late
from sluice.running.backfill_session import BackfillSession
from sluice.running.observers import Observer, Silent
from sluice.runs.backfill_names import application_of
from sluice.runs.driver import following_requests
from sluice.runs.kept_table import Table
from sluice.runs.lease import Lease
from sluice.runs.record import BackfillRecord, RecordedPhase, RunRecord
from sluice.runs.stop import StopEvent
from sluice.sinks.replaceable import Replaced, Replacement
from sluice.spark.duplicates import drops_duplicates, find_dropped
from sluice.spark.query import build_batch, build_query, explain_frame, plan_reader, run_through, spark_failed
from sluice.spark.shown_error import unforeseen_words
from sluice.spark.writers import name_writer
from sluice.stream import Stream
from sluice.times import Clock, iso_time, system_clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
_MOST_ATTEMPTS = 5
"""How often a backfill starts again because others changed the rows that it was about to replace, or its input."""


@lineage_sent()
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
    with ExitStack() as at_end:
        record = preparation.open_record(plan)
        return _Backfill(preparation, observer, stop or StopEvent(), session, at_end, record, plan).walk()


@dataclass
class _Backfill:
    """One backfill, on its way through the stages of its plan."""

    preparation: BackfillPreparation
    observer: Observer
    stop: StopEvent
    given: SparkSession | None
    """A session to use in place of one that the project's settings describe."""
    at_end: ExitStack
    """What is given back when it ends: the lease of the interval, the session, whoever listens for requests to stop."""
    record: RunRecord
    plan: BackfillPlan | None
    """None where the rows are replaced already, and only the quarantine is left."""
    session: BackfillSession = field(init=False)
    lease: Lease = field(init=False)
    """The right to backfill the interval."""
    live_lease: Lease | None = None
    """The right to write the table, where Spark is to replace the rows."""
    attempt: ExitStack = field(init=False)
    """What is given back when an attempt ends: the live stream's lease, and what the audit has kept."""
    wanted: Replacement = field(init=False)
    frame: DataFrame = field(init=False)
    """The rows that are to be published."""
    audit: BackfillAudit | None = None
    replaced: Replaced | None = None
    changed: str | None = None
    """Why the attempt's rows may be others than were planned."""

    def __post_init__(self) -> None:
        self.session = BackfillSession(self.given, self._phase)

    def walk(self) -> RunRecord:
        """Take one stage after the other; where others have changed the rows meanwhile, plan anew and begin again."""
        self._take_lease()
        for _ in range(_MOST_ATTEMPTS):
            self.live_lease, self.audit, self.changed = None, None, None
            with ExitStack() as self.attempt:
                if self._takes_all():
                    return self.record
            self._plan_anew()
        damage = self.record.backfill.damage if self.record.backfill else None
        raise BatchFailedError(
            f"the rows of the interval, or their input, were changed by others {_MOST_ATTEMPTS} times while they were"
            " recomputed" + ("" if damage is None else f"; {damage}"),
            where=self.preparation.sink.location,
            remedy="let no compaction, no other backfill of these rows and nothing that changes the input run beside"
            " this one, then try again"
            + ("" if damage is None else ": the rows are wrong until a backfill of the interval succeeds"),
        )

    def _takes_all(self) -> bool:
        """Whether the stages behind the lease came to their end."""
        stages = tuple(stages_after_replacing(is_judged=True)) if self.plan is None else self.plan.stages[1:]
        for stage in stages:
            self._take(stage)
            if stage.kind == "replace" and (self.replaced is None or self.replaced.conflict is not None):
                return False
        return True

    def _take(self, stage: Stage) -> None:
        match stage.kind:
            case "live_lease":
                self._take_live_lease()
            case "session":
                self._start_session()
            case "begin":
                self._begin()
            case "compute":
                self.frame = self._result()
            case "audit":
                self._judge()
            case "replace":
                self._check_undated()
                self._replace()
            case "quarantine":
                self._tidy_quarantine()
            case "record":
                self._close()

    def _take_lease(self) -> None:
        preparation, run_id = self.preparation, self.record.run_id
        self.lease = self.at_end.enter_context(preparation.take_lease(run_id))
        self.preparation = preparation = preparation.under(self.lease)
        # First of all: a process with an open session on a server does not end.
        self.at_end.callback(self.session.close)
        preparation.close_dead(self.lease, run_id)
        preparation.seal_earlier_tries(self.lease, self._open_session)
        preparation.check_no_return()
        self.at_end.enter_context(following_requests(preparation.home, run_id, self.stop, self.lease))
        self.at_end.callback(self._clean_up)
        self.at_end.push(self._close_failed)
        self._save(token=self.lease.token)
        if self.plan is not None:
            # A wrong reference need not wait for Spark.
            preparation.project.check_function(preparation.request.stream.transform)
        self._save(status="running", started_at=iso_time(preparation.journal.clock()))
        preparation.journal.tell(self.record)
        self.replaced = preparation.find_replaced(self.record)
        if self.replaced is not None:
            # A try before has replaced the rows, and died before it was done with the quarantine.
            self.plan = None
        elif self.plan is None:
            self._plan_anew()

    def _clean_up(self) -> None:
        self.preparation.clean_up(self.record.run_id)

    def _close_failed(self, _kind: object, exc: BaseException | None, _trace: object) -> None:
        if exc is not None:
            self.preparation.journal.close_failed(self.record, exc, unforeseen_words(exc))

    def _take_live_lease(self) -> None:
        """Keep the live stream from writing; what it has written meanwhile is planned with."""
        preparation, run_id = self.preparation, self.record.run_id
        taking = preparation.take_live_lease(self._planned.generation, run_id, self._phase)
        self.live_lease = lease = self.attempt.enter_context(taking)
        preparation.close_dead(lease, run_id)
        how = self._planned.publish
        self.plan = replace(self._plan_anew(), publish=how)

    def _start_session(self) -> None:
        session = self._open_session()
        if self.live_lease is not None:
            name_writer(self.preparation.project, session, self.live_lease)

    def _begin(self) -> None:
        """Note what is going to be replaced, before anything is written."""
        plan, before = self._planned, self.record.backfill
        attempt = before.attempt + 1 if before is not None else 0
        version = plan.version or 0
        damage = before.damage if before is not None else None
        request = self.preparation.request
        table = request.stream.quarantine_table if request.stream.quality is not None else None
        begun = BackfillRecord(
            attempt=attempt,
            version=version,
            first_version=None if before is None else before.since,
            batch_id=plan.batch_id,
            interval_column=request.stream.interval_column,
            quarantine=None if table is None else Table.of(table, self.preparation.project),
            damage=damage,
        )
        self._save(plan=plan.document, backfill=begun)
        self.wanted = Replacement(
            column=request.stream.interval_column or "",
            interval=request.interval,
            version=version,
            application=application_of(self.record.run_id),
            attempt=attempt,
        )

    def _judge(self) -> None:
        """Make sure that the rows may be published, and find those that are not to be.

        Raises:
            QualityFailedError: They fail.
        """
        preparation, wanted, frame = self.preparation, self.wanted, self.frame
        declared, storage = preparation.declared(), preparation.home.storage
        self._phase("auditing")
        now = preparation.journal.clock()
        self.audit = audit = self._write(lambda: audit_interval(declared, frame, wanted, now=now, storage=storage))
        if audit is None:
            return
        self.attempt.callback(audit.end)
        self.frame = audit.kept
        self._save(quality=audit.recorded())
        self.observer.audited(audit.recorded())
        if audit.judged.verdict == "fail":
            remedy = "nothing was replaced; correct the transform or the suite, and run the backfill again"
            raise quality_failed(audit.judged, audit.plan.suite, remedy)

    def _check_undated(self) -> None:
        """Make sure that no row of the interval is in the table as one of no interval, too.

        Raises:
            RefusedError: One is, as far as its other columns tell.
        """
        preparation, wanted = self.preparation, self.wanted
        rows = self.frame if self.audit is None else self.audit.rows
        count = partial(preparation.sink.undated_rows, rows, wanted, storage=preparation.home.storage)
        if (problem := undated_problem(preparation.request.stream, self._write(count))) is not None:
            raise RefusedError(problem)

    def _replace(self) -> None:
        plan = self._planned
        self.replaced = replaced = self._replace_beside() if self.live_lease is None else self._replace_alone()
        if replaced is not None and replaced.conflict is None:
            return
        self._note_damage(plan, replaced)
        if replaced is not None:
            # It may be refused to begin again: what is in the table now must not be in the quarantine as well.
            self._tidy_quarantine()
        why = replaced.conflict if replaced is not None else self.changed or "the rows were changed"
        self._phase(f"starting again: {why}")

    def _replace_beside(self) -> Replaced | None:
        """Replace whole partitions by one commit of metadata; the live stream may go on meanwhile."""
        sink, wanted, storage = self.preparation.sink, self.wanted, self.preparation.home.storage
        self._phase("writing the rows aside")
        aside = self._write(lambda: sink.write_aside(self.frame, wanted, storage=storage))
        if self._is_of_other_input():
            return None
        self._put_aside()
        self._phase("publishing")
        self.lease.check()
        return sink.publish(wanted, aside, storage=storage)

    def _replace_alone(self) -> Replaced | None:
        """Let Spark replace the rows, while the lease keeps the live stream from writing."""
        sink, wanted = self.preparation.sink, self.wanted
        # Other columns are refused before anything of it is in the quarantine.
        rows = sink.interval_rows(self.frame, wanted)
        if self.audit is None:
            # Else Spark would read within its commit. An audit has computed them.
            self._phase("computing the rows")
            self.attempt.callback(rows.persist().unpersist)
            self._write(lambda: run_through(rows))
        if self._is_of_other_input():
            return None
        if self.live_lease is not None:
            self.live_lease.check()
        self._put_aside()
        self._phase("replacing the rows")
        self._write(lambda: sink.replace_rows(rows, wanted))
        return sink.find_replacement(wanted.application, wanted.version, storage=self.preparation.home.storage)

    def _is_of_other_input(self) -> bool:
        """Whether the sources are not what they were in the plan, now that Spark has read them.

        The next attempt plans with what they are now; one that has lost something, its plan refuses.
        """
        self.changed = self._planned.find_changed(storage=self.preparation.home.storage)
        return self.changed is not None

    def _put_aside(self) -> None:
        """Put the rows that are not to be published into the quarantine."""
        audit, preparation, wanted = self.audit, self.preparation, self.wanted
        if audit is None:
            return
        batch_id, run_id = self._planned.batch_id or 0, self.record.run_id
        self.lease.check()
        self._write(lambda: audit.put_aside(wanted, run_id, batch_id, preparation.project, preparation.home))

    def _note_damage(self, plan: BackfillPlan, replaced: Replaced | None) -> None:
        """Record what a commit has done that was not alone: a kill, or a later attempt's failure, leaves it so."""
        if replaced is None or self.record.backfill is None:
            return
        what = "there twice" if plan.publish == "metadata" else "missing"
        damage = f"rows of the interval may be {what} since version {replaced.version}: {replaced.conflict}"
        noted = msgspec.structs.replace(self.record.backfill, sink_version=replaced.version, damage=damage)
        self._save(backfill=noted)

    def _tidy_quarantine(self) -> None:
        """See to it that the quarantine has no row of the interval that is elsewhere now."""
        preparation, replaced = self.preparation, self._done
        table = preparation.quarantine_left(self.record, replaced)
        if table is not None:
            session, stream, storage = self._open_session(), preparation.request.stream, preparation.home.storage
            self._phase("tidying the quarantine")
            check = self.lease.check
            tidy = partial(tidy_quarantine, self.record, replaced, table, stream, session, check=check, storage=storage)
            self._write(tidy)

    def _close(self) -> None:
        self.record = self.preparation.close(self.record, self._done)

    @property
    def _planned(self) -> BackfillPlan:
        if self.plan is None:  # pragma: no cover - the stages before the quarantine's have one
            raise ValueError(self.record.run_id)
        return self.plan

    @property
    def _done(self) -> Replaced:
        if self.replaced is None:  # pragma: no cover - the quarantine's stage comes after that
            raise ValueError(self.record.run_id)
        return self.replaced

    def _plan_anew(self) -> BackfillPlan:
        self.plan = plan = self.preparation.plan()
        if plan.problem is not None:
            raise RefusedError(plan.problem)
        return plan

    def _result(self) -> DataFrame:
        try:
            return self._analysed()
        except Exception as exc:
            if not self.session.is_warm:
                raise
            # Nothing was written yet.
            self.session.leave_warm(exc, self._leases)
            return self._analysed()

    def _analysed(self) -> DataFrame:
        request, project, session = self.preparation.request, self.preparation.project, self._open_session()
        plan = self._planned
        if plan.watermark_ms is None:
            try:
                frame = build_batch(project, self._stream, session, plan.slices)
            except QueryRefusedError:
                if self.session.is_warm:
                    raise
                self._phase("running it as a stream: Spark does not run it as a batch")
            else:
                if drops_duplicates(frame, plan_reader(session)):
                    self._check_duplicates(plan)
                    # A server looks a temporary view up when it writes: by now, the transform has made it of streams.
                    frame = build_batch(project, self._stream, session, plan.slices)
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
            folder=join(self.preparation.folder, f"{self.record.run_id}-{self.wanted.attempt}"),
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
        return self.session.opened(self.preparation, self.plan, self._leases, self.record.run_id)

    @property
    def _leases(self) -> list[Lease]:
        return [lease for lease in (self.lease, self.live_lease) if lease is not None]

    def _phase(self, text: str) -> None:
        """Tell whoever looks on, here or at the record, what begins."""
        begun = RecordedPhase(text, iso_time(self.preparation.journal.clock()))
        self._save(phases=(*self.record.phases, begun))
        self.observer.phase(text)

    def _save(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        self.preparation.journal.records.save(self.record)
