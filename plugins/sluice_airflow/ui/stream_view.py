"""What the page of one stream shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sluice.home import Checked, Generation
from sluice.planning.explain import named_stages
from sluice.quality.report import Hold, QualityReport, describe_hold
from sluice.runs.record import BatchRecord
from sluice.stream import Stream
from sluice.times import iso_millis
from sluice.watermarks import WatermarkOutlook
from sluice_airflow.ui import wording
from sluice_airflow.ui.charts import Chart
from sluice_airflow.ui.next_run import NextRun
from sluice_airflow.ui.quality_view import newest_report
from sluice_airflow.ui.reading import LeaseOwner, LoggedBatch, RunFile
from sluice_airflow.ui.rows import (
    Badge,
    BatchRow,
    Fact,
    OffsetPair,
    ProblemView,
    RunRow,
    batch_row,
    describe_backlog,
    describe_waiting,
    problem_view,
    run_row,
)
from sluice_airflow.ui.stream_charts import stream_charts
from sluice_airflow.ui.streams_view import StreamRow


@dataclass(frozen=True)
class PartitionRow:
    """One partition of a source."""

    name: str
    read: str
    reaches: str
    waiting: str


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
    partitions: tuple[PartitionRow, ...] = ()


@dataclass(frozen=True)
class WatermarkRow:
    """One `withWatermark` of a stream that has several: how far it has come."""

    input: str
    watermark: str
    newest_event: str
    delay: str
    holds_back: bool
    remark: str
    """What is not known of it."""


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
    """Who has the lease."""

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
    watermarks: tuple[WatermarkRow, ...]
    """Empty for streams with a single one, which the tile shows."""
    batches: tuple[BatchRow, ...]
    charts: tuple[tuple[str, Chart], ...]
    generations: tuple[GenerationRow, ...]
    lease: LeaseView | None
    problems: tuple[ProblemView, ...]
    runs: tuple[RunRow, ...]
    errors: tuple[str, ...]
    has_quality: bool
    quality: QualityReport | None
    """Of the newest run that was judged."""
    hold: str
    """What quality has blocked or holds, and what to do; empty when nothing."""
    is_releasable: bool
    stages: tuple[tuple[str, str], ...]
    """What the next run does, each stage by its name; empty when it would not start."""


def stream_page(
    stream: Stream,
    row: StreamRow,
    *,
    runs: Sequence[RunFile],
    next_run: NextRun | None,
    batches: Sequence[LoggedBatch],
    generations: Sequence[Generation],
    lease: LeaseOwner | None,
    skip: Checked | None,
    hold: Hold | None,
    errors: Sequence[str],
    now: datetime,
) -> StreamPage:
    """Everything about one stream."""
    current = next_run.generation if next_run else None
    live = next((found for found in generations if found.generation == current), None)
    done = _recorded(runs, current)
    names = [line.source for line in live.lines] if live else None
    return StreamPage(
        row=row,
        facts=_stream_facts(stream, next_run, skip, now),
        sources=tuple(_source_row(stream, name, next_run, now) for name in stream.sources),
        watermarks=tuple(_watermark_rows(next_run.plan.watermarks if next_run and next_run.plan else None)),
        batches=tuple(_logged_row(batch, done, names) for batch in batches),
        charts=stream_charts(runs, current),
        generations=tuple(_generation_row(found, current) for found in generations),
        lease=_lease(lease, now) if lease else None,
        problems=tuple(problem_view(problem) for problem in (next_run.problems if next_run else ())),
        runs=tuple(run_row(stream.name, run, now) for run in runs),
        errors=tuple(errors),
        has_quality=any(run.record is not None and run.record.quality is not None for run in runs),
        quality=newest_report(stream.name, runs),
        hold=describe_hold(hold, stream.name) if hold else "",
        is_releasable=hold is not None and hold.released_by is None,
        stages=tuple(named_stages(next_run.plan.stages if next_run and next_run.plan else ())),
    )


def _stream_facts(stream: Stream, next_run: NextRun | None, skip: Checked | None, now: datetime) -> tuple[Fact, ...]:
    writes = {f"{name}: ": output.sink for name, output in stream.outputs.items()} or {"": stream.sink}
    facts = [
        *(
            Fact("writes", f"{name}{sink.location or sink.kind}", sink.kind if sink.location else "")
            for name, sink in writes.items()
        ),
        Fact("transform", stream.transform_name),
        Fact("output mode", stream.output_mode),
    ]
    if next_run and next_run.generation is not None:
        committed = "none" if next_run.committed_id is None else str(next_run.committed_id)
        planned = "none" if next_run.planned_id is None else str(next_run.planned_id)
        facts.append(Fact("generation", str(next_run.generation)))
        facts.append(Fact("batches", f"committed {committed}, planned {planned}"))
    if skip is not None:
        checked = wording.read_moment(skip.checked_at)
        times = wording.count(skip.skips, "time")
        facts.append(Fact("last skip", wording.moment(checked), f"{skip.reason}; {times} since the last run"))
    if next_run:
        facts.append(Fact("looked at", wording.moment(next_run.looked_at), wording.ago(next_run.looked_at, now)))
    return tuple(facts)


def _source_row(stream: Stream, name: str, next_run: NextRun | None, now: datetime) -> SourceRow:
    source = stream.sources[name]
    lag = next_run.lags.get(name) if next_run else None
    committed = next_run.committed_offsets.get(name) if next_run else None
    planned = next_run.planned_offsets.get(name) if next_run else None
    return SourceRow(
        name=name,
        kind=source.kind,
        location=source.location,
        committed=wording.logged_offset(committed),
        committed_exact=committed or "",
        planned=wording.logged_offset(planned),
        planned_exact=planned or "",
        is_ahead=planned != committed,
        waiting=describe_backlog([lag]) if lag and not lag.unreadable else wording.NONE,
        oldest=describe_waiting([lag], now) if lag else "",
        unreadable=(lag.unreadable or "") if lag else "",
        partitions=tuple(
            PartitionRow(partition, f"{one.read:,}", f"{one.end:,}", f"{one.offsets:,}")
            for partition, one in (lag.partitions if lag else {}).items()
        ),
    )


def _watermark_rows(found: WatermarkOutlook | None) -> Iterator[WatermarkRow]:
    if found is None or len(found.known.inputs) < 2:
        return
    for known in found.known.inputs:
        yield WatermarkRow(
            input=known.input,
            watermark=_event_time(known.watermark_ms or None),
            newest_event=_event_time(known.event_ms),
            delay=wording.span(known.delay_ms / 1000),
            holds_back=known.input in found.held_back_by,
            remark=known.unknown,
        )


def _event_time(milliseconds: int | None) -> str:
    return wording.moment(wording.read_moment(iso_millis(milliseconds)))


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
    "taken": (Badge("taken", "info"), "The owner renews it: it is alive."),
    "expired": (
        Badge("expired", "warn"),
        f"The owner has not renewed it for {wording.LEASE_LIFETIME}: it hangs, or it is gone.",
    ),
    "dead": (Badge("owner is dead", "warn"), "The owner's processes are gone. The next run takes over by itself."),
    "free": (Badge("free", "good"), "Nobody runs this stream now."),
}


def _lease(owner: LeaseOwner, now: datetime) -> LeaseView:
    lease = owner.lease
    state, explanation = _LEASE_STATES[owner.state]
    processes = ", ".join(str(process.pid) for process in lease.processes)
    return LeaseView(
        state=state,
        explanation=explanation,
        facts=(
            Fact("host", lease.host, f"processes {processes}" if len(lease.processes) > 1 else f"process {processes}"),
            Fact("taken", wording.moment(lease.acquired_at), wording.ago(lease.acquired_at, now)),
            *(
                []
                if lease.is_given_up
                else [Fact("valid until", wording.moment(lease.expires_at), wording.ago(lease.expires_at, now))]
            ),
            Fact("token", str(lease.token)),
        ),
        run_id=lease.run_id,
    )
