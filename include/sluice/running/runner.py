"""Runs a stream: lease, plan, record, then batch by batch exactly what was planned.

A kill at any point leaves a state that the next run's plan explains and finishes: a batch is written into the offset
log before it runs, Spark runs it again as logged, and the sink skips what it holds already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import msgspec

from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.checkpoint.writer import write_metadata
from sluice.errors import BatchFailedError, Problem, RefusedError, SluiceError
from sluice.home import Generation, StreamHome, log_keys
from sluice.times import iso_time
from sluice.planning.plan import Plan, PlannedBatch
from sluice.planning.planner import Limits, build_plan
from sluice.planning.survey import Survey, survey
from sluice.project import Project
from sluice.running.batches import BatchRunner
from sluice.running.lease import Clock, Lease, acquire
from sluice.running.query import Query, build_query
from sluice.running.record import BatchRecord, RunRecord, RunRecords, new_run_id
from sluice.running.session import choose_shuffle_partitions, jvm_pid, open_session
from sluice.stream import Bound, Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_ORDER_UNKNOWN = "SOURCE_ORDER_UNKNOWN"
"""The one refusal that a run mends itself: the query tells the order."""


class Observer(Protocol):
    """Is told how a run goes on."""

    def planned(self, plan: Plan) -> None:
        """The plan is made, nothing has started."""

    def phase(self, text: str) -> None:
        """Something that takes a while begins."""

    def committed(self, batch: BatchRecord) -> None:
        """A batch is done."""


class Silent:
    """An observer that keeps quiet."""

    def planned(self, plan: Plan) -> None:
        """Nothing to say."""

    def phase(self, text: str) -> None:
        """Nothing to say."""

    def committed(self, batch: BatchRecord) -> None:
        """Nothing to say."""


@dataclass(frozen=True)
class Request:
    """What somebody wants to be run."""

    stream: Stream
    limits: Limits = Limits()
    run_key: str | None = None
    """Names the run for its retries: they keep the bound and the clock of the first try, and finish what it began."""


def plan_stream(project: Project, request: Request, now: datetime | None = None) -> Plan:
    """Plan a run without a JVM, and change nothing.

    Raises:
        SluiceError: See `survey` and `build_plan`.
    """
    home = project.stream_home(request.stream)
    request, now = _frozen(request, RunRecords(home), now or datetime.now(UTC))
    return build_plan(survey(request.stream, home, request.limits.bound, now), request.limits, now)


def run_stream(
    project: Project,
    request: Request,
    *,
    observer: Observer | None = None,
    stop: threading.Event | None = None,
    session: SparkSession | None = None,
    clock: Clock = lambda: datetime.now(UTC),
) -> RunRecord:
    """Run a stream up to its bound.

    Args:
        project: The project of the stream.
        request: What to run.
        observer: Is told how the run goes on.
        stop: Set from elsewhere, it ends the run between two batches.
        session: A Spark session to use in place of one that the project's settings describe.
        clock: Tells the time.

    Returns:
        The run record, with status `succeeded`, `skipped` or `stopped`. A skip is noted and leaves no record file.

    Raises:
        RefusedError: What is on disk does not allow going on.
        LeaseHeldError: Another run holds the lease.
        RunError: The run failed; its record says how.
        DeclarationError: A declaration is wrong.
    """
    return _Run.of(project, request, observer, stop, clock, session).execute(request)


def settle_without_spark(
    project: Project, request: Request, *, clock: Clock = lambda: datetime.now(UTC)
) -> RunRecord | None:
    """Finish a run that needs no Spark: one that has nothing to do, was done by a former try, or must be refused.

    Returns:
        The run record; None when Spark is needed, and nothing was changed.

    Raises:
        RefusedError: What is on disk does not allow going on; the record says so.
        SluiceError: See `plan_stream`.
    """
    return _Run.of(project, request, None, None, clock, None).settle(request)[0]


@dataclass
class _Run:
    project: Project
    home: StreamHome
    records: RunRecords
    observer: Observer
    stop: threading.Event
    clock: Clock
    session: SparkSession | None

    @classmethod
    def of(
        cls,
        project: Project,
        request: Request,
        observer: Observer | None,
        stop: threading.Event | None,
        clock: Clock,
        session: SparkSession | None,
    ) -> _Run:
        home = project.stream_home(request.stream)
        return cls(project, home, RunRecords(home), observer or Silent(), stop or threading.Event(), clock, session)

    def settle(self, request: Request) -> tuple[RunRecord | None, RunRecord]:
        """The record of a run that is done without Spark, if so; and the record that a run with Spark begins with."""
        former = self.records.find(request.run_key) if request.run_key else None
        if former is not None and former.status == "succeeded":
            return former, former
        request, now = _frozen(request, self.records, self.clock())
        plan = self._plan(request, now)[1]
        record = self._new_record(request, plan, former, now)
        if plan.verdict == "skip":
            return self._skip(record, plan, former, now), record
        if plan.problem is not None and plan.problem.code != _ORDER_UNKNOWN:
            raise self._refuse(record, plan.problem)
        return None, record

    def execute(self, request: Request) -> RunRecord:
        settled, record = self.settle(request)
        if settled is not None:
            return settled
        former = record if record.tries > 1 else None
        request, now = _frozen(request, self.records, record.planned_at)
        lease = acquire(
            self.home.storage,
            self.home.lease_folder(record.generation),
            run_id=record.run_id,
            sink_is_idempotent=request.stream.sink.is_idempotent,
            clock=self.clock,
        )
        with lease:
            # What was seen before the lease may have been another run's work in progress.
            seen, plan = self._plan(request, now)
            record = msgspec.structs.replace(record, plan=plan.as_json(), token=lease.token)
            if plan.verdict == "skip":
                return self._skip(record, plan, former, now)
            if plan.problem is not None and plan.problem.code != _ORDER_UNKNOWN:
                raise self._refuse(record, plan.problem)
            self.records.save(record)
            self.home.forget_skips()
            return self._run_under_lease(request, seen, plan, record, lease, now)

    def _plan(self, request: Request, now: datetime) -> tuple[Survey, Plan]:
        seen = survey(request.stream, self.home, request.limits.bound, now)
        return seen, build_plan(seen, request.limits, now)

    def _run_under_lease(
        self, request: Request, seen: Survey, plan: Plan, record: RunRecord, lease: Lease, now: datetime
    ) -> RunRecord:
        record = msgspec.structs.replace(record, status="running", started_at=iso_time(self.clock()))
        self.records.save(record)
        try:
            self.observer.phase("starting Spark")
            session = self.session or open_session(self.project, request.stream)
            if (pid := jvm_pid(session)) is not None:
                lease.add_process(pid)
            if seen.checkpoint.is_new:
                planned_bytes = max((_size(batch) for batch in plan.batches), default=0)
                choose_shuffle_partitions(session, self.project.spark_conf, planned_bytes)
            self.observer.phase("analysing the query")
            started_at = seen.record.sources if seen.record else plan.started_at
            query = build_query(self.project, request.stream, session, started_at)
            generation = self._generation(seen, query, started_at)
            if seen.lines is None:
                # Only now is the order of the sources known, and with it what a plan can be made of.
                seen, plan = self._plan(request, now)
            if plan.problem is not None:
                raise RefusedError(plan.problem)
            record = msgspec.structs.replace(record, query_id=generation.query_id, plan=plan.as_json())
            self.records.save(record)
            self.observer.planned(plan)
            record = self._run_batches(query, generation, plan, record, lease)
        except BaseException as exc:
            self._close_failed(record, exc)
            raise
        return record

    def _run_batches(
        self, query: Query, generation: Generation, plan: Plan, record: RunRecord, lease: Lease
    ) -> RunRecord:
        checkpoint = self.home.checkpoint_location(generation.generation)
        write_metadata(checkpoint, generation.query_id, storage=self.home.storage)
        state = read_checkpoint(checkpoint, storage=self.home.storage, log_keys=log_keys(generation))
        runner = BatchRunner(query, generation, self.home.storage, lease, self.stop, state)
        for done in runner.run(plan):
            generation = self._keep_sink_identity(query.stream, generation)
            record = msgspec.structs.replace(record, batches=(*record.batches, done))
            self.records.save(record)
            self.observer.committed(done)
        return self._close(record, "stopped" if self.stop.is_set() and not runner.is_complete else "succeeded")

    def _generation(
        self, seen: Survey, query: Query, started_at: Mapping[str, Mapping[str, Any]]
    ) -> Generation:
        """What is known of the generation; written on its first run, compared on every later one.

        Raises:
            RefusedError: Spark numbers the sources otherwise than it did.
        """
        if seen.record is None:
            generation = Generation(
                generation=seen.generation,
                query_id=seen.checkpoint.query_id or str(uuid4()),
                created_at=iso_time(self.clock()),
                lines=query.lines,
                has_timers=query.has_timers,
                sources={name: dict(found) for name, found in started_at.items()},
            )
            self.home.keep_generation(generation)
            return generation
        if seen.record.lines != query.lines:
            was = ", ".join(line.source for line in seen.record.lines)
            now = ", ".join(line.source for line in query.lines)
            raise RefusedError(
                Problem(
                    code="SOURCE_ORDER_CHANGED",
                    file=seen.checkpoint.location,
                    cause=f"the query reads its sources as ({now}), the checkpoint was made with ({was})",
                    consequence="Spark would take the offsets of one source for those of another",
                    remedy="restore the order in the transform (of unions and joins), or start a new generation",
                )
            )
        if seen.record.has_timers != query.has_timers:
            generation = msgspec.structs.replace(seen.record, has_timers=query.has_timers)
            self.home.keep_generation(generation)
            return generation
        return seen.record

    def _keep_sink_identity(self, stream: Stream, generation: Generation) -> Generation:
        if generation.sink_identity is not None:
            return generation
        identity = stream.sink.state(None, storage=self.home.storage).identity
        if identity is not None:
            generation = msgspec.structs.replace(generation, sink_identity=identity)
            self.home.keep_generation(generation)
        return generation

    def _new_record(self, request: Request, plan: Plan, former: RunRecord | None, now: datetime) -> RunRecord:
        if former is not None:
            return msgspec.structs.replace(
                former, plan=plan.as_json(), status="planned", tries=former.tries + 1, ended_at=None, error=None
            )
        return RunRecord(
            run_id=new_run_id(now, request.run_key),
            stream=request.stream.name,
            generation=plan.generation,
            run_key=request.run_key,
            planned_at=now,
            until=request.limits.bound.until,
            to_version=request.limits.bound.to_version,
            max_batches=request.limits.max_batches,
            plan=plan.as_json(),
            status="planned",
        )

    def _skip(self, record: RunRecord, plan: Plan, former: RunRecord | None, now: datetime) -> RunRecord:
        if former is not None:
            # The former try did all of its work before it died.
            return self._close(former, "succeeded")
        self.home.keep_skip(plan.reason, now)
        return msgspec.structs.replace(record, status="skipped", ended_at=iso_time(self.clock()))

    def _refuse(self, record: RunRecord, problem: Problem) -> RefusedError:
        refused = RefusedError(problem)
        self._close_failed(record, refused)
        return refused

    def _close(self, record: RunRecord, status: Any) -> RunRecord:
        record = msgspec.structs.replace(record, status=status, ended_at=iso_time(self.clock()))
        self.records.save(record)
        return record

    def _close_failed(self, record: RunRecord, exc: BaseException) -> None:
        error = {
            "type": type(exc).__name__,
            "message": str(exc),
            "retryable": exc.retryable if isinstance(exc, SluiceError) else False,
        }
        if isinstance(exc, SluiceError):
            exc.run_id = record.run_id
        latest = self.records.read(record.run_id) or record
        status = "refused" if isinstance(exc, RefusedError) else "failed"
        closed = msgspec.structs.replace(latest, status=status, error=error, ended_at=iso_time(self.clock()))
        try:
            self.records.save(closed)
        except SluiceError:
            # The first error is the one that matters, and it is raised.
            logger.warning("the run record could not be closed", exc_info=True)


def _frozen(request: Request, records: RunRecords, now: datetime) -> tuple[Request, datetime]:
    """A retry keeps the bound and the clock of the first try; without a bound, the first try's clock is one."""
    former = records.find(request.run_key) if request.run_key else None
    if former is None:
        return request, now
    bound = Bound(until=former.until or former.planned_at, to_version=former.to_version)
    limits = replace(request.limits, bound=bound, max_batches=former.max_batches)
    return replace(request, limits=limits), former.planned_at


def _size(batch: PlannedBatch) -> int:
    return sum(source.size_bytes or 0 for source in batch.sources.values())
