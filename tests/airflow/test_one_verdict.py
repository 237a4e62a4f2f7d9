"""One maker of verdicts: the command line, the operator, the sensors and the pages say the same of a stream, in the
same words. The states are those of golden homes: real runs, real kills, a real suite."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred
from test_tasks_and_drivers import context
from typer.testing import CliRunner

from sluice.amounts import total
from sluice.cli.app import app
from sluice.planning.verdict import Request, plan_stream
from sluice.runs.lease import acquire
from sluice.runs.record import RunRecord
from sluice_airflow.operators import run_stream
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.sensors.lag import LagSensor
from sluice_airflow.sensors.quality import QualitySensor
from sluice_airflow.ui.next_run import NextRun, look_ahead
from sluice_airflow.ui.reading import RunFile
from sluice_airflow.ui.run_view import run_page
from sluice_airflow.ui.streams_view import stream_row
from tests.golden_homes.unpacking import ARCHIVES, GoldenHome, unpack
from tests.remedies import read_remedy

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

NEWEST = {archive.stem: archive for archive in ARCHIVES}
NOBODY = "there is no connection"
"""What the operator says where it would start a driver: these tests start none."""


def arrive(golden: GoldenHome) -> None:
    """One more file, after all others."""
    file = golden.root / "in" / "9999.json"
    file.write_text('{"n": 99, "bad": false, "day": "2026-01-01", "at": "2026-01-01T09:00:00Z"}\n')
    newest = max(golden.expected["mtimes"].values()) + 60
    os.utime(file, (newest, newest))


def lose_its_id(golden: GoldenHome) -> None:
    Path(golden.home.checkpoint_location(1), "metadata").unlink()


def ask_for_a_column(golden: GoldenHome) -> None:
    """The suite asks the source for a column that it does not have."""
    arrive(golden)
    declaration = golden.root / "streams" / "numbers.py"
    text = declaration.read_text()
    declaration.write_text(text.replace("interval_column=", 'quality="suite.json", interval_column='))
    contract = {
        "type": "expect_column_to_exist",
        "kwargs": {"column": "gone"},
        "meta": {"sluice": {"source": "numbers", "policy": "fail"}},
    }
    (golden.root / "suite.json").write_text(json.dumps({"name": "numbers", "expectations": [contract]}))


@contextmanager
def being_run(golden: GoldenHome) -> Iterator[None]:
    home = golden.home
    with acquire(home.storage, home.lease_folder(1), run_id="another", sink_is_idempotent=True):
        yield


class Case(NamedTuple):
    """A state, and what everybody is to say of it."""

    archive: str
    verdict: str
    code: str = ""
    change: Callable[[GoldenHome], None] = lambda _golden: None
    during: Callable[[GoldenHome], AbstractContextManager[None]] = lambda _golden: nullcontext()


CASES = {
    "run": Case("succeeded", "run", change=arrive),
    "resume": Case("planned", "resume"),
    "a batch that is split": Case("split", "resume"),
    "skip": Case("succeeded", "skip"),
    "refuse": Case("succeeded", "refuse", "METADATA_MISSING", lose_its_id),
    "held": Case("held", "refuse", "HELD_BY_QUALITY"),
    "a broken contract": Case("backfilled", "refuse", "CONTRACT_BROKEN", ask_for_a_column),
    "a lease that is taken": Case("succeeded", "run", "LEASE_TAKEN", arrive, being_run),
}


class Said(NamedTuple):
    verdict: str
    reason: str
    problem: tuple[str, ...]
    """Code, cause, consequence and remedy of what refuses; nothing where nothing does."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def golden(case: Case, tmp_path: Path) -> GoldenHome:
    found = unpack(NEWEST[case.archive], tmp_path)
    case.change(found)
    return found


def told(problem: Any) -> tuple[str, ...]:
    return () if problem is None else (problem.code, problem.cause, problem.consequence, problem.remedy)


def by_command(golden: GoldenHome) -> tuple[Said, dict[str, Any]]:
    """`sluice plan --json`."""
    done = CliRunner().invoke(app, ["plan", "numbers", "--project", str(golden.root), "--json"])
    document = json.loads(done.stdout)
    problem = document["problem"]
    parts = () if problem is None else tuple(problem[key] for key in ("code", "cause", "consequence", "remedy"))
    return Said(document["verdict"], document["reason"], parts), document


def by_page(golden: GoldenHome) -> NextRun:
    project = golden.project
    return look_ahead(project, golden.stream, golden.home, datetime.now(UTC), project.streams())


def by_operator(golden: GoldenHome, monkeypatch: pytest.MonkeyPatch, given: Any) -> tuple[list[RunRecord], Exception]:
    """The task: the record that it has planned by, if any, and how it ends, with no driver to be had."""
    records: list[RunRecord] = []
    prepare = run_stream._prepare

    def watched(*arguments: Any) -> RunRecord:
        records.append(prepare(*arguments))
        return records[-1]

    monkeypatch.setattr(run_stream, "_prepare", watched)
    task = RunStreamOperator(
        task_id="numbers", stream="numbers", project=str(golden.root), until="", retries=0, conn_id="nowhere"
    )
    with pytest.raises((AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred)) as ended:
        task.execute(given)
    return records, ended.value


