"""Rows that a former run has published and nobody has judged, or that have failed: found, judged anew, and let go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from sluice.errors import Problem
from sluice.home import StreamHome
from sluice.planning.plan import Plan
from sluice.project import Project
from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.declared_suite import declared_suite
from sluice.quality.gate import Judgement, describe_failed, judge_run
from sluice.quality.results import CheckResult
from sluice.running.audit_record import QUALITY_METRICS, counted, former_runs, quality_record
from sluice.running.gate_state import GateState, close_gate, keep_gate, read_gate
from sluice.running.record import BatchRecord, RunRecord, RunRecords
from sluice.stream import Stream


@dataclass(frozen=True)
class Unsettled:
    """A former run whose published rows the gate has not passed."""

    gate: GateState
    record: RunRecord
    """Its record, with every batch that it committed."""
    judged: Judgement | None
    """What the suite says of it today; None when only Spark can tell, for something was not measured."""
    suite_name: str = ""
    released_by: str | None = None
    """Who has let through all that fails of it."""

    @property
    def is_held(self) -> bool:
        """Whether the stream must not go on."""
        return self.judged is not None and self.judged.verdict == "fail" and self.released_by is None


def find_unsettled(
    project: Project,
    stream: Stream,
    home: StreamHome,
    recovered: Callable[[RunRecord], tuple[BatchRecord, ...]],
    now: datetime,
) -> Unsettled | None:
    """Find a former run that the gate has not passed, and judge it by what was measured. Starts no JVM.

    Args:
        project: The project of the stream.
        stream: The declaration.
        home: The stream's folder in the home.
        recovered: Gives the batches that a run has committed, also those that its driver did not live to record.
        now: What freshness is measured against.

    Raises:
        RefusedError: A file of the home is damaged.
        DeclarationError: The suite is wrong.
    """
    gate = read_gate(home)
    if gate is None:
        return None
    record = RunRecords(home).read(gate.run_id)
    suite = declared_suite(project, stream, storage=home.storage) if record is not None else None
    if record is None or suite is None:
        # Nobody can say any more what it wrote, or nobody wants to know.
        return None
    record = msgspec.structs.replace(record, batches=recovered(record))
    if gate.state == "blocked" and (record.quality is not None or not record.batches):
        # Its driver lived to say what became of the batches before.
        return None
    columns = _columns(record, gate)
    if not columns or not record.batches:
        return Unsettled(gate, record, None if record.batches else Judgement("pass", (), 0, {}), suite.name)
    plan = compile_suite(suite, columns, sample=suite.sample)
    judged = _judge(plan, record, stream, home, now)
    if judged is None or judged.verdict != "fail" or gate.released_by is None:
        return Unsettled(gate, record, judged, suite.name)
    others = tuple(batch for batch in record.batches if batch.batch_id != gate.batch_id)
    but_released = _judge(plan, msgspec.structs.replace(record, batches=others), stream, home, now)
    is_released = but_released is not None and but_released.verdict != "fail"
    return Unsettled(gate, record, judged, suite.name, gate.released_by if is_released else None)


def _columns(record: RunRecord, gate: GateState) -> dict[str, str]:
    """The columns of the result; a driver that died before its verdict has left them with the gate alone."""
    return record.quality.columns if record.quality is not None else gate.columns


def _judge(plan: QualityPlan, record: RunRecord, stream: Stream, home: StreamHome, now: datetime) -> Judgement | None:
    measured = [batch.observed.get(QUALITY_METRICS) for batch in counted(record.batches, stream.output_mode)]
    names = {measure.name for measure in plan.measures}
    if any(found is None or not names <= found.keys() for found in measured):
        return None
    checks = {check["id"]: check for check in (record.quality.checks if record.quality else ())}
    if any(expectation.id not in checks for expectation in plan.rereads):
        return None
    most = max((check.rule.last for check in plan.history), default=0)
    rereads = [
        CheckResult.of(e, "reread", success=checks[e.id]["success"], result=checks[e.id]["result"])
        for e in plan.rereads
    ]
    planned = {batch["batch_id"] for batch in record.plan["batches"]}
    is_last = planned <= {batch.batch_id for batch in record.batches}
    former = former_runs(home, record.run_id, most)
    return judge_run(plan, measured, former, now=now, is_last=is_last, rereads=rereads)


def gated(plan: Plan, unsettled: Unsettled | None, former: RunRecord | None) -> Plan:
    """A plan that heeds the gate: refused while the stream is held, and run where only Spark can judge."""
    if unsettled is None or plan.verdict == "refuse":
        return plan
    gate = unsettled.gate
    if unsettled.is_held:
        problem = Problem(
            code="HELD_BY_QUALITY",
            file=gate.run_id,
            cause=f"what run {gate.run_id} wrote has failed the suite `{unsettled.suite_name}`: {_why(unsettled)}",
            consequence="more rows would be written beside those that failed",
            remedy="correct the suite, and it is judged anew; or let the stream go on with"
            f" `sluice quality release {plan.stream}`",
        )
        return replace(plan, verdict="refuse", reason="held by quality", problem=problem, batches=(), quality=None)
    is_own = former is not None and former.run_id == gate.run_id
    if unsettled.judged is None and plan.verdict == "skip":
        what = "this run" if is_own else f"run {gate.run_id}"
        return replace(plan, verdict="run", strategy="exact", reason=f"what {what} wrote is yet to be judged")
    return plan


def settle(home: StreamHome, unsettled: Unsettled) -> RunRecord:
    """Write down the judgement of a former run; gives its record."""
    judged, record = unsettled.judged, unsettled.record
    if judged is None:
        return record
    changes: dict[str, Any] = {}
    gate, columns = unsettled.gate, _columns(record, unsettled.gate)
    if judged.results:
        chosen = record.quality.gate if record.quality is not None else (record.plan["quality"] or {}).get("gate", "")
        by = unsettled.released_by
        changes["quality"] = quality_record(judged, unsettled.suite_name, chosen, columns, released_by=by)
    if unsettled.is_held:
        keep_gate(home, msgspec.structs.replace(gate, state="failed", failed=_why(unsettled), columns=columns))
    elif gate.released_by is not None and gate.batch_id not in {batch.batch_id for batch in record.batches}:
        # What somebody has let through has not been published yet.
        keep_gate(home, msgspec.structs.replace(gate, state="blocked"))
    elif gate.state != "blocked":
        if record.error is not None and record.error["type"] == "QualityFailedError":
            changes |= {"status": "succeeded", "error": None}
        close_gate(home)
    record = msgspec.structs.replace(record, **changes)
    RunRecords(home).save(record)
    return record


def _why(unsettled: Unsettled) -> str:
    if unsettled.judged is None:
        return unsettled.gate.failed
    return describe_failed([found for found in unsettled.judged.failed if found.policy == "fail"])
