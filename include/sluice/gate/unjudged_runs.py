"""Rows that an earlier run has published and nobody has judged, or that have failed: found, judged anew, and let go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from sluice.errors import DeclarationError, Problem
from sluice.gate.audit_record import (
    QUALITY_METRICS,
    counted,
    is_measured,
    quality_record,
    runs_before,
    together,
    with_columns,
)
from sluice.gate.state import (
    RECORD_GONE,
    GateState,
    close_gate,
    excused,
    keep_gate,
    let_through_by,
    read_gate,
    record_of,
    releasers,
    with_record,
)
from sluice.gate.stopped_batch import not_let_through
from sluice.home import StreamHome
from sluice.plan import Plan
from sluice.plan_document import PlanDocument
from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.judgement import Judgement, describe_failed, failing_results, judge_run
from sluice.quality.results import CheckResult, unmeasured, verdict, why_unmeasured
from sluice.quality.suite import Suite
from sluice.runs.record import BatchRecord, QualityRecord, RunRecord, RunRecords
from sluice.sinks.contract import VersionedSink
from sluice.stream import Stream


@dataclass(frozen=True)
class Unjudged:
    """An earlier run whose published rows the gate has not passed."""

    gate: GateState
    record: RunRecord
    """Its record, with every batch that it committed."""
    earlier: tuple[BatchRecord, ...]
    """What the runs had published that it went on with: judged together with its own."""
    judged: Judgement | None
    """What the suite says of it today; None when only Spark can tell, for something was not measured."""
    suite_name: str = ""
    is_excused: bool = False
    """Whether it fails only for a batch that somebody has let through."""
    is_gone: bool = False
    """Whether its record is nowhere any more: then nobody can say that it passes."""

    @property
    def is_held(self) -> bool:
        """Whether the stream must not go on."""
        return self.judged is not None and self.judged.verdict == "fail" and not self.is_excused

    @property
    def batches(self) -> tuple[BatchRecord, ...]:
        """All batches that are judged together."""
        return together(self.earlier, self.record.batches)

    @property
    def is_blocked(self) -> bool:
        """Whether a batch is yet to be published that was stopped, or that somebody has let through since."""
        is_there = self.gate.batch_id in {batch.batch_id for batch in self.record.batches}
        return self.gate.batch_id is not None and not is_there


def find_unjudged(
    stream: Stream,
    home: StreamHome,
    declared_suite: Callable[[], Suite | None],
    recovered: Callable[[RunRecord], tuple[BatchRecord, ...]],
) -> Unjudged | None:
    """Find an earlier run that the gate has not passed, and judge it by what was measured. Starts no JVM.

    Args:
        stream: The declaration.
        home: The stream's folder in the home.
        declared_suite: Gives the stream's suite; asked where the gate is not closed.
        recovered: Gives the batches that a run has committed, also those that its driver did not live to record.

    Raises:
        RefusedError: A file of the home is damaged.
        DeclarationError: The suite is wrong.
    """
    gate = read_gate(home)
    suite = declared_suite() if gate is not None else None
    if gate is None or suite is None:
        # All is judged, or nobody wants to know.
        return None
    record = record_of(home, gate, gate.run_id)
    if record is None:
        return None if gate.state == "blocked" else _gone(gate, stream, suite)
    record = msgspec.structs.replace(record, batches=recovered(record))
    if gate.state == "blocked" and (record.quality is not None or not record.batches):
        # Its driver lived to say what became of the batches before.
        return None
    earlier = earlier_batches(home, gate, gate.carried, recovered)
    if not record.batches:
        return Unjudged(gate, record, earlier, Judgement("pass", (), 0, {}), suite.name)
    if gate.columns:
        # A run that died before it was judged has left its columns with the gate.
        record = with_columns(record, suite.name, gate.columns)
    if record.quality is None:
        return Unjudged(gate, record, earlier, None, suite.name)
    try:
        plan = compile_suite(suite, record.quality.columns, sample=suite.sample)
    except DeclarationError as exc:
        return Unjudged(gate, record, earlier, _unfit(suite, exc), suite.name)
    rereads = _known_rereads(plan, record.quality)
    is_known = rereads is not None and all(
        is_measured(plan, batch.observed.get(QUALITY_METRICS)) for batch in together(earlier, record.batches)
    )
    unjudged = Unjudged(gate, record, earlier, None, suite.name)
    if not is_known and isinstance(stream.sink, VersionedSink):
        return unjudged
    # What no sink can tell any more is not measured, and fails.
    return judge_anew(unjudged, plan, lambda _batches: rereads or (), stream=stream, home=home)


def _gone(gate: GateState, stream: Stream, suite: Suite) -> Unjudged:
    """A run that has left rows and no record."""
    record = RunRecord(
        run_id=gate.run_id,
        stream=stream.name,
        generation=gate.generation,
        planned_at=gate.since,
        plan=PlanDocument(),
        status="failed",
    )
    return Unjudged(gate, record, (), Judgement("fail", (), None, {}), suite.name, is_gone=True)


def earlier_batches(
    home: StreamHome,
    gate: GateState,
    run_ids: Iterable[str],
    recovered: Callable[[RunRecord], tuple[BatchRecord, ...]],
) -> tuple[BatchRecord, ...]:
    """The batches that runs have committed, in the order of their ids; a run whose record is gone has none.

    Raises:
        RefusedError: A record is damaged.
    """
    records = (record_of(home, gate, run_id) for run_id in run_ids)
    found: tuple[BatchRecord, ...] = ()
    for record in records:
        found = together(found, recovered(record) if record is not None else ())
    return found


def judge_anew(
    unjudged: Unjudged,
    plan: QualityPlan,
    reread: Callable[[Sequence[BatchRecord]], Sequence[CheckResult]],
    *,
    stream: Stream,
    home: StreamHome,
) -> Unjudged:
    """Judge an earlier run by what was measured of it, and as fresh as its rows were then.

    Args:
        unjudged: The run, with what was measured in every batch where that could be.
        plan: What the suite wants today.
        reread: Gives what Great Expectations says of some of its batches.
        stream: The declaration.
        home: The stream's folder in the home.
    """
    gate, record = unjudged.gate, unjudged.record
    before = runs_before(home, record.run_id, plan)

    def judge(batches: Sequence[BatchRecord], *, is_last: bool) -> Judgement:
        measured = [batch.observed.get(QUALITY_METRICS) for batch in counted(batches, stream.output_mode)]
        return judge_run(plan, measured, before, now=gate.since, is_last=is_last, rereads=reread(batches))

    judged = judge(unjudged.batches, is_last=_is_whole(record))
    is_excused = False
    if judged.verdict == "fail" and (let_through := let_through_by(gate)):
        others = [batch for batch in unjudged.batches if batch.batch_id not in let_through]
        is_excused = not not_let_through(judged, excused(gate), judge(others, is_last=False))
    return replace(unjudged, judged=judged, is_excused=is_excused)


def _known_rereads(plan: QualityPlan, quality: QualityRecord) -> tuple[CheckResult, ...] | None:
    """What was read again of a run; None when something has to be, for the first time or once more."""
    known = {check.id: check for check in quality.checks}
    found = []
    for expectation in plan.rereads:
        check = known.get(expectation.id)
        if check is None or check.kwargs != expectation.kwargs or why_unmeasured(check.result) is not None:
            return None
        found.append(CheckResult.of(expectation, "reread", success=check.success, result=check.result))
    return tuple(found)


def _is_whole(record: RunRecord) -> bool:
    """Whether a run did all that it planned: what more rows may mend fails only then."""
    planned = {batch.batch_id for batch in record.plan.batches}
    return planned <= {batch.batch_id for batch in record.batches}


def _unfit(suite: Suite, exc: DeclarationError) -> Judgement:
    """The suite can't be compiled for the columns that the run had: nothing can be said."""
    results = tuple(
        CheckResult.of(e, e.kind.path, success=False, result=unmeasured(str(exc))) for e in suite.expectations
    )
    return Judgement(verdict(results), results, None, {})


