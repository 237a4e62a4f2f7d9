"""What a run does before Spark: finds the try before it, plans, and ends what needs no Spark. Starts no JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import msgspec

from sluice.errors import ContractError, HeldError, LeaseTakenError, Problem, RefusedError
from sluice.gate.unjudged_runs import settle
from sluice.home import StreamHome
from sluice.lineage.sending import lineage_sent
from sluice.plan import Plan
from sluice.plan_document import PlanDocument
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.planning.missing_checkpoint import LEAVE_NO_RECORD
from sluice.planning.recovered import done_batches
from sluice.planning.survey import Survey
from sluice.planning.verdict import Request, Try, survey_and_plan, unjudged_run
from sluice.project import Project
from sluice.running.known_generation import as_in_sink
from sluice.runs.journal import Journal
from sluice.runs.lease import Lease
from sluice.runs.record import RunRecord, new_run_id
from sluice.spark.writers import open_journal
from sluice.stream import Stream
from sluice.times import Clock, iso_time, system_clock

_REFUSALS = {"HELD_BY_QUALITY": HeldError, "CONTRACT_BROKEN": ContractError}


@lineage_sent()
def prepare_run(project: Project, request: Request, *, clock: Clock = system_clock) -> RunRecord:
    """Plan a run, and finish it here if it needs no Spark: nothing to do, done by a try before, or to be refused.

    Args:
        project: The project of the stream.
        request: What is to be run, with a run key: the driver finds the record by it.
        clock: Tells the time.

    Returns:
        The run record. Its status is `planned`, and it is on disk, when Spark is needed; else `succeeded` or `skipped`.

    Raises:
        RefusedError: What is on disk does not allow going on; the record says so.
        LeaseTakenError: A run of the stream is at work, and what is on disk is work in progress.
        SluiceError: See `plan_stream`.
    """
    preparation = Preparation.of(project, request, clock)
    if (done := preparation.done()) is not None:
        return done
    preparation.journal.check_not_taken()
    seen, plan = preparation.survey_and_plan()
    return preparation.end_without_spark(seen, plan) or preparation.journal.keep_planned(
        preparation.open_record(seen, plan), preparation.try_before
    )


def reserve_run(project: Project, request: Request, after: Sequence[str], *, clock: Clock = system_clock) -> RunRecord:
    """Keep the record of a run that is planned only by its driver, once the streams that it reads are done.

    Args:
        project: The project of the stream.
        request: What is to be run, with a run key: the driver finds the record by it.
        after: The names of those streams.
        clock: Tells the time.

    Returns:
        The run record, on disk; that of a try before as it is, if a driver has begun it.

    Raises:
        RefusedError: The record of a try before is damaged.
        StorageError: It could not be written.
    """
    journal = open_journal(project, request.stream, clock)
    before = journal.records.find_try(request.run_key, None)
    if before is not None and (before.status != "planned" or before.tries > 0):
        return before
    reason = f"planned when {', '.join(f'`{name}`' for name in after)} {'is' if len(after) == 1 else 'are'} done"
    plan = PlanDocument(verdict="run", reason=reason)
    record = _new_record(Try(request, None, clock()), journal.home.current_generation(), plan)
    # One that nobody has begun was planned when there was something else to be done.
    run_id = record.run_id if before is None else before.run_id
    return journal.keep_planned(msgspec.structs.replace(record, run_id=run_id, after=tuple(after)), None)


def _new_record(wanted: Try, generation: int, plan: PlanDocument) -> RunRecord:
    """The record of a first try."""
    request = wanted.request
    return RunRecord(
        run_id=new_run_id(wanted.now, request.run_key),
        stream=request.stream.name,
        generation=generation,
        run_key=request.run_key,
        planned_at=wanted.now,
        until=request.limits.bound.until,
        to_version=request.limits.bound.to_version,
        is_default_bound=request.limits.is_default_bound,
        max_batches=request.limits.max_batches,
        strategy=request.limits.strategy,
        trigger=request.limits.trigger,
        plan=plan,
        status="planned",
    )


def refusal(problem: Problem) -> RefusedError:
    """The error of a plan that refuses."""
    return _REFUSALS.get(problem.code, RefusedError)(problem)


@dataclass(frozen=True)
class Preparation:
    """One run on its way to Spark."""

    project: Project
    wanted: Try
    journal: Journal
    declared: Callable[[], CheckedDeclaration]
    """Looks at the declaration, once for all of the run; raises what is wrong with it."""

    @classmethod
    def of(cls, project: Project, request: Request, clock: Clock) -> Preparation:
        """Prepare a run. A retry keeps the limits and the clock of the first try."""
        journal = open_journal(project, request.stream, clock)
        declared = cache(lambda: CheckedDeclaration.of(project, request.stream, project.streams()))
        return cls(project, Try.of(request, journal.records, clock), journal, declared)

    @property
    def stream(self) -> Stream:
        """The stream."""
        return self.wanted.request.stream

    @property
    def home(self) -> StreamHome:
        """Its folder in the home."""
        return self.journal.home

    @property
    def try_before(self) -> RunRecord | None:
        """The record of the try before, where there was one."""
        return self.wanted.try_before

    def done(self) -> RunRecord | None:
        """The record of a try before that succeeded: a retry of it has nothing to do."""
        if self.try_before is None or self.try_before.status != "succeeded":
            return None
        return self.journal.told_again(self.try_before)

    def survey_and_plan(self) -> tuple[Survey, Plan]:
        """Look at everything, and plan."""
        return survey_and_plan(self.home, self.wanted, self.declared())

    def end_without_spark(self, seen: Survey, plan: Plan, *, has_lease: bool = False) -> RunRecord | None:
        """End the run here if its plan needs no Spark.

        Args:
            seen: What the plan was made from.
            plan: The plan.
            has_lease: Whether this run has the lease; without it, a try before may still be at work.

        Raises:
            RefusedError: The plan is to refuse; the record says so.
            LeaseTakenError: The try before is still at work.
        """
        if plan.problem is None:
            self._keep_starts(seen)
        if has_lease or plan.verdict in {"skip", "refuse"}:
            self._settle_run_before(seen, plan, has_lease=has_lease)
        if plan.verdict == "skip" and self.try_before is not None and self.try_before.tries > 0:
            return self._finish(self.try_before, seen, has_lease=has_lease)
        if plan.verdict == "skip":
            return self._skip(seen, plan)
        if plan.problem is not None and not plan.stages:
            refused = refusal(plan.problem)
            if plan.problem.code not in LEAVE_NO_RECORD:
                self.journal.close_failed(self.open_record(seen, plan), refused)
            raise refused
        return None

    def _skip(self, seen: Survey, plan: Plan) -> RunRecord:
        """Note a skip, which leaves no record."""
        bound = self.wanted.request.limits.bound
        now = self.wanted.now
        # What arrives after the look was not looked at, however late the bound is.
        until = None if bound.to_version is not None else min(bound.until or now, now)
        self.home.keep_skip(plan.reason, now, until=until)
        skipped = self.open_record(seen, plan)
        if self.try_before is not None:
            # Planned, and then done by another run before it began.
            self.journal.records.forget(skipped.run_id)
        return msgspec.structs.replace(skipped, status="skipped", ended_at=iso_time(self.journal.clock()))

    def _keep_starts(self, seen: Survey) -> None:
        """Write down where the sources begin: what comes from now on is not passed over, whatever this run does."""
        before = seen.known.sources if seen.known is not None else {}
        if seen.starts != {**before, **self.home.started(seen.generation)}:
            self.home.keep_started(seen.generation, seen.starts)

    def _settle_run_before(self, seen: Survey, plan: Plan, *, has_lease: bool) -> None:
        """Write down what the suite says today of the rows of an earlier run, while nobody else writes any."""
        found = unjudged_run(self.home, seen, self.declared())
        if found is None or found.judged is None:
            return
        if has_lease:
            settle(self.home, found)
            return
        try:
            with self.take_lease(found.gate.generation, found.record.run_id) as lease:
                own = self.under(lease)
                own.close_dead(lease)
                # What was seen before the lease may have been the run at its work.
                own._settle_run_before(own.survey_and_plan()[0], plan, has_lease=True)  # noqa: SLF001 - of its own class
        except LeaseTakenError:
            # A run is at work, and judges its rows itself; there is nothing to do beside it.
            if plan.verdict != "skip":
                raise

    def take_lease(self, generation: int, run_id: str) -> Lease:
        """Take the lease of a generation.

        Raises:
            LeaseTakenError: Another run has taken it.
        """
        return self.journal.take_lease(self.home.lease_folder(generation), run_id, self.try_before)

    def under(self, lease: Lease) -> Preparation:
        """The same for the owner of a lease: see `Journal.under`."""
        return replace(self, journal=self.journal.under(lease))

    def close_dead(self, lease: Lease) -> None:
        """Close the records of runs that are dead; this run's own try before is left open."""
        own = self.try_before.run_id if self.try_before is not None else None
        self.journal.close_dead(lease, own)
        self.journal.close_never_begun(own)

    def open_record(self, seen: Survey, plan: Plan) -> RunRecord:
        """The record that a run begins with, not saved yet."""
        if self.try_before is not None:
            return msgspec.structs.replace(
                self.try_before,
                planned_at=self.wanted.now,
                after=(),
                plan=plan.document,
                batches=done_batches(self.try_before, seen, self.home),
                status="planned",
                tries=self.try_before.tries + 1,
                ended_at=None,
                error=None,
            )
        return _new_record(self.wanted, plan.generation, plan.document)

    def _finish(self, try_before: RunRecord, seen: Survey, *, has_lease: bool) -> RunRecord:
        """Close the record of a try before that did all of its work before it died."""
        if not has_lease and try_before.status in {"planned", "running"}:
            with self.take_lease(seen.generation, try_before.run_id) as lease:
                return self.under(lease)._finish(try_before, seen, has_lease=True)  # noqa: SLF001 - of its own class
        if has_lease:
            self._note_sink(seen)
        # The gate may have judged it anew meanwhile.
        try_before = self.journal.records.read(try_before.run_id) or try_before
        batches = done_batches(try_before, seen, self.home)
        done = msgspec.structs.replace(try_before, batches=batches, error=None, passed_later=False)
        return self.journal.close(done, "succeeded")

    def _note_sink(self, seen: Survey) -> None:
        """Note what the sink has, where the driver did not live to: nobody else writes into it just now."""
        known = self.home.generation(seen.generation)
        if known is None:
            return
        found = as_in_sink(known, seen, storage=self.home.storage)
        if found != known:
            self.home.keep_generation(found)
