"""The operator, in real DAG runs with a real database; Spark through `spark-submit`."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow_project import StreamProject

from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.stream_dag import stream_dag

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_nothing_new_is_a_skip_without_a_jvm(stream_project: StreamProject) -> None:
    """The task ends as skipped, and no driver was started."""
    run = stream_project.dag().test(logical_date=START)

    assert run.state == DagRunState.SUCCESS
    assert _state(run, "events") == TaskInstanceState.SKIPPED
    assert stream_project.records() == []
    assert stream_project.home().checked().reason == "nothing new before 2026-01-01T00:00:00+00:00"


def test_a_missing_connection_is_an_error(stream_project: StreamProject) -> None:
    """The provider's hook alone would submit to YARN without a word."""
    stream_project.arrive(1, at=START - timedelta(days=1))

    run = stream_project.dag('conn_id="nowhere"').test(logical_date=START)

    assert _state(run, "events") == TaskInstanceState.FAILED
    assert stream_project.records() == []


def test_a_connection_of_another_type_is_an_error(stream_project: StreamProject) -> None:
    """A typing error in a connection id must not start anything."""
    stream_project.arrive(1, at=START - timedelta(days=1))

    run = stream_project.dag('conn_id="postgres_test"').test(logical_date=START)

    assert _state(run, "events") == TaskInstanceState.FAILED


@pytest.mark.spark
def test_a_run_takes_what_arrived_before_the_end_of_its_interval(stream_project: StreamProject) -> None:
    """The second file arrives after the interval, and is left for the next run; the summary says what was done."""
    stream_project.arrive(1, at=START - timedelta(hours=2))
    stream_project.arrive(1, at=START + timedelta(hours=2))

    run = stream_project.dag().test(logical_date=START)

    assert run.state == DagRunState.SUCCESS
    assert stream_project.rows() == [0]
    record = stream_project.records()[0]
    assert (record.status, record.until) == ("succeeded", START)
    assert _summary(run)["run_id"] == record.run_id
    assert _summary(run)["input_rows"] == _summary(run)["output_rows"] == 1
    assert _event(stream_project.root) == {**_summary(run), "partition_count": 0, "partitions": []}


@pytest.mark.spark
def test_a_failing_transform_fails_the_task_with_its_message(stream_project: StreamProject) -> None:
    """The declaration is wrong: another try would not help, so the task fails for good."""
    stream_project.arrive(1, at=START - timedelta(hours=2))
    (stream_project.root / "transform_events.py").write_text("def events(events):\n    return 1\n")

    run = stream_project.dag('conn_id="spark_test", default_args={"retries": 3}').test(logical_date=START)

    assert _state(run, "events") == TaskInstanceState.FAILED
    error = stream_project.records()[0].error
    assert error["type"] == "DeclarationError"
    assert "not a DataFrame" in error["message"]


def test_a_downstream_stream_follows_its_source(stream_project: StreamProject) -> None:
    """The order comes from sinks and sources; the bound of the second is the version that the first one left."""
    dag = stream_dag(
        "hourly", "events", project=str(stream_project.root), schedule="0 * * * *", start_date=START, dag_id="both"
    )

    hourly = dag.get_task("hourly")
    assert hourly.upstream_task_ids == {"events"}
    assert hourly.until == ""
    assert "xcom_pull(task_ids='events')" in hourly.to_version
    assert hourly.trigger_rule == "none_failed"


def test_a_cron_schedule_gets_real_intervals(stream_project: StreamProject) -> None:
    """Airflow's default for a cron string has intervals without length."""
    dag = stream_dag("events", project=str(stream_project.root), schedule="0 * * * *", start_date=START)

    interval = coerce_to_core_timetable(dag.timetable).infer_manual_data_interval(run_after=pendulum.instance(START))
    assert interval.end - interval.start == timedelta(hours=1)


@pytest.mark.parametrize("version", ["", "None", None])
def test_an_absent_version_is_no_bound(stream_project: StreamProject, version: str | None) -> None:
    """An upstream that was skipped has left no version."""
    operator = RunStreamOperator(
        task_id="events", stream="events", project=str(stream_project.root), until="", to_version=version
    )

    assert operator.bound().to_version is None


def test_dag_files_need_no_pyspark() -> None:
    """Every DAG file imports with pyspark and Great Expectations absent."""
    repository = Path(__file__).resolve().parents[2]
    program = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['great_expectations'] = None\n"
        "from airflow.dag_processing.dagbag import DagBag\n"
        f"bag = DagBag({str(repository / 'dags')!r})\n"
        "assert not bag.import_errors, bag.import_errors\n"
        "print(sorted(bag.dags))\n"
    )
    environment = os.environ | {"SLUICE_PROJECT": str(repository)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "flights" in done.stdout.splitlines()[-1]


def _state(run: Any, task_id: str) -> Any:
    return next(ti.state for ti in run.get_task_instances() if ti.task_id == task_id)


def _event(project: Path) -> dict[str, Any]:
    """What the only event of the sink's asset says."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return dict(events.filter(AssetModel.uri == f"file://{project}/out/events").one().extra)


def _summary(run: Any) -> dict[str, Any]:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(XComModel).filter_by(run_id=run.run_id, task_id="events", key="return_value").one()
        return XComModel.deserialize_value(found)
