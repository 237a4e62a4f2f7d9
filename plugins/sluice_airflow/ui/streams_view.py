"""What the page of all streams shows: pure functions from what was read to words and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sluice.errors import DeclarationError
from sluice.monitoring.inspection import SourceLag
from sluice.quality.report import Hold
from sluice.runs.summary import RunLine
from sluice.times import iso_millis
from sluice_airflow.ui import wording
from sluice_airflow.ui.charts import Chart, Value, sparkline
from sluice_airflow.ui.next_run import NextRun
from sluice_airflow.ui.rows import (
    NOT_IN_BALANCE,
    STATUS_TONES,
    VERDICT_TONES,
    Badge,
    RunRow,
    describe_backlog,
    describe_waiting,
    line_row,
    run_seconds,
)


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
    hold: Badge | None
    runs: Chart
    last_run: RunRow | None
    running: RunRow | None
    error: str = ""
    is_pending: bool = False


@dataclass(frozen=True)
class Part:
    """Which of the streams a page shows."""

    names: tuple[str, ...]
    first: int
    """The number of the first of them, from 1; 0 when there is none."""
    total: int
    """How many streams there are, of those that the search has found."""
    number: int
    """The number of this page, from 1."""
    pages: int
    search: str

    @property
    def last(self) -> int:
        """The number of the last stream on the page."""
        return self.first + len(self.names) - 1 if self.names else 0


@dataclass(frozen=True)
class StreamsPage:
    """A part of the streams that the user may see."""

    rows: tuple[StreamRow, ...]
    part: Part
    errors: tuple[tuple[str, str], ...]
    has_quality: bool
    is_pending: bool
    counts: tuple[Badge, ...]


def part_of(runs: Mapping[str, Sequence[RunLine]], *, search: str, number: int, length: int) -> Part:
    """One page of streams; those whose last runs say that somebody is needed come first.

    Args:
        runs: By stream, its newest runs, newest first: of those streams that the search has found.
        search: What was searched for.
        number: Which page; one that is not there is the nearest that is.
        length: How many streams there are on a page.
    """
    ordered = sorted(runs, key=lambda name: (_urgency(runs[name]), name))
    pages = max(1, -(-len(ordered) // length))
    number = min(max(1, number), pages)
    names = tuple(ordered[(number - 1) * length : number * length])
    first = (number - 1) * length + 1 if names else 0
    return Part(names, first, len(ordered), number, pages, search)


def who_needs_somebody(runs: Mapping[str, Sequence[RunLine]]) -> list[str]:
    """The streams whose last run says that somebody should look.

    Args:
        runs: By stream, its newest runs, newest first.
    """
    return [name for name, lines in runs.items() if _urgency(lines) == 0]


def is_found(words: Sequence[str], texts: Iterable[str]) -> bool:
    """Whether every word is in one of these texts, in upper or lower case."""
    folded = [text.casefold() for text in texts]
    return all(any(word.casefold() in text for text in folded) for word in words)


def _urgency(runs: Sequence[RunLine]) -> int:
    """How soon somebody should look, by the newest run of the live stream that has ended: 0 is at once."""
    last = next((run for run in runs if run.error or not (run.interval or run.status in {"planned", "running"})), None)
    if last is None:
        return 2
    if last.error or last.status in {"failed", "refused"} or last.verdict == "fail" or last.is_unbalanced:
        return 0
    return 1 if last.status == "stopped" else 2


def streams_page(rows: Sequence[StreamRow], part: Part, errors: Sequence[tuple[str, DeclarationError]]) -> StreamsPage:
    """The list of streams; those that need somebody come first."""
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
        part=part,
        errors=tuple((file, str(error)) for file, error in errors),
        has_quality=any(row.quality or row.hold for row in ordered),
        is_pending=any(row.is_pending for row in ordered),
        counts=tuple(counts.values()),
    )


def stream_row(
    name: str,
    runs: Sequence[RunLine],
    next_run: NextRun | None,
    now: datetime,
    *,
    hold: Hold | None = None,
    error: str = "",
) -> StreamRow:
    """One stream in a line.

    Args:
        name: The stream.
        runs: Its newest runs, newest first.
        next_run: What its next run would do; None while that is being looked up.
        now: The time.
        hold: What quality has blocked or holds.
        error: Why the home can't be read, if so.
    """
    rows = [line_row(name, run, now) for run in runs]
    plan = next_run.plan if next_run else None
    watermark = next_run.watermark_ms if next_run else None
    under_way = [row for row in rows if row.status.text in {"planned", "running"}]
    running = next((row for row in under_way if not row.interval), next(iter(under_way), None))
    # Backfills run beside the live stream: they neither hold it, nor does their end change its plan.
    verdict, reason = _verdict(next_run, None if running is None or running.interval else running)
    lag, lag_remark = _lag(list(next_run.lags.values()) if next_run else [], now, is_known=plan is not None)
    at = wording.read_moment(iso_millis(watermark)) if watermark is not None else None
    return StreamRow(
        name=name,
        verdict=verdict,
        reason=reason,
        lag=lag,
        lag_remark=lag_remark,
        watermark=wording.moment(at),
        watermark_remark=f"{wording.span((now - at).total_seconds())} behind" if at and at < now else "",
        quality=next((row.quality for row in rows if row.quality), None),
        hold=hold_badge(hold),
        runs=_runs_picture(runs),
        last_run=rows[0] if rows else None,
        running=running,
        error=error or ((next_run.error or "") if next_run else ""),
        is_pending=next_run is None,
    )


def hold_badge(hold: Hold | None) -> Badge | None:
    """What quality has blocked or holds, in a word."""
    if hold is None:
        return None
    if hold.released_by:
        return Badge("released", "info")
    return Badge("blocked" if hold.state == "blocked" else "held", "bad")


def _verdict(next_run: NextRun | None, running: RunRow | None) -> tuple[Badge, str]:
    """What the next run would do, and why; while a run goes on, that is still open."""
    if next_run is None:
        return Badge("planning", "none"), ""
    if next_run.hangs_for is not None:
        took = wording.span(next_run.hangs_for)
        return Badge("no answer", "warn"), f"its home, sources and sink are being looked at for {took} now"
    if running is not None and next_run.taken is not None:
        return Badge("running", "info"), f"{running.batches} batches; the next run is planned when this one ends"
    if next_run.plan is None:
        return Badge("unknown", "bad"), ""
    plan = next_run.plan
    gone = "; the driver of the last run is gone" if running is not None else ""
    return Badge(plan.verdict, VERDICT_TONES.get(plan.verdict, "none")), f"{plan.reason}{gone}"


def _lag(lags: Sequence[SourceLag], now: datetime, *, is_known: bool) -> tuple[str, str]:
    unreadable = [lag.unreadable for lag in lags if lag.unreadable]
    if unreadable:
        return "unknown", wording.short(unreadable[0])
    if not is_known or not lags:
        return wording.NONE, ""
    return describe_backlog(lags), describe_waiting(lags, now)


def _runs_picture(runs: Sequence[RunLine]) -> Chart:
    values = []
    for run in reversed(runs):
        if run.error:
            values.append(Value(None, "bad", f"{run.run_id}: the record can't be read"))
            continue
        seconds = run_seconds(run)
        kind = "backfill, " if run.interval else ""
        label = f"{run.run_id}: {kind}{run.status}, {wording.count(run.rows, 'row')}, {wording.span(seconds)}"
        if run.is_unbalanced:
            label += f", {NOT_IN_BALANCE.text}"
        values.append(Value(seconds, NOT_IN_BALANCE.tone if run.is_unbalanced else STATUS_TONES[run.status], label))
    return sparkline(values)
