"""DAG runs that are made again under their names after they were deleted: nothing of before counts as a try of theirs.

`DAG.test` deletes a DAG run that it finds; here it names each by its date, as schedules and backfills do. The drivers
are small programs that end runs in place of Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.models.dagrun import DagRun
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow_project import StreamProject
from ended_runs import Launched, launching
from several_streams import home_of, make_several, records_of

from sluice.runs.driver import Drivers
from sluice.runs.process import is_alive
from sluice.runs.record import RunRecord, RunRecords
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.run_keys import parse_run_key
from sluice_airflow.ui.dag_tasks import run_keys

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    found = launching(monkeypatch)
    monkeypatch.setattr(DagRun, "generate_run_id", lambda **_: f"of_{START.isoformat()}")
    yield found
    found.end()


def test_what_a_deleted_dag_run_has_done_is_no_try_of_the_next_one(
    stream_project: StreamProject, launched: Launched
) -> None:
    """It bears the same name, and runs anew, however often."""
    stream_project.arrive(1, at=START - timedelta(hours=2))
    dag = stream_project.dag('conn_id="spark_test", default_args={"retries": 0}')
    for _ in range(3):
        run = dag.test(logical_date=START)
        assert run.state == DagRunState.SUCCESS

    keys = [parse_run_key(key) for key in launched.keys]
    assert [key and key.generation for key in keys] == [0, 1, 2]
    assert len({key and key.run_id for key in keys}) == 1
    assert len(stream_project.records()) == 3
    # What the pages look for.
    assert {str(key) for key in run_keys(run.dag_id, run.run_id, "events", None)} >= {*launched.keys}


def test_a_run_of_a_deleted_dag_run_that_is_still_at_work_is_ended(
    stream_project: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was planned with what was declared then, as the run of a task was that is cleared."""
    stream_project.arrive(1, at=START - timedelta(hours=2))
    dag = stream_project.dag('conn_id="spark_test", default_args={"retries": 0}')
    launched.ends = False
    with monkeypatch.context() as lost:
        lost.setattr(RunStreamOperator, "_follow", _lost)
        assert dag.test(logical_date=START).state == DagRunState.FAILED
    (first,) = stream_project.records()
    launched.ends = True
    with monkeypatch.context() as stopping:
        stopping.setattr(Drivers, "wait_for_stopped", _stopped(launched, stream_project))
        run = dag.test(logical_date=START)

    assert run.state == DagRunState.SUCCESS
    newest, before = stream_project.records()
    assert (before.run_id, before.status) == (first.run_id, "stopped")
    assert newest.status == "succeeded"
    assert launched.drivers[0].process is not None
    assert not is_alive(launched.drivers[0].process)


def test_one_driver_for_all_of_a_dag_run_that_is_made_again(several: StreamProject, launched: Launched) -> None:
    """Neither the task before them takes what was done for done, nor do the tasks of the streams."""
    dag = several.dag('conn_id="spark_test", together=True', streams='"events", "failing"')
    for life in range(2):
        run = dag.test(logical_date=START)
        states = {ti.task_id: ti.state for ti in run.get_task_instances()}
        assert states == dict.fromkeys(("together", "events", "failing"), TaskInstanceState.SUCCESS)
        for name in ("events", "failing"):
            generations = [key and key.generation for key in map(_key_of, records_of(several, name))]
            assert generations == [*reversed(range(life + 1))]
            driver = Drivers(home_of(several, name)).find(records_of(several, name)[0].run_id)
            assert driver is not None
            assert driver.is_shared


@pytest.fixture
def several(stream_project: StreamProject) -> StreamProject:
    make_several(stream_project).arrive(1, at=START - timedelta(hours=2))
    return stream_project


def _key_of(record: RunRecord) -> Any:
    return parse_run_key(record.run_key)


def _lost(*_arguments: Any) -> Any:
    """As far as Airflow sees, a worker that is lost once the driver is at work."""
    raise RuntimeError("lost")


def _stopped(launched: Launched, project: StreamProject) -> Callable[..., None]:
    """A driver that ends once it is asked to, in the worker that waits for it."""
    wait = Drivers.wait_for_stopped

    def wait_for_stopped(drivers: Drivers, run_id: str, seconds: float) -> None:
        if RunRecords(project.home()).close_stopped(run_id, "the test", datetime.now(UTC), token=1):
            launched.end()
        wait(drivers, run_id, seconds)

    return wait_for_stopped
