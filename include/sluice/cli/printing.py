"""What the command line prints: a bar on a terminal, plain lines elsewhere; tables, documents, errors."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

import typer

from sluice.errors import DeclarationError, Problem, RefusedError, SluiceError
from sluice.running.observers import Lines, warning_line
from sluice.runs.record import describe_quality

if TYPE_CHECKING:
    from rich.progress import TaskID

    from sluice.plan import Plan
    from sluice.runs.record import BatchRecord, QualityRecord

_answer: ContextVar[TextIO | None] = ContextVar("answer", default=None)
"""The standard output of a command that answers in JSON, while everybody else's prints go elsewhere."""


class Bar:
    """Tells how a run goes on by a progress bar on a terminal."""

    def __init__(self, stream: str, terminal: TextIO) -> None:
        from rich.console import Console
        from rich.logging import RichHandler
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._stream, self._rows = stream, 0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rows]:,} rows"),
            TimeRemainingColumn(),
            console=Console(file=terminal),
        )
        self._log = RichHandler(console=self._progress.console, show_time=False, show_path=False)
        self._task: TaskID = self._progress.add_task(stream, total=None, rows=0)

    def __enter__(self) -> Self:
        logging.getLogger("sluice").addHandler(self._log)
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()
        logging.getLogger("sluice").removeHandler(self._log)

    def planned(self, plan: Plan) -> None:
        """Now the number of batches is known."""
        total = len(plan.batches) if plan.trigger is None else None
        self._progress.update(self._task, total=total, description=f"{self._stream}: running")

    def phase(self, text: str) -> None:
        """Show what takes a while."""
        self._progress.update(self._task, description=f"{self._stream}: {text}")

    def committed(self, batch: BatchRecord) -> None:
        """Move the bar; a no-data batch comes on top of what was planned."""
        self._rows += batch.input_rows or 0
        total = self._progress.tasks[0].total
        done = self._progress.tasks[0].completed + 1
        self._progress.update(
            self._task, completed=done, total=None if total is None else max(total, done), rows=self._rows
        )

    def audited(self, quality: QualityRecord) -> None:
        """Show the verdict."""
        self._progress.update(self._task, description=f"{self._stream}: {describe_quality(quality)}")

    def warned(self, warning: Problem) -> None:
        """Show it above the bar, where it stays."""
        self._progress.console.print(f"{self._stream}: {warning_line(warning)}", markup=False, highlight=False)


@contextmanager
def progress(stream: str) -> Iterator[Lines | Bar]:
    """A bar where standard error is a terminal, plain lines elsewhere."""
    with spark_log_aside(stream) as terminal:
        if terminal is None:
            yield Lines(stream)
        else:
            with Bar(stream, terminal) as bar:
                yield bar


@contextmanager
def spark_log_aside(name: str) -> Iterator[TextIO | None]:
    """Where standard error is a terminal, keep it clear of Spark's log, which goes to a file meanwhile.

    The file is kept, and the terminal is told its name, when an error ends this.

    Yields:
        The terminal; None where standard error is none, and Spark's log stays in it.
    """
    if not sys.stderr.isatty():
        yield None
        return
    with (
        os.fdopen(os.dup(2), "w") as terminal,
        tempfile.NamedTemporaryFile(prefix=f"sluice-{name}-", suffix=".log", delete=False) as log,
    ):
        os.dup2(log.fileno(), 2)
        try:
            yield terminal
        except BaseException:
            print(f"Spark's log is in {log.name}", file=terminal)
            raise
        else:
            os.unlink(log.name)
        finally:
            os.dup2(terminal.fileno(), 2)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table on standard output."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    # Without a terminal, rich would cut the table to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 200)
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Paths in brackets are no markup.
        table.add_row(*("" if cell is None else escape(str(cell)) for cell in row))
    console.print(table)


def answer_in_json(context: typer.Context, is_wanted: bool) -> bool:  # noqa: FBT001 - typer calls it
    """Keep standard output clear for a JSON document, as long as the command lasts: what others print goes aside."""
    if is_wanted:
        context.with_resource(_answer_apart())
    return is_wanted


@contextmanager
def _answer_apart() -> Iterator[None]:
    token = _answer.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _answer.reset(token)


def print_json(document: Any) -> None:
    """Print one JSON document as the answer of the command."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode(), file=_answer.get())


def print_error(error: SluiceError) -> None:
    """Print what is wrong, where, and what to do, on standard error."""
    print(f"error: {error.problem}", file=sys.stderr)
    if error.where:
        print(f"  where: {error.where}", file=sys.stderr)
    if error.remedy:
        print(f"  what to do: {error.remedy}", file=sys.stderr)
    if error.log:
        print(f"  all of it: {error.log}", file=sys.stderr)


def error_document(error: SluiceError) -> dict[str, Any]:
    """An error as JSON has it."""
    return {"type": type(error).__name__, "problem": error.problem, "where": error.where, "remedy": error.remedy}


def report_damaged(damaged: Iterable[RefusedError]) -> None:
    """Say which records can't be read, after all others were shown."""
    code = 0
    for error in damaged:
        print_error(error)
        code = error.exit_code
    if code:
        raise typer.Exit(code)


def write_file(file: Path, text: str, *, mode: Literal["w", "x"] = "w") -> None:
    """Write a file that only its owner may read: reports and suites show values of the data."""
    from sluice.local_disk import open_private

    try:
        with open(file, mode, encoding="utf-8", opener=open_private) as opened:
            opened.write(text)
    except OSError as exc:
        raise DeclarationError(
            f"the file can't be written: {exc.strerror}", where=str(file), remedy="give another one"
        ) from exc


def cell(value: Any) -> Any:
    """A value as a table's cell shows it."""
    import msgspec

    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value
