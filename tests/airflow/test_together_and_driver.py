"""What the task before those of the streams does with its driver, and what their own tasks make of it.

The drivers are small programs in place of Spark's: what counts here is whether they are there, and how they end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, DownstreamTasksSkipped, TaskDeferred
from airflow_project import StreamProject
from several_streams import home_of, make_several, records_of
from small_drivers import SmallDrivers
from until import until

from sluice.documents import encode_document
from sluice.project import Project, find_project
from sluice.runs import driver as runs_driver
from sluice.runs.driver import Driver, Drivers
from sluice.runs.lease import acquire
from sluice.runs.record import BatchRecord, RecordedError, RunRecord, RunRecords
from sluice.runs.stop import StopRequest, request_stop, stop_request
from sluice_airflow.noted_runs import NotedRuns
from sluice_airflow.operators import driver_task, run_together
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.operators.run_together import RunTogetherOperator
from sluice_airflow.submission import sharing
from sluice_airflow.triggers import following, together
from sluice_airflow.triggers.together import TogetherTrigger

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = ("events", "hourly", "failing", "idle")
_GOES_ON = "import time; print('what Spark says', flush=True); time.sleep(600)"
_ENDS = "print('what Spark says')"


class Launched(SmallDrivers):
    """Launches small programs in place of drivers."""

    def __init__(self) -> None:
        super().__init__()
        self.program = _ENDS
        self.runs: list[list[str]] = []

    def __call__(self, project: Project, _streams: Any, planned: Mapping[str, RunRecord], _conn_id: str) -> Driver:
        driver = self.launch(project, planned, self.program)
        self.runs.append(list(planned))
        return driver


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    found = Launched()
    monkeypatch.setattr(run_together, "launch_together", found)
    monkeypatch.setattr(following, "DEFERRAL_SECONDS", 0.0)
    yield found
    found.end()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """What is in the task's log: Airflow writes only errors of these tests anywhere."""
    caplog.set_level(logging.INFO)
    for speaker in (RunStreamOperator, RunTogetherOperator, TogetherTrigger):
        monkeypatch.setattr(speaker, "log", logging.getLogger("said"))
    return lambda: caplog.text


@pytest.fixture
def several(stream_project: StreamProject) -> StreamProject:
    """One file has arrived, which `events` and `failing` read, and `hourly` after `events`."""
    Ti.pushed.clear()
    make_several(stream_project).arrive(1, at=START - timedelta(hours=1))
    return stream_project


class Ti(SimpleNamespace):
    """A task instance in its worker, with what Airflow keeps for the tasks behind it."""

    pushed: ClassVar[dict[tuple[str, str], Any]] = {}

    def xcom_push(self, *, key: str, value: Any) -> None:
        self.pushed[self.task_id, key] = value

    def xcom_pull(self, *, task_ids: str, key: str) -> Any:
        return self.pushed.get((task_ids, key))


class Store(dict[str, Any]):
    """What Airflow keeps for the tries of a task."""

    set = dict.__setitem__

    def delete(self, key: str) -> None:
        self.pop(key, None)


def context(
    task_id: str = "together", *, generation: int = 0, try_number: int | None = None, run_type: str = "manual"
) -> Any:
    ti = Ti(
        dag_id="d", run_id="r", task_id=task_id, map_index=-1, max_tries=generation, start_date=START,
        try_number=try_number or generation + 1,
    )  # fmt: skip
    return {"ti": ti, "dag_run": SimpleNamespace(run_type=run_type), "task_state_store": Store()}


def before(project: StreamProject, streams: Sequence[str] = ALL, **arguments: Any) -> RunTogetherOperator:
    given = {"until": "2026-01-01", "retries": 0, "conn_id": "spark_test", **arguments}
    with DAG("d", schedule=None):
        task = RunTogetherOperator(task_id="together", streams=streams, project=str(project.root), **given)
        behind = {name: own(project, name) for name in streams}
        for one in behind.values():
            one.upstream_task_ids.clear()
        task >> list(behind.values())
        if {"events", "hourly"} <= behind.keys():
            behind["events"] >> behind["hourly"]
    return task


