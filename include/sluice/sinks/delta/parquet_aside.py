"""Parquet files written below a Delta table that count for nobody until a commit of metadata adds them."""

from __future__ import annotations

import os
import string
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from sluice.errors import StorageError
from sluice.locations import is_local, join, local_path, spark_location
from sluice.sinks.contract import Aside
from sluice.sinks.delta.parquet_statistics import file_statistics
from sluice.spark_setting import spark_setting
from sluice.storage import Storage

if TYPE_CHECKING:
    from deltalake.transaction import AddAction
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import DataFrame

_TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
_THREADS = 8
"""How many files are made durable at once: each one waits for the disk."""
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""How Spark calls the folder of the rows without a value, and also of those with this very text."""


def write_aside(
    frame: DataFrame,
    folder: str,
    partitions: Iterable[str],
    options: Mapping[str, str] | None = None,
    *,
    storage: Storage,
) -> Aside:
    """Let Spark write the rows of a batch DataFrame into a folder, in place of what is there."""
    writer = (
        frame.write.mode("overwrite")
        .options(**options or {})
        .option("partitionOverwriteMode", "static")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", value=False)
    )
    # Times as Parquet's own kind, of which a footer has the extremes; Spark's default, INT96, has no order.
    with spark_setting(frame.sparkSession, _TIMESTAMP_TYPE, "TIMESTAMP_MICROS"):
        writer.partitionBy(*partitions).parquet(spark_location(folder))
    _rename_to_ascii(folder)
    return Aside(folder, tuple(_parquet_files(folder, storage)))


def _rename_to_ascii(folder: str) -> None:
    """Give the folders of partitions names without letters that a URL escapes.

    Delta's log has paths as URLs, and delta-rs escapes in them what Spark does not: Spark's `VACUUM`, which compares
    texts, would take the files for nobody's, and delete them.
    """
    if not is_local(folder):
        return
    for root, folders, _ in os.walk(local_path(folder), topdown=False):
        for name in folders:
            if not name.isascii():
                os.rename(os.path.join(root, name), os.path.join(root, quote(name, safe=string.printable)))


def is_one_folder_for_two(exc: Exception) -> bool:
    """Whether a write failed for rows without a value beside rows with the text that Spark has for none."""
    return "FileAlreadyExistsException" in str(exc) and f"={_NO_VALUE}/" in str(exc)


def find_added(
    location: str, aside: Aside, partitions: Iterable[str], *, storage: Storage
) -> tuple[list[AddAction], int]:
    """Files below a table as a commit adds them, without empty ones; and how many rows they have.

    Raises:
        StorageError: One is gone (`VACUUM` deletes what no version has), or can't be read.
    """
    from deltalake.transaction import AddAction

    actions: list[AddAction] = []
    total = 0
    known = set(partitions)
    with ThreadPoolExecutor(_THREADS) as pool:
        measured = [*pool.map(lambda file: _measure(file, storage), aside.files)]
    for file, (footer, size_bytes, mtime_ms) in zip(aside.files, measured, strict=True):
        if not footer.num_rows:
            continue
        path = file.removeprefix(join(location, ""))
        values = dict(_partition_values(path, known))
        actions.append(AddAction(path, size_bytes, values, mtime_ms, True, file_statistics(footer)))  # noqa: FBT003
        total += footer.num_rows
    return actions, total


def delete_empty(location: str, aside: Aside, added: Iterable[AddAction], *, storage: Storage) -> None:
    """Delete the files that a commit left out, for Spark writes one also for a batch without rows.

    Raises:
        StorageError: One is still there.
    """
    counting = {join(location, action.path) for action in added}
    if not counting:
        storage.delete_folder(aside.folder)
    for file in aside.files if counting else ():
        if file not in counting:
            storage.delete(file)


def _parquet_files(folder: str, storage: Storage) -> Iterator[str]:
    listed = storage.list_folder(folder)
    if listed is None:
        return
    yield from (
        join(folder, name) for name in sorted(listed.files) if name.endswith(".parquet") and name[0] not in "._"
    )
    for name in sorted(listed.folders):
        if not name.startswith("_temporary"):
            yield from _parquet_files(join(folder, name), storage)


def _partition_values(path: str, known: set[str]) -> Iterator[tuple[str, str | None]]:
    for part in path.split("/")[:-1]:
        name, separator, value = part.partition("=")
        if separator and unquote(name) in known:
            yield unquote(name), None if value == _NO_VALUE else unquote(value)


def _measure(file: str, storage: Storage) -> tuple[FileMetaData, int, int]:
    """The footer of a Parquet file, its bytes and its modification time."""
    import pyarrow as pa
    from pyarrow import parquet

    stat = storage.stat(file)
    if stat is None:
        raise StorageError(
            "a file that was written aside is gone: did a `VACUUM` delete it?",
            where=file,
            remedy="nothing was published; let `VACUUM` keep files for longer than a run takes, and try again",
        )
    if is_local(file):
        path = local_path(file)
        with open(path, "rb") as written:
            # The commit must not be durable before what it names.
            os.fsync(written.fileno())
        return parquet.read_metadata(path), stat.size_bytes, stat.mtime_ms
    content = storage.read(file, max_bytes=stat.size_bytes) or b""
    return parquet.read_metadata(pa.BufferReader(content)), stat.size_bytes, stat.mtime_ms