def test_everybody_says_the_same(case: Case, golden: GoldenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdict, reason, and what refuses with its remedy."""
    with case.during(golden):
        command, document = by_command(golden)
        page = by_page(golden)
        records, ended = by_operator(golden, monkeypatch, context())

    assert command.verdict == case.verdict
    assert page.plan is not None, page.error
    assert Said(page.plan.verdict, page.plan.reason, told(page.plan.problem)) == command
    row = stream_row("numbers", [], page, datetime.now(UTC))
    assert (row.verdict.text, row.reason) == (command.verdict, command.reason)
    assert [stage["text"] for stage in document["stages"]] == [stage.text for stage in page.plan.stages]

    if case.code == "LEASE_TAKEN":
        (warning,) = document["warnings"]
        assert page.taken is not None
        assert (warning["code"], warning["cause"]) == ("LEASE_TAKEN", page.taken.cause)
        assert isinstance(ended, TaskDeferred)
    elif command.problem:
        assert command.problem[0] == case.code
        assert isinstance(ended, AirflowFailException)
        assert command.problem[1] in str(ended)
        assert command.problem[3] in str(ended)
    elif command.verdict == "skip":
        assert isinstance(ended, AirflowSkipException)
        assert command.reason in str(ended)
    else:
        (record,) = records
        assert NOBODY in str(ended)
        assert (record.plan.verdict, record.plan.reason) == (command.verdict, command.reason)
        assert [batch.batch_id for batch in record.plan.batches] == [found["batch_id"] for found in document["batches"]]


def test_the_sensors_see_what_is_planned(case: Case, golden: GoldenHome) -> None:
    """What waits for a run is what the plan takes and the page shows; a verdict of quality that holds is told."""
    with case.during(golden):
        _, document = by_command(golden)
        page = by_page(golden)
    if document["verdict"] != "refuse":
        sensor = LagSensor(task_id="lag", stream="numbers", project=str(golden.root), max_files=10**6)
        seen, lags = sensor.poke(context()), sensor.trigger().look()
        taken = sum(batch["sources"]["numbers"]["files"] or 0 for batch in document["batches"])
        told = [total(lag.amount for lag in of.values())["files"] for of in (lags, page.lags)]
        assert told == [taken, taken]
        if document["verdict"] == "resume":
            # What the batch under way takes is no backlog, and in no table.
            assert seen is False
        else:
            assert seen.xcom_value["files"] == taken
    if case.code == "HELD_BY_QUALITY":
        with pytest.raises(AirflowFailException, match="is `fail`") as ended:
            QualitySensor(task_id="q", stream="numbers", project=str(golden.root), until="").poke(context())
        assert page.hold is not None
        assert page.hold.failed in document["problem"]["cause"]
        assert page.hold.failed in str(ended.value)


def test_a_backfill_is_planned_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sluice backfill --dry-run --json`, the operator in a backfill's run, and the page of that run."""
    golden = unpack(NEWEST["backfilled"], tmp_path)
    days = "2026-01-01", "2026-01-02"
    asked = ["--start", days[0], "--end", days[1], "--dry-run", "--json", "--project", str(golden.root)]
    document = json.loads(CliRunner().invoke(app, ["backfill", "numbers", *asked]).stdout)
    start, end = (datetime.fromisoformat(day).replace(tzinfo=UTC) for day in days)
    given = context() | {"data_interval_start": start, "data_interval_end": end}
    given["dag_run"].run_type = "backfill"
    (record,), ended = by_operator(golden, monkeypatch, given)

    assert NOBODY in str(ended)
    assert (record.plan.verdict, record.plan.reason) == (document["verdict"], document["reason"])
    assert (record.plan.version, record.plan.publish) == (document["version"], document["publish"])
    run = RunFile(record.run_id, record)
    page = run_page("numbers", run, None, datetime.now(UTC), owner=None, is_visible=lambda _stream: True)
    assert page.row.reason == document["reason"]
    assert [text for _name, text in page.stages] == [stage["text"] for stage in document["stages"]]


def test_what_to_do_beside_a_run(tmp_path: Path) -> None:
    """The plan names who runs the stream; once that run is over, nothing is said of it."""
    golden = unpack(NEWEST["succeeded"], tmp_path)
    with being_run(golden):
        (warning,) = plan_stream(golden.project, Request(golden.stream)).warnings
        problem = read_remedy(warning, "LEASE_TAKEN", "wait for it, or stop it")
        assert "the stream is being run by" in problem.cause

    assert plan_stream(golden.project, Request(golden.stream)).warnings == ()
