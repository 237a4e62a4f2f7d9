"""Kill -9 at every step of a backfill: the table is as before or as after, and the retry finishes the run."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import Project, find_project
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecord, RunRecords
from tests.campaign import CAMPAIGN

pytestmark = pytest.mark.spark

DRIVER = str(Path(__file__).with_name("crashing_backfill.py"))
START, END = "2026-01-02", "2026-01-03"
_PROJECT = """
[project]
name = "days"
streams = ["streams"]
[spark]
master = "local[2]"
"""
_DECLARATION = """
from sluice import Stream, sinks, sources
days = Stream(
    name="days",
    sources={"days": sources.files("in", format="json", schema="n bigint, day date")},
    transform="transform_days:days",
    sink=sinks.delta("out", partition_by=@PARTITIONS@),
    interval_column="day",
)
"""
_TRANSFORM = """
import os
from pyspark.sql import functions as F
def days(days):
    rows = days.withColumn("n", F.col("n") * int(os.environ["FACTOR"]))
    return @RESULT@
"""
_ONCE_EACH = 'rows.withColumn("at", F.col("day").cast("timestamp")).withWatermark("at", "9 days")'
_ONCE_EACH += '.dropDuplicatesWithinWatermark(["n", "day"]).drop("at")'
PARTITIONED, SPARKS, STREAMED = ("['day']", "rows"), ("[]", "rows"), ("['day']", _ONCE_EACH)
"""How the table is partitioned, and what the transform gives: replaced by a commit of metadata, by Spark itself, and
computed as a stream."""
STEPS = [
    *[(PARTITIONED, "before", str(write)) for write in range(1, 4)],  # the record: planned, running, begun
    (PARTITIONED, "at", "writing the rows aside"),
    (PARTITIONED, "at", "publishing"),
    (PARTITIONED, "before", "4"),  # the record is closed, after the commit
    (PARTITIONED, "after", "4"),
    (SPARKS, "before", "3"),
    (SPARKS, "at", "replacing the rows"),
    (SPARKS, "before", "4"),
    *[(STREAMED, "before", str(write)) for write in range(4, 7)],  # its checkpoint: metadata, source log, offsets
    (STREAMED, "after", "6"),
    (STREAMED, "at", "publishing"),
]
CHEAP = [STEPS[2], STEPS[8]]


@dataclass(frozen=True)
class Days:
    """A project with two days of numbers, which a live stream has read."""

    root: Path
    is_streamed: bool
    """Whether the transform runs as a stream, whose checkpoint is written between the record's files."""

    @property
    def project(self) -> Project:
        return find_project(str(self.root))

    def backfill(self, session: SparkSession) -> RunRecord:
        interval = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
        request = BackfillRequest(self.project.stream("days"), interval, "the only one")
        return backfill_stream(self.project, request, session=session)

    def rows(self) -> list[int]:
        return sorted(DeltaTable(str(self.root / "out")).to_pyarrow_table().column("n").to_pylist())

    def checkpoint(self) -> dict[str, bytes]:
        folder = self.root / "var" / "sluice" / "days" / "generations"
        return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def days(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Days:
    """The live stream has written every number as it is; from now on the transform makes a thousand of each."""
    partitions, result = request.param
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("FACTOR", "1")
    (tmp_path / "in").mkdir()
    rows = [json.dumps({"n": number, "day": f"2026-01-{1 + number % 2:02d}"}) for number in range(1, 9)]
    (tmp_path / "in" / "days.json").write_text("\n".join(rows))
    (tmp_path / "sluice.toml").write_text(_PROJECT)
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "days.py").write_text(_DECLARATION.replace("@PARTITIONS@", partitions))
    (tmp_path / "transform_days.py").write_text(_TRANSFORM.replace("@RESULT@", result))
    project = find_project(str(tmp_path))
    run_stream(project, Request(project.stream("days"), Limits()), session=spark)
    monkeypatch.setenv("FACTOR", "1000")
    return Days(tmp_path, request.param == STREAMED)


@pytest.mark.parametrize(("days", "moment", "what"), STEPS if CAMPAIGN else CHEAP, indirect=["days"])
def test_a_kill_at_any_step(
    days: Days, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, moment: str, what: str
) -> None:
    """Before the commit nothing is changed, after it everything is; the retry does what is left, and no more."""
    before, old = days.checkpoint(), days.rows()
    new = sorted([*(number for number in old if number % 2 == 0), *(number * 1000 for number in old if number % 2)])
    log = days.root / "driver.log"
    with log.open("wb") as out:
        command = [sys.executable, DRIVER, str(days.root), "days", START, END, moment, what]
        driver = subprocess.Popen(command, cwd=days.root, stdout=out, stderr=out, start_new_session=True)
        returned = driver.wait(timeout=240)
    is_published = what == "4" and not days.is_streamed
    assert returned == -signal.SIGKILL, log.read_text()[-3000:]
    assert days.rows() == (new if is_published else old)
    versions = DeltaTable(str(days.root / "out")).version()

    saved: list[str] = []
    save = RunRecords.save

    def noting(self: RunRecords, record: RunRecord) -> None:
        saved.append(record.status)
        save(self, record)

    monkeypatch.setattr(RunRecords, "save", noting)
    record = days.backfill(spark)

    # Whoever follows the record takes a failure for the end.
    assert set(saved) <= {"planned", "running", "succeeded"}
    assert days.rows() == new
    assert record.status == "succeeded"
    assert record.backfill is not None
    assert (record.backfill.rows_replaced, record.backfill.rows_written) == (4, 4)
    assert DeltaTable(str(days.root / "out")).version() == versions + (not is_published)
    assert days.backfill(spark) == record
    assert days.checkpoint() == before
    home = days.project.stream_home(days.project.stream("days"))
    assert sum(found.interval is not None for found in RunRecords(home).newest(9)) == 1