def own(project: StreamProject, stream: str) -> RunStreamOperator:
    given: Any = {"until": "2026-01-01", "retries": 0, "conn_id": "nowhere", "project": str(project.root)}
    task = RunStreamOperator(task_id=stream, stream=stream, **given)
    task.upstream_task_ids.add("together")
    return task


def do(project: StreamProject, stream: str, status: Any, **fields: Any) -> RunRecord:
    """Let the driver have come so far with a run."""
    (record,) = records_of(project, stream)
    batches = (BatchRecord(batch_id=0, kind="data", input_rows=3, output_rows=3, watermark=None),)
    done = msgspec.structs.replace(record, status=status, tries=1, batches=batches, **fields)
    RunRecords(home_of(project, stream)).save(done)
    return done


def defer(
    project: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch, **arguments: Any
) -> tuple[RunTogetherOperator, TogetherTrigger, Any]:
    """A task that has left its worker, with a driver at work: the task, its trigger and its context."""
    monkeypatch.setattr(driver_task, "_STAY_SECONDS", 0.0)
    launched.program = _GOES_ON
    task, given = before(project, **arguments), context()
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(given)
    assert isinstance(deferred.value.trigger, TogetherTrigger)
    return task, deferred.value.trigger, given


def test_what_is_idle_is_skipped_and_what_is_not_begun_is_left(
    several: StreamProject, launched: Launched, said: Callable[[], str]
) -> None:
    """As by a driver that dies before its first run: each stream that has work is then run by its own task."""
    given = context()

    with pytest.raises(DownstreamTasksSkipped) as skipped:
        before(several).execute(given)

    assert skipped.value.tasks == ["idle"]
    assert launched.runs == [["events", "hourly", "failing"]]
    assert [records_of(several, name) for name in ALL] == [[], [], [], []]
    assert "hourly: run: planned when `events` is done" in said()
    assert said().count("what Spark says") == 1
    assert "events: not begun; its own task runs it" in said()
    for name in ("events", "failing"):
        with pytest.raises(AirflowFailException, match="there is no connection"):
            own(several, name).execute(context(name))


