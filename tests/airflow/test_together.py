"""Several streams of a DAG with one driver: real DAG runs, a real database and a real driver."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow_project import StreamProject

from sluice.project import find_project
from sluice.runs.driver import Drivers
from sluice.runs.record import RunRecord, RunRecords

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
_MORE = """
from pathlib import Path
from sluice import Stream, sinks, sources

def numbers(name, place, transform):
    read = sources.files(place, format="json", schema="n bigint")
    return Stream(name=name, sources={"events": read}, transform=transform, sink=sinks.delta(f"out/{name}"))

failing = numbers("failing", "in", "transform_events:until_mended")
idle = numbers("idle", "nothing", "transform_events:events")
"""
_TRANSFORMS = """
from pathlib import Path

def events(events):
    return events

def until_mended(events):
    is_mended = Path(__file__).with_name("mended").exists()
    Path(__file__).with_name("mended").touch()
    return events if is_mended else events.where("raise_error('not yet') is null")
"""
STREAMS = '"hourly", "idle", "events", "failing"'


@pytest.fixture
def several(stream_project: StreamProject) -> StreamProject:
    """Beside `events` and `hourly`, a stream that fails at its first try, and one with nothing to do."""
    (stream_project.root / "streams" / "more.py").write_text(_MORE)
    (stream_project.root / "transform_events.py").write_text(_TRANSFORMS)
    (stream_project.root / "nothing").mkdir()
    return stream_project


@pytest.mark.spark
def test_one_driver_for_all(several: StreamProject) -> None:
    """Each stream has its own run, outcome, retry and event: what failed is tried again by itself, and nothing else."""
    several.arrive(2, at=START - timedelta(hours=2))
    dag = several.dag(
        'conn_id="spark_test", together=True, default_args={"retries": 1, "retry_delay": timedelta(0)}', streams=STREAMS
    )

    run = dag.test(logical_date=START)

    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    print(states)
    for name in ("events", "hourly", "failing", "idle"):
        print(name, records(several, name))
    assert 0


def records(project: StreamProject, name: str) -> list[RunRecord]:
    found = find_project(str(project.root))
    return list(RunRecords(found.home_named(name)).newest(10))
