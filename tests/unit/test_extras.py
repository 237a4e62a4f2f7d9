"""What a bare installation can do, and what it says of the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import importlib.abc, importlib.util, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {absent!r} else found(name, package)
sys.argv = ["sluice", *{arguments!r}]
from sluice.cli.app import main
main()
"""
INTERVAL = "--start 2026-01-01 --end 2026-01-02"
ABSENT = {"pyspark", "delta", "pandas", "great_expectations", "airflow", "confluent_kafka"}


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line of an installation without the extras."""
    code = WITHOUT.format(absent=ABSENT, arguments=arguments)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project, made by a bare installation."""
    folder = tmp_path_factory.mktemp("bare")
    made = call(folder, "init", "shop")
    assert made.returncode == 0, made.stderr
    return folder / "shop"


@pytest.mark.parametrize("command", ["list", "plan visits --json", "lag visits", "inspect visits", "runs visits",
                                     "quality visits", f"backfill visits {INTERVAL} --dry-run"])  # fmt: skip
def test_what_needs_no_spark(project: Path, command: str) -> None:
    """Declaring, planning and looking work without any extra."""
    done = call(project, *command.split())

    assert (done.returncode, done.stderr) == (0, "")


def test_checking_without_spark(project: Path) -> None:
    """Declarations, functions and suites are checked by their text, where what they import is not installed."""
    done = call(project, "check", "--no-spark")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "1 checked, 0 with problems\n")


@pytest.mark.parametrize("command", ["run visits", "check", f"backfill visits {INTERVAL}",
                                     "quality audit visits", "quality suggest visits", "quality release visits --rows",
                                     "jars fetch", "jars list", "profile build", "profile show"])  # fmt: skip
def test_what_needs_spark(project: Path, command: str) -> None:
    """One message says what is missing, and how to get it."""
    done = call(project, *command.split())

    words = command.partition(" visits")[0]
    assert done.returncode == 2
    assert f"`sluice {words}" in done.stderr
    assert "needs `pyspark`, which is not installed" in done.stderr
    assert "pip install 'sluice-streaming[spark]'" in done.stderr
    assert len(done.stderr.splitlines()) == 3