def gated(plan: Plan, unjudged: Unjudged | None, try_before: RunRecord | None) -> Plan:
    """A plan that heeds the gate: refused while the stream is held, and run where only Spark can judge."""
    if unjudged is None or plan.verdict == "refuse":
        return plan
    gate = unjudged.gate
    if unjudged.is_held:
        problem = held_by(unjudged, plan.stream)
        return replace(plan, quality=None).refused(problem, "held by quality")
    is_own = try_before is not None and try_before.run_id == gate.run_id
    if unjudged.judged is None and plan.verdict == "skip":
        what = "this run" if is_own else f"run {gate.run_id}"
        return replace(plan, verdict="run", strategy="exact", reason=f"what {what} wrote is yet to be judged")
    return plan


def held_by(unjudged: Unjudged, stream: str) -> Problem:
    """What holds a stream."""
    gate = unjudged.gate
    return Problem(
        code="HELD_BY_QUALITY",
        file=gate.run_id,
        cause=f"what run {gate.run_id} wrote has failed the suite `{unjudged.suite_name}`: {_why(unjudged)}",
        consequence="more rows would be written beside those that failed",
        remedy="correct the suite, and it is judged anew; or let the stream go on with"
        f" `sluice quality release {stream}`",
    )


def settle(home: StreamHome, unjudged: Unjudged) -> RunRecord:
    """Write down the judgement of an earlier run; gives its record."""
    judged, record = unjudged.judged, unjudged.record
    if judged is None or unjudged.is_gone:
        return record
    changes: dict[str, Any] = {}
    if record.quality is not None and judged.results:
        by = releasers(unjudged.gate) if unjudged.is_excused else None
        where, columns = record.quality.where, record.quality.columns
        changes["quality"] = quality_record(judged, unjudged.suite_name, where, columns, released_by=by)
    is_mended = record.error is not None and record.error.type == "QualityFailedError"
    if is_mended and not (unjudged.is_held or unjudged.is_blocked):
        changes |= {"status": "succeeded", "error": None, "passed_later": True}
    record = msgspec.structs.replace(record, **changes)
    # The verdict first: the gate must not be closed on rows that no record judges.
    RunRecords(home).save(record)
    if unjudged.is_held:
        held = with_record(unjudged.gate, record)
        keep_gate(home, msgspec.structs.replace(held, state="failed", failed=_why(unjudged)))
    elif unjudged.is_blocked:
        # A batch is not published: that stands.
        keep_gate(home, msgspec.structs.replace(with_record(unjudged.gate, record), state="blocked"))
    else:
        close_gate(home)
    return record


def _why(unjudged: Unjudged) -> str:
    if unjudged.is_gone:
        return unjudged.gate.failed or RECORD_GONE
    if unjudged.judged is None:
        return unjudged.gate.failed
    return describe_failed(failing_results(unjudged.judged))
