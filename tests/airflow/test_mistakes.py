"""What people type into DAGs, operators and sensors, and the exact answer to each mistake.

The table lies in `mistakes.txt`: a line with what was typed, and below it, indented, what is said.
"""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import DAG, task

from demo.standalone import Standalone
from demo.up import how_to_use
from sluice.errors import DeclarationError
from sluice_airflow.operators.audit_stream import AuditStreamOperator
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.operators.run_together import RunTogetherOperator
from sluice_airflow.sensors.lag import LagSensor
from sluice_airflow.sensors.progress import BatchSensor, WatermarkSensor
from sluice_airflow.stream_dag import stream_dag
from sluice_airflow.timetables import after_run, per_partition

if TYPE_CHECKING:
    from airflow_project import StreamProject

START = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = (
    RunStreamOperator,
    RunTogetherOperator,
    AuditStreamOperator,
    LagSensor,
    BatchSensor,
    after_run,
    per_partition,
    stream_dag,
    timedelta,
)
NAMES = {kind.__name__: kind for kind in KINDS}
LINES = [line for line in Path(__file__).with_name("mistakes.txt").read_text("utf-8").splitlines() if line]


@pytest.mark.parametrize(
    ("typed", "said"), [(typed, said.strip()) for typed, said in zip(LINES[::2], LINES[1::2], strict=True)]
)
def test_mistakes(stream_project: StreamProject, monkeypatch: pytest.MonkeyPatch, typed: str, said: str) -> None:
    """Each is answered when the DAG file is parsed, or when its templates are rendered."""
    monkeypatch.setenv("SLUICE_PROJECT", str(stream_project.root))
    with pytest.raises(DeclarationError) as caught:
        eval(typed, dict(NAMES))
    assert (
        f"{type(caught.value).__name__}: {caught.value}".replace(str(stream_project.root), "DIR").replace(
            os.getcwd(), "CWD"
        )
        == said
    )


def test_what_airflow_takes_is_taken(stream_project: StreamProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every argument of DAGs, tasks and sensors still reaches Airflow, also through `partial` and decorators."""
    monkeypatch.setenv("SLUICE_PROJECT", str(stream_project.root))
    made = stream_dag("events", schedule="@hourly", start_date=START, catchup=False, tags=["x"], max_active_tasks=2,
                      default_args={"retries": 3, "depends_on_past": True})  # fmt: skip
    assert made.task_dict["events"].depends_on_past
    both = stream_dag("events", "hourly", together=True, schedule=None, default_args={"retries": 3})
    assert [both.task_dict[name].retries for name in ("together", "events", "hourly")] == [3, 3, 3]
    assert "together" not in stream_dag("events", together=False, dag_id="alone").task_dict
    with DAG("all", schedule=None, start_date=START, default_args={"owner": "me"}) as dag:
        RunStreamOperator(task_id="run", stream="events", execution_timeout=timedelta(1), retry_delay=timedelta(1))
        AuditStreamOperator(task_id="audit", stream="events", suite="s.json", queue="q")
        LagSensor(task_id="lag", stream="events", max_files=1, timeout=5, soft_fail=True, poke_interval=3)
        WatermarkSensor(task_id="watermark", stream="events")
        RunStreamOperator.partial(task_id="mapped").expand(stream=["events"])

        @task.stream(stream="events", multiple_outputs=False)
        def decorated() -> None:
            """Gives no more bounds."""

        decorated.override(retries=2)()
    assert list(dag.task_dict) == ["run", "audit", "lag", "watermark", "mapped", "decorated"]


def test_what_make_up_prints(tmp_path: Path) -> None:
    """It says where Airflow is and how to come in, and every command line that it prints is one that works."""
    airflow = Standalone(tmp_path, tmp_path / "dags", tmp_path, port=8080, password="open sesame")

    said = how_to_use(airflow)

    command = tmp_path / "airflow"
    assert (
        said
        == f"""\
Airflow is at http://127.0.0.1:8080
  user     admin
  password open sesame
  log      {tmp_path}/airflow.log
  command  {command}
`airflow` by itself would look into another home: this command has the settings of this Airflow, as in
  {command} dags list
  {command} backfill create --help"""
    )
    for line in (line for line in said.splitlines() if line.startswith(f"  {command} ")):
        # Without a database, only what a command takes can be asked.
        asked = subprocess.run([*line.split(), "--help"], capture_output=True, text=True, check=True)
        assert asked.stdout.startswith("Usage: airflow")


def test_the_command_beside_make_up(tmp_path: Path) -> None:
    """`make up` leaves a command that has its Airflow's settings, for nobody else to read."""
    airflow = Standalone(tmp_path, tmp_path / "dags", tmp_path, port=8080)
    airflow.keep_command()
    command = airflow.keep_command()

    text = command.read_text()
    assert command == tmp_path / "airflow"
    assert command.stat().st_mode & 0o777 == 0o700
    assert f"export AIRFLOW_HOME={tmp_path}\n" in text
    assert f"export AIRFLOW__CORE__DAGS_FOLDER={tmp_path}/dags\n" in text
    assert text.endswith('/airflow "$@"\n')
