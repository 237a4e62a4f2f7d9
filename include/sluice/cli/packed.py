"""`sluice run A B C | --all | --tag TAG`: several streams, run with one Spark."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from sluice.cli.printing import (
    Bar,
    error_document,
    print_error,
    print_json,
    print_table,
    spark_log_aside,
)
from sluice.errors import DeclarationError, SluiceError, UnknownStreamError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice.planning.planner import Limits
    from sluice.project import Project
    from sluice.running.observers import Observer
    from sluice.running.packed_runs import PackedRun
    from sluice.stream import Stream


@dataclass(frozen=True)
class Choice:
    """Which streams are to be run."""

    names: tuple[str, ...]
    """None where all are, or those that bear a tag."""
    tag: str | None

    @classmethod
    def of(cls, names: Sequence[str], tag: str | None, *, every: bool) -> Choice:
        """Take what was typed: names, or `--tag`, or `--all`."""
        given = [
            what for what, is_given in (("names", names), ("--all", every), ("--tag", tag is not None)) if is_given
        ]
        if not given:
            raise typer.BadParameter("name a stream, or several, or give --all or --tag", param_hint="STREAM")
        if len(given) > 1:
            raise typer.BadParameter(f"{' and '.join(given)} are given: leave all but one out", param_hint="STREAM")
        return cls(tuple(dict.fromkeys(names)), tag)

    @property
    def is_pack(self) -> bool:
        """Whether it is more than one stream by its name."""
        return len(self.names) != 1

    def find(self, project: Project) -> tuple[dict[str, Stream], dict[str, SluiceError]]:
        """The streams by name, and what is wrong with those that can't be run, by name or file.

        Raises:
            UnknownStreamError: A name is none of a stream.
            DeclarationError: No stream bears the tag.
        """
        if self.names:
            return _named(project, self.names)
        declared = project.declarations()
        # What does not load may bear the tag.
        broken: dict[str, SluiceError] = {
            **declared.unreadable,
            **{name: found.error for name, found in declared.unusable.items()},
        }
        usable = declared.usable()
        found = {name: stream for name, stream in usable.items() if self.tag is None or self.tag in stream.tags}
        if not found and not broken:
            raise self._none_found(project, usable.values())
        return found, broken

    def _none_found(self, project: Project, streams: Iterable[Stream]) -> DeclarationError:
        where = ", ".join(project.stream_folders)
        if self.tag is None:
            return DeclarationError("no stream is declared", where=where, remedy="declare one: `NAME = Stream(...)`")
        tags = sorted({tag for stream in streams for tag in stream.tags})
        near = difflib.get_close_matches(self.tag, tags, n=1)
        remedy = 'declare it: `Stream(tags=["..."])`' if not tags else f"tags are: {', '.join(tags)}"
        return DeclarationError(
            f"no stream bears the tag `{self.tag}`",
            where=where,
            remedy=f"did you mean `{near[0]}`?" if near else remedy,
        )


def _named(project: Project, names: Sequence[str]) -> tuple[dict[str, Stream], dict[str, SluiceError]]:
    found: dict[str, Stream] = {}
    broken: dict[str, SluiceError] = {}
    for name in names:
        try:
            found[name] = project.stream(name)
        except UnknownStreamError:
            # Nothing has begun yet: a name that was mistyped is put right first.
            raise
        except DeclarationError as exc:
            broken[name] = exc
    return found, broken


def run_packed(folder: str | None, choice: Choice, limits: Limits, run_key: str | None, *, as_json: bool) -> None:
    """Run streams one after the other: a line for each as it ends, and a table at the end.

    Args:
        folder: Where the project is.
        choice: The streams.
        limits: What holds for each run.
        run_key: Can't be given.
        as_json: Whether to print a list of records in place of the lines and the table.
    """
    from sluice.project import find_project
    from sluice.running.packed_runs import Pack, PackedRun, worst_exit_code
    from sluice.running.submit import stop_on_sigterm
    from sluice.spark.profile_build import build_in_background

    _check_options(limits, run_key)
    project = find_project(folder)
    streams, broken = choice.find(project)
    tell = _tell_nobody if as_json else _tell
    ended = [PackedRun(name, error=error) for name, error in broken.items()]
    for run in ended:
        tell(run)
    with _observed() as (observer, say):
        pack = Pack(project, streams, limits, observer, say)
        stop_on_sigterm(pack.stop)
        for run in pack.run():
            ended.append(run)
            tell(run)
        if any(run.record is not None and run.record.status != "skipped" for run in ended):
            build_in_background()
        if as_json:
            print_json([_document(project, streams, run) for run in ended])
        else:
            print_table("Streams", ("stream", "status", "batches", "rows", "quality", "reason"), map(_row, ended))
        if code := worst_exit_code(ended):
            raise typer.Exit(code)


def _check_options(limits: Limits, run_key: str | None) -> None:
    several = "is for one stream: run each by itself"
    if run_key is not None:
        raise typer.BadParameter(f"a key names one run, and {several}", param_hint="--run-key")
    if limits.bound.to_version is not None:
        raise typer.BadParameter(f"a version is of one table, and {several}", param_hint="--to-version")
    if limits.trigger is not None:
        raise typer.BadParameter(
            f"the next stream would wait for the end of the time; this {several}", param_hint="--for"
        )


@contextmanager
def _observed() -> Iterator[tuple[Callable[[str], Observer], Callable[[str], None]]]:
    """Who is told how the runs go on, and who of what concerns several: a terminal has a bar for each in turn."""
    from sluice.running.observers import Lines

    with spark_log_aside("streams") as terminal:
        if terminal is None:
            yield Lines, lambda text: print(f"sluice: {text}", file=sys.stderr, flush=True)
            return
        bars: list[Bar] = []

        def end() -> None:
            if bars:
                bars.pop().__exit__(None, None, None)

        def begin(name: str) -> Bar:
            end()
            bars.append(Bar(name, terminal).__enter__())
            return bars[0]

        try:
            yield begin, lambda text: print(f"sluice: {text}", file=terminal, flush=True)
        finally:
            end()


def _tell(run: PackedRun) -> None:
    status, reason = _outcome(run)
    print(f"{run.stream}: {status} ({reason})", flush=True)
    if run.error is not None:
        print_error(run.error)


def _tell_nobody(run: PackedRun) -> None:
    if run.error is not None:
        print_error(run.error)


def _outcome(run: PackedRun) -> tuple[str, str]:
    """How a run ended, and why."""
    if run.record is not None:
        return run.record.status, run.record.plan.reason
    if run.error is not None:
        return _STATUS.get(run.error.exit_code, "failed"), run.error.problem
    return "not begun", "the runs were stopped"


_STATUS: Mapping[int, str] = {2: "declared wrongly", 3: "refused", 4: "failed by quality", 5: "lease taken"}
"""By exit code, what is said of a stream that did not fail by its run itself."""


def _row(run: PackedRun) -> tuple[object, ...]:
    status, reason = _outcome(run)
    if run.record is None:
        return run.stream, status, None, None, None, reason
    rows = sum(batch.input_rows or 0 for batch in run.record.batches)
    quality = None if run.record.quality is None else run.record.quality.verdict
    return run.stream, status, len(run.record.batches), rows, quality, reason


def _document(project: Project, streams: Mapping[str, Stream], run: PackedRun) -> Any:
    """The record of a run; of a stream that has none, what can be said in its place."""
    import msgspec

    if run.record is not None:
        return msgspec.to_builtins(run.record)
    if run.error is None:
        return {"stream": run.stream, "status": "not_begun", "error": None}
    found = read_record(project, streams[run.stream], run.error.run_id) if run.error.run_id else None
    status = "refused" if run.error.exit_code != 1 else "failed"
    return found or {"stream": run.stream, "status": status, "error": error_document(run.error)}


def read_record(project: Project, stream: Stream, run_id: str) -> Any:
    """The record of a run as it is on disk; None when there is none."""
    import msgspec

    from sluice.runs.record import RunRecords

    record = RunRecords(project.stream_home(stream)).read(run_id)
    return None if record is None else msgspec.to_builtins(record)
