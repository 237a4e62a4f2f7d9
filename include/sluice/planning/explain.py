"""Says a plan in lines that a person reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from sluice.amounts import describe
from sluice.errors import Problem
from sluice.plan import Judging, Plan, PlannedBatch, Stage
from sluice.plan_document import JudgingDocument, StageDocument
from sluice.times import iso_millis, iso_time
from sluice.watermarks import WatermarkOutlook

_JUDGED = {
    "publish": "before it is published",
    "cache": "before it is written",
    "write": "once it is written",
}
"""When a batch is judged, by where that is."""


def explain(plan: Plan) -> Iterator[str]:
    """The plan, line by line, without markup."""
    yield f"{plan.stream}, generation {plan.generation}: {plan.verdict} ({plan.reason})"
    if plan.until is not None:
        yield f"  until {iso_time(plan.until)}, exclusive"
    if plan.batches:
        yield f"  strategy {plan.strategy}, {len(plan.batches)} batch{'es' if len(plan.batches) != 1 else ''}"
    for batch in plan.batches:
        yield from _explain_batch(batch)
    if plan.watermarks is not None:
        yield from explain_watermarks(plan.watermarks)
    if plan.quality is not None:
        yield from explain_judging(plan.quality)
    yield from explain_stages(plan.stages)
    if plan.problem is not None:
        yield from explain_problem(plan.problem, "refused")
    for warning in plan.warnings:
        yield from explain_problem(warning, "warning")


def explain_watermarks(outlook: WatermarkOutlook) -> Iterator[str]:
    """The watermark of the next batch, and each input's where there are several."""
    inputs = outlook.known.inputs
    of_several = f", the {outlook.policy} of {len(inputs)}" if len(inputs) > 1 else ""
    yield f"  watermark {_event_time(outlook.next_ms)}{of_several}"
    for known in inputs:
        holds_back = "holds the others back" if known.input in outlook.held_back_by else ""
        remarks = "".join(f"; {remark}" for remark in (holds_back, known.unknown) if remark)
        if len(inputs) > 1 or remarks:
            yield f"    {known.input}: {_event_time(known.watermark_ms)}{remarks}"


def _event_time(milliseconds: int) -> str:
    return iso_millis(milliseconds) or "" if milliseconds else "none yet"


def explain_judging(chosen: Judging) -> Iterator[str]:
    """Where a run is judged, and why there."""
    rereads = f", {chosen.rereads} by Great Expectations" if chosen.rereads else ""
    checks = f"{chosen.checks} check{'s' if chosen.checks != 1 else ''}"
    yield f"  quality: {checks} of `{chosen.suite}`{rereads}; {judged_words(chosen)}"
    yield f"    {chosen.reason}"


def judged_words(judging: Judging | JudgingDocument) -> str:
    """Where a run is judged, and how it is measured, for people."""
    how = "on the way" if judging.measured == "observe" else "by reading it once more"
    return f"judged {_JUDGED[judging.where]}, measured {how}" if judging.where in _JUDGED else "judged"


def explain_stages(stages: Iterable[Stage]) -> Iterator[str]:
    """What the run does, in its order; batches that are treated alike are told together."""
    told = [*named_stages(stages)]
    width = max((len(name) for name, _ in told), default=0)
    if told:
        yield "  stages"
    for name, text in told:
        yield f"    {name.ljust(width)}  {text}"


def named_stages(stages: Iterable[Stage | StageDocument]) -> Iterator[tuple[str, str]]:
    """The name of each stage and what it does, for a list that people read."""
    for (kind, text), alike in groupby(stages, lambda stage: (stage.kind, stage.text)):
        ids = [stage.batch_id for stage in alike if stage.batch_id is not None]
        name = kind.replace("_", " ")
        yield name if not ids else f"batch {ids[0]}" if len(ids) == 1 else f"batches {ids[0]} to {ids[-1]}", text


def explain_problem(problem: Problem, label: str = "") -> Iterator[str]:
    """One problem, with what it leads to and what to do.

    Args:
        problem: The problem.
        label: What it is to the plan that it belongs to; empty for one that stands by itself.
    """
    begin, indent = (f"  {label} ", "    ") if label else ("", "  ")
    yield f"{begin}{problem.code}: {problem.cause}"
    yield f"{indent}file: {problem.file}"
    yield f"{indent}consequence: {problem.consequence}"
    yield f"{indent}remedy: {problem.remedy}"


def _explain_batch(batch: PlannedBatch) -> Iterator[str]:
    yield f"  batch {batch.batch_id} ({batch.kind.replace('_', ' ')})"
    for name, source in batch.sources.items():
        if not source.is_empty:
            amount = f" ({describe(source.amount)})" if source.amount else ""
            yield f"    {name}: {source.start or 'start'} -> {source.end}{amount}"
