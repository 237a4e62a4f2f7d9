"""What the page of all streams shows: pure functions from what was read to words and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sluice.monitoring.inspection import SourceLag
from sluice.quality.report import Hold
from sluice.times import iso_millis
from sluice_airflow.ui import wording
from sluice_airflow.ui.charts import Chart, Value, sparkline
from sluice_airflow.ui.outlook import Outlook
from sluice_airflow.ui.reading import BrokenFile, RunFile
from sluice_airflow.ui.rows import (
    STATUS_TONES,
    VERDICT_TONES,
    Badge,
    RunRow,
    describe_amount,
    describe_oldest,
    run_row,
    run_rows,
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
class StreamsPage:
    """All streams that the user may see."""

    rows: tuple[StreamRow, ...]
    broken: tuple[BrokenFile, ...]
    has_quality: bool
    is_pending: bool
    counts: tuple[Badge, ...]


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
        has_quality=any(row.quality or row.hold for row in ordered),
        is_pending=any(row.is_pending for row in ordered),
        counts=tuple(counts.values()),
    )


def stream_row(
    name: str,
    runs: Sequence[RunFile],
    outlook: Outlook | None,
    now: datetime,
    *,
    hold: Hold | None = None,
    error: str = "",
) -> StreamRow:
    """One stream in a line.

    Args:
        name: The stream.
        runs: Its newest runs, newest first.
        outlook: What its next run would do; None while that is being looked up.
        now: The time.
        hold: What quality has blocked or holds.
        error: Why the home can't be read, if so.
    """
    rows = [run_row(name, run, now) for run in runs]
    plan = outlook.plan if outlook else None
    watermark = outlook.watermark_ms if outlook else None
    under_way = [row for row in rows if row.status.text in {"planned", "running"}]
    running = next((row for row in under_way if not row.interval), next(iter(under_way), None))
    # Backfills run beside the live stream: they neither hold it, nor does their end change its plan.
    verdict, reason = _verdict(outlook, None if running is None or running.interval else running, hold)
    lag, lag_remark = _lag(list(outlook.lags.values()) if outlook else [], now, is_known=plan is not None)
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
        error=error or ((outlook.error or "") if outlook else ""),
        is_pending=outlook is None,
    )


def hold_badge(hold: Hold | None) -> Badge | None:
    """What quality has blocked or holds, in a word."""
    if hold is None:
        return None
    if hold.released_by:
        return Badge("released", "info")
    return Badge("blocked" if hold.state == "blocked" else "held", "bad")


def _verdict(outlook: Outlook | None, running: RunRow | None, hold: Hold | None) -> tuple[Badge, str]:
    """What the next run would do, and why; while a run goes on, that is still open."""
    if outlook is None:
        return Badge("planning", "none"), ""
    if running is not None and outlook.is_held:
        return Badge("running", "info"), f"{running.batches} batches; the next run is planned when this one ends"
    if outlook.plan is None:
        return Badge("unknown", "bad"), ""
    plan = outlook.plan
    if hold is not None and hold.state == "failed" and plan.verdict != "refuse":
        # A run judges anew by the suite of then, which is not read here: a suite in Python takes seconds to import.
        return Badge("held", "bad"), f"what run {hold.run_id} wrote has failed, unless the suite was corrected since"
    gone = "; the driver of the last run is gone" if running is not None else ""
    return Badge(plan.verdict, VERDICT_TONES.get(plan.verdict, "none")), f"{plan.reason}{gone}"


def _lag(lags: Sequence[SourceLag], now: datetime, *, is_known: bool) -> tuple[str, str]:
    unreadable = [lag.unreadable for lag in lags if lag.unreadable]
    if unreadable:
        return "unknown", wording.short(unreadable[0])
    if not is_known or not lags:
        return wording.NONE, ""
    return describe_amount(
        [lag.files for lag in lags], [lag.size_bytes for lag in lags], [lag.rows for lag in lags]
    ), describe_oldest([lag.oldest_ms for lag in lags], now)


def _runs_picture(runs: Sequence[RunFile]) -> Chart:
    values = []
    for run in reversed(runs):
        if run.record is None:
            values.append(Value(None, "bad", f"{run.run_id}: the record can't be read"))
            continue
        seconds = run_seconds(run.record)
        kind = "backfill, " if run.record.interval else ""
        rows = wording.count(run_rows(run.record), "row")
        label = f"{run.run_id}: {kind}{run.record.status}, {rows}, {wording.span(seconds)}"
        values.append(Value(seconds, STATUS_TONES[run.record.status], label))
    return sparkline(values)
