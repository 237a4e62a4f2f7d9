"""Backfills: recomputes the rows of an interval from all that the live stream has read, and replaces them.

The live checkpoint is read and never written. A kill at any step leaves files that count for nobody, or a commit that
the retry finds in the sink's own log.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from sluice.errors import BatchFailedError, DeclarationError, QueryRefusedError, RefusedError, SluiceError
from sluice.planning.backfill import BackfillPlan, build_backfill_plan, check_declaration, look
from sluice.project import Project
from sluice.running.bounded_stream import remove_folder, run_bounded_stream
from sluice.running.lease import Clock, Lease
from sluice.running.preparation import Preparation, Request, system_clock
from sluice.running.query import build_batch, spark_message
from sluice.running.record import BackfillRecord, RecordedInterval, RunRecord, new_run_id
from sluice.running.runner import Observer, Silent, check_home, name_writer
from sluice.running.session import close_session, open_session
from sluice.storage import join
from sluice.stream import Interval, ReplaceableSink, Replaced, Replacement, Stream
from sluice.times import iso_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_MOST_ATTEMPTS = 5
"""How often a backfill starts again because the rows that it was about to replace were changed by others."""


@dataclass(frozen=True)
class BackfillRequest:
    """Which rows somebody wants to be recomputed."""

    stream: Stream
    interval: Interval
    run_key: str | None = None
    """Names the run for its retries: one that succeeded is not done again."""


def plan_backfill(project: Project, request: BackfillRequest) -> BackfillPlan:
    """Plan a backfill without a JVM, and change nothing.

    Raises:
        SluiceError: See `look` and `build_backfill_plan`.
    """
    streams = {name: declared.stream for name, declared in project.streams().items()}
    home = project.stream_home(request.stream)
    return build_backfill_plan(look(request.stream, home, request.interval, streams))


def backfill_stream(
    project: Project,
    request: BackfillRequest,
    *,
    observer: Observer | None = None,
    session: SparkSession | None = None,
    clock: Clock = system_clock,
) -> RunRecord:
    """Recompute the rows of an interval, and replace them in the sink in one step.

    Runs beside the live stream and beside other backfills. An interval that is not whole partitions of the sink is
    replaced by Spark instead, under the live stream's lease.

    Args:
        project: The project of the stream.
        request: What to recompute.
        observer: Is told how it goes on.
        session: A Spark session to use in place of one that the project's settings describe.
        clock: Tells the time.

    Returns:
        The run record, with status `succeeded`, or `skipped` when the live stream has written nothing yet. A skip
        leaves no record file.

    Raises:
        DeclarationError: The declaration does not support it, or the transform does not fit the sink.
        RefusedError: Rows would be lost or doubled; the record says why.
        LeaseHeldError: The interval needs the live stream's lease, and a run holds it.
        RunError: It failed; nothing was replaced, or the record says what was.
    """
    check_declaration(request.stream)
    preparation = Preparation.of(project, Request(request.stream), clock)
    former = preparation.records.find(request.run_key) if request.run_key else None
    wanted = RecordedInterval(request.interval.start, request.interval.end)
    if former is not None and former.interval != wanted:
        raise DeclarationError(
            f"run key `{request.run_key}` names another run: {former.run_id}",
            where="--run-key",
            remedy="give this backfill a key of its own, or the interval of that run",
        )
    if former is not None and former.status == "succeeded":
        return former
    work = _Backfill(project, request, preparation, observer or Silent(), session, former)
    return work.execute(wanted)


@dataclass
class _Backfill:
    project: Project
    request: BackfillRequest
    preparation: Preparation
    observer: Observer
    session: SparkSession | None
    record: RunRecord | None
    _opened: SparkSession | None = None
    """The session, if it is this backfill's own."""

    @property
    def _sink(self) -> ReplaceableSink:
        sink = self.request.stream.sink
        if not isinstance(sink, ReplaceableSink):  # pragma: no cover - checked when it was requested
            raise TypeError(sink.kind)
        return sink

    def execute(self, interval: RecordedInterval) -> RunRecord:
        if self.record is not None and (found := self._find_replaced(self.record)) is not None:
            self._clean_up()
            return self._close(self.record, found)
        self.observer.phase("planning the backfill")
        plan = plan_backfill(self.project, self.request)
        record = self._open_record(plan, interval)
        if plan.verdict == "skip":
            now = iso_time(self.preparation.clock())
            return msgspec.structs.replace(record, status="skipped", ended_at=now)
        self.preparation.records.save(record)
        self.record = record
        try:
            return self._run(plan)
        except BaseException as exc:
            self.preparation.close_failed(self.record, exc)
            raise
        finally:
            self._clean_up()
            if self._opened is not None:
                close_session(self._opened)

    def _run(self, plan: BackfillPlan) -> RunRecord:
        if plan.problem is not None:
            raise RefusedError(plan.problem)
        self.project.load_function(self.request.stream.transform)  # a wrong reference need not wait for Spark
        self._save(status="running", started_at=iso_time(self.preparation.clock()))
        for _ in range(_MOST_ATTEMPTS):
            if plan.publish == "metadata":
                replaced = self._replace_beside(plan)
            else:
                with self.preparation.take_lease(plan.generation, self._saved.run_id) as lease:
                    replaced = self._replace_alone(lease)
            if replaced is not None and replaced.conflict is None:
                return self._close(self._saved, replaced)
            self.observer.phase(f"starting again: {replaced.conflict if replaced else 'the rows were changed'}")
            plan = plan_backfill(self.project, self.request)
            if plan.problem is not None:
                raise RefusedError(plan.problem)
        raise BatchFailedError(
            f"the rows of the interval were changed by others {_MOST_ATTEMPTS} times while they were recomputed",
            where=self._sink.location,
            remedy="let no compaction and no other backfill of these rows run beside this one, then try again",
        )

    def _replace_beside(self, plan: BackfillPlan) -> Replaced | None:
        """Replace whole partitions by one commit of metadata; the live stream may go on meanwhile."""
        wanted = self._begin(plan)
        frame = self._result(plan, wanted.attempt)
        self.observer.phase("writing the rows aside")
        self._write(lambda: self._sink.write_aside(frame, wanted))
        self.observer.phase("publishing")
        return self._sink.publish(wanted, storage=self.preparation.home.storage)

    def _replace_alone(self, lease: Lease) -> Replaced | None:
        """Let Spark replace the rows, while the lease keeps the live stream from writing."""
        self.preparation.close_dead(lease.taken_from)
        name_writer(self.preparation, self._open_session(), lease)
        plan = plan_backfill(self.project, self.request)
        if plan.problem is not None:
            raise RefusedError(plan.problem)
        wanted = self._begin(plan)
        frame = self._result(plan, wanted.attempt)
        lease.check()
        self.observer.phase("replacing the rows")
        self._write(lambda: self._sink.replace_rows(frame, wanted))
        return self._sink.find_replacement(wanted.application, wanted.version, storage=self.preparation.home.storage)

    def _begin(self, plan: BackfillPlan) -> Replacement:
        """Note what is going to be replaced, before anything is written."""
        before = self._saved.backfill
        attempt = before.attempt + 1 if before is not None else 0
        version = plan.version or 0
        self._save(plan=plan.as_json(), backfill=BackfillRecord(attempt=attempt, version=version))
        return Replacement(
            column=self.request.stream.interval_column or "",
            interval=self.request.interval,
            version=version,
            application=_application(self._saved),
            attempt=attempt,
        )

    def _result(self, plan: BackfillPlan, attempt: int) -> DataFrame:
        stream, session = self.request.stream, self._open_session()
        if plan.watermark_ms is None:
            try:
                return build_batch(self.project, stream, session, plan.slices)
            except QueryRefusedError:
                self.observer.phase("running it as a stream: Spark does not run it as a batch")
        return run_bounded_stream(
            self.project,
            stream,
            session,
            plan.slices,
            interval=self.request.interval,
            watermark_ms=plan.watermark_ms,
            now=self._saved.planned_at,
            folder=join(self._folder, f"{self._saved.run_id}-{attempt}"),
            storage=self.preparation.home.storage,
        )

    @property
    def _folder(self) -> str:
        """Where this interval's streams have their checkpoints: one for each run and attempt."""
        return join(self.preparation.home.location, "backfills", _folder_name(self.request.interval))

    def _clean_up(self) -> None:
        """Delete the checkpoints and rows of this run's attempts."""
        storage = self.preparation.home.storage
        try:
            listed = storage.list_folder(self._folder)
            for name in listed.folders if listed is not None else ():
                if name.startswith(self._saved.run_id):
                    remove_folder(join(self._folder, name), storage=storage)
        except SluiceError:
            logger.warning("what the backfill left in %s could not be deleted", self._folder, exc_info=True)

    def _write(self, write: Any) -> None:
        try:
            write()
        except SluiceError:
            raise
        except Exception as exc:
            raise BatchFailedError(
                f"Spark failed: {spark_message(exc)}",
                where=f"stream `{self.request.stream.name}`",
                remedy="mend the cause (the driver's log has all of it); nothing was replaced",
            ) from exc

    def _open_session(self) -> SparkSession:
        if self.session is None:
            self.observer.phase("starting Spark")
            self.session = self._opened = open_session(self.project, self.request.stream)
            check_home(self.preparation, self.session, self._saved)
        return self.session

    def _find_replaced(self, record: RunRecord) -> Replaced | None:
        """What a former try has replaced before it died, if that is right as it is."""
        if record.backfill is None:
            return None
        storage = self.preparation.home.storage
        found = self._sink.find_replacement(_application(record), record.backfill.version, storage=storage)
        return found if found is not None and found.conflict is None else None

    def _open_record(self, plan: BackfillPlan, interval: RecordedInterval) -> RunRecord:
        record = self.preparation.home.generation(plan.generation)
        if self.record is not None:
            return msgspec.structs.replace(
                self.record,
                generation=plan.generation,
                plan=plan.as_json(),
                status="planned",
                tries=self.record.tries + 1,
                ended_at=None,
                error=None,
            )
        now = self.preparation.now
        return RunRecord(
            run_id=new_run_id(now, self.request.run_key),
            stream=plan.stream,
            generation=plan.generation,
            query_id=record.query_id if record else None,
            run_key=self.request.run_key,
            planned_at=now,
            plan=plan.as_json(),
            status="planned",
            interval=interval,
        )

    @property
    def _saved(self) -> RunRecord:
        if self.record is None:  # pragma: no cover - saved before anything starts
            raise TypeError
        return self.record

    def _save(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self._saved, **changes)
        self.preparation.records.save(self.record)

    def _close(self, record: RunRecord, found: Replaced) -> RunRecord:
        done = BackfillRecord(
            attempt=found.attempt,
            version=found.read_version,
            sink_version=found.version,
            rows_replaced=found.rows_replaced,
            rows_written=found.rows_written,
        )
        return self.preparation.close(msgspec.structs.replace(record, backfill=done, error=None), "succeeded")


def _application(record: RunRecord) -> str:
    """What names a backfill in the sink's log, and its files below the sink's folder."""
    return f"sluice-backfill-{record.run_id}"


def _folder_name(interval: Interval) -> str:
    """`20130101T000000Z--20130201T000000Z`."""
    times = (iso_time(moment).replace("-", "").replace(":", "")[:15] + "Z" for moment in (interval.start, interval.end))
    return "--".join(times)
