"""Quality in Airflow: the sensor, and what a failed gate means for a task, its assets, and what is downstream."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow_project import StreamProject
from test_sensors import MODES, later, result, run

from sluice.errors import DeclarationError, HeldError, Problem, QualityFailedError, SluiceError
from sluice.gate.state import GateState, keep_gate, release_gate
from sluice.plan_document import PlanDocument
from sluice.runs.record import CheckRecord, QualityRecord, RecordedError, RunRecord, RunRecords, new_run_id
from sluice.runs.summary import RecordedInterval
from sluice_airflow.outcomes import as_airflow_errors, conclude
from sluice_airflow.sensors.quality import QualitySensor
from sluice_airflow.triggers import shared_poll
from sluice_airflow.triggers.quality import QualityTrigger
from sluice_airflow.triggers.stream import watched_streams

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
"""The end of the data interval of the sensors' runs."""
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll without a rest."""
    monkeypatch.setattr(shared_poll, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(shared_poll, "_REST_PER_WORK", 0.0)
    watched_streams.cache_clear()


def keep(project: StreamProject, verdict: Any, *, until: datetime = NOON, minute: int = 0, **changes: Any) -> RunRecord:
    """Let a run have left a record with a verdict."""
    at = NOON + timedelta(minutes=minute)
    checks = (CheckRecord(type="x", success=verdict == "pass"),)
    known: dict[str, Any] = {
        "run_id": new_run_id(at, str(minute)),
        "stream": "events",
        "generation": 1,
        "planned_at": at,
        "until": until,
        "plan": PlanDocument(),
        "status": "failed" if verdict == "fail" else "succeeded",
        "quality": QualityRecord(verdict=verdict, checks=checks),
    }
    record = RunRecord(**known | changes)
    RunRecords(project.home()).save(record)
    return record


class TestQualitySensor:
    @MODES
    def test_waits_for_the_interval_to_be_judged(self, stream_project: StreamProject, mode: str) -> None:
        """An earlier run says nothing of what came since."""
        stream_project.check(most=5)
        keep(stream_project, "pass", until=NOON - timedelta(hours=1), minute=-60)
        with later(lambda: keep(stream_project, "pass")):
            ti = run(stream_project, "QualitySensor", mode)

        assert ti.state == TaskInstanceState.SUCCESS
        assert (result(ti)["verdict"], result(ti)["reaches"]) == ("pass", "2026-01-31T12:00:00.000Z")

    @MODES
    def test_a_worse_verdict_fails_the_task(self, stream_project: StreamProject, mode: str) -> None:
        """Without retries: nothing gets better by itself."""
        stream_project.check(most=5)
        keep(stream_project, "warn")

        ti = run(stream_project, "QualitySensor", f"{mode}, retries=3")

        assert (ti.state, ti.try_number) == (TaskInstanceState.FAILED, 1)
        assert run(stream_project, "QualitySensor", f"{mode}, verdict='warn'").state == TaskInstanceState.SUCCESS

    def test_a_worse_verdict_is_waited_out(self, stream_project: StreamProject) -> None:
        """A retry of the run makes it better."""
        stream_project.check(most=5)
        failed = keep(stream_project, "fail")
        with later(lambda: keep(stream_project, "pass")):
            ti = run(stream_project, "QualitySensor", "on_worse='wait'")

        assert result(ti)["run_id"] == failed.run_id

    def test_starts_from_the_trigger(self, stream_project: StreamProject) -> None:
        """Without a worker first; the moment is rendered in the triggerer."""
        stream_project.check(most=5)
        keep(stream_project, "pass")

        ti = run(stream_project, "QualitySensor", "start_from_trigger=True")

        assert result(ti)["failed_checks"] == 0

    def test_a_stream_without_a_suite(self, stream_project: StreamProject) -> None:
        """It would wait for ever."""
        assert run(stream_project, "QualitySensor", "retries=3").state == TaskInstanceState.FAILED

    @pytest.mark.parametrize("arguments", [{"verdict": "fail"}, {"verdict": "good"}, {"on_worse": "hope"}])
    def test_a_wrong_argument(self, arguments: dict[str, Any]) -> None:
        """It is refused while the DAG is parsed."""
        with pytest.raises(DeclarationError, match="use one of"):
            QualitySensor(task_id="wait", stream="events", **arguments)


def met(project: StreamProject, verdict: str = "pass") -> bool:
    """Whether the trigger would fire for what arrived before noon; waits for better ones."""
    arguments = {"verdict": verdict, "until": NOON.isoformat(), "on_worse": "wait"}
    trigger = QualityTrigger(stream="events", project=str(project.root), **arguments)
    return trigger.met(trigger.look()) is not None


class TestWhatCounts:
    @pytest.fixture(autouse=True)
    def suite(self, stream_project: StreamProject) -> None:
        """The stream is judged."""
        stream_project.check(most=5)

    def test_nothing_yet(self, stream_project: StreamProject) -> None:
        """A stream that never ran has no verdict."""
        assert not met(stream_project)

    @pytest.mark.parametrize(
        "changes",
        [
            {"status": "stopped"},
            {"status": "failed"},
            {"status": "running"},
            {"interval": RecordedInterval(START, NOON)},
        ],
    )
    def test_runs_that_broke_off_and_backfills_do_not(
        self, stream_project: StreamProject, changes: dict[str, Any]
    ) -> None:
        """What was seen of them is not all that arrived; the run before them still counts."""
        keep(stream_project, "pass", minute=1, **changes)
        assert not met(stream_project)

        keep(stream_project, "pass")
        assert met(stream_project)

    def test_a_look_that_found_nothing_new(self, stream_project: StreamProject) -> None:
        """An earlier run has judged all that there is; only as far as the look went."""
        keep(stream_project, "pass", until=NOON - timedelta(hours=2), minute=-120)
        home = stream_project.home()
        home.keep_skip("nothing new", NOON, until=NOON - timedelta(hours=1))
        assert not met(stream_project)

        home.keep_skip("nothing new", NOON, until=NOON)
        assert met(stream_project)

    def test_a_later_failure_counts_more(self, stream_project: StreamProject) -> None:
        """The newest verdict is the one that holds."""
        keep(stream_project, "pass")
        keep(stream_project, "fail", minute=5)

        assert not met(stream_project)

    def test_what_a_person_released_is_a_warning(self, stream_project: StreamProject) -> None:
        """Somebody has looked at it, but it did not pass."""
        record = keep(stream_project, "fail")
        home = stream_project.home()
        keep_gate(home, GateState(state="failed", run_id=record.run_id, generation=1, since="2026-01-31T12:00:00Z"))
        assert not met(stream_project, "warn")

        release_gate(home, "ada", NOON)

        assert met(stream_project, "warn")
        assert not met(stream_project, "pass")


@pytest.mark.parametrize(
    "error", [HeldError(Problem("HELD_BY_QUALITY", "r", "it failed", "more", "release it")), QualityFailedError("no")]
)
def test_quality_is_not_retried(error: SluiceError) -> None:
    """Neither a failed gate nor a held stream gets better by itself, in a worker or from a record."""
    with pytest.raises(AirflowFailException), as_airflow_errors():
        raise error
    failure = RecordedError(type=type(error).__name__, message=str(error), retryable=error.retryable)
    record = RunRecord(
        run_id="r", stream="s", generation=1, planned_at=NOON, plan=PlanDocument(), status="failed", error=failure
    )
    with pytest.raises(AirflowFailException):
        conclude(record)


@pytest.mark.spark
def test_a_failed_gate(stream_project: StreamProject) -> None:
    """The task fails without retries, nothing is published, no event goes out, and downstream is not run. Once the
    rule is relaxed, the cleared task publishes the very batch that was planned."""
    dag = stream_project.dag('conn_id="spark_test", default_args={"retries": 3}', streams='"events", "hourly"')
    stream_project.check(most=0)
    stream_project.arrive(2, at=START - timedelta(hours=2))

    failed = dag.test(logical_date=START)

    assert failed.state == DagRunState.FAILED
    tasks = {ti.task_id: ti for ti in failed.get_task_instances()}
    assert (tasks["events"].state, tasks["events"].try_number) == (TaskInstanceState.FAILED, 1)
    assert tasks["hourly"].state == TaskInstanceState.UPSTREAM_FAILED
    assert [path for path in (stream_project.root / "out").rglob("*") if path.is_file()] == []
    assert events_of(stream_project) == 0
    (record,) = stream_project.records()
    assert record.error is not None
    assert (record.status, record.error.type, record.error.retryable) == ("failed", "QualityFailedError", False)

    stream_project.check(most=2)
    stream_project.arrive(1, at=START - timedelta(hours=1))
    done = dag.test(logical_date=START)

    assert done.state == DagRunState.SUCCESS
    assert stream_project.rows() == [0, 1, 2]
    assert events_of(stream_project) == 1
    newest = stream_project.records()[0]
    assert newest.quality is not None
    assert (newest.quality.verdict, newest.batches[0].input_rows) == ("pass", 2)


def events_of(project: StreamProject) -> int:
    """How many events the sink's asset has."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return int(events.filter(AssetModel.uri == f"file://{project.root}/out/events").count())
