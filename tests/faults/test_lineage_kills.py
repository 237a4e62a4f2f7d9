"""Kills between the start and the end that a lineage server hears of: whoever goes on tells what became of the run."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from numbers_project import STREAM, Numbers, make_numbers
from pyspark.sql import SparkSession

import sluice.running
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.running.runner import run_stream
from sluice.runs.stop import request_stop
from tests.lineage_server import forget_lineage, read_events, states

pytestmark = pytest.mark.spark

DRIVER = str(Path(__file__).with_name("crashing_driver.py"))
SUBMIT = str(Path(sluice.running.__file__).with_name("submit.py"))


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that hears of runs, here and in drivers."""
    forget_lineage(monkeypatch)
    file = tmp_path / "told.json"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(file))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", "airflow/dag.task/01a2190e-9322-75e2-a43f-5f099be5f183")
    return file


def project(root: Path, *, delay_ms: int = 0) -> Numbers:
    root.mkdir()
    made = make_numbers(root, delay_ms=delay_ms)
    made.arrive(3)
    return made


def test_a_run_that_is_killed_has_an_end(tmp_path: Path, spark: SparkSession, told: Path) -> None:
    """Its own retry goes on with it, under the same id; another run that takes over its lease says that it is dead."""
    for name, is_retried in (("retried", True), ("another", False)):
        numbers = project(tmp_path / name)
        driver = numbers.start(DRIVER, str(numbers.root), STREAM, "after", "publish", "1")
        assert driver.wait(timeout=180) == -9, (numbers.root / "driver.log").read_text()[-3000:]
        assert states(read_events(told).of(f"{name}.{STREAM}")) == ["START"]

        if is_retried:
            numbers.run(spark)
        else:
            run_stream(numbers.project, Request(numbers.project.stream(STREAM), Limits()), session=spark)

        events = read_events(told).of(f"{name}.{STREAM}")
        expected = ["START", "START", "COMPLETE"] if is_retried else ["START", "FAIL", "START", "COMPLETE"]
        assert states(events) == expected
        own = [event for event in events if event["run"]["runId"] == events[0]["run"]["runId"]]
        assert own == (events if is_retried else events[:2])
        # Of what the dead one was a part, the other run does not know.
        assert ("parent" in own[-1]["run"]["facets"]) == is_retried
        # The batch was not committed: its rows are told of by whoever commits it.
        assert events[-1]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 12
        assert numbers.rows() == list(range(12))


def test_a_driver_that_is_ended_by_force_says_so(tmp_path: Path, told: Path) -> None:
    """In the middle of a batch, after its grace: the last that it does is to tell."""
    numbers = project(tmp_path / "slow", delay_ms=60_000)
    driver = numbers.start(SUBMIT, "--project", str(numbers.root), "--stream", STREAM, "--run-key", "the only one")
    deadline = time.monotonic() + 120
    while not (numbers.checkpoint / "offsets" / "0").exists():
        assert time.monotonic() < deadline, (numbers.root / "driver.log").read_text()[-3000:]
        time.sleep(0.01)
    home, (record,) = numbers.project.stream_home(numbers.project.stream(STREAM)), numbers.records()

    request_stop(home, record.run_id, requested_by="ada", now=datetime.now(UTC))

    assert driver.wait(timeout=60) == -9
    started, aborted = read_events(told).of(f"slow.{STREAM}")
    assert states([started, aborted]) == ["START", "ABORT"]
    assert aborted["run"]["facets"]["errorMessage"]["message"].startswith("stopped by ada in the middle of a batch")
