"""A command whose output can't be written says so; a reader who has left, as `head` does, is no fault."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.running import submit
from tests.builders import put
from tests.unit.test_mistakes import make_project

COMMANDS = [
    "--version",
    "--help",
    "plan --help",
    "list",
    "list --json",
    "plan visits",
    "plan visits --json",
    "lag visits",
    "lag visits --json",
    "inspect visits",
    "inspect visits --json",
    "runs visits",
    "runs visits --json",
    "quality visits",
    "quality visits --json",
    "quality release visits",
    "check --no-spark --json",
    "jars list",
    "profile show",
    "init new",
    "--show-completion bash",
]
FULL = (
    "error: the output could not be written: No space left on device\n"
    "  where: standard output\n"
    "  what to do: make room, or send it elsewhere; whatever the command had to do is done\n"
)


def call(folder: Path, typed: str, *, to: str, is_buffered: bool) -> tuple[int, str]:
    """The exit code of a command whose output goes elsewhere, and what is on standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    # Else the shell is looked for among the processes above this one.
    environment |= {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"} | (
        {} if is_buffered else {"PYTHONUNBUFFERED": "1"}
    )
    words = ["/bin/sh", "-c", f'exec "$@" {to}', "sh", sys.executable, "-m", "sluice", *typed.split()]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_project(tmp_path, "visits = Stream(**BASE)")
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "is_buffered"), [*((typed, True) for typed in COMMANDS), ("plan visits", False), ("list", False)]
)
def test_a_full_disk(project: Path, typed: str, is_buffered: bool) -> None:  # noqa: FBT001
    """Nobody takes a document for whole that is cut: the command ends with 1, after its work."""
    code, said = call(project, typed, to=">/dev/full", is_buffered=is_buffered)
    assert code == 1
    assert said.endswith(FULL)
    assert "Traceback" not in said
    assert typed != "init new" or (project / "new" / "sluice.toml").exists()


@pytest.mark.parametrize("is_buffered", [True, False])
@pytest.mark.parametrize("typed", ["--help", "list", "list --json", "plan visits"])
def test_a_reader_who_has_left(project: Path, typed: str, is_buffered: bool) -> None:  # noqa: FBT001
    """Nothing is said, and the code is that of the work."""
    code, said = call(project, typed, to="", is_buffered=is_buffered)
    assert (code, "error" in said, "Traceback" in said) == (0, False, False)


def test_an_error_comes_first(project: Path) -> None:
    """A command that was refused has that code, whether its output was written or not."""
    put(project / "streams" / "t.py", "from sluice import Stream\nStream(nme=3)\n")
    assert call(project, "list", to=">/dev/full", is_buffered=True)[0] == 2


def test_closed_on_purpose(project: Path) -> None:
    """Who closes the output wants none."""
    assert call(project, "plan visits", to=">&-", is_buffered=True) == (0, "")


def test_what_a_driver_prints(tmp_path: Path) -> None:
    """A transform that prints to a full disk is done all the same: a driver's output answers nobody."""
    make_project(tmp_path, "visits = Stream(**BASE)\nprint('x' * 10**5, flush=True)")
    program = f"import runpy; runpy.run_path({submit.__file__!r}, run_name='__main__')"
    command = [sys.executable, "-c", program, "--project", str(tmp_path), "--stream", "none"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "there is no stream `none`" in done.stderr
    assert "No space left" not in done.stderr
