"""What the page of one run shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sluice.plan_document import PlanDocument
from sluice.planning.backfill import downstream_effect
from sluice.planning.explain import judged_words, named_stages
from sluice.quality.report import QualityReport
from sluice.runs.balance import balance_of, broken_balance
from sluice.runs.record import BatchRecord, RunRecord
from sluice.runs.stop import StopRequest
from sluice_airflow.run_keys import RunKey, parse_run_key
from sluice_airflow.ui import wording
from sluice_airflow.ui.charts import Band, Bar, Phases, Share, phases
from sluice_airflow.ui.reading import LeaseOwner, RunFile
from sluice_airflow.ui.rows import (
    BatchRow,
    Fact,
    ProblemView,
    RunRow,
    batch_row,
    describe_amount,
    problem_view,
    run_row,
    run_seconds,
    sum_known,
)

_MOST_BATCHES = 60
"""How many batches a table or a picture of one shows."""


_MOST_EXPLAIN = 200_000
_TONES = ("addBatch", "queryPlanning", "walCommit", "commitOffsets", "latestOffset", "getBatch", "commitBatch")
"""The colours of a backfill's phases: those of Spark's phases of a batch, which it does not have."""


@dataclass(frozen=True)
class PlannedRow:
    """One batch of a plan."""

    batch_id: str
    kind: str
    ranges: tuple[tuple[str, str, str, str], ...]
    """Per source: name, start, end, amount."""
    is_done: bool


@dataclass(frozen=True)
class SliceRow:
    """What a backfill reads of one source."""

    source: str
    until: str
    amount: str


@dataclass(frozen=True)
class DownstreamRow:
    """A stream that reads what a backfill replaces."""

    stream: str
    consequence: str


@dataclass(frozen=True)
class BackfillView:
    """What only backfills have."""

    slices: tuple[SliceRow, ...]
    downstream: tuple[DownstreamRow, ...]
    hidden_downstream: int
    """How many more there are that the user may not see."""


@dataclass(frozen=True)
class RunPage:
    """One run. Without a record, only what is said in its place."""

    row: RunRow
    key: RunKey | None = None
    facts: tuple[Fact, ...] = ()
    is_active: bool = False
    done: int = 0
    planned: int = 0
    percent: int = 0
    planned_batches: tuple[PlannedRow, ...] = ()
    plan_note: str = ""
    stages: tuple[tuple[str, str], ...] = ()
    """What it was to do, each stage by its name."""
    batches: tuple[BatchRow, ...] = ()
    hidden_batches: int = 0
    phases: Phases | None = None
    quality: QualityReport | None = None
    problems: tuple[ProblemView, ...] = ()
    error_type: str = ""
    error: str = ""
    retryable: str = ""
    explain: str = ""
    driver: str = ""
    """What is wrong with the driver of a run that goes on; empty when it is alive."""
    stop: str = ""
    """What is known of a request to stop it; empty when there is none."""
    backfill: BackfillView | None = None


_RETRYABLE = {"True": "A retry may succeed.", "False": "A retry can't succeed: somebody must act."}


def run_page(
    stream: str,
    run: RunFile,
    stop: StopRequest | None,
    now: datetime,
    *,
    owner: LeaseOwner | None,
    is_visible: Callable[[str], bool],
    quality: QualityReport | None = None,
) -> RunPage:
    """Everything about one run.

    Args:
        stream: The stream.
        run: The run.
        stop: The request to end it.
        now: The time.
        owner: Who has the lease that the run needs: its generation, or the interval of a backfill.
        is_visible: Whether the user may see a stream, by its name.
        quality: What its suite said, if it was judged.
    """
    row = run_row(stream, run, now)
    record = run.record
    if record is None:
        return RunPage(row, error_type="The record can't be read", error=run.error or "")
    plan = record.plan
    is_active = record.status in {"planned", "running"}
    done = len(record.batches)
    planned = max(done, len(plan.batches))
    shown = record.batches[-_MOST_BATCHES:]
    failure = record.error
    return RunPage(
        row=row,
        key=parse_run_key(record.run_key),
        facts=_run_facts(record, plan, now, is_active=is_active),
        is_active=is_active,
        done=done,
        planned=planned,
        percent=round(100 * done / planned) if planned else 0,
        planned_batches=_planned_rows(plan, {batch.batch_id for batch in record.batches}),
        plan_note=_plan_note(plan),
        stages=tuple(named_stages(plan.stages or ())),
        batches=tuple(batch_row(batch) for batch in shown),
        hidden_batches=done - len(shown),
        phases=_backfill_phases(record, now) if record.interval else _batch_phases(shown),
        quality=quality,
        problems=(*_lost_rows(record), *_plan_problems(plan)),
        error_type=failure.type if failure else "",
        error=failure.whole if failure else "",
        retryable=_RETRYABLE.get(str(failure.retryable), "") if failure else "",
        driver=_driver(record, owner) if record.status == "running" else "",
        backfill=_backfill(plan, is_visible) if record.interval else None,
        explain=(record.explain or "")[:_MOST_EXPLAIN],
        stop=f"{stop.requested_by} asked it to stop at {wording.moment(wording.read_moment(stop.requested_at))}."
        if stop
        else "",
    )


def _batch_phases(batches: Sequence[BatchRecord]) -> Phases | None:
    timed = [(f"batch {batch.batch_id}", batch.duration_ms) for batch in batches if batch.duration_ms]
    return phases(timed) if timed else None


def _backfill_phases(record: RunRecord, now: datetime) -> Phases | None:
    """A backfill's newest try, phase after phase; what it does more than once counts together."""
    begun = [(phase.text.partition(":")[0], wording.read_moment(phase.began_at)) for phase in record.phases]
    moments = [moment for _, moment in begun if moment is not None]
    if not moments or len(moments) < len(begun):
        return None
    ends = [*moments[1:], wording.read_moment(record.ended_at) or now]
    seconds = [max(0.0, (end - start).total_seconds()) for start, end in zip(moments, ends, strict=True)]
    names = list(dict.fromkeys(name for name, _ in begun))
    tones = {name: _TONES[index % len(_TONES)] for index, name in enumerate(names)}
    width, whole, x = 640, sum(seconds) or 1.0, 0.0
    bars = []
    for (name, _), took in zip(begun, seconds, strict=True):
        wide = width * took / whole
        bars.append(Bar(round(x, 2), 0, round(wide, 2), 14, tones[name], f"{name} {took:,.1f} s"))
        x += wide
    sums = {name: sum(took for (its, _), took in zip(begun, seconds, strict=True) if its == name) for name in names}
    shares = tuple(Share(tones[name], name, took, 100 * took / whole) for name, took in sums.items())
    return Phases((Band("all of it", tuple(bars), f"{sum(seconds):,.1f} s"),), shares, width)


