"""What a declaration shows to be wrong is refused by every command that works on the stream, in the same words."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.builders import put
from tests.unit.quality.suites import document, row
from tests.unit.test_mistakes import make_project, of_command

MISTAKES = {
    "a function that is not there": '"transform": "shop.v:vists"',
    "a source that reads the output": '"sources": {"visits": sources.delta("table")}',
    "a pattern that Spark takes with a setting only": (
        '"sources": {"visits": sources.files("landing", **JSON, date_format="ddd MMMMM yyyy")}'
    ),
    "another partition column than the table's": '"sink": sinks.delta("table", partition_by=["id"])',
    "an interval column that the table lacks": '"interval_column": "at"',
    "an interval column of a number": '"interval_column": "id"',
}
COMMANDS = (
    "run visits",
    "backfill visits --start 2026-01-01 --end 2026-01-02 --dry-run",
    "backfill visits --start 2026-01-01 --end 2026-01-02",
    "quality audit visits",
    "quality release visits --rows",
    "quality suggest visits",
)


def begin(folder: Path, mistake: str) -> None:
    there = pa.table({"id": [1], "day": pa.array([date(2026, 1, 1)])})
    write_deltalake(str(folder / "table"), there, mode="ignore", partition_by=["day"])
    put(folder / "s.json", document(row("expect_column_values_to_not_be_null", column="id")))
    base = '{**BASE, "sink": sinks.delta("table"), "quality": "s.json", "interval_column": "day"'
    make_project(folder, f"visits = Stream(**{base}, {MISTAKES[mistake]}}})")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_command_says_it(
    tmp_path: Path, mistake: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No command goes on with what `sluice plan` refuses: none needs a JVM to know it."""
    planned, said = (
        of_command(tmp_path, typed, monkeypatch, capsys, lambda folder: begin(folder, mistake))
        for typed in ("plan visits", command)
    )
    assert planned.startswith("exit 2: ")
    assert said.replace("sluice visits: planning the backfill | ", "") == planned


@pytest.mark.parametrize("mistake", MISTAKES)
def test_checking_finds_it(
    tmp_path: Path, mistake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sluice check` finds what planning does, also what only a table that is there shows."""
    planned = of_command(tmp_path, "plan visits", monkeypatch, capsys, lambda folder: begin(folder, mistake))
    # A process of its own, for it imports the transform.
    command = [sys.executable, "-m", "sluice", "check", "--no-spark", "visits", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    (found,) = json.loads(done.stdout)
    assert done.returncode == 2
    error = found["error"]
    assert planned == f"exit 2: error: {error['problem']} | where: {error['where']} | what to do: {error['remedy']}"
