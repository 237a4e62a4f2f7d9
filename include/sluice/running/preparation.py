"""What a run does before Spark: finds its former try, plans, and settles what needs no Spark. Starts no JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from sluice.errors import LeaseLostError, Problem, RefusedError, SluiceError
from sluice.home import StreamHome
from sluice.planning.plan import Plan
from sluice.planning.planner import Limits, build_plan
from sluice.planning.survey import Survey, survey
from sluice.project import Project
from sluice.running.record import RunRecord, RunRecords, Status, new_run_id
from sluice.stream import Bound, Stream
from sluice.times import iso_time

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]

_ORDER_UNKNOWN = "SOURCE_ORDER_UNKNOWN"
"""The one refusal that a run mends itself: the query tells the order."""


def system_clock() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Request:
    """What somebody wants to be run."""

    stream: Stream
    limits: Limits = Limits()
    run_key: str | None = None
    """Names the run for its retries: they keep the bound and the clock of the first try, and finish what it began."""


def plan_stream(project: Project, request: Request, *, clock: Clock = system_clock) -> Plan:
    """Plan a run without a JVM, and change nothing.

    Raises:
        SluiceError: See `survey` and `build_plan`.
    """
    preparation = Preparation.of(project, request, clock)
    return preparation.look()[1]


def settle_without_spark(project: Project, request: Request, *, clock: Clock = system_clock) -> RunRecord | None:
    """Finish a run that needs no Spark: one that has nothing to do, was done by a former try, or must be refused.

    Returns:
        The run record; None when Spark is needed, and nothing was changed.

    Raises:
        RefusedError: What is on disk does not allow going on; the record says so.
        SluiceError: See `plan_stream`.
    """
    preparation = Preparation.of(project, request, clock)
    return preparation.done() or preparation.settle(preparation.look()[1])


@dataclass(frozen=True)
class Preparation:
    """One run on its way to Spark."""

    project: Project
    request: Request
    home: StreamHome
    records: RunRecords
    clock: Clock
    former: RunRecord | None
    """The record of the former try, where there was one."""
    now: datetime
    """The clock of the plan: the first try's."""

    @classmethod
    def of(cls, project: Project, request: Request, clock: Clock) -> Preparation:
        """Prepare a run. A retry keeps the bound and the clock of the first try."""
        home = project.stream_home(request.stream)
        records = RunRecords(home)
        former = records.find(request.run_key) if request.run_key else None
        if former is None:
            return cls(project, request, home, records, clock, None, clock())
        # Without a bound of its own, the first try took what was there at its time.
        bound = Bound(until=former.until or former.planned_at, to_version=former.to_version)
        done = sum(batch.kind == "data" for batch in former.batches)
        most = None if former.max_batches is None else max(0, former.max_batches - done)
        limits = replace(request.limits, bound=bound, max_batches=most)
        return cls(project, replace(request, limits=limits), home, records, clock, former, former.planned_at)

    def done(self) -> RunRecord | None:
        """The record of a former try that succeeded: a retry of it has nothing to do."""
        return self.former if self.former is not None and self.former.status == "succeeded" else None

    def look(self) -> tuple[Survey, Plan]:
        """Look at everything, and plan."""
        seen = survey(self.request.stream, self.home, self.request.limits.bound, self.now)
        return seen, build_plan(seen, self.request.limits, self.now)

    def settle(self, plan: Plan) -> RunRecord | None:
        """End the run here if its plan needs no Spark.

        Raises:
            RefusedError: The plan is to refuse; the record says so.
        """
        if plan.verdict == "skip":
            return self._skip(plan)
        if plan.problem is not None and plan.problem.code != _ORDER_UNKNOWN:
            raise self._refuse(plan, plan.problem)
        return None

    def open_record(self, plan: Plan) -> RunRecord:
        """The record that a run begins with, not saved yet."""
        if self.former is not None:
            return msgspec.structs.replace(
                self.former,
                plan=plan.as_json(),
                status="planned",
                tries=self.former.tries + 1,
                ended_at=None,
                error=None,
            )
        limits = self.request.limits
        return RunRecord(
            run_id=new_run_id(self.now, self.request.run_key),
            stream=self.request.stream.name,
            generation=plan.generation,
            run_key=self.request.run_key,
            planned_at=self.now,
            until=limits.bound.until,
            to_version=limits.bound.to_version,
            max_batches=limits.max_batches,
            plan=plan.as_json(),
            status="planned",
        )

    def close(self, record: RunRecord, status: Status) -> RunRecord:
        """Save a record as ended."""
        record = msgspec.structs.replace(record, status=status, ended_at=iso_time(self.clock()))
        self.records.save(record)
        return record

    def close_failed(self, record: RunRecord, exc: BaseException) -> None:
        """Save a record as failed or refused, with the error; never raises."""
        if isinstance(exc, SluiceError):
            exc.run_id = record.run_id
        error = {
            "type": type(exc).__name__,
            "message": str(exc),
            "retryable": exc.retryable if isinstance(exc, SluiceError) else False,
        }
        closed = msgspec.structs.replace(
            record,
            status="refused" if isinstance(exc, RefusedError) else "failed",
            error=error,
            ended_at=iso_time(self.clock()),
        )
        try:
            self.records.save(closed)
        except SluiceError:
            # The first error is the one that matters, and it is raised.
            logger.warning("the run record could not be closed", exc_info=True)

    def close_dead(self, run_id: str | None) -> None:
        """Close the record of a run whose driver died without a word; this run's own former try is left open."""
        record = self.records.read(run_id) if run_id is not None else None
        if record is None or record.status not in {"planned", "running"}:
            return
        if self.former is None or self.former.run_id != run_id:
            self.close_failed(record, LeaseLostError("the driver died without a word", remedy="a later run goes on"))

    def _skip(self, plan: Plan) -> RunRecord:
        if self.former is not None:
            # The former try did all of its work before it died.
            return self.close(self.former, "succeeded")
        self.home.keep_skip(plan.reason, self.now, plan.started_at)
        return msgspec.structs.replace(self.open_record(plan), status="skipped", ended_at=iso_time(self.clock()))

    def _refuse(self, plan: Plan, problem: Problem) -> RefusedError:
        refused = RefusedError(problem)
        self.close_failed(self.open_record(plan), refused)
        return refused
