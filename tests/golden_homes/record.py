"""Makes the golden homes of the version that is checked out: projects as they are after runs, kills and repairs.

    python tests/golden_homes/record.py tests/golden_homes/2026-11-24

Each scenario becomes one zip file: the whole project with its home and its tables, and `expected.json`, which holds
what that version itself says of it. `tests/unit/test_golden_homes.py` reads them, `tests/spark/test_golden_homes.py`
goes on from there. A folder bears the day of the version that made it; the first was made with the imports of that day.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sluice.auditing.return_rows import return_rows
from sluice.errors import SluiceError
from sluice.gate.state import read_gate
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request, plan_stream
from sluice.project import find_project
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecords
from sluice.spark.session import open_session

ROOT = Path("/tmp/golden-homes")
"""Homes and logs hold the paths of a project: a neutral one, which whoever unpacks it puts its own in the place of."""
EPOCH = 1_767_225_600
PROJECT = """[project]
name = "golden"
streams = ["streams"]
[spark]
master = "local[2]"
"""
DECLARATION = """from sluice import Stream, sinks, sources
numbers = Stream(
    name="numbers",
    sources={{"numbers": sources.files("in", format="json", schema="{schema}", max_files_per_batch=1)}},
    transform="golden_transforms:{transform}",
    sink={sink},
    {more}
)
"""
TRANSFORMS = """from pyspark.sql import functions as F

def numbers(numbers):
    return numbers

def windows(numbers):
    late = numbers.withWatermark("at", "10 minutes")
    return late.groupBy(F.window("at", "10 minutes")).agg(F.count("*").alias("rows"))

def failing(numbers):
    return numbers.withColumn("broken", F.raise_error(F.lit("this row is broken")).cast("string"))