def _driver(record: RunRecord, owner: LeaseOwner | None) -> str:
    state = owner.state if owner is not None and owner.lease.run_id == record.run_id else None
    if state == "expired":
        return f"The driver has not renewed its lease for {wording.LEASE_LIFETIME}: it hangs, or it is gone."
    if state == "taken":
        return ""
    if record.interval is not None:
        return "The driver of this backfill is gone. A retry finishes it."
    return "The driver of this run is gone. The next run finishes what it had planned."


def _backfill(plan: PlanDocument, is_visible: Callable[[str], bool]) -> BackfillView:
    slices = tuple(
        SliceRow(
            name,
            f"version {taken.version}" if taken.version is not None else wording.offset(taken.end),
            describe_amount(taken.amount) if taken.amount else wording.NONE,
        )
        for name, taken in (plan.sources or {}).items()
    )
    downstream = plan.downstream or ()
    shown = [found for found in downstream if is_visible(found.stream)]
    rows = tuple(
        DownstreamRow(
            found.stream,
            f"It {downstream_effect(skips_changes=found.skips_changes, only_adds=found.only_adds)}.",
        )
        for found in shown
    )
    return BackfillView(slices, rows, len(downstream) - len(shown))


def _run_facts(record: RunRecord, plan: PlanDocument, now: datetime, *, is_active: bool) -> tuple[Fact, ...]:
    started, ended = wording.read_moment(record.started_at), wording.read_moment(record.ended_at)
    facts = [Fact("planned", wording.moment(record.planned_at), wording.ago(record.planned_at, now))]
    if started is not None:
        facts.append(Fact("started", wording.moment(started), wording.ago(started, now)))
    if ended is not None:
        facts.append(Fact("ended", wording.moment(ended), f"after {wording.span(run_seconds(record))}"))
    elif is_active and started is not None:
        facts.append(Fact("running for", wording.span((now - started).total_seconds())))
    facts += _limit_facts(record) + _backfill_facts(record, plan)
    if record.batches:
        rows_in = sum_known(batch.input_rows for batch in record.batches)
        rows_out = sum_known(batch.output_rows for batch in record.batches)
        facts.append(Fact("rows", f"{wording.count(rows_in)} in, {wording.count(rows_out)} out"))
    balance = balance_of(record)
    if balance is not None:
        facts.append(Fact("balance", balance.text))
    if record.batches:
        watermark = wording.read_moment(record.batches[-1].watermark)
        facts += [Fact("watermark", wording.moment(watermark))] if watermark else []
    if plan.strategy:
        facts.append(Fact("strategy", plan.strategy, str(record.trigger or "")))
    facts += _live_facts(record, now, is_active=is_active)
    if plan.quality is not None:
        facts.append(Fact("quality", judged_words(plan.quality), plan.quality.reason))
    facts.append(Fact("generation", str(record.generation), f"token {record.token}" if record.token else ""))
    facts += [Fact("tries", str(record.tries))] if record.tries > 1 else []
    facts += [Fact("query id", record.query_id)] if record.query_id else []
    return tuple(facts)


