"""What pages show: pure functions from what was read to the words and pictures of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sluice.errors import Problem
from sluice.home import Checked, Generation
from sluice.monitoring.inspection import SourceLag
from sluice.running.record import BatchRecord
from sluice.running.stop import StopRequest
from sluice.stream import Stream
from sluice.times import iso_millis
from sluice_airflow.ui import wording
from sluice_airflow.ui.charts import Chart, Phases, Value, bar_chart, line_chart, phases, sparkline
from sluice_airflow.ui.outlook import Outlook
from sluice_airflow.ui.reading import BrokenFile, LeaseHolder, LoggedBatch, RunFile, ShownRecord
from sluice_airflow.ui.run_keys import RunKey, parse_run_key

_MOST_BATCHES = 60
"""How many batches a table or a picture of one shows."""
_MOST_EXPLAIN = 200_000

VERDICT_TONES = {"run": "info", "resume": "warn", "skip": "calm", "refuse": "bad"}
STATUS_TONES = {
    "planned": "info", "running": "info", "skipped": "calm", "succeeded": "good", "failed": "bad",
    "stopped": "warn", "refused": "bad",
}  # fmt: skip
QUALITY_TONES = {"pass": "good", "warn": "warn", "fail": "bad"}


@dataclass(frozen=True)
class Badge:
    """A word in a colour."""

    text: str
    tone: str


@dataclass(frozen=True)
class Fact:
    """A name, what it is, and perhaps a remark on that."""

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True)
class ProblemView:
    """A problem with its remedy."""

    code: str
    cause: str
    consequence: str
    remedy: str
    file: str
    tone: str


@dataclass(frozen=True)
class RunRow:
    """One run in a list."""

    run_id: str
    stream: str
    status: Badge
    started: str
    ago: str
    took: str
    batches: str
    rows: str
    reason: str
    quality: Badge | None
    task: str
    error: str = ""


@dataclass(frozen=True)
class StreamRow:
    """One stream in the list of all."""

    name: str
    verdict: Badge
    reason: str
    lag: str
    lag_remark: str
    watermark: str
    watermark_remark: str
    quality: Badge | None
    runs: Chart
    last_run: RunRow | None
    running: RunRow | None
    error: str = ""
    is_pending: bool = False


@dataclass(frozen=True)
class StreamsPage:
    """All streams that the user may see."""

    rows: tuple[StreamRow, ...]
    broken: tuple[BrokenFile, ...]
    has_quality: bool
    is_pending: bool
    counts: tuple[Badge, ...]


@dataclass(frozen=True)
class SourceRow:
    """One source of a stream: how far it is read, and what waits."""

    name: str
    kind: str
    location: str
    committed: str
    committed_exact: str
    planned: str
    planned_exact: str
    is_ahead: bool
    """Whether a batch is planned beyond what is committed."""
    waiting: str
    oldest: str
    unreadable: str


@dataclass(frozen=True)
class OffsetPair:
    """Where one batch ends in one source: as planned, and as committed."""

    source: str
    planned: str
    committed: str
    exact: str


@dataclass(frozen=True)
class BatchRow:
    """One batch."""

    batch_id: int
    kind: str
    state: Badge
    offsets: tuple[OffsetPair, ...]
    planned_at: str
    input_rows: str
    output_rows: str
    watermark: str
    took: str
    rate: str
    notes: tuple[str, ...]
    run_id: str = ""
    error: str = ""


@dataclass(frozen=True)
class GenerationRow:
    """One generation."""

    number: int
    is_current: bool
    created: str
    query_id: str
    sources: str
    checkpoint: str


@dataclass(frozen=True)
class LeaseView:
    """Who holds the stream."""

    state: Badge
    explanation: str
    facts: tuple[Fact, ...]
    run_id: str


@dataclass(frozen=True)
class StreamPage:
    """One stream."""

    row: StreamRow
    facts: tuple[Fact, ...]
    sources: tuple[SourceRow, ...]
    batches: tuple[BatchRow, ...]
    charts: tuple[tuple[str, Chart], ...]
    generations: tuple[GenerationRow, ...]
    lease: LeaseView | None
    problems: tuple[ProblemView, ...]
    runs: tuple[RunRow, ...]
    errors: tuple[str, ...]
    has_quality: bool


@dataclass(frozen=True)
class PlannedRow:
    """One batch of a plan."""

    batch_id: str
    kind: str
    ranges: tuple[tuple[str, str, str, str], ...]
    """Per source: name, start, end, amount."""
    is_done: bool


@dataclass(frozen=True)
class CheckRow:
    """One check of quality."""

    name: str
    subject: str
    result: Badge
    policy: str
    detail: str


@dataclass(frozen=True)
class RunPage:
    """One run."""

    row: RunRow
    key: RunKey | None
    facts: tuple[Fact, ...]
    is_active: bool
    done: int
    planned: int
    percent: int
    planned_batches: tuple[PlannedRow, ...]
    plan_note: str
    batches: tuple[BatchRow, ...]
    hidden_batches: int
    phases: Phases | None
    checks: tuple[CheckRow, ...]
    problems: tuple[ProblemView, ...]
    error_type: str
    error: str
    retryable: str
    explain: str
    stop: str
    """What is known of a request to stop it; empty when there is none."""


class _Range(msgspec.Struct):
    start: Any = None
    end: Any = None
    files: int | None = None
    size_bytes: int | None = msgspec.field(default=None, name="bytes")
    rows: int | None = None


class _Batch(msgspec.Struct):
    batch_id: int
    kind: str = "data"
    timestamp: str | None = None
    sources: dict[str, _Range] = {}


class _Problem(msgspec.Struct):
    code: str
    file: str = ""
    cause: str = ""
    consequence: str = ""
    remedy: str = ""


class PlanDocument(msgspec.Struct):
    """A plan as records keep it. A record is only a file: what of it has another shape is not shown."""

    verdict: str = ""
    reason: str = ""
    strategy: str = ""
    batches: list[_Batch] = []
    problem: _Problem | None = None
    warnings: list[_Problem] = []


def read_plan(document: dict[str, Any]) -> PlanDocument | None:
    """The plan in a record; None when it has another shape."""
    try:
        return msgspec.convert(document, PlanDocument)
    except (msgspec.ValidationError, RecursionError):
        return None


def streams_page(rows: Sequence[StreamRow], broken: Sequence[BrokenFile]) -> StreamsPage:
    """The list of all streams; those that need somebody come first."""
    order = {"bad": 0, "warn": 1, "info": 2, "calm": 3, "good": 3, "none": 4}
    ordered = sorted(rows, key=lambda row: (0 if row.error else order.get(row.verdict.tone, 4), row.name))
    counts: dict[str, Badge] = {}
    numbers: dict[str, int] = {}
    for row in ordered:
        word = "error" if row.error else row.verdict.text
        numbers[word] = numbers.get(word, 0) + 1
        counts[word] = Badge(f"{numbers[word]} {word}", "bad" if row.error else row.verdict.tone)
    return StreamsPage(
        rows=tuple(ordered),
        broken=tuple(broken),
        has_quality=any(row.quality for row in ordered),
        is_pending=any(row.is_pending for row in ordered),
        counts=tuple(counts.values()),
    )


def stream_row(
    name: str, runs: Sequence[RunFile], outlook: Outlook | None, now: datetime, *, error: str = ""
) -> StreamRow:
    """One stream in a line.

    Args:
        name: The stream.
        runs: Its newest runs, newest first.
        outlook: What its next run would do; None while that is being looked up.
        now: The time.
        error: Why the home can't be read, if so.
    """
    rows = [run_row(name, run, now) for run in runs]
    plan = outlook.plan if outlook else None
    watermark = outlook.watermark_ms if outlook else None
    verdict = Badge("planning", "none") if outlook is None else Badge("unknown", "bad")
    if plan is not None:
        verdict = Badge(plan.verdict, VERDICT_TONES.get(plan.verdict, "none"))
    lag, lag_remark = _lag(list(outlook.lags.values()) if outlook else [], now, is_known=plan is not None)
    at = wording.read_moment(iso_millis(watermark)) if watermark is not None else None
    return StreamRow(
        name=name,
        verdict=verdict,
        reason=plan.reason if plan else "",
        lag=lag,
        lag_remark=lag_remark,
        watermark=wording.moment(at),
        watermark_remark=f"{wording.span((now - at).total_seconds())} behind" if at and at < now else "",
        quality=next((row.quality for row in rows if row.quality), None),
        runs=_runs_picture(runs),
        last_run=rows[0] if rows else None,
        running=next((row for row in rows if row.status.text in {"planned", "running"}), None),
        error=error or ((outlook.error or "") if outlook else ""),
        is_pending=outlook is None,
    )


def _lag(lags: Sequence[SourceLag], now: datetime, *, is_known: bool) -> tuple[str, str]:
    unreadable = [lag.unreadable for lag in lags if lag.unreadable]
    if unreadable:
        return "unknown", wording.short(unreadable[0])
    if not is_known or not lags:
        return wording.NONE, ""
    return _amount([lag.files for lag in lags], [lag.size_bytes for lag in lags], [lag.rows for lag in lags]), _oldest(
        [lag.oldest_ms for lag in lags], now
    )


def _amount(files: Sequence[int | None], sizes: Sequence[int | None], rows: Sequence[int | None]) -> str:
    """What waits or was taken: rows where they are known, else files, and how large they are."""
    file_count, size_bytes = (sum(value or 0 for value in values) for values in (files, sizes))
    row_count = None if None in rows or not rows else sum(value or 0 for value in rows)
    if not file_count and not size_bytes and not row_count:
        return "nothing"
    parts = [wording.count(file_count, "file")] if file_count else []
    parts += [wording.size(size_bytes)] if size_bytes else []
    parts += [wording.count(row_count, "row")] if row_count else []
    return ", ".join(parts)


def _oldest(oldest_ms: Sequence[int | None], now: datetime) -> str:
    known = [value for value in oldest_ms if value is not None]
    at = wording.read_moment(iso_millis(min(known))) if known else None
    return f"oldest {wording.ago(at, now)}" if at else ""


def _runs_picture(runs: Sequence[RunFile]) -> Chart:
    values = []
    for run in reversed(runs):
        if run.record is None:
            values.append(Value(None, "bad", f"{run.run_id}: the record can't be read"))
            continue
        seconds = _seconds(run.record)
        rows = wording.count(_sum(batch.input_rows for batch in run.record.batches), "row")
        label = f"{run.run_id}: {run.record.status}, {rows}, {wording.span(seconds)}"
        values.append(Value(seconds, STATUS_TONES[run.record.status], label))
    return sparkline(values)


def _sum(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _seconds(record: ShownRecord) -> float | None:
    """How long a run took; None while it goes on, and when its times are no times."""
    started, ended = wording.read_moment(record.started_at), wording.read_moment(record.ended_at)
    return None if started is None or ended is None else max(0.0, (ended - started).total_seconds())


def run_row(stream: str, run: RunFile, now: datetime) -> RunRow:
    """One run in a line."""
    record = run.record
    if record is None:
        return RunRow(
            run.run_id, stream, Badge("damaged", "bad"), "", "", "", "", "", "", None, "", error=run.error or ""
        )
    started = wording.read_moment(record.started_at) or record.planned_at
    plan = read_plan(record.plan)
    planned = len(plan.batches) if plan else 0
    done = len(record.batches)
    key = parse_run_key(record.run_key)
    return RunRow(
        run_id=run.run_id,
        stream=stream,
        status=Badge(record.status, STATUS_TONES[record.status]),
        started=wording.moment(started),
        ago=wording.ago(started, now),
        took=wording.span(_seconds(record)),
        batches=f"{done:,}" if done >= planned else f"{done:,} of {planned:,}",
        rows=wording.count(_sum(batch.input_rows for batch in record.batches)),
        reason=plan.reason if plan else "",
        quality=_quality(record.quality),
        task=f"{key.dag_id} / {key.task_id}" if key else "",
        error=_text(record.error, "message"),
    )


def _text(document: Any, key: str) -> str:
    found = document.get(key) if isinstance(document, dict) else None
    return "" if found is None else str(found)


def _quality(document: Any) -> Badge | None:
    verdict = _text(document, "verdict")
    return Badge(verdict, QUALITY_TONES.get(verdict, "none")) if verdict else None


def stream_page(
    stream: Stream,
    row: StreamRow,
    *,
    runs: Sequence[RunFile],
    outlook: Outlook | None,
    batches: Sequence[LoggedBatch],
    generations: Sequence[Generation],
    lease: LeaseHolder | None,
    skip: Checked | None,
    errors: Sequence[str],
    now: datetime,
) -> StreamPage:
    """Everything about one stream."""
    current = outlook.generation if outlook else None
    live = next((found for found in generations if found.generation == current), None)
    done = _recorded(runs, current)
    names = [line.source for line in live.lines] if live else None
    return StreamPage(
        row=row,
        facts=_stream_facts(stream, outlook, skip, now),
        sources=tuple(_source_row(stream, name, outlook, now) for name in stream.sources),
        batches=tuple(_logged_row(batch, done, names) for batch in batches),
        charts=_charts(runs, current),
        generations=tuple(_generation_row(found, current) for found in generations),
        lease=_lease(lease, now) if lease else None,
        problems=tuple(problem_view(problem) for problem in (outlook.problems if outlook else ())),
        runs=tuple(run_row(stream.name, run, now) for run in runs),
        errors=tuple(errors),
        has_quality=any(run.record is not None and _quality(run.record.quality) for run in runs),
    )


def _stream_facts(stream: Stream, outlook: Outlook | None, skip: Checked | None, now: datetime) -> tuple[Fact, ...]:
    facts = [
        Fact("writes", stream.sink.location or stream.sink.kind, stream.sink.kind if stream.sink.location else ""),
        Fact("transform", stream.transform),
        Fact("output mode", stream.output_mode),
    ]
    if outlook and outlook.generation is not None:
        committed = "none" if outlook.committed_id is None else str(outlook.committed_id)
        planned = "none" if outlook.planned_id is None else str(outlook.planned_id)
        facts.append(Fact("generation", str(outlook.generation)))
        facts.append(Fact("batches", f"committed {committed}, planned {planned}"))
    if skip is not None:
        checked = wording.read_moment(skip.checked_at)
        times = wording.count(skip.skips, "time")
        facts.append(Fact("last skip", wording.moment(checked), f"{skip.reason}; {times} since the last run"))
    if outlook:
        facts.append(Fact("looked at", wording.moment(outlook.looked_at), wording.ago(outlook.looked_at, now)))
    return tuple(facts)


def _source_row(stream: Stream, name: str, outlook: Outlook | None, now: datetime) -> SourceRow:
    source = stream.sources[name]
    lag = outlook.lags.get(name) if outlook else None
    committed = outlook.committed_offsets.get(name) if outlook else None
    planned = outlook.planned_offsets.get(name) if outlook else None
    return SourceRow(
        name=name,
        kind=source.kind,
        location=source.location,
        committed=wording.logged_offset(committed),
        committed_exact=committed or "",
        planned=wording.logged_offset(planned),
        planned_exact=planned or "",
        is_ahead=planned != committed,
        waiting=_amount([lag.files], [lag.size_bytes], [lag.rows]) if lag and not lag.unreadable else wording.NONE,
        oldest=_oldest([lag.oldest_ms], now) if lag else "",
        unreadable=(lag.unreadable or "") if lag else "",
    )


def _recorded(runs: Sequence[RunFile], generation: int | None) -> dict[int, tuple[str, BatchRecord]]:
    """By batch id, the run and what it says of the batch; the newest run wins."""
    found: dict[int, tuple[str, BatchRecord]] = {}
    for run in reversed(runs):
        if run.record is not None and run.record.generation == generation:
            found |= {batch.batch_id: (run.run_id, batch) for batch in run.record.batches}
    return found


def _logged_row(
    batch: LoggedBatch, done: Mapping[int, tuple[str, BatchRecord]], names: Sequence[str] | None
) -> BatchRow:
    offsets = batch.planned.offsets if batch.planned else {}
    keys = list(names) if names is not None and len(names) == len(offsets) else [f"source {key}" for key in offsets]
    pairs = []
    for name, text in dict(zip(keys, offsets.values(), strict=True)).items():
        end = wording.logged_offset(text)
        pairs.append(OffsetPair(name, end, end if batch.committed else wording.NONE, text or ""))
    if batch.error:
        state = Badge("damaged", "bad")
    elif batch.committed and batch.planned:
        state = Badge("committed", "good")
    elif batch.planned:
        state = Badge("planned", "warn")
    else:
        state = Badge("gone", "none" if batch.committed is None else "bad")
    run_id, record = done.get(batch.batch_id, ("", None))
    planned_at = wording.read_moment(iso_millis(batch.planned.timestamp_ms)) if batch.planned else None
    watermark = batch.committed.next_watermark_ms if batch.committed else 0
    row = batch_row(record) if record else None
    return BatchRow(
        batch_id=batch.batch_id,
        kind=row.kind if row else "",
        state=state,
        offsets=tuple(pairs),
        planned_at=wording.moment(planned_at),
        input_rows=row.input_rows if row else wording.NONE,
        output_rows=row.output_rows if row else wording.NONE,
        watermark=wording.moment(wording.read_moment(iso_millis(watermark))) if watermark else wording.NONE,
        took=row.took if row else wording.NONE,
        rate=row.rate if row else wording.NONE,
        notes=row.notes if row else (),
        run_id=run_id,
        error=batch.error or "",
    )


def batch_row(batch: BatchRecord) -> BatchRow:
    """What a record says of one batch."""
    seconds = _batch_seconds(batch)
    notes = ["the sink held it already"] if batch.was_in_sink else []
    notes += [
        f"{wording.count(rows, 'malformed row')} in {name}" for name, rows in batch.malformed_rows.items() if rows
    ]
    notes += [
        f"{wording.count(files, 'file')} of {name} without a row" for name, files in batch.unread_files.items() if files
    ]
    if batch.sink_version is not None:
        notes.append(f"table version {batch.sink_version}")
    return BatchRow(
        batch_id=batch.batch_id,
        kind=batch.kind.replace("_", " "),
        state=Badge("committed", "good"),
        offsets=(),
        planned_at="",
        input_rows=wording.count(batch.input_rows),
        output_rows=wording.count(batch.output_rows),
        watermark=wording.moment(wording.read_moment(batch.watermark)),
        took=wording.span(seconds),
        rate=_rate(batch),
        notes=tuple(notes),
    )


def _batch_seconds(batch: BatchRecord) -> float | None:
    milliseconds = batch.duration_ms.get("triggerExecution")
    return None if milliseconds is None else milliseconds / 1000


def _rows_per_second(batch: BatchRecord) -> float | None:
    seconds = _batch_seconds(batch)
    return batch.input_rows / seconds if batch.input_rows is not None and seconds else None


def _rate(batch: BatchRecord) -> str:
    rate = _rows_per_second(batch)
    return wording.NONE if rate is None else f"{rate:,.0f} rows/s"


def _charts(runs: Sequence[RunFile], generation: int | None) -> tuple[tuple[str, Chart], ...]:
    """Throughput per batch, the backlog that each run found, and how far the watermark was behind."""
    records = [run.record for run in reversed(runs) if run.record is not None and run.record.generation == generation]
    charts = [
        ("Throughput by batch", _throughput(records)),
        ("Backlog found by each run", _backlog(records)),
        ("Watermark behind the batch's clock", _delay(records)),
    ]
    return tuple((title, chart) for title, chart in charts if chart is not None)


def _throughput(records: Sequence[ShownRecord]) -> Chart | None:
    batches = [batch for record in records for batch in record.batches if batch.kind != "no_data"][-_MOST_BATCHES:]
    if not batches:
        return None
    values = [
        Value(
            _rows_per_second(batch),
            "info",
            f"batch {batch.batch_id}: {_rate(batch)}, {wording.count(batch.input_rows, 'row')}",
        )
        for batch in batches
    ]
    largest = max(value.amount or 0 for value in values)
    top = f"{largest:,.0f} rows/s"
    ends = f"batch {batches[0].batch_id}", f"batch {batches[-1].batch_id}"
    return bar_chart(values, top=top, first=ends[0], last=ends[1], summary=f"{len(values)} batches, at most {top}")


def _backlog(records: Sequence[ShownRecord]) -> Chart | None:
    """In the first of rows, bytes and files that every plan knows."""
    found = []
    for record in records:
        plan = read_plan(record.plan)
        if plan is not None:
            found.append((record, [part for batch in plan.batches for part in batch.sources.values()]))
    taken = [(record, [part for part in parts if part.start != part.end]) for record, parts in found][-_MOST_BATCHES:]
    if not taken:
        return None
    values = []
    for record, parts in taken:
        amount = _amount(
            [part.files for part in parts], [part.size_bytes for part in parts], [part.rows for part in parts]
        )
        weight = sum(part.size_bytes or part.files or 0 for part in parts)
        values.append(Value(weight, "deep", f"{wording.moment(record.planned_at)}: {amount}"))
    largest = max(range(len(values)), key=lambda index: values[index].amount or 0)
    top = values[largest].label.partition(": ")[2]
    first, last = (wording.moment(taken[index][0].planned_at) for index in (0, -1))
    return bar_chart(values, top=top, first=first, last=last, summary=f"{len(values)} runs, at most {top}")


def _delay(records: Sequence[ShownRecord]) -> Chart | None:
    values: list[Value] = []
    for record in records:
        clocks = _clocks(record)
        for batch in record.batches:
            watermark, clock = wording.read_moment(batch.watermark), clocks.get(batch.batch_id)
            if watermark is not None and clock is not None:
                seconds = max(0.0, (clock - watermark).total_seconds())
                values.append(Value(seconds, "bare", f"batch {batch.batch_id}: {wording.span(seconds)}"))
    if not values:
        return None
    shown = values[-_MOST_BATCHES:]
    top = wording.span(max(value.amount or 0 for value in shown))
    first, last = (shown[index].label.partition(":")[0] for index in (0, -1))
    return line_chart(shown, top=top, first=first, last=last, summary=f"{len(shown)} batches, at most {top}")


def _clocks(record: ShownRecord) -> dict[int, datetime | None]:
    """By batch id, what `current_timestamp()` was in it."""
    plan = read_plan(record.plan)
    return {batch.batch_id: wording.read_moment(batch.timestamp) for batch in plan.batches} if plan else {}


def _generation_row(generation: Generation, current: int | None) -> GenerationRow:
    return GenerationRow(
        number=generation.generation,
        is_current=generation.generation == current,
        created=wording.moment(wording.read_moment(generation.created_at)),
        query_id=generation.query_id,
        sources=", ".join(dict.fromkeys(line.source for line in generation.lines)),
        checkpoint=generation.checkpoint or "",
    )


_LEASE_STATES = {
    "held": (Badge("held", "info"), "The owner renews it: it is alive."),
    "expired": (Badge("expired", "warn"), "The owner has not renewed it in a minute: it hangs, or it is gone."),
    "dead": (Badge("owner is dead", "warn"), "The owner's processes are gone. The next run takes over by itself."),
    "released": (Badge("free", "good"), "Nobody runs this stream. Below is who held it last."),
}


def _lease(holder: LeaseHolder, now: datetime) -> LeaseView:
    lease = holder.lease
    state, explanation = _LEASE_STATES[holder.state]
    processes = ", ".join(str(process.pid) for process in lease.processes)
    return LeaseView(
        state=state,
        explanation=explanation,
        facts=(
            Fact("host", lease.host, f"processes {processes}" if len(lease.processes) > 1 else f"process {processes}"),
            Fact("taken", wording.moment(lease.acquired_at), wording.ago(lease.acquired_at, now)),
            Fact("valid until", wording.moment(lease.expires_at), wording.ago(lease.expires_at, now)),
            Fact("token", str(lease.token)),
        ),
        run_id=lease.run_id,
    )


def problem_view(problem: Problem) -> ProblemView:
    """A problem that was found now."""
    tone = "bad" if problem.is_blocking else "warn"
    return ProblemView(problem.code, problem.cause, problem.consequence, problem.remedy, problem.file, tone)


def run_page(stream: str, run: RunFile, stop: StopRequest | None, now: datetime) -> RunPage:
    """Everything about one run."""
    row = run_row(stream, run, now)
    record = run.record
    if record is None:
        nothing: tuple[Any, ...] = ()
        return RunPage(row, None, nothing, False, 0, 0, 0, nothing, "", nothing, 0, None, nothing, nothing,
                       "The record can't be read", run.error or "", "", "", "")  # fmt: skip
    plan = read_plan(record.plan)
    is_active = record.status in {"planned", "running"}
    done = len(record.batches)
    planned = max(done, len(plan.batches) if plan else 0)
    shown = record.batches[-_MOST_BATCHES:]
    retryable = record.error.get("retryable") if record.error else None
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
        batches=tuple(batch_row(batch) for batch in shown),
        hidden_batches=done - len(shown),
        phases=phases([(f"batch {batch.batch_id}", batch.duration_ms) for batch in shown if batch.duration_ms])
        if any(batch.duration_ms for batch in shown)
        else None,
        checks=_checks(record.quality),
        problems=_plan_problems(plan),
        error_type=_text(record.error, "type"),
        error=_text(record.error, "message"),
        retryable={True: "A retry may succeed.", False: "A retry can't succeed: somebody must act."}.get(retryable, "")
        if isinstance(retryable, bool)
        else "",
        explain=record.explain[:_MOST_EXPLAIN] if isinstance(record.explain, str) else "",
        stop=f"{stop.requested_by} asked it to stop at {wording.moment(wording.read_moment(stop.requested_at))}."
        if stop
        else "",
    )


def _run_facts(record: ShownRecord, plan: PlanDocument | None, now: datetime, *, is_active: bool) -> tuple[Fact, ...]:
    started, ended = wording.read_moment(record.started_at), wording.read_moment(record.ended_at)
    facts = [Fact("planned", wording.moment(record.planned_at), wording.ago(record.planned_at, now))]
    if started is not None:
        facts.append(Fact("started", wording.moment(started), wording.ago(started, now)))
    if ended is not None:
        facts.append(Fact("ended", wording.moment(ended), f"after {wording.span(_seconds(record))}"))
    elif is_active and started is not None:
        facts.append(Fact("running for", wording.span((now - started).total_seconds())))
    if record.until is not None:
        facts.append(Fact("takes input before", wording.moment(record.until)))
    if record.to_version is not None:
        facts.append(Fact("takes versions up to", str(record.to_version)))
    if record.max_batches is not None:
        facts.append(Fact("at most", wording.count(record.max_batches, "batch", units="batches")))
    rows_in, rows_out = (
        _sum(values) for values in ([b.input_rows for b in record.batches], [b.output_rows for b in record.batches])
    )
    if record.batches:
        facts.append(Fact("rows", f"{wording.count(rows_in)} in, {wording.count(rows_out)} out"))
        watermark = wording.read_moment(record.batches[-1].watermark)
        if watermark is not None:
            facts.append(Fact("watermark", wording.moment(watermark)))
    if plan is not None and plan.strategy:
        facts.append(Fact("strategy", plan.strategy))
    facts.append(Fact("generation", str(record.generation), f"token {record.token}" if record.token else ""))
    if record.tries > 1:
        facts.append(Fact("tries", str(record.tries)))
    if record.query_id:
        facts.append(Fact("query id", record.query_id))
    return tuple(facts)


def _plan_note(plan: PlanDocument | None) -> str:
    if plan is None:
        return "The record's plan has a form that this version does not know."
    hidden = len(plan.batches) - _MOST_BATCHES
    return f"and {wording.count(hidden, 'more batch', units='more batches')}" if hidden > 0 else ""


def _planned_rows(plan: PlanDocument | None, done: set[int]) -> tuple[PlannedRow, ...]:
    rows = []
    for batch in (plan.batches if plan else [])[:_MOST_BATCHES]:
        ranges = tuple(
            (
                name,
                wording.offset(part.start),
                wording.offset(part.end),
                _amount([part.files], [part.size_bytes], [part.rows]),
            )
            for name, part in batch.sources.items()
            if part.start != part.end
        )
        rows.append(PlannedRow(str(batch.batch_id), batch.kind.replace("_", " "), ranges, batch.batch_id in done))
    return tuple(rows)


def _plan_problems(plan: PlanDocument | None) -> tuple[ProblemView, ...]:
    if plan is None:
        return ()
    found = [(plan.problem, "bad")] if plan.problem else []
    found += [(warning, "warn") for warning in plan.warnings]
    return tuple(
        ProblemView(problem.code, problem.cause, problem.consequence, problem.remedy, problem.file, tone)
        for problem, tone in found
        if problem is not None
    )


def _checks(quality: Any) -> tuple[CheckRow, ...]:
    checks = quality.get("checks") if isinstance(quality, dict) else None
    rows = []
    for check in checks if isinstance(checks, list) else []:
        kwargs = check.get("kwargs") if isinstance(check, dict) else None
        result = check.get("result") if isinstance(check, dict) else None
        succeeded = isinstance(check, dict) and check.get("success") is True
        policy = _text(check, "policy")
        rows.append(
            CheckRow(
                name=_text(check, "type"),
                subject=_text(kwargs, "column"),
                result=Badge("pass", "good") if succeeded else Badge("fail", "bad" if policy == "fail" else "warn"),
                policy=policy,
                detail=_check_detail(result),
            )
        )
    return tuple(rows)


def _check_detail(result: Any) -> str:
    """Great Expectations' own numbers, in a few words."""
    unexpected, elements = (_text(result, key) for key in ("unexpected_count", "element_count"))
    if unexpected and elements:
        return f"{unexpected} of {elements} rows unexpected"
    observed = _text(result, "observed_value")
    return f"observed {wording.short(observed)}" if observed else ""
