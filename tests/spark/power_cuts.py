"""The power goes at some write: nothing is written from there on, in the home or in a table, by us or by Spark."""

from __future__ import annotations

import json
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import delta.tables
import deltalake
import deltalake.transaction
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameWriter

from sluice import Stream
from sluice.locations import local_path
from sluice.planning.planner import Limits
from sluice.running.query_starts import QueryStarts
from sluice.sinks.delta import merge, schema_evolution
from sluice.sinks.delta.sink import DeltaSink
from sluice.spark.left_behind import forget_tables
from sluice.spark.query import Query
from sluice.storage import Storage
from tests.spark.lab import NO_LIMITS, Lab

Moment = Literal["before", "middle", "after"]
"""When the power goes: before a write, after it, or with a half of it on the disk, where a kill leaves one."""

_DOCUMENTS = ("put_if_absent", "replace", "replace_aid")
_STORAGE = (*_DOCUMENTS, "delete", "delete_folder", "copy_folder")
_SPARK = ("save", "parquet")
_DELTA_RS = {"create_write_transaction": "commit", "create_checkpoint": "checkpoint"}
_MAKE_TABLE = "create_table_with_add_actions"
_DELTA = ("update", "delete")
_NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{8}T\d{9}Z-[0-9a-f]+|[0-9a-f]{16,}|\d+")
"""What differs from one history to the next: ids, times, and numbers."""

_write_parquet = DataFrameWriter.parquet


class PowerCutError(Exception):
    """Nothing is written from here on."""


@dataclass(frozen=True)
class Cut:
    """Where the power goes."""

    match: str = ""
    """Of those writes alone whose name has this in it; all of them do, unless told."""
    nth: int = 1
    moment: Moment = "before"


@dataclass
class Writes:
    """The writes that there were, by name, and the one at which the power went."""

    cut: Cut
    root: Path
    seen: list[str] = field(default_factory=list)
    at: str | None = None
    _fitting: int = 0

    def make(self, name: str, where: str, write: Callable[[], Any], half: Callable[[], object] | None) -> Any:
        """Write, unless the power is gone, or goes here.

        Args:
            name: What kind of write it is.
            where: The file or the folder.
            write: Does it.
            half: Leaves what a kill in the middle of it does; None where a write is there whole or not at all.
        """
        if self.at is not None:
            if threading.current_thread().name == "sluice-lease":
                # Nobody hears of what a process without power does not write; it is ended with its run.
                return None
            raise PowerCutError(name)
        told = f"{name} {_NAMES.sub('*', local_path(where).removeprefix(f'{self.root}/')).rstrip('/')}"
        self.seen.append(told)
        self._fitting += self.cut.match in told
        if self._fitting != self.cut.nth or self.cut.match not in told:
            return write()
        if self.cut.moment == "after":
            write()
        elif self.cut.moment == "middle" and half is not None:
            half()
        self.at = told
        raise PowerCutError(told)


@contextmanager
def power_cut(cut: Cut, root: Path) -> Iterator[Writes]:
    """Cut the power at a write, if it comes to that; leases are written as long as there is power."""
    writes = Writes(cut, root)
    with pytest.MonkeyPatch.context() as patch:
        for name in _STORAGE:
            _wrap_storage(patch, writes, name)
        for name in _SPARK:
            _wrap_spark(patch, writes, name)
        for name, told in _DELTA_RS.items():
            _wrap(patch, writes, deltalake.DeltaTable, name, told, lambda table, *_: str(table.table_uri))
        for name in _DELTA:
            _wrap(patch, writes, delta.tables.DeltaTable, name, name, lambda *_: "by Delta")
        _wrap(patch, writes, deltalake.transaction, _MAKE_TABLE, "commit", lambda where, *_: str(where))
        _wrap(patch, writes, schema_evolution, "evolve", "columns", lambda where, *_: str(where))
        _wrap_merges(patch, writes)
        _wrap_batches(patch, writes)
        yield writes


def killed(lab: Lab, stream: Stream, cut: Cut, limits: Limits = NO_LIMITS) -> None:
    """Let the power go at a write; who had the lease may be at work yet."""
    with power_cut(cut, lab.root) as writes, pytest.raises(BaseException):  # noqa: B017, PT011 - whatever it is by then
        lab.run(stream, limits)
    assert writes.at is not None
    for query in lab.spark.streams.active:
        query.stop()
    forget_tables(lab.spark)


def let_leases_run_out(home: Path) -> None:
    """Let those who had them be dead."""
    for lease in home.glob("*/leases/**/*.json"):
        content = json.loads(lease.read_bytes())
        lease.write_text(json.dumps(content | {"expires_at": "2026-01-01T00:00:00Z"}))


def _wrap(  # noqa: PLR0917 - what is wrapped, and how it is told
    patch: pytest.MonkeyPatch, writes: Writes, owner: Any, name: str, told: str, where: Callable[..., str]
) -> None:
    """A write that is there whole or not at all."""
    write = getattr(owner, name)

    def wrapped(*args: Any, **how: Any) -> Any:
        return writes.make(told, where(*args), lambda: write(*args, **how), None)

    patch.setattr(owner, name, wrapped)


