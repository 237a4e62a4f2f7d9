"""The operator that audits a table, in real DAG runs with a real database and real drivers."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.utils.state import TaskInstanceState
from airflow_project import StreamProject
from deltalake import write_deltalake

from sluice.auditing.table_audit import TableAuditRequest, read_table_audit
from sluice.errors import DeclarationError
from sluice.project import find_project
from sluice_airflow import submission
from sluice_airflow.operators.audit_stream import AuditStreamOperator
from tests.campaign import in_campaigns

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
_DAG = """
from datetime import datetime, timezone
from airflow.sdk import DAG
from sluice_airflow.operators.audit_stream import AuditStreamOperator
with DAG("{dag_id}", schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
    AuditStreamOperator(task_id="audit", stream="events", project="{project}", retries=2, {arguments})
"""


@pytest.fixture
def table(stream_project: StreamProject) -> StreamProject:
    """Numbers 1 2 2 by version 0, 9 by version 1; a suite that wants them below 5 and once each."""
    for numbers in ([1, 2, 2], [9]):
        write_deltalake(str(stream_project.root / "out" / "events"), pa.table({"n": numbers}), mode="append")
    expectations = [
        {"type": "expect_column_max_to_be_between", "kwargs": {"column": "n", "max_value": 5}},
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "n"}, "severity": "warning"},
    ]
    suite = json.dumps({"name": "numbers", "expectations": expectations})
    (stream_project.root / "suite.json").write_text(suite)
    return stream_project


def run(project: StreamProject, arguments: str) -> Any:
    """Run a DAG with the operator alone; gives its task instance."""
    dag_id = f"audit_{project.root.name}"
    text = _DAG.format(dag_id=dag_id, project=str(project.root), arguments=f'conn_id="spark_test", {arguments}')
    found = project._load(dag_id, text).test(logical_date=START)
    return found.get_task_instance("audit")


def audit_ids(project: StreamProject) -> list[str]:
    """The audits that the stream's folder has."""
    return [file.stem for file in Path(project.home().location, "table_audits").glob("*.json")]


@in_campaigns
@pytest.mark.spark
def test_a_table_that_fails_fails_the_task_for_good(table: StreamProject) -> None:
    """Another try would read the same rows; what came of it is in the home and in XCom."""
    ti = run(table, 'suite="suite.json"')

    assert (ti.state, ti.try_number) == (TaskInstanceState.FAILED, 1)
    (audit_id,) = audit_ids(table)
    audit = read_table_audit(table.home(), audit_id)
    assert audit is not None
    assert (audit.version, audit.quality.verdict, audit.quality.rows) == (1, "fail", 4)
    assert ti.xcom_pull(task_ids="audit")["failed"] == [
        "expect_column_max_to_be_between",
        "expect_column_values_to_be_unique",
    ]
    assert table.records() == []


@in_campaigns
@pytest.mark.spark
def test_a_part_that_passes_lets_others_go_on(table: StreamProject) -> None:
    """The condition is a template; a warning is no failure."""
    condition = """where="n < {{ data_interval_start.day + 4 }} AND -n < 0", to_version="", from_version="0","""

    ti = run(table, f'suite="suite.json", {condition}')

    assert ti.state == TaskInstanceState.SUCCESS
    found = ti.xcom_pull(task_ids="audit")
    assert (found["verdict"], found["rows"], found["version"], found["from_version"]) == ("warn", 3, 1, 0)


def test_a_condition_is_on_no_command_line(
    table: StreamProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Everybody on the machine may read that; the driver has it in its environment."""
    told = tmp_path / "told.py"
    told.write_text("import json, os, sys\nprint(json.dumps([sys.argv, os.environ.get('SLUICE_AUDIT_WHERE')]))")
    monkeypatch.setattr(submission, "_entry", lambda: told)
    project = find_project(str(table.root))
    for where in ("salt = 'x'", None):
        request = TableAuditRequest(project.stream("events"), suite="suite.json", where=where)
        with submission.audit_driver(project, request, "a", "spark_test") as driver:
            assert driver.stdout is not None
            arguments, given = json.loads(driver.stdout.read())
        assert ("--suite=suite.json" in arguments, "salt" in str(arguments), given) == (True, False, where)


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({}, "stream `events`"),
        ({"suite": "suite.json", "to_version": "5"}, "out/events"),
        ({"suite": "suite.json", "from_version": "x"}, "from_version"),
    ],
)
def test_a_wrong_request_starts_no_jvm(table: StreamProject, arguments: dict[str, Any], where: str) -> None:
    """It fails in the worker, and says what is wrong."""
    operator = AuditStreamOperator(task_id="a", stream="events", project=str(table.root), **arguments)

    with pytest.raises(AirflowException) as refused:
        operator.execute({})

    assert isinstance(refused.value.__cause__, DeclarationError)
    assert where in str(refused.value)


@pytest.mark.spark
@in_campaigns
def test_what_spark_can_not_do_is_said(table: StreamProject) -> None:
    """The driver's last words are the error's: a condition that does not parse needs a person."""
    operator = AuditStreamOperator(
        task_id="a",
        stream="events",
        project=str(table.root),
        suite="suite.json",
        where="n >",
        conn_id="spark_test",
    )

    with pytest.raises(
        AirflowFailException, match=r"exit code 2: sluice events: QueryRefusedError: the cond"
    ) as failed:
        operator.execute({})

    (log,) = Path(table.home().location, "drivers").glob("*.log")
    assert str(failed.value).endswith(f"; its log is {log}")
    assert log.stat().st_mode & 0o777 == 0o600
    assert "Traceback (most recent call last)" in log.read_text()
    assert "QueryRefusedError" in log.read_text()


@pytest.mark.spark
def test_a_killed_task_ends_its_driver(table: StreamProject) -> None:
    """Its whole process group: the driver, and the JVM that it started."""
    operator = AuditStreamOperator(
        task_id="a", stream="events", project=str(table.root), suite="suite.json", conn_id="spark_test"
    )
    ended: list[BaseException] = []

    def execute() -> None:
        try:
            operator.execute({})
        except BaseException as exc:
            ended.append(exc)

    task = threading.Thread(target=execute)
    task.start()
    while operator._driver is None:
        assert task.is_alive()
    operator.on_kill()
    task.join(timeout=30)

    assert not task.is_alive()
    assert operator._driver.returncode == -9
    assert not Path(f"/proc/{operator._driver.pid}").exists()
    assert "exit code -9" in str(ended[0])
    assert audit_ids(table) == []
