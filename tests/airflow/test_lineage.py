"""Lineage through Airflow's OpenLineage provider: the task is the parent of the run, and nothing is told twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.sdk import DAG
from airflow_project import StreamProject, make_stream_project

from sluice.lineage.settings import given_environment
from sluice_airflow.openlineage_provider import lineage_of_task
from sluice_airflow.operators.run_stream import RunStreamOperator
from tests.airflow_tables import copy_tables
from tests.lineage_server import Told, check_event, forget_lineage, read_events, states

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
REPOSITORY = Path(__file__).parents[2]
DATA = ("inputs", "outputs")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_lineage(monkeypatch)


@pytest.fixture
def project(tmp_path: Path) -> StreamProject:
    (tmp_path / "airflow" / "dags").mkdir(parents=True)
    return make_stream_project(tmp_path, tmp_path / "airflow" / "dags")


def dag_run(project: StreamProject, tables: Path) -> Told:
    """Run a DAG whose provider tells a file; gives what was told."""
    told, home = project.root / "told.json", project.root / "airflow"
    if not (home / "airflow.db").exists():
        copy_tables(tables, home)
    transport = {"type": "file", "log_file_path": str(told), "append": True}
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(project.dags),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "airflow",
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent), str(REPOSITORY)]),
    }
    command = [
        sys.executable,
        str(Path(__file__).with_name("lineage_dag_run.py")),
        str(project.root),
        str(project.dags),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return read_events(told)


def by_job(told: Told) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for event in told.events:
        found.setdefault(event["job"]["name"], []).append(event)
    return found


@pytest.mark.spark
def test_a_task_and_its_run(project: StreamProject, airflow_tables: Path) -> None:
    """The driver tells of the data, by the provider's own settings; the task's events say which run it was."""
    jobs = by_job(dag_run(project, airflow_tables))

    dag = f"events_{project.root.name}"
    task, stream = jobs[f"{dag}.events"], jobs[f"{project.root.name}.events"]
    for event in stream:
        check_event(event)
        assert event["job"]["namespace"] == "airflow"
        parent = event["run"]["facets"]["parent"]
        assert (parent["job"]["name"], parent["run"]["runId"]) == (f"{dag}.events", task[0]["run"]["runId"])
        assert parent["root"]["job"]["name"] == dag
    assert (states(task), states(stream)) == (["START", "COMPLETE"], ["START", "COMPLETE"])
    assert task[1]["run"]["facets"]["sluice"]["runId"] == project.records()[0].run_id
    assert [dataset["name"] for dataset in stream[1]["inputs"]] == [str(project.root / "in")]
    assert stream[1]["outputs"][0]["facets"].keys() >= {"schema", "columnLineage", "version"}
    # What the task's asset says is the provider's own; by its name it is the same table.
    told_of_task = [(data["namespace"], data["name"], data["facets"]) for name in DATA for data in task[1][name]]
    assert told_of_task in ([], [("file", str(project.root / "out" / "events"), {})])


class Task:
    """As much of a task instance as the provider's macros ask for."""

    dag_id, task_id, try_number, map_index = "dag", "events", 1, -1
    dag_run = SimpleNamespace(conf={}, clear_number=0, logical_date=START, run_after=START)

    def get_template_context(self) -> dict[str, Any]:
        return {"dag_run": self.dag_run}


def told_driver(**arguments: Any) -> dict[str, str]:
    """What a driver of a task is told by its environment."""
    with DAG("dag", schedule=None):
        operator = RunStreamOperator(task_id="events", stream="events", **arguments)
    with lineage_of_task({"ti": Task()}, operator):  # type: ignore[arg-type]
        return given_environment()


def test_a_driver_is_told_what_the_provider_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where events go, with the key that Airflow keeps, and whose run it is."""
    auth = {"type": "airflow_connection_api_key", "conn_id": "lineage"}
    transport = {"type": "http", "url": "http://127.0.0.1:1", "auth": auth}
    monkeypatch.setenv("AIRFLOW_CONN_LINEAGE", json.dumps({"conn_type": "http", "password": "a key"}))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "lake")

    told = told_driver()

    assert json.loads(told["OPENLINEAGE__TRANSPORT"])["auth"] == {"type": "api_key", "apiKey": "a key"}
    assert told["OPENLINEAGE_NAMESPACE"] == "lake"
    assert told["OPENLINEAGE_PARENT_ID"].startswith("lake/dag.events/")
    assert told["OPENLINEAGE_ROOT_PARENT_ID"].startswith("lake/dag/")
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__NAMESPACE", "airflow")
    assert told_driver()["OPENLINEAGE_NAMESPACE"] == "airflow"


def test_where_the_provider_is_silent_so_is_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disabled for the operator, or altogether, also where the environment says where events go."""
    assert told_driver() == {}
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    assert told_driver().keys() == {"OPENLINEAGE_PARENT_ID", "OPENLINEAGE_ROOT_PARENT_ID"}
    operator = "sluice_airflow.operators.run_stream.RunStreamOperator"
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__DISABLED_FOR_OPERATORS", operator)
    assert told_driver() == {"OPENLINEAGE_DISABLED": "true"}
    monkeypatch.delenv("AIRFLOW__OPENLINEAGE__DISABLED_FOR_OPERATORS")
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__DISABLED", "true")
    assert told_driver() == {"OPENLINEAGE_DISABLED": "true"}


def test_a_provider_that_is_set_up_wrongly_fails_no_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what is wrong; then the environment counts."""
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__CONFIG_CONN_ID", "nowhere")

    assert told_driver() == {}

    assert "what the OpenLineage provider is set up with could not be told to the run" in caplog.text


def test_what_a_task_tells_of_itself() -> None:
    """Nothing of the data; the run once it has come to one."""
    with DAG("dag", schedule=None):
        operator = RunStreamOperator(task_id="events", stream="events")
    assert operator.get_openlineage_facets_on_start() == OperatorLineage()
    assert operator.get_openlineage_facets_on_complete(None) == OperatorLineage()

    operator._following = SimpleNamespace(), "20260131T120000000Z-00000001"  # type: ignore[assignment]

    (facet,) = operator.get_openlineage_facets_on_complete(None).run_facets.values()
    assert (facet.runId, facet.stream) == ("20260131T120000000Z-00000001", "events")