def _live_facts(record: RunRecord, now: datetime, *, is_active: bool) -> list[Fact]:
    """How far a live run has come, and whether anything moves: its driver looks at the query all the while."""
    live = record.live
    if live is None:
        return []
    ends_at, seen_at = wording.read_moment(live.ends_at), wording.read_moment(live.seen_at)
    facts = [Fact("live until", wording.moment(ends_at))] if ends_at else []
    if not is_active:
        return facts
    committed_at = wording.read_moment(live.committed_at) or wording.read_moment(live.began_at)
    if committed_at is not None:
        what = "no batch since" if live.committed_at is None else "last batch"
        facts.append(Fact(what, wording.moment(committed_at), wording.ago(committed_at, now)))
    if live.doing and seen_at is not None:
        facts.append(Fact("Spark says", live.doing, wording.ago(seen_at, now)))
    return facts


def _limit_facts(record: RunRecord) -> list[Fact]:
    """Where the run had to stop."""
    facts = []
    unbounded = record.plan.unbounded or ()
    if unbounded:
        named = ", ".join(unbounded)
        facts.append(Fact("takes", "what is there", f"Spark decides the batches: {named} not bounded by the interval"))
    elif record.until is not None:
        facts.append(Fact("takes input before", wording.moment(record.until)))
    if record.to_version is not None and not unbounded:
        facts.append(Fact("takes versions up to", str(record.to_version)))
    if record.max_batches is not None:
        facts.append(Fact("at most", wording.count(record.max_batches, "batch", units="batches")))
    return facts


_PUBLISH = {"metadata": "by one commit of metadata", "replace_where": "by Spark, under the live stream's lease"}


def _backfill_facts(record: RunRecord, plan: PlanDocument) -> list[Fact]:
    """What a backfill recomputes, and what came of it."""
    if record.interval is None:
        return []
    facts = [Fact("recomputes", wording.interval(record.interval.start, record.interval.end))]
    if isinstance(plan.batch_id, int):
        facts.append(Fact("reads up to", f"batch {plan.batch_id}", "of the live stream"))
    if plan.watermark:
        facts.append(Fact("live watermark", wording.moment(wording.read_moment(plan.watermark))))
    version = record.backfill.version if record.backfill else plan.version
    if isinstance(version, int):
        how = _PUBLISH.get(plan.publish or "", "")
        facts.append(Fact("replaces rows of", f"version {version}", how))
    done = record.backfill
    if done is None:
        return facts
    if done.sink_version is not None:
        replaced, written = wording.count(done.rows_replaced), wording.count(done.rows_written)
        facts.append(Fact("made", f"version {done.sink_version}"))
        facts.append(Fact("rows", f"{replaced} replaced, {written} written"))
    if done.late_rows is not None:
        remark = "had been dropped by the live stream, of whatever interval"
        facts.append(Fact("late rows", wording.count(done.late_rows), remark))
    facts.append(Fact("attempt", str(done.attempt + 1)))
    return facts


def _plan_note(plan: PlanDocument) -> str:
    hidden = len(plan.batches) - _MOST_BATCHES
    return f"and {wording.count(hidden, 'more batch', units='more batches')}" if hidden > 0 else ""


def _planned_rows(plan: PlanDocument, done: set[int]) -> tuple[PlannedRow, ...]:
    rows = []
    for batch in plan.batches[:_MOST_BATCHES]:
        ranges = tuple(
            (
                name,
                wording.offset(part.start),
                wording.offset(part.end),
                describe_amount(part.amount),
            )
            for name, part in batch.sources.items()
            if part.start != part.end
        )
        rows.append(PlannedRow(str(batch.batch_id), batch.kind.replace("_", " "), ranges, batch.batch_id in done))
    return tuple(rows)


def _lost_rows(record: RunRecord) -> tuple[ProblemView, ...]:
    """What is said of a run whose rows are not in balance: louder than of anything else that did not end it."""
    problem = broken_balance(record)
    return () if problem is None else (replace(problem_view(problem), tone="bad"),)


def _plan_problems(plan: PlanDocument) -> tuple[ProblemView, ...]:
    found = [(plan.problem, "bad")] if plan.problem else []
    found += [(warning, "warn") for warning in plan.warnings]
    return tuple(
        ProblemView(problem.code, problem.cause, problem.consequence, problem.remedy, problem.file, tone)
        for problem, tone in found
    )
