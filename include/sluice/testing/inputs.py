"""Gives a source rows: writes them as the source's kind has them, with the time of the bench's clock."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sluice.errors import DeclarationError
from sluice.locations import local_path
from sluice.sources.contract import Source
from sluice.testing.rows import as_dicts, for_spark, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CORRUPT = "columnNameOfCorruptRecord"
_WRITER = {"csv": {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}}
"""What Spark's writer of a format must be told to write all of a value."""
_COMMITS = "[0-9]*.json"


@dataclass(frozen=True)
class Input:
    """What is given to a source at once."""

    rows: object
    """Rows, a DataFrame, or the whole content of a file."""
    schema: str | None
    """The columns as DDL, where the source does not tell."""
    folder: str
    """Below the source's: `day=2026-01-01`."""
    number: int
    """Counts what was given to the stream's sources before."""
    now: datetime
    place: str
    """For messages."""


def write_input(source: Source, given: Input, session: Callable[[], SparkSession]) -> str:
    """Give rows to a source; tells in a few words what was written.

    Args:
        source: One of the bench's.
        given: What it gets.
        session: Gives Spark, which not every input needs.

    Raises:
        DeclarationError: The rows are not the source's, or it makes its own.
    """
    write = _KINDS.get(source.kind)
    if write is None:
        raise DeclarationError(
            f"a source of {source.kind} makes rows of its own", where=given.place, remedy="run the stream"
        )
    return write(cast("Any", source), given, session)


def _write_file(source: Any, given: Input, session: Callable[[], SparkSession]) -> str:
    folder = Path(local_path(source.path), given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(given.rows, str | bytes):
        content = given.rows.encode() if isinstance(given.rows, str) else given.rows
        file = folder / f"{given.number:04d}.{source.format}"
        file.write_bytes(content)
        told = f"{len(content)} bytes"
    else:
        if source.format == "binaryFile":
            raise DeclarationError(
                "a row of a source of `binaryFile` is a file", where=given.place, remedy='give its content: b"..."'
            )
        columns = source.schema or "value string"
        frame, count = _frame(given, _file_columns(source, session().createDataFrame([], columns).schema), session)
        file = _write_with_spark(source, frame, folder, given.number)
        told = _rows(count)
    stamp = given.now.timestamp()
    os.utime(file, (stamp, stamp))
    return f"{told} in {file.name}"


def _file_columns(source: Any, schema: StructType) -> StructType:
    """The columns that a file has: not the one that Spark puts rows into which it can't read."""
    from pyspark.sql.types import StructType

    corrupt = source.options.get(_CORRUPT, "_corrupt_record")
    return StructType([field for field in schema if field.name != corrupt])


def _write_with_spark(source: Any, frame: DataFrame, folder: Path, number: int) -> Path:
    """Let Spark write one file by the options that it is read by."""
    aside = folder.parent / f".{folder.name}-{number}"
    options = {**source.options, **_WRITER.get(source.format, {})}
    frame.coalesce(1).write.format(source.format).options(**options).save(str(aside))
    parts = sorted(aside.glob("part-*"))
    file = folder / f"{number:04d}.{source.format}"
    if parts:
        # Its ending tells how it is compressed.
        file = folder / f"{number:04d}.{parts[0].name.partition('.')[2] or source.format}"
        parts[0].rename(file)
    else:
        file.touch()
    shutil.rmtree(aside)
    return file


def _write_version(source: Any, given: Input, session: Callable[[], SparkSession]) -> str:
    from deltalake import DeltaTable, write_deltalake

    if isinstance(given.rows, str | bytes):
        raise DeclarationError("a Delta table has rows, and no files of text", where=given.place, remedy="give rows")
    if given.folder:
        raise DeclarationError("a Delta table has folders of its own", where=given.place, remedy="leave out `folder`")
    path = local_path(source.path)
    is_there = DeltaTable.is_deltatable(path)
    schema = schema_of(DeltaTable(path).schema().to_json()) if is_there else None
    frame, count = _frame(given, schema, session)
    before = newest_version(path)
    write_deltalake(path, frame.toArrow(), mode="append")
    stamp_commits(path, given.now, after=before)
    return f"{_rows(count)} in version {newest_version(path)}"


def stamp_commits(table: str, now: datetime, *, after: int) -> None:
    """Give commits of a Delta table the time of the bench, by which `until` and `starting` go.

    Args:
        table: Its folder.
        now: The time.
        after: The newest version that keeps its own; -1 for none.
    """
    for commit in Path(table, "_delta_log").glob(_COMMITS):
        if not commit.stem.isdigit() or int(commit.stem) <= after:
            continue
        actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
        found = commit.stat()
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = int(now.timestamp() * 1000)
        commit.write_text("".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions), "utf-8")
        # Delta deletes what is old by the time of the file, which stays.
        os.utime(commit, ns=(found.st_atime_ns, found.st_mtime_ns))
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)


def newest_version(table: str) -> int:
    """The newest version of a Delta table; -1 where there is none."""
    commits = (file.stem for file in Path(table, "_delta_log").glob(_COMMITS))
    return max((int(name) for name in commits if name.isdigit()), default=-1)


def _frame(
    given: Input, schema: StructType | None, session: Callable[[], SparkSession]
) -> tuple[DataFrame, int | None]:
    """What is given as a DataFrame, and how many rows that are; None where nobody has counted."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    if isinstance(given.rows, DataFrame):
        return given.rows, None
    if given.schema is not None:
        schema = session().createDataFrame([], given.schema).schema
    if schema is None:
        raise DeclarationError(
            "the table is not there yet, and nobody knows its columns",
            where=given.place,
            remedy='name them with its first rows: schema="id bigint, at timestamp"',
        )
    rows = as_dicts(given.rows, schema, given.place)
    values = [tuple(for_spark(row.get(name)) for name in schema.fieldNames()) for row in rows]
    try:
        return session().createDataFrame(values, schema), len(values)
    except (PySparkException, TypeError, ValueError) as exc:
        raise DeclarationError(
            f"the rows are not of the source's columns: {str(exc).partition(chr(10))[0]}",
            where=given.place,
            remedy=f"the columns are: {', '.join(f'{field.name} {field.dataType.simpleString()}' for field in schema)}",
        ) from exc


def _rows(count: int | None) -> str:
    return "a DataFrame" if count is None else "1 row" if count == 1 else f"{count} rows"


_KINDS: Mapping[str, Callable[[Any, Input, Callable[[], SparkSession]], str]] = {
    "files": _write_file,
    "delta": _write_version,
}
