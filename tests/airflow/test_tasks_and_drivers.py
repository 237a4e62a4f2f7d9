"""What a task does with its driver, and with that of an earlier try, or of the task before it was cleared.

The drivers are small programs in place of Spark's: what counts here is whether they are there, and how they end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowSkipException, TaskDeferred
from airflow_project import StreamProject
from until import until

from sluice.plan_document import DownstreamDocument, PlanDocument
from sluice.runs.driver import Driver, Drivers
from sluice.runs.process import is_alive
from sluice.runs.record import BatchRecord, RunRecord, RunRecords, new_run_id
from sluice.runs.stop import request_stop, stop_request
from sluice.runs.summary import RecordedInterval
from sluice_airflow.assets import outlets
from sluice_airflow.noted_runs import NotedRuns, note_runs
from sluice_airflow.operators import driver_task
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.run_keys import RunKey
from sluice_airflow.triggers import following
from sluice_airflow.triggers.run import RunTrigger

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
_ENDS_WHEN_ASKED = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from sluice.home import StreamHome
from sluice.runs.record import RunRecords
from sluice.runs.stop import stop_request
from sluice.storage import Storage
home, run_id = StreamHome(sys.argv[1], Storage()), sys.argv[2]
print("waiting for the end", flush=True)
while stop_request(home, run_id) is None:
    time.sleep(0.02)
RunRecords(home).close_stopped(run_id, "the test", datetime.now(UTC), token=1)
"""


@pytest.fixture
def launch(stream_project: StreamProject) -> Iterator[Callable[..., Driver]]:
    """Launches drivers of `events` that are ended with the test."""
    home = stream_project.home()
    launched: list[Driver] = []

    def start(run_id: str, program: str = _ENDS_WHEN_ASKED) -> Driver:
        command = [sys.executable, "-c", program, home.location, run_id]
        launched.append(Drivers(home).launch(run_id, command, dict(os.environ), START))
        return launched[-1]

    yield start
    for driver in launched:
        assert driver.process is not None
        if is_alive(driver.process):
            with suppress(ProcessLookupError):  # it may end in between
                os.killpg(driver.process.pid, signal.SIGKILL)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """What is in the task's log: Airflow writes only errors of these tests anywhere."""
    caplog.set_level(logging.INFO)
    for speaker in (RunStreamOperator, RunTrigger):
        monkeypatch.setattr(speaker, "log", logging.getLogger("said"))
    return lambda: caplog.text


def operator(project: StreamProject, **arguments: Any) -> RunStreamOperator:
    given = {"until": "", "retries": 0, "conn_id": "nowhere", **arguments}
    return RunStreamOperator(task_id="events", stream="events", project=str(project.root), **given)


def context(*, generation: int = 0) -> Any:
    """What the next try gets: of the task as it is, or as it was cleared. The try before has noted its run's key."""
    ti = SimpleNamespace(
        dag_id="d", run_id="r", task_id="events", map_index=-1, max_tries=generation, start_date=START,
        try_number=generation + 1,
    )  # fmt: skip
    store, before = _Store(), max(0, generation - 1)
    store["sluice_run"] = {"project": "", "runs": {}, "generation": before, "max_tries": before}
    return {"ti": ti, "dag_run": SimpleNamespace(run_type="manual"), "task_state_store": store}


class _Store(dict[str, Any]):
    """What Airflow keeps for the tries of a task."""

    set = dict.__setitem__


def keep(project: StreamProject, status: Any, *, generation: int = 0, **fields: Any) -> RunRecord:
    """A record of the task's run, as its first try left it."""
    key = str(RunKey("d", "r", "events", -1, generation))
    plan = PlanDocument(verdict="run", reason="a test", strategy="exact")
    record = RunRecord(
        run_id=new_run_id(START, key),
        stream="events",
        generation=1,
        run_key=key,
        planned_at=START,
        plan=plan,
        status=status,
    )
    RunRecords(project.home()).save(record := msgspec.structs.replace(record, **fields))
    return record