def _wrap_storage(patch: pytest.MonkeyPatch, writes: Writes, name: str) -> None:
    write = getattr(Storage, name)

    def wrapped(storage: Storage, location: str, *args: Any) -> Any:
        def half() -> None:
            path = Path(local_path(location))
            if name in _DOCUMENTS:
                temporary = _made(path.parent) / f".{path.name}.{uuid.uuid4().hex}.tmp"
                temporary.write_bytes(args[0][: len(args[0]) // 2])
            elif name == "delete_folder" and path.exists():
                files = sorted(file for file in path.rglob("*") if file.is_file())
                for file in files[: (len(files) + 1) // 2]:
                    file.unlink()

        def whole() -> Any:
            return write(storage, location, *args)

        return whole() if "/leases/" in location and writes.at is None else writes.make(name, location, whole, half)

    patch.setattr(Storage, name, wrapped)


def _wrap_spark(patch: pytest.MonkeyPatch, writes: Writes, name: str) -> None:
    """Spark's own writers: of a Delta table a kill leaves files of no commit, of a folder some of its files."""
    write = getattr(DataFrameWriter, name)

    def wrapped(writer: DataFrameWriter, path: str | None = None, *args: Any, **how: Any) -> Any:
        def half() -> None:
            if name == "parquet":
                write(writer, path, *args, **how)
                for file in sorted(Path(local_path(path or "")).rglob("part-*"))[::2]:
                    file.unlink()
            else:
                _leave_files(writer._df.write, local_path(path or ""))

        if path is None:
            # Rows that are only read through.
            return write(writer, path, *args, **how)
        return writes.make(f"Spark's {name}", path, lambda: write(writer, path, *args, **how), half)

    patch.setattr(DataFrameWriter, name, wrapped)


def _leave_files(writer: DataFrameWriter, table: str) -> None:
    """Leave files of no commit in a table's folder."""
    aside = Path(f"{table}-killed")
    _write_parquet(writer, str(aside))
    for file in aside.glob("part-*"):
        file.rename(_made(Path(table)) / file.name)
    shutil.rmtree(aside)


def _wrap_merges(patch: pytest.MonkeyPatch, writes: Writes) -> None:
    """A kill in the middle of a merge leaves files of no commit."""
    write = merge.merge

    def wrapped(rows: DataFrame, location: str, *args: Any, **how: Any) -> None:
        def half() -> None:
            _leave_files(rows.write, local_path(location))

        writes.make("Delta's merge", location, lambda: write(rows, location, *args, **how), half)

    patch.setattr(merge, "merge", wrapped)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _wrap_batches(patch: pytest.MonkeyPatch, writes: Writes) -> None:
    """What Spark writes of a batch by itself: its commit, and before it what Delta's own stream writer does.

    A kill in the middle of that leaves data files of no commit, one after it all but Spark's commit. It is done whole,
    and taken back: nothing of ours runs in between.
    """
    start, wait = QueryStarts.start, QueryStarts.wait
    table: list[_Earlier] = []

    def starting(starts: QueryStarts, query: Query, *, trigger: Any) -> Any:
        sink = query.stream.sink
        is_spark_s = query.function_of_batches() is None and isinstance(sink, DeltaSink)
        table[:] = [_Earlier.of(sink.location or "", query.frame.sparkSession)] if is_spark_s else []
        return start(starts, query, trigger=trigger)

    def waiting(starts: QueryStarts, query: Any) -> None:
        commits = _Earlier.of(f"{starts.logs.location}/commits")
        wait(starts, query)
        if writes.at is not None:
            raise PowerCutError(writes.at)
        moment = writes.cut.moment
        try:
            for earlier in table:
                writes.make("Spark's stream", str(earlier.folder), lambda: None, None)
        except PowerCutError:
            commits.bring_back()
            if moment != "after":
                table[0].bring_back("_delta_log" if moment == "middle" else "")
            raise
        try:
            writes.make("Spark's commit", str(commits.folder), lambda: None, None)
        except PowerCutError:
            if moment != "after":
                commits.bring_back()
            raise

    patch.setattr(QueryStarts, "start", starting)
    patch.setattr(QueryStarts, "wait", waiting)


@dataclass(frozen=True)
class _Earlier:
    """What was in a folder."""

    folder: Path
    files: Mapping[str, bytes]
    session: Any

    @classmethod
    def of(cls, location: str, session: Any = None) -> _Earlier:
        folder = Path(local_path(location))
        return cls(folder, {str(file.relative_to(folder)): file.read_bytes() for file in _files(folder)}, session)

    def bring_back(self, below: str = "") -> None:
        """Let the folder have that, below one of its own."""
        for file in _files(self.folder / below):
            if str(file.relative_to(self.folder)) not in self.files:
                file.unlink()
        for name, content in self.files.items():
            if name.startswith(below):
                (self.folder / name).write_bytes(content)
        if self.session is not None:
            forget_tables(self.session)


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()] if folder.exists() else []
