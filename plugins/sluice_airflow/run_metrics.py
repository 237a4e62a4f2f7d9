"""Metrics of a stream's run, sent through Airflow's own: to StatsD, Datadog or OpenTelemetry, whichever is configured.

| metric | kind | what |
|---|---|---|
| `sluice.run.STATUS` | counter | tasks that ended so: succeeded, skipped, failed, stopped, refused, retried |
| `sluice.run.duration` | timing | of the run's last try |
| `sluice.batches`, `sluice.rows.in`, `sluice.rows.out` | counter | of the run, once, when its last try is over |
| `sluice.quality.VERDICT` | counter | judged runs by verdict: pass, warn, fail |
| `sluice.quality.failed_checks` | gauge | checks that failed in the run |
| `sluice.unbalanced_runs` | counter | runs of which rows are nowhere, or there twice (`ROWS_NOT_IN_BALANCE`) |
| `sluice.rows.dropped`, `sluice.rows.quarantined` | counter | rows that the suite has taken away |
| `sluice.watermark_delay` | gauge | seconds from the committed watermark to now |
| `sluice.backlog.files`, `.offsets`, `.bytes`, `.rows`, `.age` | gauge | what waits in all sources; age in seconds |
| `sluice.backlog.held_back` | gauge | files that no run takes, because they look like renamed ones |

Each bears the tags `stream` and `dag_id`. Plain StatsD has no tags: there the stream stands in the name, as in
`sluice.departures.rows.in`. What is not known is not sent: it is never reported as 0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from airflow.configuration import conf
from airflow.sdk.observability import stats

from sluice.amounts import known_sum, total
from sluice.home import StreamHome
from sluice.monitoring.inspection import SourceLag, stream_lag
from sluice.monitoring.progress import read_progress
from sluice.runs.balance import balance_of
from sluice.runs.record import RunRecord, RunRecords
from sluice.stream import Stream
from sluice.times import parse_time
from sluice_airflow.projects import airflow_project
from sluice_airflow.run_keys import run_key
from sluice_airflow.time_limit import look_within

T = TypeVar("T")

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 5.0
"""How long the end of a task may wait for each of: its record, the watermark, the backlog."""
_PREFIX = "sluice"


@dataclass(frozen=True)
class Measurement:
    """One value of one metric."""

    name: str
    """Without the prefix."""
    kind: Literal["counter", "gauge", "timing"]
    value: float
    """Milliseconds for a timing."""


def send_metrics(task_instance: Any, outcome: str) -> None:
    """Measure a stream after a task has run it, and send what could be measured.

    Args:
        task_instance: The task instance in its worker.
        outcome: How the task ended: `succeeded`, `skipped`, `failed`, or `retried` when it is tried again.
    """
    if not _is_anybody_listening():
        return
    for measured in measure(task_instance, outcome):
        _send(measured, task_instance.task.stream, task_instance.dag_id)


def send_idle_metrics(task_instance: Any) -> None:
    """Measure the streams that a task has found with nothing to do, and whose own tasks it has skipped.

    Args:
        task_instance: The instance, in its worker, of a `RunTogetherOperator`'s task.
    """
    if not _is_anybody_listening():
        return
    for name in task_instance.task.idle:
        for measured in _measure_stream(name, task_instance.task.project, lambda _home: None, "skipped"):
            _send(measured, name, task_instance.dag_id)


def _is_anybody_listening() -> bool:
    return any(conf.getboolean("metrics", option) for option in ("statsd_on", "statsd_datadog_enabled", "otel_on"))


def measure(task_instance: Any, outcome: str) -> Iterator[Measurement]:
    """What can be told of a run and its stream; what can't be read is logged and left out.

    Args:
        task_instance: The task instance in its worker.
        outcome: As in `send_metrics`.
    """
    task = task_instance.task
    yield from _measure_stream(task.stream, task.project, lambda home: _record(home, task_instance), outcome)


def _measure_stream(
    name: str, project: str | None, find_record: Callable[[StreamHome], RunRecord | None], outcome: str
) -> Iterator[Measurement]:
    declared = _look(name, "all but how the task ended", lambda: _declared(name, project))
    if declared is None:
        yield Measurement(f"run.{outcome}", "counter", 1)
        return
    stream, home = declared
    now = datetime.now(UTC)
    record = _look(name, "what the run did", lambda: find_record(home))
    yield Measurement(f"run.{_status(record, outcome)}", "counter", 1)
    if record is not None and outcome != "retried":
        # A retry keeps the batches of the tries before it: counted at the end, each counts once.
        yield from run_measurements(record)
    delay = _look(name, "the watermark", lambda: _watermark_delay(home, now))
    if delay is not None:
        yield delay
    lags = _look(name, "the backlog", lambda: stream_lag(stream, home, now))
    if lags is not None:
        yield from backlog_measurements(lags.values(), now)


def run_measurements(record: RunRecord) -> Iterator[Measurement]:
    """What a run did."""
    yield from _quality(record)
    balance = balance_of(record)
    if balance is not None:
        yield Measurement("unbalanced_runs", "counter", int(balance.is_broken))
    if record.backfill is not None:
        if record.backfill.rows_written is not None:
            yield Measurement("rows.out", "counter", record.backfill.rows_written)
        yield from _duration(record)
        return
    yield Measurement("batches", "counter", len(record.batches))
    for name, rows in (("rows.in", _rows(record, "input_rows")), ("rows.out", _rows(record, "output_rows"))):
        if rows is not None:
            yield Measurement(name, "counter", rows)
    yield from _duration(record)


def backlog_measurements(lags: Iterable[SourceLag], now: datetime) -> Iterator[Measurement]:
    """What waits in all sources together; nothing when one of them can't be read."""
    found = list(lags)
    unreadable = [lag.unreadable for lag in found if lag.unreadable is not None]
    if unreadable:
        logger.warning("the backlog is not known: %s", "; ".join(unreadable))
        return
    for unit, count in total(lag.amount for lag in found).items():
        yield Measurement(f"backlog.{unit}", "gauge", count)
    yield Measurement("backlog.held_back", "gauge", sum(sum(lag.set_aside.values()) for lag in found))
    ages = (lag.as_json(now)["age_seconds"] for lag in found)
    yield Measurement("backlog.age", "gauge", max((age for age in ages if age is not None), default=0.0))


