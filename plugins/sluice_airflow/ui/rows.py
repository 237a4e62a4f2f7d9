"""What several pages show: badges, facts, problems, runs and batches in a line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sluice.amounts import UNITS, Amount, count_of, describe_count, known_sum, total
from sluice.errors import Problem
from sluice.monitoring.inspection import SourceLag
from sluice.runs.record import BatchRecord, RunRecord
from sluice.runs.summary import RunLine, line_of
from sluice.times import iso_millis
from sluice_airflow.run_keys import parse_run_key
from sluice_airflow.ui import wording
from sluice_airflow.ui.reading import RunFile

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


NOT_IN_BALANCE = Badge("not in balance", "bad")
"""Of a run whose rows are nowhere, or there twice."""


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
    interval: str = ""
    """The rows that a backfill recomputes; empty for a run of the live stream."""
    balance: Badge | None = None
    """Said only where rows are nowhere, or there twice."""


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


def describe_amount(amount: Amount) -> str:
    """What waits or was taken, in words; bytes as people read sizes."""
    if not amount:
        return "not counted"
    told = {unit: amount[unit] for unit in UNITS if amount.get(unit)}
    parts = (wording.size(count) if unit == "bytes" else count_of(count, unit) for unit, count in told.items())
    return ", ".join(parts) or "nothing"


def describe_backlog(lags: Sequence[SourceLag]) -> str:
    """What waits in sources, in words; of one that does not count it, in how many batches it would be taken."""
    counted, uncounted = [lag.amount for lag in lags if lag.amount], [lag for lag in lags if not lag.amount]
    told = describe_amount(total(counted)) if counted else ""
    if not uncounted:
        return told
    batches = known_sum(lag.batches for lag in uncounted)
    rest = "not known" if batches is None else count_of(batches, "batches")
    return rest if told in {"", "nothing"} else f"{told}, {rest}"


def describe_oldest(oldest_ms: Sequence[int | None], now: datetime) -> str:
    """How long ago the oldest thing arrived that waits."""
    known = [value for value in oldest_ms if value is not None]
    at = wording.read_moment(iso_millis(min(known))) if known else None
    return f"oldest {wording.ago(at, now)}" if at else ""


def describe_waiting(lags: Sequence[SourceLag], now: datetime) -> str:
    """How long ago the oldest thing arrived that waits, and how much is set aside for what it looks like."""
    amount = total(lag.set_aside for lag in lags)
    set_aside = f"{describe_count(amount)} set aside" if any(amount.values()) else ""
    return ", ".join(filter(None, (describe_oldest([lag.oldest_ms for lag in lags], now), set_aside)))


def sum_known(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def run_seconds(run: RunLine | RunRecord) -> float | None:
    """How long a run took; None while it goes on, and when its times are no times."""
    started, ended = wording.read_moment(run.started_at), wording.read_moment(run.ended_at)
    return None if started is None or ended is None else max(0.0, (ended - started).total_seconds())


def run_row(stream: str, run: RunFile, now: datetime) -> RunRow:
    """One run in a line."""
    record = run.record
    if record is None:
        return RunRow(
            run.run_id, stream, Badge("damaged", "bad"), "", "", "", "", "", "", None, "", error=run.error or ""
        )
    key = parse_run_key(record.run_key)
    return replace(
        line_row(stream, run_line(run), now),
        reason=record.plan.reason,
        task=f"{key.dag_id} / {key.task_id}" if key else "",
        error=record.error.message if record.error else "",
    )


def line_row(stream: str, line: RunLine, now: datetime) -> RunRow:
    """What the line of a run tells."""
    if line.error:
        return RunRow(line.run_id, stream, Badge("damaged", "bad"), "", "", "", "", "", "", None, "", error=line.error)
    started = wording.read_moment(line.started_at) or line.planned_at
    done, planned = line.batches, line.planned_batches
    return RunRow(
        run_id=line.run_id,
        stream=stream,
        status=Badge(line.status, STATUS_TONES[line.status]),
        started=wording.moment(started),
        ago=wording.ago(started, now),
        took=wording.span(run_seconds(line)),
        batches=wording.NONE if line.interval else f"{done:,}" if done >= planned else f"{done:,} of {planned:,}",
        rows=wording.count(line.rows),
        reason="",
        quality=_verdict_badge(line.verdict),
        task="",
        interval=wording.interval(line.interval.start, line.interval.end) if line.interval else "",
        balance=NOT_IN_BALANCE if line.is_unbalanced else None,
    )


def run_line(run: RunFile) -> RunLine:
    """The line of a run whose record was read."""
    record = run.record
    if record is None:
        return RunLine(run_id=run.run_id, error=run.error or "the record can't be read")
    return line_of(run.run_id, record)


def _verdict_badge(verdict: str) -> Badge | None:
    return Badge(verdict, QUALITY_TONES.get(verdict, "none")) if verdict else None


def batch_row(batch: BatchRecord) -> BatchRow:
    """What a record says of one batch."""
    seconds = _batch_seconds(batch)
    notes = ["it was in the sink already"] if batch.was_in_sink else []
    notes += [
        f"{wording.count(rows, 'malformed row')} in {name}" for name, rows in batch.malformed_rows.items() if rows
    ]
    notes += [
        f"{wording.count(files, 'file')} of {name} without a row" for name, files in batch.unread_files.items() if files
    ]
    if batch.state:
        rows = wording.count(sum(kept.rows for kept in batch.state), "row")
        notes.append(f"{rows} in state, {wording.size(sum(kept.memory_bytes for kept in batch.state))}")
        late = sum(kept.late_rows for kept in batch.state)
        notes += [f"{wording.count(late, 'late row')} dropped"] if late else []
    if batch.held_back_by:
        notes.append(f"watermark held back by {', '.join(batch.held_back_by)}")
    notes += [f"{wording.count(rows, 'row')} in sink {name}" for name, rows in batch.rows_by_sink.items()]
    if batch.quarantined_rows:
        notes.append(f"{wording.count(batch.quarantined_rows, 'row')} put into quarantine")
    if batch.dropped_rows:
        notes.append(f"{wording.count(batch.dropped_rows, 'row')} dropped by the suite")
    if batch.decided_by is not None:
        notes.append(f"finished as run {batch.decided_by} had decided")
    if batch.changed:
        notes.append(f"begun with another {', '.join(batch.changed)}")
    notes += batch.warnings
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
        rate=describe_rate(batch),
        notes=tuple(notes),
    )


def _batch_seconds(batch: BatchRecord) -> float | None:
    milliseconds = batch.duration_ms.get("triggerExecution")
    return None if milliseconds is None else milliseconds / 1000


def rows_per_second(batch: BatchRecord) -> float | None:
    """How fast a batch was; None when that is not known, and for batches without rows."""
    seconds = _batch_seconds(batch)
    return batch.input_rows / seconds if batch.input_rows and seconds else None


def describe_rate(batch: BatchRecord) -> str:
    """How fast a batch was."""
    return wording.rate(rows_per_second(batch))


def problem_view(problem: Problem) -> ProblemView:
    """A problem that was found now."""
    tone = "bad" if problem.is_blocking else "warn"
    return ProblemView(problem.code, problem.cause, problem.consequence, problem.remedy, problem.file, tone)
