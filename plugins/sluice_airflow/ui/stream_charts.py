"""The charts of one stream: throughput, the backlog that its runs found, and how far its watermark is behind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sluice.amounts import UNITS, total
from sluice.plan_document import RangeDocument
from sluice.runs.record import RunRecord
from sluice_airflow.ui import wording
from sluice_airflow.ui.charts import Chart, Value, bar_chart, line_chart
from sluice_airflow.ui.reading import RunFile
from sluice_airflow.ui.rows import describe_amount, describe_rate, rows_per_second

_MOST_BATCHES = 60
"""How many batches a table or a picture of one shows."""


def stream_charts(runs: Sequence[RunFile], generation: int | None) -> tuple[tuple[str, Chart], ...]:
    """Throughput per batch, the backlog that each run found, and how far the watermark was behind; no backfills."""
    found = [run.record for run in reversed(runs) if run.record is not None and run.record.interval is None]
    records = [record for record in found if record.generation == generation]
    charts = [
        ("Throughput by batch", _throughput(records)),
        ("Backlog found by each run", _backlog(records)),
        ("Watermark behind the batch's clock", _delay(records)),
    ]
    return tuple((title, chart) for title, chart in charts if chart is not None)


def _throughput(records: Sequence[RunRecord]) -> Chart | None:
    batches = [batch for record in records for batch in record.batches if batch.kind != "no_data"][-_MOST_BATCHES:]
    if not batches:
        return None
    values = [
        Value(
            rows_per_second(batch),
            "info",
            f"batch {batch.batch_id}: {describe_rate(batch)}, {wording.count(batch.input_rows, 'row')}",
        )
        for batch in batches
    ]
    largest = max(value.amount or 0 for value in values)
    top = wording.rate(largest)
    ends = f"batch {batches[0].batch_id}", f"batch {batches[-1].batch_id}"
    return bar_chart(values, top=top, first=ends[0], last=ends[1], summary=f"{len(values)} batches, at most {top}")


def _backlog(records: Sequence[RunRecord]) -> Chart | None:
    """In the first of rows, bytes and files that every plan knows."""
    taken = [(record, _taken(record)) for record in records[-_MOST_BATCHES:]]
    if not taken:
        return None
    values = []
    for record, parts in taken:
        amount = total(part.amount for part in parts)
        weight = next((amount[unit] for unit in ("bytes", *UNITS) if amount.get(unit)), 0)
        values.append(Value(weight, "deep", f"{wording.moment(record.planned_at)}: {describe_amount(amount)}"))
    largest = max(range(len(values)), key=lambda index: values[index].amount or 0)
    top = values[largest].label.partition(": ")[2]
    first, last = (wording.moment(taken[index][0].planned_at) for index in (0, -1))
    return bar_chart(values, top=top, first=first, last=last, summary=f"{len(values)} runs, at most {top}")


def _taken(record: RunRecord) -> list[RangeDocument]:
    parts = (part for batch in record.plan.batches for part in batch.sources.values())
    return [part for part in parts if part.start != part.end]


def _delay(records: Sequence[RunRecord]) -> Chart | None:
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


def _clocks(record: RunRecord) -> dict[int, datetime | None]:
    """By batch id, what `current_timestamp()` was in it."""
    return {batch.batch_id: wording.read_moment(batch.timestamp) for batch in record.plan.batches}
