"""Several streams of a DAG with one driver: real DAG runs, a real database and a real driver."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.sdk.exceptions import TaskDeferred
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow_project import StreamProject
from deltalake import DeltaTable
from several_streams import NAMES, home_of, make_several, records_of
from sqlalchemy import select
from test_together_and_driver import before, context

from sluice.project import Project
from sluice.runs.driver import Driver, Drivers
from sluice.runs.record import BatchRecord, RunRecord, RunRecords
from sluice_airflow.noted_runs import noted_runs
from sluice_airflow.operators import driver_task, run_together
from sluice_airflow.operators.run_together import RunTogetherOperator
from sluice_airflow.stream_dag import stream_dag
from sluice_airflow.triggers.together import TogetherTrigger
from sluice_airflow.ui.dag_tasks import DagTasks, run_keys

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
_SUCCESS, _SKIPPED, _FAILED = TaskInstanceState.SUCCESS, TaskInstanceState.SKIPPED, TaskInstanceState.FAILED
_STREAMS = '"hourly", "idle", "events", "failing"'


@pytest.fixture
def several(stream_project: StreamProject) -> StreamProject:
    return make_several(stream_project)


@pytest.mark.spark
def test_one_driver_for_all(several: StreamProject) -> None:
    """Each stream has its own run, outcome, retry and event: what failed is tried again by itself, and nothing else."""
    several.arrive(1, at=START - timedelta(hours=2))
    several.arrive(1, at=START + timedelta(hours=2))
    retry = '"retries": 1, "retry_delay": timedelta(0)'

    dag_id = f"-shop.{several.root.name}-2"
    arguments = f'conn_id="spark_test", together=True, default_args={{{retry}}}'
    run = several.dag(arguments, streams=_STREAMS, dag_id=dag_id).test(logical_date=START)

    assert run.state == DagRunState.SUCCESS
    tries = {ti.task_id: (ti.state, ti.try_number) for ti in run.get_task_instances()}
    assert tries == {
        "together": (_SUCCESS, 1), "events": (_SUCCESS, 1), "hourly": (_SUCCESS, 1),
        "failing": (_SUCCESS, 2), "idle": (_SKIPPED, 0),
    }  # fmt: skip
    found = {name: records_of(several, name) for name in NAMES}
    assert {name: [(record.status, record.tries) for record in found[name]] for name in NAMES} == {
        "events": [("succeeded", 1)], "hourly": [("succeeded", 1)], "failing": [("succeeded", 2)], "idle": [],
    }  # fmt: skip
    for name in ("events", "hourly", "failing"):
        (record,) = found[name]
        assert record.run_key == f"{dag_id}/{run.run_id}/{name}/-1/0"
        # The second file arrived after the interval; `hourly` takes what `events` has just left.
        assert DeltaTable(str(several.root / "out" / name)).to_pyarrow_table().column("n").to_pylist() == [0]
        assert _event_run_ids(several, name) == [record.run_id]
    with create_session() as session:
        of_run = TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id
        tasks = session.scalars(select(TaskInstance).where(*of_run))
        noted = {ti.task_id: noted_runs(ti) for ti in tasks}
    # Whoever marks a stream's own task means its run, also one that is of the shared driver.
    assert {name: noted[name] and noted[name].runs for name in NAMES} == {
        "events": {"events": found["events"][0].run_id}, "hourly": {"hourly": found["hourly"][0].run_id},
        "failing": {"failing": found["failing"][0].run_id}, "idle": None,
    }  # fmt: skip
    # As far as its own task would go: what others write to that table meanwhile is the next run's.
    assert found["hourly"][0].to_version == found["events"][0].sink_version == 0
    # Which nobody has typed: of a stream that Spark has to drain, it would be left out.
    assert {record.is_default_bound for name in NAMES for record in found[name]} == {True}
    drivers = {name: Drivers(home_of(several, name)).find(found[name][0].run_id) for name in found if found[name]}
    assert {name: driver and driver.is_shared for name, driver in drivers.items()} == {
        "events": True, "hourly": True, "failing": False,
    }  # fmt: skip
    assert drivers["events"] is not None
    assert drivers["hourly"] is not None
    assert drivers["events"].process == drivers["hourly"].process


@pytest.mark.spark
def test_a_driver_that_was_asked_to_end(several: StreamProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends in the midst of the run at work; of the others it is said that they were not begun."""
    monkeypatch.setattr(driver_task, "_STAY_SECONDS", 0.0)
    several.arrive(1, at=START - timedelta(hours=2))
    working = several.root / "working"
    (several.root / "transform_events.py").write_text(
        "from pathlib import Path\nimport time\n\n"
        f"def events(events):\n    Path({str(working)!r}).touch()\n    time.sleep(600)\n\nuntil_mended = events\n"
    )
    task, given = before(several), context()
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(given)
    trigger = deferred.value.trigger
    assert isinstance(trigger, TogetherTrigger)

    async def mark() -> None:
        following = asyncio.ensure_future(trigger.follow())
        async with asyncio.timeout(120):
            while not working.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.05)
            await trigger.on_kill()
            await following

    asyncio.run(mark())

    (record,) = records_of(several, "events")
    assert record.error is not None
    assert record.status == "stopped"
    assert "stopped by Airflow: the task was marked or cleared in the middle of a batch" in record.error.message
    for name in ("hourly", "failing"):
        (record,) = records_of(several, name)
        assert (record.status, record.tries) == ("stopped", 0)
        assert record.error is not None
        assert record.error.message.startswith("stopped by Airflow: the task was marked or cleared before it had begun")