def test_a_driver_that_was_asked_to_end_is_not_followed(
    stream_project: StreamProject, launch: Callable[..., Driver]
) -> None:
    """As after a clear of a running task, for which Airflow counts no new generation: the run goes on by itself."""
    record = keep(stream_project, "running")
    driver = launch(record.run_id)
    request_stop(stream_project.home(), record.run_id, requested_by="Airflow: the task was killed", now=START)

    with pytest.raises(AirflowSkipException, match=f"run {record.run_id} found nothing to write"):
        operator(stream_project).execute(context())
    assert driver.process is not None
    assert not is_alive(driver.process)


def test_a_backfill_that_takes_over_a_run_whose_task_never_began(stream_project: StreamProject) -> None:
    """A driver of several streams has stopped in its run, and Airflow counts no clear of a task without a try."""
    declared = stream_project.root / "streams" / "events.py"
    lines = declared.read_text().replace("n bigint", "n bigint, day date")
    declared.write_text(lines.replace('sinks.delta("out/events")', 'sinks.delta("out/events"), interval_column="day"'))
    live, given = keep(stream_project, "stopped"), context()
    given["dag_run"].run_type = "backfill"
    given |= {"data_interval_start": START, "data_interval_end": START + timedelta(days=1)}
    nothing = "the live stream has written nothing yet"

    with pytest.raises(AirflowSkipException, match=nothing):
        operator(stream_project).execute(given)
    interval = RecordedInterval(START, START + timedelta(days=1))
    done = keep(stream_project, "succeeded", generation=1, interval=interval)
    note_runs(given, NotedRuns(str(stream_project.root), {"events": done.run_id}, generation=1))
    given["ti"].try_number = 2
    assert operator(stream_project, retries=1).execute(given)["run_id"] == done.run_id
    # Cleared, it computes anew.
    given["ti"].max_tries = 3
    with pytest.raises(AirflowSkipException, match=nothing):
        operator(stream_project, retries=1).execute(given)
    assert [RunRecords(stream_project.home()).read(record.run_id) for record in (live, done)] == [live, done]


def test_a_cleared_task_ends_its_driver_and_goes_as_far_as_before(
    stream_project: StreamProject, launch: Callable[..., Driver], said: Callable[[], str]
) -> None:
    """A manual run has no interval: its bound is the time of its first plan, and what arrived since is not taken."""
    record = keep(stream_project, "running")
    driver = launch(record.run_id)
    stream_project.arrive(1, at=START + timedelta(hours=1))

    with pytest.raises(AirflowSkipException, match="nothing new before 2026-01-01T00:00:00"):
        operator(stream_project).execute(context(generation=1))
    assert driver.process is not None
    assert not is_alive(driver.process)
    found = RunRecords(stream_project.home()).read(record.run_id)
    assert found is not None
    assert found.status == "stopped"
    assert "this task was cleared: it goes as far as" in said()
    assert "this task was cleared; what it took before is in the table" in said()


@pytest.mark.parametrize("own", [{"until": "2026-01-02"}, {"until": ""}], ids=["a bound of its own", "a skip before"])
def test_a_cleared_task_with_nothing_to_repeat(stream_project: StreamProject, own: dict[str, str]) -> None:
    """Its own bound counts, or now: the file that arrived is planned, and only the connection is missing."""
    if own["until"]:
        keep(stream_project, "succeeded")
    stream_project.arrive(1, at=START + timedelta(hours=1))

    with pytest.raises(AirflowException, match="there is no connection"):
        operator(stream_project, **own).execute(context(generation=1))


def test_the_log_of_a_run_that_was_over_when_the_retry_came(
    stream_project: StreamProject, launch: Callable[..., Driver], said: Callable[[], str]
) -> None:
    """The worker was lost, and its driver ended unseen: a retry shows what it said, once."""
    record = keep(stream_project, "running")
    driver = launch(record.run_id, "print('what Spark says')")
    wait_until_gone(driver)
    given = context()

    for _ in range(2):
        with pytest.raises(AirflowSkipException, match="found nothing to write"):
            operator(stream_project).execute(given)
        assert said().count("what Spark says") == 1


