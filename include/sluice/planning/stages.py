"""The stages of a run or a backfill, in their order: the runner takes them, plans and pages tell them."""

from __future__ import annotations

from collections.abc import Iterator

from sluice.plan import Judging, Plan, Stage
from sluice.planning.backfill import BackfillPlan
from sluice.planning.survey import Survey
from sluice.project import Project
from sluice.sinks.contract import BatchSink, StagingSink
from sluice.spark_master import SERVE
from sluice.storage import Storage
from sluice.stream import Stream

_BY_STREAM = "write it with the sink's own stream writer"
_MEASURED = {"observe": "measure it on the way", "afterwards": "measure it by reading it once more"}


def stages_of(
    plan: Plan, project: Project, seen: Survey, *, unjudged: str | None, storage: Storage
) -> tuple[Stage, ...]:
    """What a run does by a plan, step by step; nothing where it is to skip or to refuse.

    A run mends one refusal itself: of a checkpoint whose order of sources only the query can tell.

    Args:
        plan: The plan, with where it is judged.
        project: The project of the stream.
        seen: What it was planned from.
        unjudged: A run before it, by its id, whose rows only Spark can judge; None when there is none.
        storage: Where the sink is.

    Raises:
        StorageError: The sink can't be read right now.
    """
    if plan.problem is not None and plan.problem.code == "SOURCE_ORDER_UNKNOWN":
        return (_lease(plan), Stage("session", "start Spark, and let the query tell the order of its sources"))
    if plan.verdict not in {"run", "resume"}:
        return ()
    return tuple(_stages(plan, project, seen, unjudged, storage))


def _stages(plan: Plan, project: Project, seen: Survey, unjudged: str | None, storage: Storage) -> Iterator[Stage]:
    yield _lease(plan)
    yield Stage("session", f"start Spark, and analyse `{seen.stream.transform_name}`")
    if unjudged is not None:
        yield Stage("settle", f"judge what run {unjudged} wrote")
    chosen = plan.quality
    gate = "" if chosen is None else f", open the gate of the suite `{chosen.suite}`"
    yield Stage("begin", f"begin the checkpoint, or go on with it{gate}")
    how = _published(project, seen, storage) if chosen is None else _judged(chosen)
    for batch in plan.batches:
        if plan.strategy == "exact" or batch.kind == "uncommitted":
            first = "as it was logged: " if batch.kind == "uncommitted" else ""
            yield Stage("batch", first + how, batch.batch_id)
    if plan.strategy == "drain":
        yield _no_data()
        yield Stage("drain", f"batches as Spark decides them: {how}")
    if plan.trigger is not None:
        yield _no_data()
        yield Stage("live", f"{plan.trigger}, batches as Spark decides them: {how}")
    yield _no_data()
    if chosen is not None:
        yield Stage("audit", f"judge the run by {_checks(chosen)}")
        yield Stage("publish", "close the gate: what the run wrote counts downstream")
    yield Stage("record", "close the record")


def backfill_stages(plan: BackfillPlan, stream: Stream) -> tuple[Stage, ...]:
    """What a backfill does by a plan, step by step; nothing where it is to skip or to refuse."""
    return tuple(_backfill_stages(plan, stream)) if plan.verdict == "run" else ()


def _backfill_stages(plan: BackfillPlan, stream: Stream) -> Iterator[Stage]:
    is_alone, chosen = plan.publish == "replace_where", plan.quality
    yield Stage("lease", "take the lease of the interval")
    if is_alone:
        yield Stage("live_lease", f"wait for the lease of generation {plan.generation}, and take it")
    yield Stage("session", f"start Spark, and analyse `{stream.transform_name}`")
    yield Stage("begin", f"note that the rows of version {plan.version} are to be replaced")
    how = "" if plan.watermark_ms is None else ", as a stream up to its watermark"
    yield Stage("compute", f"the rows of the interval, from all that was read up to batch {plan.batch_id}{how}")
    if chosen is not None:
        yield Stage("audit", f"judge them by {_checks(chosen)}")
    aside = "write them aside, replace those of the table by one commit of metadata"
    yield Stage("replace", "let Spark replace those of the table by them, in one commit" if is_alone else aside)
    yield from stages_after_replacing(is_judged=chosen is not None)


def stages_after_replacing(*, is_judged: bool) -> Iterator[Stage]:
    """What is left of a backfill once the rows are replaced."""
    if is_judged:
        yield Stage("quarantine", "take out of the quarantine what is elsewhere now")
    yield Stage("record", "close the record")


def _lease(plan: Plan) -> Stage:
    return Stage("lease", f"take the lease of generation {plan.generation}")


def _no_data() -> Stage:
    return Stage("no_data", "batches without input, as long as the watermark or a time-out makes state due")


def _published(project: Project, seen: Survey, storage: Storage) -> str:
    """How a batch gets into the sink that nobody judges."""
    sink = seen.stream.sink
    if isinstance(sink, StagingSink):
        is_aside = sink.can_rename and not project.is_remote
        mode = seen.stream.output_mode
        if is_aside and sink.aside_obstacle(mode, state=seen.sink, storage=storage) is None:
            # Whether a warm Spark takes the run, it sees when it starts.
            or_warm = f", or, on a warm Spark, {_BY_STREAM}" if project.spark_master == SERVE else ""
            return f"write it aside, publish it by one commit of metadata{or_warm}"
    elif isinstance(sink, BatchSink):
        return sink.step
    return _BY_STREAM


def _checks(chosen: Judging) -> str:
    return f"{chosen.checks} check{'' if chosen.checks == 1 else 's'}"


def _judged(chosen: Judging) -> str:
    measured = _MEASURED[chosen.measured]
    if chosen.where == "publish":
        return f"write it aside, {measured}, judge it, publish it by one commit of metadata"
    if chosen.where == "cache":
        return f"keep it, {measured}, judge it, write it"
    return f"write it, {measured}"
