"""The sensors, in real DAG runs: deferred, from the trigger, and in a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import TaskDeferred
from airflow.utils.state import TaskInstanceState
from airflow_project import StreamProject
from committed import commit

from sluice.errors import DeclarationError
from sluice.monitoring import progress
from sluice_airflow.sensors.lag import LagSensor
from sluice_airflow.sensors.progress import BatchSensor, WatermarkSensor
from sluice_airflow.triggers import quality, shared_poll, stream
from sluice_airflow.triggers.stream import watched_streams
from tests.builders import NOW, NOW_MS

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
_DAG = """
from datetime import datetime, timedelta, timezone
from airflow.sdk import DAG, CronDataIntervalTimetable
from sluice_airflow.sensors.lag import LagSensor
from sluice_airflow.sensors.progress import BatchSensor, WatermarkSensor
from sluice_airflow.sensors.quality import QualitySensor
with DAG("{dag_id}", schedule=CronDataIntervalTimetable("0 * * * *", "UTC"), catchup=False,
         params={{"batch": 3}}, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
    {sensor}(task_id="wait", stream="events", project="{project}", poke_interval=0.2, {arguments})
"""


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll without a rest."""
    monkeypatch.setattr(shared_poll, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(shared_poll, "_REST_PER_WORK", 0.0)
    watched_streams.cache_clear()


def run(project: StreamProject, sensor: str, arguments: str, *, start: datetime | None = START) -> Any:
    """Run a DAG of one sensor; returns its task instance."""
    dag_id = f"{sensor}_{project.root.name}"
    file = project.dags / f"{dag_id}.py"
    file.write_text(_DAG.format(dag_id=dag_id, sensor=sensor, project=project.root, arguments=arguments))
    bag = DagBag(str(file))
    assert not bag.import_errors, bag.import_errors
    done = bag.dags[dag_id].test(logical_date=start)
    return next(ti for ti in done.get_task_instances() if ti.task_id == "wait")


def result(ti: Any) -> Any:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(XComModel).filter_by(run_id=ti.run_id, dag_id=ti.dag_id, key="return_value").one()
        return XComModel.deserialize_value(found)


@contextmanager
def later(happens: Callable[[], object]) -> Iterator[None]:
    """Something that happens as soon as a sensor has looked once, at commits, at a backlog, or at verdicts."""
    looked = threading.Event()

    def looking(look: Callable[..., Any]) -> Callable[..., Any]:
        def look_and_tell(*arguments: Any) -> Any:
            try:
                return look(*arguments)
            finally:
                looked.set()

        return look_and_tell

    def wait() -> None:
        if looked.wait(60):
            happens()

    waiting = threading.Thread(target=wait)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "read_progress", looking(progress.read_progress))
        patch.setattr(stream, "stream_lag", looking(stream.stream_lag))
        patch.setattr(quality, "quality_outcome", looking(quality.quality_outcome))
        waiting.start()
        try:
            yield
        finally:
            looked.set()
            waiting.join()


class StateStore(dict[str, Any]):
    """What Airflow keeps for a task over its tries, in memory."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


MODES = pytest.mark.parametrize(
    "mode", ["deferrable=True", "deferrable=False, mode='poke'"], ids=["deferred", "in a worker"]
)


class TestBatchSensor:
    @MODES
    def test_waits_for_a_new_batch(self, stream_project: StreamProject, mode: str) -> None:
        """The batch that was there when the task began does not count."""
        commit(stream_project, 4)
        with later(lambda: commit(stream_project, 5)):
            ti = run(stream_project, "BatchSensor", mode)

        assert ti.state == TaskInstanceState.SUCCESS
        assert result(ti) == {"generation": 1, "batch_id": 5, "watermark": None}

    @MODES
    def test_waits_for_a_certain_batch(self, stream_project: StreamProject, mode: str) -> None:
        """Its number comes from a template."""
        commit(stream_project, 3)
        ti = run(stream_project, "BatchSensor", "batch_id='{{ params.batch }}', " + mode)

        assert result(ti)["batch_id"] == 3

    def test_starts_from_the_trigger(self, stream_project: StreamProject) -> None:
        """Without a worker first; the template is rendered in the triggerer."""
        with later(lambda: commit(stream_project, 3)):
            ti = run(
                stream_project,
                "BatchSensor",
                "batch_id='{{ params.batch }}', start_from_trigger=True",
            )

        assert result(ti)["batch_id"] == 3

    def test_a_new_batch_can_not_start_from_the_trigger(self) -> None:
        """Where the stream is when the task begins would be forgotten with the triggerer."""
        with pytest.raises(DeclarationError, match="noted by a worker"):
            BatchSensor(task_id="wait", stream="events", start_from_trigger=True)

    def test_the_start_is_kept_over_retries(self, stream_project: StreamProject) -> None:
        """A batch between two tries counts; a cleared task begins anew."""
        store = StateStore()

        def execute(max_tries: int) -> Any:
            sensor = BatchSensor(task_id="wait", stream="events", project=str(stream_project.root), retries=2)
            ti = SimpleNamespace(dag_id="d", run_id="r", task_id="wait", map_index=-1, max_tries=max_tries)
            ti.try_number = max_tries - 1
            context: Any = {"ti": ti, "task_state_store": store}
            return sensor.execute(context)

        commit(stream_project, 4)
        with pytest.raises(TaskDeferred) as deferred:
            execute(2)
        commit(stream_project, 5)

        assert deferred.value.trigger.since["batch_id"] == 4
        assert execute(2)["batch_id"] == 5
        with pytest.raises(TaskDeferred) as deferred:
            execute(3)
        assert deferred.value.trigger.since["batch_id"] == 5

    def test_a_first_look_that_fails_is_waited_for(self, stream_project: StreamProject) -> None:
        """The disk was away: where the stream is when it is back is where the waiting begins."""
        commits = Path(stream_project.home().checkpoint_location(1), "commits")
        commits.mkdir(parents=True)
        (commits / "4").symlink_to("nowhere")
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="wait", map_index=-1, max_tries=0, try_number=1)
        context: Any = {"ti": ti, "task_state_store": StateStore()}
        sensor = BatchSensor(task_id="wait", stream="events", project=str(stream_project.root))

        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute(context)
        trigger = deferred.value.trigger
        assert trigger.since is None
        (commits / "4").unlink()
        commit(stream_project, 4)
        assert trigger.met(trigger.look()) is None
        commit(stream_project, 5)
        assert trigger.met(trigger.look())["batch_id"] == 5

    def test_times_out(self, stream_project: StreamProject) -> None:
        """`timeout` holds in a worker; in the triggerer it is Airflow's, as the standalone test shows."""
        ti = run(stream_project, "BatchSensor", "deferrable=False, timeout=1")

        assert ti.state == TaskInstanceState.FAILED

    def test_soft_failure(self, stream_project: StreamProject) -> None:
        """Airflow's own arguments of sensors hold."""
        ti = run(stream_project, "BatchSensor", "deferrable=False, timeout=1, soft_fail=True")

        assert ti.state == TaskInstanceState.SKIPPED

    @MODES
    def test_a_stream_that_is_not_declared(self, stream_project: StreamProject, mode: str) -> None:
        """It was renamed: retries would not help."""
        (stream_project.root / "streams" / "events.py").write_text("")
        ti = run(stream_project, "BatchSensor", f"{mode}, batch_id=0, retries=3")

        assert ti.state == TaskInstanceState.FAILED
        assert ti.try_number == 1


class TestWatermarkSensor:
    @MODES
    def test_waits_for_the_end_of_the_interval(self, stream_project: StreamProject, mode: str) -> None:
        """That is the default, and what completes an hour."""
        commit(stream_project, 0, watermark_ms=NOW_MS - 1)
        with later(lambda: commit(stream_project, 1, watermark_ms=NOW_MS)):
            ti = run(stream_project, "WatermarkSensor", mode)

        assert result(ti)["watermark"] == "2026-01-31T12:00:00.000Z"

    def test_starts_from_the_trigger(self, stream_project: StreamProject) -> None:
        """A time is rendered in the triggerer, too."""
        commit(stream_project, 0, watermark_ms=NOW_MS)
        ti = run(stream_project, "WatermarkSensor", "passed=datetime(2026, 1, 31, 12), start_from_trigger=True")

        assert result(ti)["batch_id"] == 0

    def test_a_run_without_an_interval(self, stream_project: StreamProject) -> None:
        """A manual run may have neither date nor interval: a clear error, and no wait without end."""
        ti = run(stream_project, "WatermarkSensor", "retries=0", start=None)

        assert ti.state == TaskInstanceState.FAILED


class TestLagSensor:
    @MODES
    def test_waits_for_a_small_backlog(self, stream_project: StreamProject, mode: str) -> None:
        """Nothing may wait, and one file does at first."""
        stream_project.arrive(1, at=NOW)
        with later((stream_project.root / "in" / "0.json").unlink):
            ti = run(stream_project, "LagSensor", f"max_files=0, max_age=timedelta(hours=1), {mode}")

        nothing = {"files": 0, "offsets": 0, "bytes": 0, "rows": 0}
        assert result(ti) == {**nothing, "offsets_per_partition": None, "age_seconds": 0.0}

    def test_starts_from_the_trigger(self, stream_project: StreamProject) -> None:
        """Without a worker first."""
        ti = run(stream_project, "LagSensor", "max_bytes=100, start_from_trigger=True")

        assert result(ti)["bytes"] == 0

    @pytest.mark.parametrize("limits", [{}, {"max_files": -1}, {"max_offsets": -1}, {"max_age": timedelta(seconds=-1)}])
    def test_needs_a_limit(self, limits: dict[str, Any]) -> None:
        """A sensor that waits for nothing is a mistake."""
        with pytest.raises(DeclarationError, match="no limit"):
            LagSensor(task_id="wait", stream="events", **limits)


def test_two_sensors_do_not_share_what_they_wait_for() -> None:
    """`start_trigger_args` is a class attribute of Airflow's: each task has its own."""
    one = WatermarkSensor(task_id="a", stream="x", passed="2026-01-01", start_from_trigger=True, timeout=60)
    other = WatermarkSensor(task_id="b", stream="y", passed="2026-01-02", start_from_trigger=True)

    assert one.start_trigger_args.trigger_kwargs == {"stream": "x", "passed": "2026-01-01", "project": None}
    assert one.start_trigger_args.timeout == timedelta(seconds=60)
    assert other.start_trigger_args.trigger_kwargs["stream"] == "y"
    assert not BatchSensor(task_id="c", stream="z").start_from_trigger