def test_a_stream_that_was_deleted_while_its_task_was_deferred(
    stream_project: StreamProject, launch: Callable[..., Driver], said: Callable[[], str]
) -> None:
    """What was written is written: the task succeeds, and says what is missing."""
    batch = BatchRecord(batch_id=0, kind="data", input_rows=1, output_rows=1, watermark=None)
    record = keep(stream_project, "succeeded", batches=(batch,))
    wait_until_gone(launch(record.run_id, "print('what Spark says')"))
    task = operator(stream_project, outlets=outlets("events", project=str(stream_project.root)))
    (stream_project.root / "streams" / "events.py").unlink()

    assert task.resume(context(), {"run_id": record.run_id})["run_id"] == record.run_id
    assert "what Spark says" in said()
    assert "lack their details: there is no stream `events`" in said()


def test_a_task_is_deferred_and_shows_how_its_run_goes_on(
    stream_project: StreamProject,
    launch: Callable[..., Driver],
    said: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each batch when it is committed, once, and what the driver said when the run is over."""
    monkeypatch.setattr(driver_task, "_STAY_SECONDS", 0.0)
    monkeypatch.setattr(following, "DEFERRAL_SECONDS", 0.0)
    record = keep(stream_project, "running")
    launch(record.run_id, "import time; print('what Spark says', flush=True); time.sleep(600)")
    with pytest.raises(TaskDeferred) as deferred:
        operator(stream_project).execute(context())
    trigger = deferred.value.trigger
    assert "still at work: re-attached to it" in said()

    def do(*rows: int, **fields: Any) -> None:
        batches = tuple(
            BatchRecord(batch_id=number, kind="data", input_rows=count, output_rows=count, watermark=None)
            for number, count in enumerate(rows)
        )
        RunRecords(stream_project.home()).save(msgspec.structs.replace(record, batches=batches, **fields))

    async def follow() -> Any:
        following = asyncio.create_task(anext(trigger.run()))
        for rows in ([3], [3, 5]):
            do(*rows)
            await until(lambda rows=rows: f"batch {len(rows) - 1} (data): {rows[-1]} rows in" in said())
            assert not following.done()
        do(3, 5, status="succeeded")
        return (await following).payload

    found = operator(stream_project).resume(context(), asyncio.run(follow()))
    assert (found["status"], found["input_rows"]) == ("succeeded", 8)
    assert said().count("batch 0 (data)") == said().count("batch 1 (data)") == 1
    assert said().index("batch 1 (data)") < said().index("what Spark says")


@pytest.mark.parametrize("by", ["the task's execution_timeout is over", "the task was killed"])
def test_a_task_that_stays_with_its_driver_ends_it(
    stream_project: StreamProject, launch: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """With the KubernetesExecutor it stays, however long that takes; when its time is over, or somebody ends it, the
    driver is asked to end."""
    monkeypatch.setattr(driver_task, "_STAY_SECONDS", 0.0)
    record = keep(stream_project, "running")
    launch(record.run_id)
    limit = timedelta(hours=1) if "timeout" in by else None
    task = operator(stream_project, executor="KubernetesExecutor", execution_timeout=limit)
    if limit is None:
        # As Airflow does: from within, while the task is at work.
        monkeypatch.setattr(RunTrigger, "follow", _after(task.on_kill, RunTrigger.follow))

    with pytest.raises(AirflowException, match="stopped by the test in the middle of a batch"):
        task.execute(context())
    request = stop_request(stream_project.home(), record.run_id)
    assert request is not None
    assert request.requested_by == f"Airflow: {by}"


def test_what_a_backfill_leaves_to_do_is_named(stream_project: StreamProject, said: Callable[[], str]) -> None:
    """Streams that read the table that it replaces rows of."""
    downstream = (DownstreamDocument(stream="hourly", skips_changes=True), DownstreamDocument(stream="daily"))
    plan = PlanDocument(downstream=downstream)
    operator(stream_project)._name_downstream(keep(stream_project, "planned", plan=plan))

    assert "stream hourly reads this table, and passes over what is replaced: backfill it too" in said()
    assert "stream daily reads this table, and is refused at its next run" in said()


def _after(first: Callable[[], object], then: Callable[..., Any]) -> Callable[..., Any]:
    async def both(*args: Any, **kwargs: Any) -> None:
        first()
        await then(*args, **kwargs)

    return both


def wait_until_gone(driver: Driver) -> None:
    assert driver.process is not None
    deadline = time.monotonic() + 120
    while is_alive(driver.process):
        assert time.monotonic() < deadline
        time.sleep(0.01)
