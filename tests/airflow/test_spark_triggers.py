"""Spark's triggers by the operator: the driver takes them from the record, and ends when they do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.utils.state import DagRunState
from airflow_project import StreamProject

from sluice.runs.record import RunRecord
from sluice.trigger import LiveTrigger
from tests.campaign import in_campaigns, rarely
from tests.kafka.conftest import kafka
from tests.kafka.topics import Kafka

__all__ = ["kafka"]

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
RATE = 'sources.other("rate", rowsPerSecond=20, numPartitions=1)'


def declare(project: StreamProject, source: str, sink: str, **others: str) -> None:
    """Let `events` read another source, and write elsewhere."""
    more = "".join(f", {name}={value!r}" for name, value in others.items())
    stream = (
        f'Stream(name="events", sources={{"events": {source}}}, transform="transform_events:events", sink={sink}{more})'
    )
    Path(project.root, "streams", "events.py").write_text(
        f"from sluice import Stream, sinks, sources\nevents = {stream}\n"
    )


def run(project: StreamProject, trigger: str, run_for: str | None = None) -> RunRecord:
    """Run the stream's DAG with a trigger; the record of its only run."""
    time = "" if run_for is None else f', run_for="{run_for}"'
    done = project.dag(f'conn_id="spark_test", trigger="{trigger}"{time}').test(logical_date=START)
    assert done.state == DagRunState.SUCCESS, project.records()
    (record,) = project.records()
    assert record.status == "succeeded"
    return record


@pytest.mark.parametrize(
    ("trigger", "rows", "until", "strategy"),
    [("available-now", [0, 1, 2], None, "drain"), *rarely(("once", [0], START, "exact"))],
)
def test_a_run_that_ends_by_itself(
    stream_project: StreamProject, trigger: str, rows: list[int], until: datetime | None, strategy: str
) -> None:
    """Of three files in batches of one, the last of them from after the interval: all are taken, or the first."""
    declare(
        stream_project,
        'sources.files("in", format="json", schema="n bigint", max_files_per_batch=1)',
        'sinks.delta("out/events")',
    )
    for hours in (-3, -2, 2):
        stream_project.arrive(1, at=START + timedelta(hours=hours))

    record = run(stream_project, trigger)

    assert stream_project.rows() == rows
    assert (record.until, record.plan.strategy, len(record.batches)) == (until, strategy, len(rows))


def test_a_continuous_run(stream_project: StreamProject) -> None:
    """Epochs as they come, for the time that the task gives it; nothing bounds them."""
    declare(stream_project, RATE, "sinks.noop()")

    # In a driver that has just begun, Spark takes some seconds to its first epoch.
    record = run(stream_project, "continuous=300ms", "12s")

    trigger = LiveTrigger(kind="continuous", interval_ms=300, run_for_ms=12_000)
    assert (record.trigger, record.plan.trigger, record.plan.strategy) == (trigger, trigger, "live")
    assert record.until is None
    assert record.batches
    assert record.live is not None
    assert record.ended_at is not None
    assert record.ended_at >= record.live.ends_at


@in_campaigns
def test_a_run_in_real_time(stream_project: StreamProject, kafka: Kafka) -> None:
    """Of the sources that the mode has, Kafka is the only one that a stream can declare."""
    topic = kafka.topic()
    kafka.send(topic, ["1", "2"])
    source = f"sources.kafka({kafka.bootstrap!r}, topics=[{topic!r}])"
    declare(stream_project, source, "sinks.console()", output_mode="update")
    Path(stream_project.root, "transform_events.py").write_text(
        'def events(events):\n    return events.select("value")\n'
    )

    record = run(stream_project, "real-time", "12s")

    assert record.trigger is not None
    assert (record.trigger.kind, record.plan.strategy, record.until) == ("real-time", "live", None)
    assert sum(batch.input_rows or 0 for batch in record.batches) == 2