def _quality(record: RunRecord) -> Iterator[Measurement]:
    quality = record.quality
    if quality is None:
        return
    yield Measurement(f"quality.{quality.verdict}", "counter", 1)
    yield Measurement("quality.failed_checks", "gauge", quality.failed_checks)
    if quality.rows is not None:
        yield Measurement("rows.dropped", "counter", quality.dropped)
        yield Measurement("rows.quarantined", "counter", quality.quarantined)


def _duration(record: RunRecord) -> Iterator[Measurement]:
    started, ended = parse_time(record.started_at), parse_time(record.ended_at)
    if started is not None and ended is not None:
        yield Measurement("run.duration", "timing", max(0.0, (ended - started).total_seconds() * 1000))


def _declared(name: str, project: str | None) -> tuple[Stream, StreamHome]:
    found = airflow_project(project)
    stream = found.stream(name)
    return stream, found.stream_home(stream)


def _look(stream: str, what: str, look: Callable[[], T]) -> T | None:
    """What a look finds; None when it fails, which is logged."""
    try:
        return look_within(_PATIENCE_SECONDS, look)
    except Exception as exc:
        # Declarations and sources are a user's own, and raise anything; metrics fail no task.
        logger.warning("metrics of stream %s lack %s: %s", stream, what, exc)
        return None


def _record(home: StreamHome, task_instance: Any) -> RunRecord | None:
    records, task = RunRecords(home), task_instance.task
    if task.followed_run is not None:
        return records.read(task.followed_run[1])
    # One that has come to no run: what the tries before it have done counts.
    return records.find(str(task.taken_key or run_key(task_instance, task.retries or 0)))


def _watermark_delay(home: StreamHome, now: datetime) -> Measurement | None:
    watermark_ms = read_progress(home).watermark_ms
    if watermark_ms is None:
        return None
    return Measurement("watermark_delay", "gauge", round(now.timestamp() - watermark_ms / 1000, 3))


def _status(record: RunRecord | None, outcome: str) -> str:
    """How the run ended; the record knows more of a failure than the task."""
    if outcome == "failed" and record is not None and record.status in {"stopped", "refused"}:
        return record.status
    return outcome


def _rows(record: RunRecord, which: Literal["input_rows", "output_rows"]) -> int | None:
    """The rows of all batches; None when those of one are not known."""
    return known_sum(getattr(batch, which) for batch in record.batches)


def _send(measured: Measurement, stream: str, dag_id: str) -> None:
    has_tags = (
        conf.getboolean("metrics", "statsd_datadog_enabled")
        or conf.getboolean("metrics", "statsd_influxdb_enabled")
        or not conf.getboolean("metrics", "statsd_on")
    )
    name = f"{_PREFIX}.{measured.name}" if has_tags else f"{_PREFIX}.{stream}.{measured.name}"
    tags = {"stream": stream, "dag_id": dag_id}
    match measured.kind:
        case "counter":
            stats.incr(name, int(measured.value), tags=tags)
        case "gauge":
            stats.gauge(name, measured.value, tags=tags)
        case "timing":
            stats.timing(name, timedelta(milliseconds=measured.value), tags=tags)
