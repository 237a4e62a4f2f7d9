"""Kills between the start and the end that a lineage server hears of: whoever goes on tells what became of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from numbers_project import STREAM, Numbers, make_numbers
from pyspark.sql import SparkSession

from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.running.runner import run_stream
from tests.lineage_server import forget_lineage, read_events, states

pytestmark = pytest.mark.spark

DRIVER = str(Path(__file__).with_name("crashing_driver.py"))


def test_a_run_that_is_killed_has_an_end(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own retry goes on with it, under the same id; another run that takes over its lease says that it is dead."""
    for number, is_retried in enumerate((True, False)):
        root = tmp_path / str(number)
        root.mkdir()
        numbers = make_numbers(root, delay_ms=0)
        numbers.arrive(3)
        forget_lineage(monkeypatch)
        told = root / "told.json"
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(told))
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
        monkeypatch.setenv("OPENLINEAGE_PARENT_ID", "airflow/dag.task/01a2190e-9322-75e2-a43f-5f099be5f183")

        driver = numbers.start(DRIVER, str(root), STREAM, "after", "publish", "1")

        assert driver.wait(timeout=180) == -9, (root / "driver.log").read_text()[-3000:]
        assert states(read_events(told).events) == ["START"]
        _go_on(numbers, spark, is_retried=is_retried)
        events = read_events(told).of(f"{root.name}.{STREAM}")
        assert states(events) == (
            ["START", "START", "COMPLETE"] if is_retried else ["START", "FAIL", "START", "COMPLETE"]
        )
        own = [event for event in events if event["run"]["runId"] == events[0]["run"]["runId"]]
        assert own == (events if is_retried else events[:2])
        assert ("parent" in own[-1]["run"]["facets"]) == is_retried
        # The batch that was killed was not committed: its rows are told of by whoever commits it.
        assert events[-1]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 12
        assert numbers.rows() == list(range(12))


def _go_on(numbers: Numbers, spark: SparkSession, *, is_retried: bool) -> None:
    if is_retried:
        numbers.run(spark)
    else:
        run_stream(numbers.project, Request(numbers.project.stream(STREAM), Limits()), session=spark)