def test_nothing_new_is_a_skip_of_all_without_a_driver(several: StreamProject) -> None:
    """No worker begins one of their tasks, either."""
    names = ("events", "failing", "idle")
    streams = ", ".join(f'"{name}"' for name in names)
    run = several.dag('conn_id="spark_test", together=True', streams=streams).test(logical_date=START)

    states = {ti.task_id: (ti.state, ti.try_number) for ti in run.get_task_instances()}
    assert states == {"together": (_SUCCESS, 1), **dict.fromkeys(names, (_SKIPPED, 0))}
    tasks = [task for task in DagTasks().all() if (task.dag_id, task.task_id) == (run.dag_id, "together")]
    assert [task.stream for task in tasks] == ["events", "failing", "idle"]
    keys = {str(key) for task in tasks for key in run_keys(run.dag_id, run.run_id, task.key_task_id, None)}
    for name in names:
        assert f"{run.dag_id}/{run.run_id}/{name}/-1/0" in keys
        home = home_of(several, name)
        assert home.checked().reason == "nothing new before 2026-01-01T00:00:00+00:00"
        assert home.storage.list_folder(home.drivers_folder()) is None


def test_a_driver_that_can_not_be_started_fails_once(several: StreamProject) -> None:
    """With one message, and nothing is left behind; the tasks of the streams don't begin."""
    several.arrive(1, at=START - timedelta(hours=2))

    run = several.dag('conn_id="nowhere", together=True', streams=_STREAMS).test(logical_date=START)

    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert states == {"together": _FAILED, **dict.fromkeys(NAMES, TaskInstanceState.UPSTREAM_FAILED)}
    assert [records_of(several, name) for name in NAMES] == [[], [], [], []]


_BY_HAND = """
from datetime import datetime, timezone
from airflow.sdk import DAG
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.operators.run_together import RunTogetherOperator
given = {{"project": "{project}", "conn_id": "spark_test"}}
with DAG("{dag_id}", schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
    tasks = [RunStreamOperator(task_id=name, stream=name, **given) for name in ("events", "failing")]
    RunTogetherOperator(task_id="one.driver", streams=["events", "failing"], **given) >> tasks
"""


def test_the_task_before_them_may_have_any_name(several: StreamProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever marks the task of a stream means its run, whichever task has started the driver."""
    several.arrive(1, at=START - timedelta(hours=2))

    batch = BatchRecord(batch_id=0, kind="data", input_rows=1, output_rows=1, watermark=None)

    def launch(project: Project, _streams: Any, planned: Mapping[str, RunRecord], _conn_id: str) -> Driver:
        (first, record), *rest = planned.items()
        for name, found in planned.items():
            done = msgspec.structs.replace(found, status="succeeded", tries=1, batches=(batch,))
            RunRecords(project.home_named(name)).save(done)
        others = [(project.home_named(name), other.run_id) for name, other in rest]
        drivers = Drivers(project.home_named(first))
        return drivers.launch(record.run_id, ["true"], dict(os.environ), datetime.now(UTC), others=others)

    monkeypatch.setattr(run_together, "launch_together", launch)
    run = several.dag_by_hand(_BY_HAND).test(logical_date=START)

    assert {ti.task_id: ti.state for ti in run.get_task_instances()} == dict.fromkeys(
        ("one.driver", "events", "failing"), _SUCCESS
    )
    with create_session() as session:
        of_run = TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id
        noted = {ti.task_id: noted_runs(ti) for ti in session.scalars(select(TaskInstance).where(*of_run))}
    for name in ("events", "failing"):
        (record,) = records_of(several, name)
        assert noted[name] is not None
        assert noted[name].runs == {name: record.run_id}


def test_what_the_dag_has(several: StreamProject) -> None:
    """The tasks of the streams are as without it, but for the one before them, which has no outlets."""
    given: Any = {"project": str(several.root), "schedule": "@daily", "start_date": START, "dag_id": "d"}
    alone = stream_dag("hourly", "events", **given)
    dag = stream_dag("hourly", "events", together=True, **given)

    together = dag.get_task("together")
    assert isinstance(together, RunTogetherOperator)
    assert list(together.streams) == ["events", "hourly"]
    assert together.outlets == []
    assert together.downstream_task_ids == {"events", "hourly"}
    for name in ("events", "hourly"):
        own, other = dag.get_task(name), alone.get_task(name)
        assert own.upstream_task_ids == other.upstream_task_ids | {"together"}
        assert (own.trigger_rule, own.outlets, own.pool) == (other.trigger_rule, other.outlets, other.pool)


def _event_run_ids(project: StreamProject, stream: str) -> list[str]:
    """The runs of which the events of a sink's asset tell."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        uri = f"file://{project.root}/out/{stream}"
        return [event.extra["run_id"] for event in events.filter(AssetModel.uri == uri)]
