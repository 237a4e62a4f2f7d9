"""`sluice plan | run | backfill`: what a run would do, and doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sluice.cli.opening import absolute
from sluice.cli.options import (
    AsJson,
    Checkpoint,
    MaxBatches,
    ProjectFolder,
    RunFor,
    StrategyName,
    StreamName,
    ToVersion,
    TriggerName,
    Until,
)
from sluice.cli.printing import print_error, print_json
from sluice.errors import SluiceError
from sluice.extras import check_extra

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice.planning.backfill import BackfillPlan
    from sluice.planning.planner import Limits
    from sluice.planning.verdict import Request
    from sluice.project import Project
    from sluice.running.observers import Observer
    from sluice.runs.record import RunRecord
    from sluice.stream import Stream


def plan(
    stream: StreamName,
    until: Until = "",
    to_version: ToVersion = None,
    max_batches: MaxBatches = None,
    strategy: StrategyName = None,
    trigger: TriggerName = None,
    run_for: RunFor = None,
    checkpoint: Checkpoint = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Say what a run would do, and why. Starts no JVM, changes nothing."""
    from sluice.planning.explain import explain
    from sluice.planning.verdict import plan_stream
    from sluice.running.preparation import refusal

    limits = _limits(until, to_version, max_batches, strategy, trigger, run_for)
    loaded, request = _request(project, stream, limits, checkpoint)
    made = plan_stream(loaded, request)
    if as_json:
        print_json(made.document)
    else:
        print("\n".join(explain(made)))
    if made.problem is not None:
        raise typer.Exit(refusal(made.problem).exit_code)


def run(
    streams: Annotated[list[str] | None, typer.Argument(metavar="STREAM...", help="The streams' names.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Run every stream of the project.")] = False,
    tag: Annotated[str | None, typer.Option(help="Run the streams that bear this tag.")] = None,
    until: Until = "",
    to_version: ToVersion = None,
    max_batches: MaxBatches = None,
    strategy: StrategyName = None,
    trigger: TriggerName = None,
    run_for: RunFor = None,
    run_key: Annotated[str | None, typer.Option(help="Name the run: a retry under the same name finishes it.")] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run streams up to their bound, and stop; several of them with one Spark, one after the other."""
    check_extra("spark", "`sluice run`")
    from sluice.cli.packed import Choice, run_packed
    from sluice.running.runner import run_stream
    from sluice.running.submit import stop_on_sigterm
    from sluice.runs.record import describe_batch, describe_quality

    limits = _limits(until, to_version, max_batches, strategy, trigger, run_for)
    choice = Choice.of(streams or (), tag, every=every)
    if choice.is_pack:
        run_packed(project, choice, limits, run_key, as_json=as_json)
        return
    loaded, request = _request(project, choice.names[0], limits, run_key=run_key)
    record = _watched(
        loaded,
        request.stream,
        lambda observer: run_stream(loaded, request, observer=observer, stop=stop_on_sigterm()),
        as_json=as_json,
    )
    if not as_json:
        for batch in record.batches:
            print(f"  {describe_batch(batch)}")
        if record.quality is not None:
            print(f"  {describe_quality(record.quality)}")


def backfill(
    stream: StreamName,
    start: Annotated[str, typer.Option(help="The first moment of the interval (ISO 8601, UTC).")],
    end: Annotated[str, typer.Option(help="The end of the interval, exclusive.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do; starts no JVM.")] = False,
    run_key: Annotated[str | None, typer.Option(help="Name the run: a retry under the same name finishes it.")] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Recompute the rows of an interval from all that the live stream has read, and replace them."""
    import signal

    from sluice.interval import Interval
    from sluice.project import find_project
    from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
    from sluice.running.preparation import refusal

    loaded = find_project(project)
    request = BackfillRequest(loaded.stream(stream), Interval.parse(start, end), run_key)
    if dry_run:
        plan = plan_backfill(loaded, request)
        if as_json:
            print_json(plan.document)
        else:
            _print_backfill_plan(plan)
        if plan.problem is not None:
            raise typer.Exit(refusal(plan.problem).exit_code)
        return
    check_extra("spark", "`sluice backfill`")
    from sluice.running.backfill import backfill_stream

    # There is no step to stop after: ended at once, the record says so, and a retry begins again.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    record = _watched(
        loaded, request.stream, lambda observer: backfill_stream(loaded, request, observer=observer), as_json=as_json
    )
    if not as_json and (done := record.backfill) is not None:
        replaced = "?" if done.rows_replaced is None else f"{done.rows_replaced:,}"
        print(f"  {replaced} rows replaced by {done.rows_written or 0:,}, in version {done.sink_version}")


