"""What a run does before Spark: finds its former try, plans, and settles what needs no Spark. Starts no JVM."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import OffsetFile, read_commit_file, read_offset_file
from sluice.errors import ContractError, HeldError, LeaseHeldError, LeaseLostError, Problem, RefusedError, SluiceError
from sluice.home import StreamHome
from sluice.planning.own_output import check_own_output
from sluice.planning.plan import BatchKind, Plan
from sluice.planning.planner import Limits, build_plan
from sluice.planning.shared_sinks import shared_sink
from sluice.planning.survey import Survey, survey
from sluice.planning.transform_text import check_functions
from sluice.project import Project
from sluice.quality.declared_suite import declared_suite
from sluice.redaction import redacted
from sluice.running.auditing.audit_record import QUALITY_METRICS
from sluice.running.auditing.contracts import broken_contracts
from sluice.running.auditing.gate_choice import choose_gate
from sluice.running.auditing.gate_state import keep_record, read_audit, read_gate, with_stop
from sluice.running.auditing.held import Unsettled, earlier_batches, find_unsettled, gated, settle
from sluice.running.auditing.staged_batch import Decision, read_decision
from sluice.running.connect_session import RemoteSession, end_remote
from sluice.running.fenced_storage import FencedStorage
from sluice.running.lease import Clock, Lease, acquire, check_not_held, newest_token
from sluice.running.record import BatchRecord, RunRecord, RunRecords, new_run_id
from sluice.running.session import is_remote
from sluice.running.summary import Status
from sluice.storage import join
from sluice.stream import Bound, Stream
from sluice.times import iso_millis, iso_time

logger = logging.getLogger(__name__)

_ORDER_UNKNOWN = "SOURCE_ORDER_UNKNOWN"
"""The one refusal that a run mends itself: the query tells the order."""
_HOME_MISSING = "HOME_MISSING"
"""The one refusal that must leave no record: that would make the folder of the home, as if all were well."""
_REFUSALS = {"HELD_BY_QUALITY": HeldError, "CONTRACT_BROKEN": ContractError}


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


def prepare_run(project: Project, request: Request, *, clock: Clock = system_clock) -> RunRecord:
    """Plan a run, and finish it here if it needs no Spark: nothing to do, done by a former try, or to be refused.

    Args:
        project: The project of the stream.
        request: What is to be run, with a run key: the driver finds the record by it.
        clock: Tells the time.

    Returns:
        The run record. Its status is `planned`, and it is on disk, when Spark is needed; else `succeeded` or `skipped`.

    Raises:
        RefusedError: What is on disk does not allow going on; the record says so.
        LeaseHeldError: A run of the stream is at work, and what is on disk is work in progress.
        SluiceError: See `plan_stream`.
    """
    preparation = Preparation.of(project, request, clock)
    if (done := preparation.done()) is not None:
        return done
    preparation.check_not_held()
    seen, plan = preparation.look()
    return preparation.settle(seen, plan) or preparation.keep_planned(
        preparation.open_record(seen, plan), preparation.former
    )


def refusal(problem: Problem) -> RefusedError:
    """The error of a plan that refuses."""
    return _REFUSALS.get(problem.code, RefusedError)(problem)


def first_bound(former: RunRecord) -> Bound:
    """How far a run was to go, for whoever does it again."""
    # Without a bound of its own, the first try took what was there at its time; what Spark decides has none.
    was_drained = former.planned().strategy == "drain"
    until = former.until or (None if was_drained else former.planned_at)
    return Bound(until=until, to_version=former.to_version)


def going_on(plan: Plan, seen: Survey, project: Project, home: StreamHome) -> Plan:
    """A plan that goes on with a batch, by what that one was begun with; any other as it is.

    Raises:
        RefusedError: What was decided of the batch is damaged.
    """
    if plan.verdict != "resume" or seen.record is None or seen.checkpoint.planned_id is None:
        return plan
    pending, place = seen.checkpoint.planned_id, seen.stream.sink.location or ""
    sink = project.place(place)
    then = seen.record.declared_at(pending).get("sink", sink)
    if then != sink and seen.record.sink_identity is None:
        problem = Problem(
            code="SINK_MOVED",
            file=place,
            cause=f"batch {pending} was begun with a sink at {then or 'another place'}, which may have it already",
            consequence="its rows could be in both places",
            remedy=f"declare the sink at {then or 'its former place'}, run the stream once, and move it then",
        )
        return replace(plan, verdict="refuse", reason=problem.cause, problem=problem, batches=())
    decided = _decision(plan, home)
    if decided is None:
        return plan
    how = f"batch {pending} was decided by run {decided.run_id}, and is finished as it was then"
    return replace(plan, reason="; ".join(filter(None, (plan.reason, how))))


def _decision(plan: Plan, home: StreamHome) -> Decision | None:
    first = next(iter(plan.batches), None)
    if first is None or first.kind != "uncommitted":
        return None
    return read_decision(home, plan.generation, first.batch_id)


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
        limits = replace(request.limits, bound=first_bound(former), max_batches=former.max_batches)
        return cls(project, replace(request, limits=limits), home, records, clock, former, former.planned_at)

    def done(self) -> RunRecord | None:
        """The record of a former try that succeeded: a retry of it has nothing to do."""
        return self.former if self.former is not None and self.former.status == "succeeded" else None

    def look(self) -> tuple[Survey, Plan]:
        """Look at everything, and plan."""
        project, stream = self.project, self.request.stream
        check_functions(project, stream)
        check_own_output(stream, project.home)
        shared = shared_sink(stream, project.streams())
        seen = survey(stream, self.home, self.request.limits.bound, self.now)
        limits = self.request.limits
        if limits.max_batches is not None:
            limits = replace(limits, max_batches=max(0, limits.max_batches - self._used(seen)))
        plan = gated(build_plan(seen, limits, self.now), self.unsettled(seen), self.former)
        if seen.sink.exists and plan.verdict != "refuse":
            stream.sink.check_table(stream.output_mode, place=stream.place, storage=self.home.storage)
        if shared is not None:
            plan = replace(plan, warnings=(*plan.warnings, shared))
        return seen, self._with_gate_choice(going_on(plan, seen, project, self.home))

    def unsettled(self, seen: Survey) -> Unsettled | None:
        """The former run whose rows the gate has not passed; None when there is none."""
        project, stream = self.project, self.request.stream
        if stream.quality is None:
            return None
        return find_unsettled(project, stream, self.home, lambda former: self._done_batches(former, seen))

    def done_by(self, run_ids: Iterable[str], seen: Survey) -> tuple[BatchRecord, ...]:
        """The batches that former runs have committed, also those that their drivers did not live to record."""
        gate = read_gate(self.home)
        if gate is None:
            return ()
        return earlier_batches(self.home, gate, run_ids, lambda former: self._done_batches(former, seen))

    def decision(self, plan: Plan) -> Decision | None:
        """What a driver that died had decided of the batch that is to be resumed; None when nothing.

        Raises:
            RefusedError: Its file is damaged.
        """
        return _decision(plan, self.home)

    def _with_gate_choice(self, plan: Plan) -> Plan:
        stream, storage = self.request.stream, self.home.storage
        if plan.verdict not in {"run", "resume"} or stream.quality is None:
            return plan
        suite = declared_suite(self.project, stream, storage=storage)
        if suite is None:
            return plan
        chosen = choose_gate(self.project, stream, suite, plan.batches, storage=storage)
        decided = self.decision(plan)
        if decided is not None:
            chosen = replace(chosen, gate="cache", measured="pass", reason=f"batch {decided.batch_id} is split already")
        broken = tuple(broken_contracts(stream, suite, plan.batches, storage=storage))
        blocking = next((problem for problem in broken if problem.is_blocking), None)
        if blocking is not None:
            return replace(plan, verdict="refuse", reason="a source breaks its contract", problem=blocking, batches=())
        plan = with_stop(plan, read_gate(self.home))
        return replace(plan, quality=chosen, warnings=(*plan.warnings, *broken))

    def settle(self, seen: Survey, plan: Plan, *, holds_lease: bool = False) -> RunRecord | None:
        """End the run here if its plan needs no Spark.

        Args:
            seen: What the plan was made from.
            plan: The plan.
            holds_lease: Whether this run holds the lease; without it, a former try may still be at work.

        Raises:
            RefusedError: The plan is to refuse; the record says so.
            LeaseHeldError: The former try is still at work.
        """
        if plan.problem is None:
            self._settle_starts(seen)
        if holds_lease or plan.verdict in {"skip", "refuse"}:
            self._settle_former(seen, plan, holds_lease=holds_lease)
        if plan.verdict == "skip" and self.former is not None and self.former.tries > 0:
            return self._finish(self.former, seen, holds_lease=holds_lease)
        if plan.verdict == "skip":
            bound = self.request.limits.bound
            until = None if bound.to_version is not None else bound.until or self.now
            self.home.keep_skip(plan.reason, self.now, until=until)
            skipped = self.open_record(seen, plan)
            if self.former is not None:
                # Planned, and then done by another run before it began.
                self.records.forget(skipped.run_id)
            return msgspec.structs.replace(skipped, status="skipped", ended_at=iso_time(self.clock()))
        if plan.problem is not None and plan.problem.code != _ORDER_UNKNOWN:
            refused = refusal(plan.problem)
            if plan.problem.code != _HOME_MISSING:
                self.close_failed(self.open_record(seen, plan), refused)
            raise refused
        return None

    def _settle_starts(self, seen: Survey) -> None:
        """Write down where the sources begin: what comes from now on is not passed over, whatever this run does."""
        before = seen.record.sources if seen.record is not None else {}
        if seen.starts != {**before, **self.home.started(seen.generation)}:
            self.home.keep_started(seen.generation, seen.starts)

    def _settle_former(self, seen: Survey, plan: Plan, *, holds_lease: bool) -> None:
        """Write down what the suite says today of a former run's rows, while nobody else writes any."""
        unsettled = self.unsettled(seen)
        if unsettled is None or unsettled.judged is None:
            return
        if holds_lease:
            settle(self.home, unsettled)
            return
        try:
            with self.take_lease(unsettled.gate.generation, unsettled.record.run_id) as lease:
                own = self.under(lease)
                own.close_dead(lease)
                # What was seen before the lease may have been the run at its work.
                own._settle_former(own.look()[0], plan, holds_lease=True)  # noqa: SLF001 - of its own class
        except LeaseHeldError:
            # A run is at work, and judges its rows itself; there is nothing to do beside it.
            if plan.verdict != "skip":
                raise

    def keep_planned(self, record: RunRecord, former: RunRecord | None) -> RunRecord:
        """Save the record of a run that is to begin elsewhere: it has been tried as often as before.

        A driver of a former try that is stopped somewhere, and wakes up, must not write it any more.
        """
        folder = self.records.lease_folder(record)
        token = None if former is None else (newest_token(self.home.storage, folder) or 0) + 1
        planned = msgspec.structs.replace(record, tries=former.tries if former is not None else 0, token=token)
        self.records.save(planned)
        return planned

    def take_lease(self, generation: int, run_id: str) -> Lease:
        """Take the lease of a generation.

        Raises:
            LeaseHeldError: Another run holds it.
        """
        return self.acquire(self.home.lease_folder(generation), run_id, self.former)

    def check_not_held(self) -> None:
        """Make sure that no other run is at work.

        Raises:
            LeaseHeldError: One is.
        """
        folder = self.home.lease_folder(self.home.current_generation())
        check_not_held(self.home.storage, folder, self.clock())

    def acquire(self, folder: str, run_id: str, former: RunRecord | None) -> Lease:
        """Take the newest lease in a folder of leases, for a run whose record may be kept since it was planned.

        Raises:
            LeaseHeldError: Another run holds it; the kept record says so.
        """
        try:
            return acquire(
                self.home.storage,
                folder,
                run_id=run_id,
                sink_is_idempotent=self.request.stream.sink.is_idempotent,
                clock=self.clock,
                end_session=self._end_session,
            )
        except LeaseHeldError as exc:
            if former is not None and former.status == "planned":
                # Whoever planned it follows the record, and would take the driver's end for its death.
                self.close_failed(former, exc)
            raise

    def _end_session(self, remote: RemoteSession) -> bool:
        return is_remote(self.project) and end_remote(self.project.spark_master, remote)

    def open_record(self, seen: Survey, plan: Plan) -> RunRecord:
        """The record that a run begins with, not saved yet."""
        if self.former is not None:
            return msgspec.structs.replace(
                self.former,
                plan=plan.as_json(),
                batches=self._done_batches(self.former, seen),
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
            "message": redacted(str(exc)) or "ended by a signal",
            # What nobody foresaw is as likely to pass as not, and a retry loses nothing.
            "retryable": exc.retryable if isinstance(exc, SluiceError) else True,
        }
        closed = msgspec.structs.replace(
            record,
            status="refused" if isinstance(exc, RefusedError) else "failed",
            error=error,
            ended_at=iso_time(self.clock()),
        )
        try:
            self.records.save(closed)
            keep_record(self.home, closed)
        except SluiceError:
            # The first error is the one that matters, and it is raised.
            logger.warning("the run record could not be closed", exc_info=True)

    def under(self, lease: Lease) -> Preparation:
        """The same for the holder of a lease: once another run has it, nothing is written to the home any more.

        But for the run's own record, which says so; that one is fenced by its token.
        """
        return replace(self, home=replace(self.home, storage=FencedStorage(self.home.storage, lease)))

    def close_dead(self, lease: Lease) -> None:
        """Close the record of the run that died with a lease; this run's own former try is left open.

        If it lives in spite of all, it can't write that record any more.
        """
        run_id = lease.taken_from
        record = self.records.read(run_id) if run_id is not None else None
        if record is None or record.status not in {"planned", "running"}:
            return
        if self.former is None or self.former.run_id != run_id:
            if lease.folder == self.records.lease_folder(record):
                record = msgspec.structs.replace(record, token=lease.token)
            self.close_failed(record, LeaseLostError("the driver died without a word", remedy="a later run goes on"))

    def _finish(self, former: RunRecord, seen: Survey, *, holds_lease: bool) -> RunRecord:
        """Close the record of a former try that did all of its work before it died."""
        if not holds_lease and former.status in {"planned", "running"}:
            with self.take_lease(seen.generation, former.run_id) as lease:
                return self.under(lease)._finish(former, seen, holds_lease=True)  # noqa: SLF001 - of its own class
        # The gate may have judged it anew meanwhile.
        former = self.records.read(former.run_id) or former
        done = msgspec.structs.replace(former, batches=self._done_batches(former, seen), error=None, passed_later=False)
        return self.close(done, "succeeded")

    def _used(self, seen: Survey) -> int:
        """How many data batches the former tries have planned for good: those that are in the offset log."""
        if self.former is None:
            return 0
        recorded = {batch.batch_id for batch in self.former.batches if batch.kind == "data"}
        logged = {batch_id for batch_id, kind in self._own(self.former, seen).items() if kind == "data"}
        return len(recorded | logged)

    def _done_batches(self, former: RunRecord, seen: Survey) -> tuple[BatchRecord, ...]:
        """What the former tries did, with the batches whose commit their driver did not live to record."""
        committed_id = -1 if seen.checkpoint.committed_id is None else seen.checkpoint.committed_id
        recorded = {batch.batch_id for batch in former.batches}
        planned = {batch.batch_id: batch.kind for batch in former.planned().batches}
        resumed = {batch_id: kind for batch_id, kind in planned.items() if kind == "uncommitted"}
        lost = [
            self._recovered(batch_id, kind, former)
            for batch_id, kind in (self._own(former, seen) | resumed).items()
            if batch_id <= committed_id and batch_id not in recorded
        ]
        return tuple(sorted((*former.batches, *lost), key=lambda batch: batch.batch_id))

    def _own(self, former: RunRecord, seen: Survey) -> dict[int, BatchKind]:
        """The batches in the offset log that the former tries planned, by id.

        They bear the run's clock, or the one that the plan gave them because it was ahead of the run's.
        """
        clocks = {batch.batch_id: batch.timestamp for batch in former.planned().batches if batch.kind == "data"}
        location = join(seen.checkpoint.location, "offsets")
        offsets = list_log(location, storage=self.home.storage)
        own: dict[int, BatchKind] = {}
        before: OffsetFile | None = None
        for batch_id in offsets.ids if offsets is not None else ():
            logged = read_offset_file(join(location, str(batch_id)), batch_id, storage=self.home.storage)
            if logged is not None and iso_millis(logged.timestamp_ms) in {
                iso_time(former.planned_at),
                clocks.get(batch_id),
            }:
                is_empty = before is not None and before.offsets == logged.offsets
                own[batch_id] = "no_data" if is_empty else "data"
            before = logged
        return own

    def _recovered(self, batch_id: int, kind: str, former: RunRecord) -> BatchRecord:
        """What the commit log and the sink know of a batch; its measures died with the driver."""
        checkpoint = self.home.checkpoint_location(former.generation)
        committed = read_commit_file(join(checkpoint, "commits", str(batch_id)), batch_id, storage=self.home.storage)
        sink = self.request.stream.sink
        outcome = sink.outcome(former.query_id or "", batch_id, storage=self.home.storage)
        audit = read_audit(self.home, former.generation, batch_id)
        return BatchRecord(
            batch_id=batch_id,
            kind=kind,
            input_rows=None,
            output_rows=outcome.output_rows if outcome else None,
            watermark=iso_millis(committed.next_watermark_ms) if committed and committed.next_watermark_ms else None,
            observed={} if audit is None else {QUALITY_METRICS: audit.values},
            sink_version=outcome.version if outcome else None,
        )
