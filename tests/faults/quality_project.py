"""A project whose numbered rows are checked by a suite on their way, and drivers that die meanwhile."""

import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from numbers_project import PROJECT, ROWS_PER_FILE, STREAM
from pyspark.sql import SparkSession

from sluice.gate.state import read_gate
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import Project, find_project
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecord, RunRecords

DRIVER = str(Path(__file__).with_name("crashing_quality_driver.py"))
_DECLARATION = """
from sluice import Stream, sinks, sources
numbers = Stream(
    name="numbers",
    sources={"numbers": sources.files("in", format="json", schema="n bigint, bad boolean", max_files_per_batch=1)},
    transform="transform_checked_numbers:numbers",
    sink=@SINK@,
    quality="suite.json",
)
"""
_TRANSFORM = """
from pathlib import Path

def numbers(numbers):
    return numbers

def keep(frame, batch_id):
    writer = frame.write.format("delta").mode("append").option("txnAppId", "keep").option("txnVersion", batch_id)
    writer.save(str(Path(__file__).with_name("out")))
"""
_DELTA, _FILES = 'sinks.delta("out")', 'sinks.files("out", format="json")'


def _between(policy: str, most: int) -> dict[str, Any]:
    kwargs = {"column": "n", "max_value": most}
    return {"type": "expect_column_values_to_be_between", "kwargs": kwargs, "meta": {"sluice": {"policy": policy}}}


def _largest(policy: str, most: int) -> dict[str, Any]:
    kwargs = {"column": "n", "max_value": most}
    return {"type": "expect_column_max_to_be_between", "kwargs": kwargs, "meta": {"sluice": {"policy": policy}}}


def _at_most(policy: str, rows: int) -> dict[str, Any]:
    kind = "expect_table_row_count_to_be_between"
    return {"type": kind, "kwargs": {"max_value": rows}, "meta": {"sluice": {"policy": policy}}}


def _not_bad(policy: str) -> dict[str, Any]:
    kwargs = {"column": "bad", "value_set": [False]}
    return {"type": "expect_column_values_to_be_in_set", "kwargs": kwargs, "meta": {"sluice": {"policy": policy}}}


@dataclass(frozen=True)
class Kind:
    """A way for batches through the gate."""

    sink: str
    gate: str
    bad: str
    """The policy for every fourth row."""
    fail: str = "fail"
    """The policy for rows beyond the limit."""
    has_table: bool = False
    """Whether the sink is there before the run that dies."""


KINDS = {
    "publish": Kind(_DELTA, "publish", "warn", has_table=True),
    "publish, dropping": Kind(_DELTA, "publish", "drop", has_table=True),
    "cache": Kind(_DELTA, "cache", "quarantine"),
    "write": Kind(_DELTA, "write", "warn", fail="warn"),
    "publish, never failing": Kind(_DELTA, "publish", "drop", fail="warn", has_table=True),
    "files": Kind(_FILES, "write", "drop"),
    "function": Kind('sinks.foreach_batch("transform_checked_numbers:keep")', "cache", "drop"),
}


@dataclass
class Checked:
    """The project, and what went into it."""

    root: Path
    kind: Kind
    arrived: int = 0

    @property
    def project(self) -> Project:
        return find_project(str(self.root))

    @property
    def home(self) -> Path:
        return self.root / "var" / "sluice" / STREAM

    def declare(self, *, limit: int = 1000, bad: str = "", total: int = 1000) -> None:
        """Write the suite: no number beyond a limit, every fourth row is bad, and a run has so many rows at most."""
        rows = [_not_bad(bad or self.kind.bad), _between(self.kind.fail, limit), _largest(self.kind.fail, limit)]
        rows += [_at_most(self.kind.fail, total)] if total < 1000 else []
        (self.root / "suite.json").write_text(json.dumps({"name": "numbers", "expectations": rows}))

    def arrive(self, files: int) -> None:
        for _ in range(files):
            numbers = range(self.arrived, self.arrived + ROWS_PER_FILE)
            rows = [json.dumps({"n": n, "bad": n % 4 == 3}) for n in numbers]
            (self.root / "in" / f"{self.arrived:06d}.json").write_text("\n".join(rows))
            self.arrived += ROWS_PER_FILE

    def sink(self, session: SparkSession) -> list[int]:
        """The numbers in the sink, sorted."""
        if (self.root / "out" / "_delta_log").exists():
            return _numbers(self.root / "out")
        if not (self.root / "out" / "_spark_metadata").exists():
            return []
        rows = session.read.schema("n bigint, bad boolean").json(str(self.root / "out")).collect()
        return sorted(row["n"] for row in rows)

    def quarantine(self) -> list[int]:
        table = self.root / "out_quarantine"
        return _numbers(table) if (table / "_delta_log").exists() else []

    def records(self) -> list[RunRecord]:
        """The run records, newest first."""
        return list(RunRecords(self.project.stream_home(self.project.stream(STREAM))).newest(20))

    def gate(self) -> Any:
        return read_gate(self.project.stream_home(self.project.stream(STREAM)))

    def run(self, session: SparkSession, run_key: str | None = None) -> RunRecord:
        return run_stream(self.project, Request(self.project.stream(STREAM), Limits(), run_key), session=session)

    def start(self, *step: str, run_key: str = "", strategy: str = "exact") -> subprocess.Popen[bytes]:
        """Start a driver that dies, or is stopped, at a step."""
        with (self.root / "driver.log").open("ab") as log:
            command = [sys.executable, DRIVER, str(self.root), STREAM, run_key, strategy, *step]
            return subprocess.Popen(command, cwd=self.root, stdout=log, stderr=log, start_new_session=True)

    def crash(self, *step: str, run_key: str = "", strategy: str = "exact") -> None:
        """Let a driver die at a step."""
        returned = self.start(*step, run_key=run_key, strategy=strategy).wait(timeout=240)
        assert returned == -signal.SIGKILL, (self.root / "driver.log").read_text()[-4000:]

    def judged(self) -> Counter[int]:
        """How often each committed batch is in a record that has a verdict on its measures."""
        found: Counter[int] = Counter()
        for record in self.records():
            if record.quality is not None and record.quality.rows is not None:
                found.update(batch.batch_id for batch in record.batches if "sluice.quality" in batch.observed)
        return found

    def committed(self) -> list[int]:
        folder = self.home / "generations" / "0001" / "commits"
        return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())


def make_checked(root: Path, kind: str) -> Checked:
    (root / "in").mkdir()
    (root / "sluice.toml").write_text(PROJECT.format(name=root.name))
    (root / "streams").mkdir()
    (root / "streams" / "numbers.py").write_text(_DECLARATION.replace("@SINK@", KINDS[kind].sink))
    (root / "transform_checked_numbers.py").write_text(_TRANSFORM)
    checked = Checked(root, KINDS[kind])
    checked.declare()
    return checked


def _numbers(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist())
