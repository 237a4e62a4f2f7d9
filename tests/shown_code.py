"""What a page of the documents shows as code: files of a project, and commands with what they print.

A block whose first line is a comment with a path is a file. In a block `console`, what is behind `$ ` is a command.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from typer.testing import CliRunner

from sluice.cli.app import app
from sluice.cli.printing import print_error
from sluice.errors import SluiceError

PROJECT = "/project"
"""How a page calls the folder of the project."""
_FILE = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "(id)"),
    (re.compile(r"\d{8}T\d{9}Z-[0-9a-f]{8}"), "(run)"),
    (re.compile(r"\b20(?!13)\d\d-\d\d-\d\dT[\d:.]+Z"), "(now)"),
    (re.compile(r'(?<="batchTimestampMs": )\d+'), "(now)"),
    (re.compile(r"(?<=, )\d+\.\d s$", re.MULTILINE), "(how long)"),
    (re.compile(r"(?<=late, )[\d,]+ bytes"), "(memory)"),
    # How far a generator of rows has come, and in which epoch.
    (re.compile(r'"(value|runTimeMs)": -?\d+'), "(so far)"),
    (re.compile(r"(?<=ticks/generations/0001/offsets/)\d+"), "(epoch)"),
    # Which operators become code: none does in the session of these tests.
    (re.compile(r"\* (?=\w+ \(\d+\)$)", re.MULTILINE), ""),
)
"""What need not be the same each time."""


def files_of(page: str) -> list[tuple[str, str]]:
    """The files that a page shows: path and content."""
    return _FILE.findall(page)


def played(page: str, folder: Path) -> str:
    """Do what a page shows, from its top to its end; gives the page with what the commands print today.

    It is the same page, if they print what it shows, but for ids, times of today, and what else differs each time.
    `sluice` and Python programs run in this process, in its Spark; a process of their own would need ten seconds each.

    Args:
        page: The page.
        folder: Where its project comes to lie; the working directory.
    """
    return _BLOCK.sub(lambda block: _played(block, folder), page)


def steps_of(page: str) -> dict[str, str]:
    """The parts of a page that show a command, by their headings."""
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)[1:]
    return {title: text for title, text in zip(parts[::2], parts[1::2], strict=True) if "```console" in text}


def _played(block: re.Match[str], folder: Path) -> str:
    if (file := _FILE.fullmatch(block[0])) is not None:
        place = folder / file[1]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(file[2], "utf-8")
    if block[1] != "console":
        return block[0]
    commands = re.findall(r"^\$ (.*)$", block[2], re.MULTILINE)
    shown = "".join(f"$ {command}\n{_printed(command, folder)}" for command in commands)
    return block[0] if _steady(shown) == _steady(block[2]) else f"```console\n{shown}```"


def _steady(shown: str) -> str:
    for varies, instead in _VARIES:
        shown = varies.sub(instead, shown)
    return shown


def _printed(command: str, folder: Path) -> str:
    program, _, rest = command.partition(" | ")
    name, *arguments = program.split()
    errors = ""
    if name == "sluice":
        printed, errors = _answered(arguments)
    elif name == "python" and arguments[0].endswith(".py"):
        with redirect_stdout(StringIO()) as out, patch.object(sys, "argv", arguments):
            runpy.run_path(str(folder / arguments[0]), run_name="__main__")
        printed = out.getvalue()
    else:
        printed, rest = "", command
    if rest:
        printed, more = _in_shell(rest, printed, folder)
        errors += more
    lines = (line.rstrip() for line in (printed + errors).replace(str(folder), PROJECT).splitlines())
    return "".join(f"{line}\n" for line in lines)


def _in_shell(command: str, given: str, folder: Path) -> tuple[str, str]:
    """What a command prints on its two outputs, in a shell that finds this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "LC_ALL": "C"},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    # A shell without a terminal says in which of its lines what process was killed.
    return done.stdout, re.sub(r"^bash: line \d+: +\d+ ", "", done.stderr, flags=re.MULTILINE)


def _answered(arguments: list[str]) -> tuple[str, str]:
    """What a command of ours prints, and its error; of its progress, which a terminal shows as a bar, nothing."""
    result = CliRunner().invoke(app, arguments)
    with redirect_stderr(StringIO()) as told:
        if isinstance(result.exception, SluiceError):
            print_error(result.exception)
        elif result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
    return result.stdout, told.getvalue()
