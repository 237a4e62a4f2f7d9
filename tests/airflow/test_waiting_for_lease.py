"""A task that finds its stream at work elsewhere: it waits until that is over, and uses up no try."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from airflow.sdk.exceptions import AirflowException, TaskDeferred
from airflow_project import StreamProject
from test_tasks_and_drivers import START, context, keep, operator
from until import SOON

from sluice.documents import encode_document
from sluice.locations import join
from sluice.runs.lease import LeaseFile, acquire
from sluice.runs.process import Process
from sluice.runs.record import RecordedError
from sluice.runs.summary import RecordedInterval
from sluice_airflow.triggers import following
from sluice_airflow.triggers.lease import LeaseTrigger

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

_FORESTALLED = RecordedError(type="LeaseTakenError", message="the stream is being run by another")


@pytest.fixture(autouse=True)
def project(stream_project: StreamProject, monkeypatch: pytest.MonkeyPatch) -> StreamProject:
    """A file has arrived; triggers lose no time."""
    monkeypatch.setattr(following, "DEFERRAL_SECONDS", 0.0)
    monkeypatch.setitem(LeaseTrigger.follow.__kwdefaults__, "poll_seconds", 0.01)
    stream_project.arrive(1, at=START - timedelta(hours=1))
    return stream_project


@contextmanager
def another_run(project: StreamProject) -> Iterator[None]:
    home = project.home()
    with acquire(home.storage, home.lease_folder(1), run_id="another", sink_is_idempotent=True):
        yield


def deferred(project: StreamProject, call: Any, *args: Any) -> TaskDeferred:
    """How a task is deferred beside another run: with nothing done."""
    with pytest.raises(TaskDeferred) as raised:
        call(*args)
    assert not Path(project.home().location, "drivers").exists()
    return raised.value


def test_it_is_deferred_until_the_other_run_is_over(project: StreamProject) -> None:
    """What is on disk is the other one's work in progress: nothing is planned by it, no driver starts."""
    task = operator(project, execution_timeout=timedelta(days=36_500))
    with another_run(project):
        found = deferred(project, task.execute, context())
        assert project.records() == []
        trigger = _again(found.trigger)

        async def both() -> Any:
            waiting = asyncio.create_task(anext(trigger.run()))
            done, _ = await asyncio.wait([waiting], timeout=0.1)
            assert not done
            return waiting

        asyncio.run(both())
    event = asyncio.run(asyncio.wait_for(anext(trigger.run()), SOON))

    assert found.timeout is not None
    assert timedelta(days=1) < found.timeout < timedelta(days=36_500)
    # It has planned, and only the connection is missing.
    with pytest.raises(AirflowException, match="there is no connection"):
        getattr(task, found.method_name)(context(), event.payload)


def test_it_waits_in_its_worker_where_it_can_not_leave(project: StreamProject, monkeypatch: pytest.MonkeyPatch) -> None:
    other = another_run(project)
    other.__enter__()
    looks: list[bool] = []
    is_free = LeaseTrigger.look

    def look(trigger: LeaseTrigger) -> bool:
        looks.append(is_free(trigger))
        if len(looks) == 2:
            other.__exit__(None, None, None)
        return looks[-1]

    monkeypatch.setattr(LeaseTrigger, "look", look)
    with pytest.raises(AirflowException, match="there is no connection"):
        operator(project, executor="KubernetesExecutor").execute(context())
    assert looks == [False, False, True]


def test_a_driver_that_came_too_late_is_no_failure(project: StreamProject) -> None:
    """Both had planned before one of them had the lease: the loser waits, and goes on when the other one is done."""
    record = keep(project, "failed", error=_FORESTALLED)
    task, event = operator(project), {"run_id": record.run_id}
    with another_run(project):
        assert isinstance(deferred(project, task.resume, context(), event).trigger, LeaseTrigger)

    with pytest.raises(AirflowException, match="there is no connection"):
        task.resume(context(), event)


def test_a_backfill_that_came_too_late_waits_for_the_live_stream(project: StreamProject) -> None:
    """Where Spark replaces the rows, the driver gives up after half an hour; the task does not."""
    interval = RecordedInterval(START, START + timedelta(days=1))
    record = keep(project, "failed", error=_FORESTALLED, interval=interval)
    with another_run(project):
        found = deferred(project, operator(project).resume, context(), {"run_id": record.run_id})

    assert isinstance(found.trigger, LeaseTrigger)
    assert found.trigger.folder == project.home().lease_folder(1)


def test_what_only_a_person_can_free_is_not_waited_for(project: StreamProject) -> None:
    """A lease that has run out on a machine that may be cut off, over a sink that can't refuse: a retry tells again."""
    home = project.home()
    past = datetime.now(UTC) - timedelta(hours=1)
    other = LeaseFile(
        token=1,
        run_id="another",
        host="elsewhere",
        machine="elsewhere",
        boot_id="elsewhere",
        processes=(Process(pid=1, started=1),),
        acquired_at=past,
        expires_at=past,
    )
    home.storage.put_if_absent(join(home.lease_folder(1), "1.json"), encode_document(other))
    record = keep(project, "failed", error=_FORESTALLED)

    with pytest.raises(AirflowException, match="the stream is being run by another"):
        operator(project).resume(context(), {"run_id": record.run_id})


def test_a_lease_that_is_damaged_meanwhile_ends_the_wait(project: StreamProject) -> None:
    """Whoever goes on reads the same file, and says what is wrong with it."""
    home = project.home()
    folder = Path(home.lease_folder(1))
    folder.mkdir(parents=True)
    (folder / "1.json").write_text("{")
    trigger = LeaseTrigger(project=str(project.root), folder=str(folder))

    event = asyncio.run(asyncio.wait_for(anext(trigger.run()), SOON))
    assert event.payload == {"folder": str(folder)}


def _again(trigger: Any) -> LeaseTrigger:
    """The trigger as a triggerer makes it."""
    path, kwargs = trigger.serialize()
    assert path == f"{LeaseTrigger.__module__}.{LeaseTrigger.__qualname__}"
    return LeaseTrigger(**msgspec.json.decode(msgspec.json.encode(kwargs)))