def _limits(
    until: str,
    to_version: int | None,
    max_batches: int | None,
    strategy: str | None,
    trigger: str | None,
    run_for: str | None,
) -> Limits:
    from sluice.planning.planner import Limits
    from sluice.planning.triggers import triggered
    from sluice.sources.contract import Bound
    from sluice.times import parse_time

    if strategy not in (None, "exact", "drain"):
        raise typer.BadParameter(f"{strategy!r} is neither exact nor drain", param_hint="--strategy")
    limits = Limits(Bound(until=parse_time(until), to_version=to_version), max_batches, strategy)  # type: ignore[arg-type]
    return triggered(limits, trigger, run_for, names=("--trigger", "--for"))


def _request(
    project: str | None, stream: str, limits: Limits, checkpoint: str | None = None, *, run_key: str | None = None
) -> tuple[Project, Request]:
    from dataclasses import replace

    from sluice.planning.verdict import Request
    from sluice.project import find_project

    loaded = find_project(project)
    declared = loaded.stream(stream)
    if checkpoint is not None:
        declared = replace(declared, checkpoint=absolute(checkpoint))
    return loaded, Request(declared, limits, run_key)


def _watched(project: Project, stream: Stream, work: Callable[[Observer], RunRecord], *, as_json: bool) -> RunRecord:
    """Run a stream under a progress display, and print the record's head, or all of it; as JSON also a failed one's."""
    import msgspec

    from sluice.cli.packed import read_record
    from sluice.cli.printing import progress
    from sluice.spark.profile_build import build_in_background

    try:
        with progress(stream.name) as observer:
            record = work(observer)
    except SluiceError as exc:
        failed = read_record(project, stream, exc.run_id) if as_json and exc.run_id else None
        if failed is None:
            raise
        print_json(failed)
        print_error(exc)
        raise typer.Exit(exc.exit_code) from exc
    if record.status != "skipped":
        build_in_background()
    if as_json:
        print_json(msgspec.to_builtins(record))
    else:
        print(f"{record.stream}: {record.status} ({record.plan.reason})")
    return record


def _print_backfill_plan(plan: BackfillPlan) -> None:
    from sluice.planning.backfill import downstream_effect
    from sluice.planning.explain import explain_judging, explain_problem, explain_stages
    from sluice.times import iso_time

    print(f"{plan.stream}, generation {plan.generation}: {plan.verdict} ({plan.reason})")
    print(f"  from {iso_time(plan.interval.start)} to {iso_time(plan.interval.end)}, exclusive")
    if plan.quality is not None:
        print("\n".join(explain_judging(plan.quality)))
    for line in explain_stages(plan.stages):
        print(line)
    if plan.left_to_spark:
        print("  checked by Spark at the start, before anything is replaced:")
        print("\n".join(f"    {found}" for found in plan.left_to_spark))
    for found in plan.downstream:
        effect = downstream_effect(skips_changes=found.skips_changes, only_adds=found.only_adds)
        print(f"  downstream: {found.stream} {effect}")
    if plan.problem is not None:
        print("\n".join(explain_problem(plan.problem, "refused")))
