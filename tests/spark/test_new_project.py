"""What a newcomer does first: a new project, by its commands, and from Python as the guide shows it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

pytestmark = pytest.mark.spark

GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text("utf-8")
ROWS = 3
"""How many visits the sample data has; one of the four lines is delivered twice."""


def call(folder: Path, *command: str) -> str:
    """Run a command of this Python in a folder; what it prints, once it ended well."""
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def sluice(folder: Path, *arguments: str) -> str:
    return call(folder, "-m", "sluice", *arguments)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A new project, made by the command."""
    sluice(tmp_path, "init", "shop")
    return tmp_path / "shop"


def visits(project: Path) -> int:
    return DeltaTable(str(project / "data" / "lake" / "visits")).to_pyarrow_table().num_rows


def test_commands(project: Path) -> None:
    """A new project is sound, its stream runs at once, and then there is nothing left to do."""
    assert sluice(project, "check") == ""
    record = json.loads(sluice(project, "run", "visits", "--json"))
    assert (record["status"], visits(project)) == ("succeeded", ROWS)
    assert [batch["kind"] for batch in record["batches"]] == ["data", "no_data"]
    assert json.loads(sluice(project, "plan", "visits", "--json"))["verdict"] == "skip"
    assert json.loads(sluice(project, "lag", "visits", "--json"))["sources"]["visits"]["files"] == 0
    assert json.loads(sluice(project, "runs", "visits", "--json"))["runs"] == [record]
    found = json.loads(sluice(project, "inspect", "visits", "--json"))
    assert (found["committed"], found["problems"]) == (1, [])
    assert len(json.loads(sluice(project, "state", "visits", "--json"))["rows"]) == ROWS
    day = ("--start", "2026-01-01", "--end", "2026-01-02", "--json")
    assert json.loads(sluice(project, "backfill", "visits", "--dry-run", *day))["verdict"] == "run"
    assert json.loads(sluice(project, "backfill", "visits", *day))["status"] == "succeeded"
    assert visits(project) == ROWS


def test_from_python(project: Path) -> None:
    """The guide's program prints what it planned and did."""
    section = GUIDE.partition("\n## From Python\n")[2].partition("\n## ")[0]
    program = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[0]
    printed = call(project, "-c", program)
    assert printed == f"run `visits`: 2 new files before 2036-01-01T00:00:00+00:00\nsucceeded [{ROWS}, 0]\n"