"""
SCHEMA = "n bigint, bad boolean, day date, at timestamp"
DELTA, BY_DAY = 'sinks.delta("out")', 'sinks.delta("out", partition_by=["day"])'
FILES = 'sinks.files("out", format="json")'
SUITE, INTERVAL = 'quality="suite.json",', 'interval_column="day",'


class Scenario:
    """One project on its way into an archive."""

    def __init__(
        self, name: str, spark: SparkSession, *, sink: str = DELTA, more: str = "", of: str = "numbers"
    ) -> None:
        self.root, self.spark, self.arrived = ROOT / name, spark, 0
        shutil.rmtree(self.root, ignore_errors=True)
        (self.root / "in").mkdir(parents=True)
        (self.root / "streams").mkdir()
        (self.root / "sluice.toml").write_text(PROJECT)
        (self.root / "golden_transforms.py").write_text(TRANSFORMS)
        self.declare(sink, more, of)
        self.suite("quarantine", 1000)

    def declare(self, sink: str, more: str = "", of: str = "numbers") -> None:
        text = DECLARATION.format(schema=SCHEMA, transform=of, sink=sink, more=more)
        (self.root / "streams" / "numbers.py").write_text(text)

    def suite(self, policy: str, limit: int) -> None:
        """Every fourth row is bad; none may be larger than a limit."""
        bad = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "bad", "value_set": [False]}}
        large = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "n", "max_value": limit}}
        rules = [bad | {"meta": {"sluice": {"policy": policy}}}, large | {"meta": {"sluice": {"policy": "fail"}}}]
        (self.root / "suite.json").write_text(json.dumps({"name": "numbers", "expectations": rules}))

    def arrive(self, files: int) -> None:
        """Four rows a file, an hour from row to row; each file a second later than the one before."""
        for _ in range(files):
            numbers = range(self.arrived, self.arrived + 4)
            rows = [
                {"n": n, "bad": n % 4 == 3, "day": f"2026-01-0{1 + n % 2}", "at": f"2026-01-01T{n % 24:02d}:00:00Z"}
                for n in numbers
            ]
            file = self.root / "in" / f"{self.arrived:04d}.json"
            file.write_text("\n".join(json.dumps(row) for row in rows))
            os.utime(file, (EPOCH + self.arrived, EPOCH + self.arrived))
            self.arrived += 4

    def run(self) -> None:
        """Run the stream; a suite that fails is no surprise."""
        operate(str(self.root), "run", self.spark)

    def die(self, operation: str, file: str) -> None:
        """Let a process of its own do it, and die as soon as a file is there."""
        command = [sys.executable, __file__, "--die", str(self.root), operation, str(self.root / file)]
        died = subprocess.run(command, start_new_session=True, check=False).returncode
        if died != -signal.SIGKILL:
            message = f"{self.root.name}: `{operation}` ended with {died} before {file} was there"
            raise SystemExit(message)

    def keep(self, folder: Path, *, absent: str = "") -> None:
        """Pack it, with what this version says of it."""
        if absent and (self.root / absent).exists():
            message = f"{self.root.name}: {absent} is there; the kill came too late, try again"
            raise SystemExit(message)
        project = find_project(str(self.root))
        stream = project.stream("numbers")
        home = project.stream_home(stream)
        plan = plan_stream(project, Request(stream, Limits()))
        gate = read_gate(home)
        records = RunRecords(home)
        expected: dict[str, Any] = {
            "arrived": self.arrived,
            "plan": {"verdict": plan.verdict, "batches": [batch.batch_id for batch in plan.batches]},
            "gate": None if gate is None else gate.state,
            "runs": [
                {
                    "run_id": record.run_id,
                    "status": record.status,
                    "batches": [batch.batch_id for batch in record.batches],
                    "quality": None if record.quality is None else record.quality.verdict,
                    "is_backfill": record.interval is not None,
                }
                for record in map(records.read, records.run_ids())
                if record is not None
            ],
        }
        files = [file for file in sorted(self.root.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
        expected["mtimes"] = {
            file.relative_to(self.root).as_posix(): file.stat().st_mtime for file in files if file.parent.name == "in"
        }
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / f"{self.root.name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, f"project/{file.relative_to(self.root).as_posix()}")
            archive.writestr("expected.json", json.dumps(expected, indent=1))
        print(self.root.name, expected["plan"], expected["gate"], [run["status"] for run in expected["runs"]])


def operate(root: str, operation: str, session: SparkSession | None) -> None:
    """Run, backfill the first of the days, or release the rows of the quarantine."""
    project = find_project(root)
    stream = project.stream("numbers")
    try:
        if operation == "run":
            run_stream(
                project, Request(stream, Limits(), run_key="the only one" if session is None else None), session=session
            )
        elif operation == "backfill":
            day = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
            backfill_stream(project, BackfillRequest(stream, day, "a backfill"), session=session)
        else:
            return_rows(project, stream, None, "somebody", session=session)
    except SluiceError as exc:
        print(f"  {type(exc).__name__}: {str(exc)[:100]}")


def repair(scenario: Scenario) -> None:
    """Let the rows of the quarantine pass from now on."""
    scenario.suite("warn", 1000)


def succeeded(folder: Path, spark: SparkSession) -> None:
    made = Scenario("succeeded", spark)
    made.arrive(2)
    made.run()
    made.arrive(1)
    made.run()
    made.run()
    made.keep(folder)


def skipped(folder: Path, spark: SparkSession) -> None:
    made = Scenario("skipped", spark)
    made.run()
    made.keep(folder)


def failed(folder: Path, spark: SparkSession) -> None:
    made = Scenario("failed", spark, of="failing")
    made.arrive(1)
    made.run()
    made.declare(DELTA)
    made.keep(folder)


def planned(folder: Path, spark: SparkSession) -> None:
    made = Scenario("planned", spark)
    made.arrive(1)
    made.run()
    made.arrive(2)
    made.die("run", "var/sluice/numbers/generations/0001/offsets/1")
    made.keep(folder, absent="out/_delta_log/00000000000000000002.json")


def in_the_sink(folder: Path, spark: SparkSession) -> None:
    made = Scenario("in_the_sink", spark)
    made.arrive(1)
    made.run()
    made.arrive(2)
    made.die("run", "out/_delta_log/00000000000000000001.json")
    made.keep(folder, absent="var/sluice/numbers/generations/0001/commits/1")


def windows(folder: Path, spark: SparkSession) -> None:
    made = Scenario("windows", spark, of="windows")
    made.arrive(2)
    made.run()
    made.keep(folder)


def held(folder: Path, spark: SparkSession) -> None:
    made = Scenario("held", spark, sink=FILES, more=SUITE)
    made.suite("warn", 2)
    made.arrive(1)
    made.run()
    made.keep(folder)


def stopped(folder: Path, spark: SparkSession) -> None:
    made = Scenario("stopped", spark, more=SUITE)
    made.suite("warn", 5)
    made.arrive(2)
    made.run()
    made.keep(folder)


def split(folder: Path, spark: SparkSession) -> None:
    made = Scenario("split", spark, more=SUITE)
    made.arrive(1)
    made.run()
    made.arrive(1)
    made.die("run", "out_quarantine/_delta_log/00000000000000000001.json")
    made.keep(folder, absent="var/sluice/numbers/generations/0001/commits/1")


def backfilled(folder: Path, spark: SparkSession) -> None:
    made = Scenario("backfilled", spark, sink=BY_DAY, more=INTERVAL)
    made.arrive(2)
    made.run()
    operate(str(made.root), "backfill", spark)
    made.keep(folder)


def backfill_replaced(folder: Path, spark: SparkSession) -> None:
    """Died as soon as its commit was there."""
    made = Scenario("backfill_replaced", spark, sink=BY_DAY, more=INTERVAL)
    made.arrive(2)
    made.run()
    made.die("backfill", "out/_delta_log/00000000000000000002.json")
    made.keep(folder)


def released(folder: Path, spark: SparkSession) -> None:
    made = Scenario("released", spark, more=SUITE)
    made.arrive(2)
    made.run()
    repair(made)
    operate(str(made.root), "release", spark)
    made.keep(folder)


def release_sent(folder: Path, spark: SparkSession) -> None:
    """Died as soon as the sink had the rows."""
    made = Scenario("release_sent", spark, more=SUITE)
    made.arrive(2)
    made.run()
    repair(made)
    made.die("release", "out/_delta_log/00000000000000000002.json")
    made.keep(folder)


SCENARIOS: list[Callable[[Path, SparkSession], None]] = [
    succeeded, skipped, failed, planned, in_the_sink, windows, held, stopped, split, backfilled, backfill_replaced,
    released, release_sent,
]  # fmt: skip


def die_when(file: Path) -> None:
    while not file.exists():
        time.sleep(0.0002)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    if sys.argv[1] == "--die":
        _, _, root, operation, file = sys.argv
        threading.Thread(target=die_when, args=(Path(file),), daemon=True).start()
        operate(root, operation, None)
        return
    wanted = sys.argv[2:]
    first = Scenario("session", None)  # type: ignore[arg-type]
    project = find_project(str(first.root))
    spark = open_session(project, project.stream("numbers"))
    for scenario in SCENARIOS:
        if not wanted or scenario.__name__ in wanted:
            scenario(Path(sys.argv[1]), spark)


if __name__ == "__main__":
    main()
