"""How a run goes on: a bar on a terminal that Spark's log does not spoil, plain lines elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sluice

PROGRAM = """
import logging, os
from sluice.cli.printing import progress
from sluice.plan import Plan, PlannedBatch
from sluice.runs.record import BatchRecord

batches = tuple(PlannedBatch(number, "data", 0, {{}}) for number in range(2))
with progress("visits") as observer:
    os.write(2, b"26/11/21 WARN Spark has something to say\\n")
    logging.getLogger("sluice.running").warning("taking over a lease")
    observer.planned(Plan("visits", 1, "run", "2 new files", "exact", batches=batches))
    observer.phase("running")
    for number in range(2):
        observer.committed(BatchRecord(batch_id=number, kind="data", input_rows=700, output_rows=7, watermark=None))
    {end}
"""
NOISE = "WARN Spark has something to say"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose temporary files are the test's own."""
    return {
        "PYTHONPATH": str(Path(sluice.__file__).parents[1]),
        "TMPDIR": str(tmp_path),
        "TERM": "xterm-256color",
        "COLUMNS": "120",
    }


def on_a_terminal(environment: dict[str, str], end: str = "pass") -> str:
    """What a terminal shows of the program."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PROGRAM.format(end=end)]
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # on Linux, the end of a terminal that nobody has open any more
        pass
    finally:
        os.close(ours)
        child.wait()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def test_bar(environment: dict[str, str], tmp_path: Path) -> None:
    """Batches, rows and our own warnings are shown, Spark's log is not; nothing is left behind."""
    shown = on_a_terminal(environment)
    assert re.search(r"visits: running ━+ 2/2 1,400 rows", shown)
    assert "taking over a lease" in shown
    assert NOISE not in shown
    assert list(tmp_path.iterdir()) == []


def test_an_error_keeps_the_log(environment: dict[str, str], tmp_path: Path) -> None:
    """The terminal is told where Spark's log is, and has the error itself."""
    shown = on_a_terminal(environment, "raise OSError('the disk is gone')")
    log = next(tmp_path.iterdir())
    assert f"Spark's log is in {log}" in shown
    assert "the disk is gone" in shown
    assert NOISE in log.read_text("utf-8")


def test_lines(environment: dict[str, str], tmp_path: Path) -> None:
    """Without a terminal there is one plain line for each step, beside Spark's log."""
    command = [sys.executable, "-c", PROGRAM.format(end="pass")]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    assert NOISE in shown
    assert [re.sub(r"about \d+ s", "about N s", line) for line in shown.splitlines() if line.startswith("sluice")] == [
        "sluice visits: run: 2 new files; strategy exact, 2 batches planned",
        "sluice visits: running",
        "sluice visits: batch 0 (data): 700 rows in, 7 out, 0.0 s; 1 of 2, about N s left",
        "sluice visits: batch 1 (data): 700 rows in, 7 out, 0.0 s; 2 of 2",
    ]
    assert list(tmp_path.iterdir()) == []
