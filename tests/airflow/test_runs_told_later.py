"""Runs that succeeded, and whose tasks did not live to tell: the next event tells of them, and of none twice.

The drivers are small programs that end runs in place of Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.sdk import DAG
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from airflow_project import StreamProject
from ended_runs import Launched, launching
from several_streams import make_several, records_of
from sqlalchemy import select, update

from sluice.runs.told import read_told
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.operators.run_together import RunTogetherOperator

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
_SUCCESS, _FAILED, _SKIPPED = TaskInstanceState.SUCCESS, TaskInstanceState.FAILED, TaskInstanceState.SKIPPED
_ONCE = 'conn_id="spark_test", default_args={"retries": 0}'


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    found = launching(monkeypatch)
    yield found
    found.end()


@pytest.fixture(autouse=True)
def arrived(stream_project: StreamProject) -> None:
    stream_project.arrive(1, at=START - timedelta(hours=2))


def test_what_airflow_has_an_event_of_is_told(stream_project: StreamProject, launched: Launched) -> None:
    """It is kept in the home once the task has succeeded, and the next event does not tell of it."""
    dag = stream_project.dag(_ONCE)
    for day in range(2):
        assert _states(dag.test(logical_date=START + timedelta(days=day))) == {"events": _SUCCESS}

    second, first = stream_project.records()
    assert _told(stream_project, "events") == [(first.run_id, []), (second.run_id, [])]
    told = read_told(stream_project.home())
    assert told is not None
    assert (told.up_to, told.runs.keys()) == ("", {first.run_id, second.run_id})


def test_a_task_that_was_marked_while_its_last_batch_ended(stream_project: StreamProject, launched: Launched) -> None:
    """Its record says that the run succeeded, and Airflow takes no event of it: that of the next run tells."""
    dag = stream_project.dag(_ONCE)
    launched.meanwhile = lambda: _mark(dag, TaskInstanceState.FAILED)
    # Airflow refuses what the worker says of its end; `DAG.test` goes by the worker.
    dag.test(logical_date=START)
    (first,) = stream_project.records()
    assert first.status == "succeeded"
    assert _told(stream_project, "events") == []

    launched.meanwhile = lambda: None
    for day in (1, 2):
        dag.test(logical_date=START + timedelta(days=day))

    third, second, _ = stream_project.records()
    assert _told(stream_project, "events") == [(second.run_id, [first.run_id]), (third.run_id, [])]


def test_a_dag_run_that_ends_while_its_driver_is_at_the_next_stream(
    stream_project: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of the streams that are done never begin: the events of the next runs tell of both."""
    make_several(stream_project)
    dag = stream_project.dag(f"{_ONCE}, together=True", streams='"events", "failing"')
    with monkeypatch.context() as lost:
        lost.setattr(RunTogetherOperator, "_follow", _lost)
        failed = dict.fromkeys(("events", "failing"), TaskInstanceState.UPSTREAM_FAILED)
        assert _states(dag.test(logical_date=START)) == {"together": _FAILED, **failed}

    dag.test(logical_date=START + timedelta(days=1))

    for name in ("events", "failing"):
        second, first = records_of(stream_project, name)
        assert first.status == "succeeded"
        assert _told(stream_project, name) == [(second.run_id, [first.run_id])]


def test_a_cleared_task_tells_of_what_was_done_before(
    stream_project: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker was lost at the last try, and its driver came to the end: there is nothing to do, but to tell."""
    dag = stream_project.dag(_ONCE)
    with monkeypatch.context() as lost:
        lost.setattr(RunStreamOperator, "_follow", _lost)
        run = dag.test(logical_date=START)
    assert _states(run) == {"events": _FAILED}
    (record,) = stream_project.records()
    for file in Path(stream_project.root, "in").iterdir():
        file.unlink()

    assert [_again(dag, run) for _ in range(2)] == [_SUCCESS, _SKIPPED]
    assert _told(stream_project, "events") == [(record.run_id, [])]
    assert stream_project.records() == [record]


@pytest.mark.parametrize("is_first_told", [True, False], ids=["after one that was told", "after one that was not"])
def test_a_run_that_found_nothing_has_no_event_of_its_own(
    stream_project: StreamProject, launched: Launched, *, is_first_told: bool
) -> None:
    """A live run without a batch is a skip, as one with nothing new; not if something is to be told of."""
    dag = stream_project.dag(_ONCE)
    launched.meanwhile = lambda: None if is_first_told else _mark(dag, TaskInstanceState.FAILED)
    dag.test(logical_date=START)
    (first,) = stream_project.records()
    launched.meanwhile, launched.batches = (lambda: None), ()

    states = _states(dag.test(logical_date=START + timedelta(days=1)))

    second, _ = stream_project.records()
    assert second.status == "succeeded"
    assert states == {"events": _SKIPPED if is_first_told else _SUCCESS}
    assert _told(stream_project, "events") == [(first.run_id, []) if is_first_told else (second.run_id, [first.run_id])]


def _states(run: Any) -> dict[str, Any]:
    return {ti.task_id: ti.state for ti in run.get_task_instances()}


def _mark(dag: DAG, state: TaskInstanceState) -> None:
    """As a person does while the task runs."""
    with create_session() as session:
        at_work = TaskInstance.dag_id == dag.dag_id, TaskInstance.state == TaskInstanceState.RUNNING
        assert session.execute(update(TaskInstance).where(*at_work).values(state=state)).rowcount == 1


def _again(dag: DAG, run: Any) -> Any:
    """Clear the task of a DAG run, and run it."""
    with create_session() as session:
        of_run = TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id
        ti = session.scalars(select(TaskInstance).where(*of_run)).one()
        clear_task_instances([ti], session)
    with create_session() as session:
        ti = session.scalars(select(TaskInstance).where(*of_run)).one()
        session.expunge_all()
    _run_task(ti=ti, task=dag.get_task("events"), run_triggerer=True)
    with create_session() as session:
        return session.scalars(select(TaskInstance.state).where(*of_run)).one()


def _lost(*_arguments: Any) -> Any:
    """As far as Airflow sees, a worker that is lost once the driver is at work."""
    raise RuntimeError("lost")


def _told(project: StreamProject, stream: str) -> list[tuple[str, list[str]]]:
    """The events of a sink's asset: the run of each, and those of which it tells beside it."""
    with create_session() as session:
        events = session.query(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        of_sink = events.filter(AssetModel.uri == f"file://{project.root}/out/{stream}").order_by(AssetEvent.id)
        return [(event.extra["run_id"], event.extra["since_runs"]) for event in of_sink]
