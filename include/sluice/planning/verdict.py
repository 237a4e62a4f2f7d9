"""What a run would do: the one maker of verdicts, whoever asks. Reads only, starts no JVM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sluice.errors import LeaseTakenError, Problem
from sluice.gate.contracts import broken_contracts
from sluice.gate.decided_batch import Decision, Division, read_decision, read_staged
from sluice.gate.judging import choose_judging
from sluice.gate.state import read_gate, with_stop
from sluice.gate.unjudged_runs import Unjudged, find_unjudged, gated
from sluice.home import StreamHome
from sluice.plan import Plan
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.planning.divided_sinks import moved_sink
from sluice.planning.forgotten_batches import in_sink_and_forgotten, pending_forgotten
from sluice.planning.generation_sink import sink_moved
from sluice.planning.missing_checkpoint import renamed
from sluice.planning.planner import Limits, build_plan, kept_limits
from sluice.planning.recovered import done_batches, planned_for_good
from sluice.planning.stages import stages_of
from sluice.planning.survey import Survey, survey
from sluice.planning.unnamed_columns import unnamed_columns
from sluice.planning.unnoted_sink import unnoted_sink
from sluice.project import Project
from sluice.runs.lease import check_not_taken
from sluice.runs.record import RunRecord, RunRecords
from sluice.sinks.splitting import SplittingSink
from sluice.sources.contract import Bound
from sluice.stream import Stream
from sluice.times import Clock, system_clock


@dataclass(frozen=True)
class Request:
    """What somebody wants to be run."""

    stream: Stream
    limits: Limits = Limits()
    run_key: str | None = None
    """Names the run for its retries: they keep the limits and the clock of the first try, and finish what it began."""


@dataclass(frozen=True)
class Try:
    """A request, and the try of the same run before it, whose limits and clock a retry keeps."""

    request: Request
    try_before: RunRecord | None
    """The record of the try before; None for a first one."""
    now: datetime
    """The clock of the plan: the first try's."""

    @classmethod
    def of(cls, request: Request, records: RunRecords, clock: Clock) -> Try:
        """Find the try before by the run key.

        Raises:
            DeclarationError: The key names a backfill.
            RefusedError: Its record is damaged.
        """
        try_before = records.find_try(request.run_key, None)
        if try_before is None:
            return cls(request, None, clock())
        limits = Limits(
            first_bound(try_before),
            try_before.max_batches,
            try_before.strategy,
            trigger=try_before.trigger,
            is_default_bound=try_before.is_default_bound,
        )
        # What was to wait for others is planned when they are done.
        now = clock() if try_before.after else try_before.planned_at
        return cls(replace(request, limits=limits), try_before, now)


def plan_stream(project: Project, request: Request, *, clock: Clock = system_clock) -> Plan:
    """Plan a run without a JVM, and change nothing.

    Raises:
        SluiceError: See `survey` and `build_plan`.
    """
    home = project.stream_home(request.stream)
    # Before anything is looked at: what is seen beside a run is its work in progress.
    taken = taken_lease(home, home.current_generation(), clock())
    wanted = Try.of(request, RunRecords(home), clock)
    plan = survey_and_plan(home, wanted, CheckedDeclaration.of(project, request.stream, project.streams()))[1]
    return plan if taken is None else replace(plan, warnings=(*plan.warnings, taken))


def taken_lease(home: StreamHome, generation: int, now: datetime) -> Problem | None:
    """That a run is at work, if one is: what is seen meanwhile is work in progress.

    Raises:
        RefusedError: The lease is damaged.
        StorageError: It can't be read.
    """
    try:
        check_not_taken(home.storage, home.lease_folder(generation), now)
    except LeaseTakenError as exc:
        return Problem(
            code="LEASE_TAKEN",
            file=exc.where or "",
            cause=exc.problem,
            consequence="what is seen is work in progress; a run that starts now waits in Airflow, and ends at once"
            " elsewhere (exit 5)",
            remedy=exc.remedy or "",
            is_blocking=False,
        )
    return None


def survey_and_plan(home: StreamHome, wanted: Try, declared: CheckedDeclaration) -> tuple[Survey, Plan]:
    """Look at everything, and plan.

    Args:
        home: The stream's folder in the home.
        wanted: What is to be run.
        declared: The declaration, which was looked at first.

    Raises:
        SluiceError: See `survey` and `find_verdict`.
    """
    limits = wanted.request.limits
    seen = survey(declared.stream, home, limits.bound, wanted.now)
    kept = kept_limits(seen, limits)
    if kept != limits:
        # Spark takes what lies beyond the bound, too: all of it counts.
        seen = survey(declared.stream, home, kept.bound, wanted.now)
        wanted = replace(wanted, request=replace(wanted.request, limits=kept))
    return seen, find_verdict(home, wanted, seen, declared)


