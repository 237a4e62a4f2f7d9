"""The assets of a stream with several sinks: each has the events of the runs that wrote into it, and of no others.

The drivers are small programs that end runs in place of Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.models.asset import AssetEvent, AssetModel
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from airflow_project import StreamProject
from ended_runs import Launched, launching
from sqlalchemy import select

from sluice.runs.record import BatchRecord

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
_SUCCESS = TaskInstanceState.SUCCESS
_ONCE = 'conn_id="spark_test", default_args={"retries": 0}'
_DECLARATION = """
from sluice import Stream, sinks, sources

events = Stream(
    name="events",
    sources={"events": sources.files("in", format="json", schema="n bigint")},
    transform="transform_events:sorted_out",
    sinks={"good": sinks.delta("out/events"), "rest": sinks.delta("out/rest", partition_by=["part"])},
)
"""


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    found = launching(monkeypatch)
    yield found
    found.end()


@pytest.fixture(autouse=True)
def declared(stream_project: StreamProject) -> None:
    (stream_project.root / "streams" / "events.py").write_text(_DECLARATION)
    (stream_project.root / "transform_events.py").write_text("def sorted_out(events): ...\n")
    stream_project.arrive(1, at=START - timedelta(hours=2))


def test_each_sink_has_the_events_of_the_runs_that_wrote_into_it(
    stream_project: StreamProject, launched: Launched
) -> None:
    """The second of two that are written by one run, the first alone by the next one, and neither by a third."""
    dag = stream_project.dag(_ONCE)
    root = stream_project.root
    for day, rows in enumerate(({"good": 0, "rest": 2}, {"good": 3, "rest": 0}, {"good": 0, "rest": 0})):
        launched.batches = (batch(day, rows),)
        run = dag.test(logical_date=START + timedelta(days=day))
        assert {ti.task_id: ti.state for ti in run.get_task_instances()} == {"events": _SUCCESS}

    _, second, first = stream_project.records()
    assert [(event["run_id"], event["output_rows"]) for event in events(f"file://{root}/out/rest")] == [
        (first.run_id, 2)
    ]
    assert [(event["run_id"], event["output_rows"]) for event in events(f"file://{root}/out/events")] == [
        (second.run_id, 3)
    ]


def batch(batch_id: int, rows: dict[str, int]) -> BatchRecord:
    return BatchRecord(
        batch_id=batch_id, kind="data", input_rows=4, output_rows=sum(rows.values()), watermark=None, rows_by_sink=rows
    )


def events(uri: str) -> list[dict[str, Any]]:
    """What the events of an asset say, oldest first."""
    with create_session() as session:
        of_asset = select(AssetEvent.extra).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return list(session.scalars(of_asset.where(AssetModel.uri == uri).order_by(AssetEvent.id)))
