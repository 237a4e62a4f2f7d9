"""Kill -9 in a backfill of a stream with a suite: no row is ever in neither table, and the retry puts each into one."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from test_backfill_kills import _DECLARATION, _PROJECT, _TRANSFORM, DRIVER, END, START, Days

from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import find_project
from sluice.running.runner import run_stream
from tests.campaign import in_campaigns

pytestmark = pytest.mark.spark

BY_METADATA, BY_SPARK = "['day']", "[]"
STEPS = [
    (BY_METADATA, "at", "publishing"),  # the quarantine has the new rows, the table the old ones
    (BY_METADATA, "at", "tidying the quarantine"),  # the table has the new rows
    (BY_METADATA, "at", "auditing"),
    (BY_METADATA, "before", "4"),  # the record with the verdict
    (BY_METADATA, "before", "5"),  # the record is closed
    (BY_SPARK, "at", "replacing the rows"),
    (BY_SPARK, "at", "tidying the quarantine"),
    (BY_SPARK, "before", "5"),
]


@dataclass(frozen=True)
class CheckedDays(Days):
    """Two days of numbers, of which the live stream has put 7 and 8 into the quarantine."""

    def quarantine(self) -> list[int]:
        return sorted(DeltaTable(str(self.root / "out_quarantine")).to_pyarrow_table().column("n").to_pylist())

    def declare(self, most: int) -> None:
        kwargs = {"column": "n", "max_value": most}
        kind = "expect_column_values_to_be_between"
        rows = [{"type": kind, "kwargs": kwargs, "meta": {"sluice": {"policy": "quarantine"}}}]
        (self.root / "suite.json").write_text(json.dumps({"name": "days", "expectations": rows}))


@pytest.fixture
def days(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> CheckedDays:
    """From now on the transform makes a thousand of each number, and the suite takes up to 3,000."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("FACTOR", "1")
    days = CheckedDays(tmp_path, is_streamed=False)
    (tmp_path / "in").mkdir()
    rows = [json.dumps({"n": number, "day": f"2026-01-{1 + number % 2:02d}"}) for number in range(1, 9)]
    (tmp_path / "in" / "days.json").write_text("\n".join(rows))
    (tmp_path / "sluice.toml").write_text(_PROJECT)
    (tmp_path / "streams").mkdir()
    declaration = _DECLARATION.replace("@PARTITIONS@", request.param).replace(
        "    interval", '    quality="suite.json",\n    interval'
    )
    (tmp_path / "streams" / "days.py").write_text(declaration)
    (tmp_path / "transform_days.py").write_text(_TRANSFORM.replace("@RESULT@", "rows"))
    days.declare(6)
    project = find_project(str(tmp_path))
    run_stream(project, Request(project.stream("days"), Limits()), session=spark)
    assert (days.rows(), days.quarantine()) == ([1, 2, 3, 4, 5, 6], [7, 8])
    days.declare(3000)
    monkeypatch.setenv("FACTOR", "1000")
    return days


@in_campaigns
@pytest.mark.parametrize(("days", "moment", "what"), STEPS, indirect=["days"])
def test_a_kill_at_any_step(days: CheckedDays, spark: SparkSession, moment: str, what: str) -> None:
    """A row may be in both for a while; a second backfill changes nothing more."""
    log = days.root / "driver.log"
    with log.open("wb") as out:
        command = [sys.executable, DRIVER, str(days.root), "days", START, END, moment, what]
        driver = subprocess.Popen(command, cwd=days.root, stdout=out, stderr=out, start_new_session=True)
        returned = driver.wait(timeout=240)
    assert returned == -signal.SIGKILL, log.read_text()[-3000:]
    there = {number // 1000 or number for number in (*days.rows(), *days.quarantine())}
    assert there == set(range(1, 9))

    record = days.backfill(spark)

    for _ in range(2):
        assert record.status == "succeeded"
        assert record.quality is not None
        assert (record.quality.verdict, record.quality.quarantined) == ("warn", 2)
        assert (days.rows(), days.quarantine()) == ([2, 4, 6, 1000, 3000], [8, 5000, 7000])
        assert days.backfill(spark) == record
