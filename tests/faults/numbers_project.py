"""A project whose rows are numbered, and drivers that die on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import Project, find_project
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecord, RunRecords

ROWS_PER_FILE = 4
STREAM = "numbers"
PROJECT = """
[project]
name = "{name}"
streams = ["streams"]
[spark]
master = "local[2]"
"""
_DECLARATION = """
from sluice import Stream, sinks, sources
numbers = Stream(
    name="numbers",
    sources={"numbers": sources.files("in", format="json", schema="n bigint, at timestamp", max_files_per_batch=2)},
    transform="transform_numbers:numbers",
    sink=sinks.delta("out"),
)
"""
_TRANSFORM = """
from pyspark.sql import functions as F
def numbers(numbers):
    slow = F.expr("reflect('java.lang.Thread', 'sleep', cast({delay_ms} as bigint))")
    deduplicated = numbers.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["n"])
    return deduplicated.withColumn("slow", slow)
"""


@dataclass
class Numbers:
    """The project, and what went into it."""

    root: Path
    arrived: int = 0

    @property
    def project(self) -> Project:
        return find_project(str(self.root))

    @property
    def checkpoint(self) -> Path:
        return self.root / "var" / "sluice" / STREAM / "generations" / "0001"

    @property
    def output(self) -> Path:
        return self.root / "out"

    def arrive(self, files: int) -> None:
        """Let files arrive, with numbers that go on from the last one."""
        for _ in range(files):
            numbers = range(self.arrived, self.arrived + ROWS_PER_FILE)
            rows = [json.dumps({"n": n, "at": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z"}) for n in numbers]
            (self.root / "in" / f"{self.arrived:06d}.json").write_text("\n".join(rows))
            self.arrived += ROWS_PER_FILE

    def delay(self, milliseconds: int) -> None:
        """Let each row take its time from the next run on."""
        (self.root / "transform_numbers.py").write_text(_TRANSFORM.replace("{delay_ms}", str(milliseconds)))

    def rows(self) -> list[int]:
        """The numbers in the sink, sorted."""
        if not (self.output / "_delta_log").exists():
            return []
        return sorted(DeltaTable(str(self.output)).to_pyarrow_table().column("n").to_pylist())

    def records(self) -> list[RunRecord]:
        """The run records, newest first."""
        return list(RunRecords(self.project.stream_home(self.project.stream(STREAM))).newest(10))

    def run(self, session: SparkSession) -> RunRecord:
        """Run to the end with a warm session, as the retry of whatever died before."""
        request = Request(self.project.stream(STREAM), Limits(), run_key="the only one")
        return run_stream(self.project, request, session=session)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a driver in a process group of its own."""
        log = (self.root / "driver.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.root,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill_when(self, driver: subprocess.Popen[bytes], condition: Callable[[], bool]) -> bool:
        """Kill the driver's group the moment a condition holds; False when it ended before."""
        deadline = time.monotonic() + 120
        while not condition():
            if driver.poll() is not None:
                return False
            assert time.monotonic() < deadline, (self.root / "driver.log").read_text()[-3000:]
            time.sleep(0.001)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        return True


def make_numbers(root: Path, *, delay_ms: int) -> Numbers:
    (root / "in").mkdir()
    (root / "sluice.toml").write_text(PROJECT.format(name=root.name))
    (root / "streams").mkdir()
    (root / "streams" / "numbers.py").write_text(_DECLARATION)
    made = Numbers(root)
    made.delay(delay_ms)
    return made