def test_it_is_deferred_and_tells_how_the_runs_go_on(
    several: StreamProject, launched: Launched, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch once, whoever follows. Of a run without a record its own task tells: it may wait for a retry."""
    _, trigger, given = defer(several, launched, monkeypatch)
    kind, kwargs = trigger.serialize()
    assert (kind, set(kwargs["runs"])) == (
        "sluice_airflow.triggers.together.TogetherTrigger", {"events", "failing", "hourly"},
    )  # fmt: skip

    async def follow() -> Any:
        # The worker has shown this one, and then leaves it to a triggerer.
        do(several, "events", "running")
        here = asyncio.create_task(trigger.follow(poll_seconds=0.01))
        await until(lambda: trigger.shown.get("events"))
        here.cancel()
        there = TogetherTrigger(**trigger.serialize()[1])
        task = asyncio.create_task(anext(there.run()))
        do(several, "events", "succeeded")
        (record,) = records_of(several, "hourly")
        RunRecords(home_of(several, "hourly")).forget(record.run_id)
        do(several, "failing", "failed", error=RecordedError(type="E", message="no"))
        return (await task).payload

    event = asyncio.run(asyncio.wait_for(follow(), 60))
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        before(several).resume(given, event)

    assert skipped.value.tasks == ["idle"]
    assert said().count("events: batch 0 (data): 3 rows in") == 1
    assert "hourly: not begun, or with nothing to do by then; its own task tells" in said()
    assert "failing: run" in said()
    assert "failed: no" in said()


def test_a_lost_worker_leads_back_to_the_driver(
    several: StreamProject, launched: Launched, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never to a second one, whether it is at work or was over when the retry came."""
    _, _, given = defer(several, launched, monkeypatch)
    with pytest.raises(TaskDeferred) as deferred:
        before(several).execute(given)
    assert isinstance(deferred.value.trigger, TogetherTrigger)
    assert deferred.value.trigger.runs.keys() == {"events", "failing", "hourly"}
    assert "re-attached to it" in said()
    launched.end()
    monkeypatch.setattr(driver_task, "_STAY_SECONDS", 30.0)

    with pytest.raises(DownstreamTasksSkipped) as skipped:
        before(several).execute(given)

    assert skipped.value.tasks == ["idle"]
    assert len(launched.drivers) == 1


@pytest.mark.parametrize("by", ["killed", "marked or cleared", "was cleared", "execution_timeout is over", "marked"])
def test_whoever_ends_the_task_ends_all_of_its_runs(
    several: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Each is asked to end: that under way, and those whose turn has not come."""
    limit = timedelta(hours=1) if "timeout" in by else None
    task, trigger, given = defer(several, launched, monkeypatch, execution_timeout=limit)

    def stops() -> list[StopRequest | None]:
        return [stop_request(home_of(several, name), run_id) for name, run_id in trigger.runs.items()]

    async def follow() -> None:
        task = asyncio.ensure_future(trigger.follow(poll_seconds=0.01))
        await until(lambda: None not in stops())
        task.cancel()

    if by == "killed":
        task.on_kill()
    elif by == "marked or cleared":
        asyncio.run(trigger.on_kill())
    elif by == "marked":
        NotedRuns(**given["task_state_store"]["sluice_run"]).end("Airflow: the task was marked")
    elif by == "was cleared":
        task.execute(context(generation=1) | {"task_state_store": given["task_state_store"]})
    else:
        asyncio.run(follow())

    assert len(trigger.runs) == 3
    assert {found.requested_by.endswith(by) for found in stops() if found is not None} == {True}
    assert None not in stops()


def test_what_is_left_to_the_tasks_of_the_streams(
    several: StreamProject, launched: Launched, said: Callable[[], str]
) -> None:
    """A stream that is at work elsewhere, one that reads it, and one whose declaration is wrong; nobody waits."""
    home = home_of(several, "events")
    (several.root / "streams" / "wrong.py").write_text("from sluice import Stream\nwrong = Stream(name='wrong')\n")
    with (
        acquire(home.storage, home.lease_folder(1), run_id="another", sink_is_idempotent=True),
        pytest.raises(DownstreamTasksSkipped) as skipped,
    ):
        before(several, (*ALL, "wrong")).execute(context())

    assert skipped.value.tasks == ["idle"]
    assert "events: left to its own task: the stream is being run" in said()
    assert "wrong: left to its own task: " in said()
    assert "hourly: it reads what another task writes" in said()
    # One alone has no use for a driver of several.
    assert launched.runs == []
    assert records_of(several, "failing") == []


def test_what_has_other_tasks_before_it_is_left_to_its_own(
    several: StreamProject, launched: Launched, said: Callable[[], str]
) -> None:
    """Who fetches its files, or audits what it reads, is waited for; one without a task has nobody to tell of it."""
    task = before(several, [name for name in ALL if name != "failing"])
    task.streams = ALL
    assert task.dag is not None
    with task.dag:
        fetch = BaseOperator(task_id="fetch")
    fetch.set_downstream(task.dag.get_task("events"))

    with pytest.raises(DownstreamTasksSkipped):
        task.execute(context())

    assert "events: its task waits for fetch, too, and runs it then" in said()
    assert "hourly: it reads what another task writes" in said()
    assert "failing: no task of that name is behind this one" in said()
    assert launched.runs == []


@pytest.mark.parametrize("rule", ["depends_on_past", "wait_for_downstream"])
def test_what_waits_for_the_run_before_is_left_to_its_own_task(
    several: StreamProject, launched: Launched, said: Callable[[], str], rule: str
) -> None:
    """Airflow does not begin it where its run before has failed; so nobody plans, runs or skips it for it."""
    task = before(several)
    assert task.dag is not None
    for name in ("events", "idle"):
        setattr(task.dag.get_task(name), rule, True)

    task.execute(context())

    assert "events: its task waits for its run before, too, and runs it then" in said()
    assert "idle: its task waits for its run before, too, and runs it then" in said()
    assert launched.runs == []


def test_how_far_it_goes(several: StreamProject) -> None:
    """As a stream's own task: up to the end of the interval, and where Spark decides, as far as there is something."""
    given: Any = {"task_id": "together", "streams": ALL, "project": str(several.root)}
    own_task: Any = {"task_id": "events", "stream": "events", "project": str(several.root)}
    for trigger in (None, "available-now"):
        expected = RunStreamOperator(**own_task, trigger=trigger).until
        assert RunTogetherOperator(**given, trigger=trigger).until == expected


def test_a_retry_of_a_stream_is_not_ended_with_the_task_before_it(
    several: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the same run, and a driver of its own."""
    _, trigger, given = defer(several, launched, monkeypatch)
    home, run_id = home_of(several, "failing"), trigger.runs["failing"]
    driver = Drivers(home).find(run_id)
    assert driver is not None
    of_its_own = encode_document(msgspec.structs.replace(driver, is_shared=False))
    home.storage.replace(f"{home.drivers_folder()}/{run_id}.json", of_its_own)

    NotedRuns(**given["task_state_store"]["sluice_run"]).end("Airflow: the task was marked")

    assert stop_request(home, run_id) is None
    assert stop_request(home_of(several, "events"), trigger.runs["events"]) is not None


@pytest.mark.parametrize("given", [{"run_type": "backfill"}, {"generation": 1}], ids=str)
def test_runs_in_which_each_stream_is_run_by_itself(
    several: StreamProject, launched: Launched, given: dict[str, Any]
) -> None:
    """A backfill recomputes stream by stream, and what was cleared plans again under its own key."""
    before(several).execute(context(**given))

    assert launched.runs == []
    assert [records_of(several, name) for name in ALL] == [[], [], [], []]


def test_retries_that_were_edited_during_a_dag_run(
    several: StreamProject, launched: Launched, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow still allows as many as there were: what is left over is no clear. One that comes after it is."""
    _, trigger, _ = defer(several, launched, monkeypatch)
    done = do(several, "events", "succeeded")
    launched.end()
    # There were two when the DAG run began; by now there are none.
    first = context("events", generation=2, try_number=1)

    assert own(several, "events").execute(first)["run_id"] == done.run_id == trigger.runs["events"]
    assert "was cleared" not in said()
    # Its worker was lost before it had told; and they are edited once more.
    first["ti"].try_number = 2
    again = own(several, "events")
    again.retries = 1
    assert again.execute(first)["run_id"] == done.run_id


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_retries_that_were_edited_before_a_retry(
    several: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """It follows the driver of its first try; a clear ends it, whatever was edited."""
    monkeypatch.setattr(driver_task, "_STAY_SECONDS", 0.0)
    launched.program = _GOES_ON
    given = context(generation=2, try_number=1)
    with pytest.raises(TaskDeferred):
        before(several, retries=2).execute(given)
    given["ti"].try_number = 2

    with pytest.raises(TaskDeferred):
        before(several, retries=retries).execute(given)
    assert len(launched.drivers) == 1
    assert [stop_request(home_of(several, "events"), record.run_id) for record in records_of(several, "events")] == [
        None
    ]

    given["ti"].try_number, given["ti"].max_tries = 3, 2 + retries
    if retries > 0:
        before(several, retries=retries).execute(given)
        assert len(launched.drivers) == 1
        assert {stop_request(home_of(several, name), run_id) is None for name, run_id in _runs(given)} == {False}


def _runs(given: Any) -> Any:
    return given["task_state_store"]["sluice_run"]["runs"].items()


@pytest.mark.parametrize("trigger", ["processing-time=10s", "continuous=1s", "real-time"])
def test_a_trigger_that_a_template_has_rendered(
    several: StreamProject, launched: Launched, said: Callable[[], str], trigger: str
) -> None:
    """One that goes on for a time is left to the tasks of the streams, which know for how long."""
    task = before(several)
    task.trigger = trigger

    task.execute(context())

    assert "each stream goes on for a time, and is run by its own task" in said()
    assert launched.runs == []
    assert [records_of(several, name) for name in ALL] == [[], [], [], []]


@pytest.mark.parametrize(("trigger", "strategy"), [("available-now", "drain"), ("once", None), ("", None)])
def test_a_trigger_that_a_template_has_rendered_and_that_ends(
    several: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch, trigger: str, strategy: str | None
) -> None:
    """The runs are asked for as it says."""
    _, shared, _ = defer(several, launched, monkeypatch, trigger=trigger, until="")

    assert shared.runs.keys() == {"events", "failing", "hourly"}
    for name in shared.runs:
        (record,) = records_of(several, name)
        assert (record.strategy, record.max_batches) == (strategy, 1 if trigger == "once" else None)


def test_the_task_of_a_stream_tells_what_came_of_its_run(
    several: StreamProject, launched: Launched, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its first try; a retry runs what failed by itself, with the record of the first."""
    defer(several, launched, monkeypatch)
    done = do(several, "events", "succeeded")
    do(several, "failing", "failed", error=RecordedError(type="RunError", message="no", retryable=True))
    do(several, "hourly", "failed", error=RecordedError(type="LeaseTakenError", message="taken"))
    launched.end()

    events = own(several, "events")
    assert events.execute(context("events"))["run_id"] == done.run_id
    assert events.followed_run == ("events", done.run_id)
    assert "batch 0 (data): 3 rows in" in said()
    with pytest.raises(AirflowException, match="failed: no"):
        own(several, "failing").execute(context("failing"))
    assert "what Spark says" not in said()
    with pytest.raises(AirflowFailException, match="there is no connection"):
        own(several, "failing").execute(context("failing", try_number=2))
    assert "the driver ran other streams, too" in said()
    # Another run had its lease: it is planned anew at once.
    with pytest.raises(AirflowException, match="there is no Delta table"):
        own(several, "hourly").execute(context("hourly"))


@pytest.mark.parametrize(
    ("by", "expected"), [("ada", "was stopped between two batches"), ("Airflow: the task was marked", "no connection")]
)
def test_a_run_that_was_stopped(
    several: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch, by: str, expected: str
) -> None:
    """By a person: its task fails, and a retry goes on. With the task before it: it goes on at once."""
    _, trigger, _ = defer(several, launched, monkeypatch)
    record = do(several, "events", "stopped")
    request_stop(home_of(several, "events"), record.run_id, requested_by=by, now=START)
    launched.end()
    assert trigger.runs["events"] == record.run_id

    with pytest.raises(AirflowException, match=expected):
        own(several, "events").execute(context("events"))


@pytest.mark.parametrize("is_told", [True, False], ids=["by the driver", "which died"])
def test_a_run_that_was_stopped_before_its_turn(
    several: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    """Its task fails with who has stopped it, as it would with a driver of its own; a retry runs it from the start."""
    task, trigger, given = defer(several, launched, monkeypatch)
    home, run_id = home_of(several, "events"), trigger.runs["events"]
    request_stop(home, run_id, requested_by="ada", now=START)
    launched.end()
    if is_told:
        assert RunRecords(home).end_planned(run_id, START) is not None
    with pytest.raises(DownstreamTasksSkipped):
        task.resume(given, trigger.told())

    assert [(record.status, record.run_id) for record in records_of(several, "events")] == [("stopped", run_id)]
    with pytest.raises(AirflowException, match="stopped by ada before it had begun") as stopped:
        own(several, "events").execute(context("events"))
    assert not isinstance(stopped.value, AirflowFailException)
    with pytest.raises(AirflowFailException, match="there is no connection"):
        own(several, "events").execute(context("events", try_number=2))
    assert records_of(several, "events") == []
    assert records_of(several, "hourly") == []


def test_a_run_that_was_stopped_before_there_was_a_driver(
    several: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While others were planned: neither that, nor what reads it, is given to the driver."""
    other = several.root / "streams" / "other.py"
    other.write_text((several.root / "streams" / "more.py").read_text() + 'other = numbers("other", "in", "t:t")\n')
    other.write_text(other.read_text().replace("failing = ", "# ").replace("idle = ", "# "))

    def stop_and_share(*given: Any) -> list[str]:
        (record,) = records_of(several, "events")
        request_stop(home_of(several, "events"), record.run_id, requested_by="ada", now=START)
        return sharing(*given)

    monkeypatch.setattr(run_together, "sharing", stop_and_share)
    (several.root / "t.py").write_text("def t(events):\n    return events\n")
    with pytest.raises(DownstreamTasksSkipped):
        before(several, (*ALL, "other")).execute(context())

    assert launched.runs == [["failing", "other"]]
    assert records_of(several, "hourly") == []
    with pytest.raises(AirflowException, match="stopped by ada before it had begun"):
        own(several, "events").execute(context("events"))


def test_a_run_that_was_stopped_with_the_task_before_it(
    several: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has stopped that run itself: its own task runs it as if it had never been planned."""
    task, trigger, given = defer(several, launched, monkeypatch)
    asyncio.run(trigger.on_kill())
    launched.end()
    with pytest.raises(DownstreamTasksSkipped):
        task.resume(given, trigger.told())

    for name in ("events", "failing"):
        assert [record.status for record in records_of(several, name)] == ["stopped"]
        with pytest.raises(AirflowFailException, match="there is no connection"):
            own(several, name).execute(context(name))
        assert records_of(several, name) == []


@pytest.mark.parametrize("gone", [["more.py"], ["events.py"], ["events.py", "more.py"]], ids=str)
def test_streams_that_are_deleted_between_plan_and_driver(
    several: StreamProject, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch, gone: list[str]
) -> None:
    """The driver says so, and does what is left; each task then says it of its own stream. Nothing is left behind."""

    at_work = ExitStack()

    def delete_and_share(*given: Any) -> list[str]:
        names = sharing(*given)
        for file in gone:
            (several.root / "streams" / file).unlink()
        # What is left does not need Spark: another run is at work by then.
        for name in ("events", "failing"):
            home = home_of(several, name)
            lease = acquire(home.storage, home.lease_folder(1), run_id="another", sink_is_idempotent=True)
            at_work.enter_context(lease)
        return names

    monkeypatch.setattr(run_together, "sharing", delete_and_share)
    with at_work, pytest.raises(DownstreamTasksSkipped):
        before(several).execute(context())

    names = {"events.py": ("events", "hourly"), "more.py": ("failing",)}
    for name in (name for file in gone for name in names[file]):
        assert f"sluice {name}: UnknownStreamError: there is no stream `{name}`" in said()
        assert records_of(several, name) == []
        with pytest.raises(AirflowFailException, match=f"there is no stream `{name}`"):
            own(several, name).execute(context(name))
    assert [record.status for name in ("events", "failing") for record in records_of(several, name)] == [
        "failed" for file in names if file not in gone
    ]
    assert records_of(several, "hourly") == []


@pytest.mark.parametrize("is_closed", [True, False], ids=["the driver says so", "the driver dies"])
def test_a_dag_run_that_is_cleared_in_the_middle(
    several: StreamProject, launched: Launched, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch, *,
    is_closed: bool,
) -> None:  # fmt: skip
    """What the driver has done is told, what it was at goes on from there, and what it has not begun is begun.

    For Airflow, the tasks of the streams are at their first try then, which the task before them is not.
    """
    task, trigger, given = defer(several, launched, monkeypatch)
    done = do(several, "failing", "succeeded")
    do(several, "events", "running", token=1)
    asyncio.run(trigger.on_kill())
    cleared = context(generation=1) | {"task_state_store": given["task_state_store"]}
    task.execute(cleared)
    assert "this task was cleared" in said()
    launched.end()
    if is_closed:
        homes = {name: home_of(several, name) for name in trigger.runs}
        RunRecords(homes["events"]).close_stopped(
            trigger.runs["events"], "Airflow: the task was cleared", START, token=1
        )
        assert RunRecords(homes["hourly"]).end_planned(trigger.runs["hourly"], START) is not None

    assert own(several, "failing").execute(context("failing"))["run_id"] == done.run_id
    with pytest.raises(AirflowFailException, match="there is no connection"):
        own(several, "events").execute(context("events"))
    (record,) = records_of(several, "events")
    assert (record.run_id, record.status, record.tries) == (trigger.runs["events"], "planned", 1)
    with pytest.raises(AirflowException, match="there is no Delta table"):
        own(several, "hourly").execute(context("hourly"))


def test_which_streams_can_share_a_driver(several: StreamProject) -> None:
    """All of them, where each has a session or the driver starts its JVM; of `spark-submit`, those of one Spark."""
    declared = several.root / "streams" / "more.py"
    declared.write_text(
        "from dataclasses import replace\n"
        + declared.read_text()
        + 'idle = replace(idle, memory="3g")\n'
        + 'wrong = replace(idle, name="wrong", memory=None, conf={"spark.sql.ansi.enabled": "${NOT_SET}"})\n'
    )
    project = find_project(str(several.root))
    streams = {name: project.stream(name) for name in (*ALL, "wrong")}

    assert sharing(project, streams, "spark_test") == [*ALL, "wrong"]
    assert sharing(project, streams, "spark_submitted") == ["events", "hourly", "failing"]


def test_a_driver_on_another_machine_may_be_between_two_runs(
    several: StreamProject, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There only leases tell of it, and none is taken then: it is waited for a while."""
    _, trigger, _ = defer(several, launched, monkeypatch)
    monkeypatch.setattr(together, "START_PATIENCE", timedelta(seconds=0.5))
    # As long after its start: then a run that has not begun gives no sign of life by itself.
    monkeypatch.setattr(runs_driver, "START_PATIENCE", timedelta(0))
    for name, run_id in trigger.runs.items():
        home = home_of(several, name)
        driver = Drivers(home).find(run_id)
        assert driver is not None
        elsewhere = msgspec.structs.replace(driver, machine="another")
        home.storage.replace(f"{home.drivers_folder()}/{run_id}.json", encode_document(elsewhere))
    looks: list[tuple[bool, bool]] = []
    monkeypatch.setattr(trigger, "_look", lambda: looks.append(TogetherTrigger._look(trigger)) or looks[-1])

    async def follow() -> None:
        task = asyncio.create_task(trigger.follow(poll_seconds=0.01))
        await until(lambda: looks)
        home, began = home_of(several, "hourly"), time.monotonic()
        with acquire(home.storage, home.lease_folder(1), run_id=trigger.runs["hourly"], sink_is_idempotent=True):
            await until(lambda: time.monotonic() - began > 1.0)
            assert not task.done()
        await task

    asyncio.run(follow())
    assert looks[0] == looks[-1] == (False, True)
    assert (True, False) in looks