def find_verdict(home: StreamHome, wanted: Try, seen: Survey, declared: CheckedDeclaration) -> Plan:
    """What a try of a run does, by what was seen; the gate, contracts and what was begun before count as much.

    Args:
        home: The stream's folder in the home.
        wanted: What is to be run.
        seen: What the checkpoint, the sources and the sink say.
        declared: The declaration, which was looked at first.

    Raises:
        SluiceError: See `build_plan` and `CheckedDeclaration.check_table`.
    """
    project, limits = declared.project, wanted.request.limits
    if limits.max_batches is not None and wanted.try_before is not None:
        limits = replace(
            limits, max_batches=max(0, limits.max_batches - planned_for_good(wanted.try_before, seen, home))
        )
    if seen.refusal is None and (problem := renamed(project, home, seen.writers_before)) is not None:
        seen = replace(seen, refusal=problem)
    if seen.refusal is None and seen.lines is not None:
        unnoted = unnoted_sink(project, seen.stream, seen.known, seen.checkpoint, seen.sink, storage=home.storage)
        seen = replace(seen, unnoted=unnoted)
    found = unjudged_run(home, seen, declared)
    plan = gated(build_plan(seen, limits, wanted.now), found, wanted.try_before)
    if seen.sink.exists and plan.verdict != "refuse":
        declared.check_table(storage=home.storage)
    if plan.verdict == "run":
        is_new = not seen.sink.exists
        unnamed = unnamed_columns(project, seen.stream, plan, declared.suite, is_new=is_new, storage=home.storage)
        plan = replace(plan, warnings=(*plan.warnings, *unnamed))
    if declared.shared is not None:
        plan = replace(plan, warnings=(*plan.warnings, declared.shared))
    plan = _with_judging(_going_on(plan, seen, project, home), home, seen, declared)
    unjudged = found.record.run_id if found is not None and found.judged is None else None
    is_own = wanted.try_before is not None and wanted.try_before.run_id == unjudged
    unjudged = None if is_own else unjudged
    return replace(plan, stages=stages_of(plan, project, seen, unjudged=unjudged, storage=home.storage))


def unjudged_run(home: StreamHome, seen: Survey, declared: CheckedDeclaration) -> Unjudged | None:
    """The run before whose rows the gate has not passed; None when there is none.

    Raises:
        RefusedError: A file of the home is damaged.
        DeclarationError: The suite is wrong.
    """
    if seen.stream.quality is None:
        return None
    return find_unjudged(seen.stream, home, lambda: declared.suite, lambda run: done_batches(run, seen, home))


def decided_before(plan: Plan, home: StreamHome) -> Decision | None:
    """What a driver that died had decided of the batch that is to be resumed; None when nothing.

    Raises:
        RefusedError: Its file is damaged.
    """
    first = next(iter(plan.batches), None)
    if first is None or first.kind != "uncommitted":
        return None
    return read_decision(home, plan.generation, first.batch_id)


def first_bound(try_before: RunRecord) -> Bound:
    """How far a run was to go, for whoever does it again."""
    # Without a bound of its own, the first try took what was there at its time; what Spark decides has none.
    is_planned = try_before.plan.strategy == "exact"
    until = try_before.until or (try_before.planned_at if is_planned else None)
    return Bound(until=until, to_version=try_before.to_version)


def _going_on(plan: Plan, seen: Survey, project: Project, home: StreamHome) -> Plan:
    """A plan that goes on with a batch, by what that one was begun with; any other as it is.

    Raises:
        RefusedError: What was decided of the batch is damaged.
    """
    if plan.verdict != "resume" or seen.known is None or seen.checkpoint.planned_id is None:
        return plan
    pending = seen.checkpoint.planned_id
    if (problem := sink_moved(project, seen.stream, seen.known, seen.sink, pending)) is not None:
        return plan.refused(problem)
    divided = read_staged(home, plan.generation, pending, Division)
    if divided is not None and (problem := moved_sink(project, seen.stream.sink, divided)) is not None:
        return plan.refused(problem)
    decided = decided_before(plan, home)
    if project.is_remote and (problem := in_sink_and_forgotten(seen.stream, seen.sink, pending)) is not None:
        return plan.refused(problem)
    if (problem := _quarantine_forgotten(seen, decided, project, home)) is not None:
        return plan.refused(problem)
    by = divided or decided
    if by is None:
        return plan
    how = f"batch {pending} was decided by run {by.run_id}, and is finished as it was then"
    return replace(plan, reason="; ".join(filter(None, (plan.reason, how))))


def _quarantine_forgotten(seen: Survey, decided: Decision | None, project: Project, home: StreamHome) -> Problem | None:
    """Why the part of a pending batch that goes to the quarantine can't be written; None when it can, or is there.

    Once the sink has its part, the quarantine has its own: that one is written before.
    """
    pending, query_id = seen.checkpoint.planned_id, seen.known.query_id if seen.known is not None else None
    if pending is None or query_id is None or seen.sink.holds(pending):
        return None
    if decided is not None:
        table: SplittingSink | None = decided.quarantine.sink(project)
    else:
        table = seen.stream.quarantine_table if seen.stream.quality is not None else None
    if table is None:
        return None
    state = table.state(query_id, storage=home.storage)
    return pending_forgotten(seen.stream, table, state, seen.checkpoint, query_id, storage=home.storage)


def _with_judging(plan: Plan, home: StreamHome, seen: Survey, declared: CheckedDeclaration) -> Plan:
    """A plan that says where its rows are judged, refused where a source breaks its contract."""
    suite = declared.suite if plan.verdict in {"run", "resume"} else None
    if suite is None:
        return plan
    project, stream = declared.project, declared.stream
    chosen = choose_judging(project, stream, suite, plan.batches, state=seen.sink, storage=home.storage)
    decided = decided_before(plan, home)
    if decided is not None:
        chosen = replace(
            chosen, where="cache", measured="afterwards", reason=f"batch {decided.batch_id} is split already"
        )
    broken = tuple(broken_contracts(stream, suite, plan.batches, storage=home.storage))
    blocking = next((problem for problem in broken if problem.is_blocking), None)
    if blocking is not None:
        return plan.refused(blocking, "a source breaks its contract")
    plan = with_stop(plan, read_gate(home))
    return replace(plan, quality=chosen, warnings=(*plan.warnings, *broken))
