"""Batches of a stream that are written aside, audited, and published into a Delta table by a commit of metadata.

The commit carries the application transaction that Delta's own stream writer would leave, so that the table's log tells
which batch it holds, and a second try passes over a batch that is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sluice.delta_table import commit_file, load_table, open_log, read_commit
from sluice.errors import Problem, RefusedError, StorageError
from sluice.sinks import parquet_aside
from sluice.sinks.table_rules import rule_for_spark
from sluice.storage import Storage, join, library_call, spark_location
from sluice.stream import Aside, SinkBatch

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

HEEDED_OPTIONS = frozenset({"maxRecordsPerFile"})
"""The sink's options that also count for files that are written aside."""

_MOST_TRIES = 5
"""How often a batch is committed anew that met a commit by others which delta-rs does not pass over: a delete."""
_NOT_PUBLISHED, _TRY_AGAIN = "the batch could not be published", "nothing was published; try again"
_PARTITION_KINDS = ("string", "byte", "short", "integer", "long", "boolean", "date")
"""Types whose values a folder's name has as Delta's log has them."""


def obstacle(table: DeltaTable) -> str | None:
    """Why a batch can't be published into a table by a commit of metadata; None when it can."""
    kinds = {found.name: getattr(found.type, "type", "nested") for found in table.schema().fields}
    for column in table.metadata().partition_columns:
        if kinds.get(column) not in _PARTITION_KINDS:
            return f"the table is partitioned by `{column}`, of type {kinds.get(column)}"
    return rule_for_spark(table)


def write_batch_aside(
    location: str, frame: DataFrame, batch: SinkBatch, options: Mapping[str, str], *, storage: Storage
) -> Aside | None:
    """Write a batch aside; see `StagingSink.write_batch_aside`."""
    from pyspark.sql import functions

    found = load_table(location, storage=storage)
    if obstacle(found) is not None:
        # Somebody has given the table a rule since the run was planned.
        return None
    table = frame.sparkSession.read.format("delta").load(spark_location(location)).schema
    columns = {found.name: found.dataType.simpleString() for found in table}
    if columns != {found.name: found.dataType.simpleString() for found in frame.schema}:
        return None
    rows = frame.select(*(functions.col(f"`{name}`") for name in columns))
    partitions = found.metadata().partition_columns
    return parquet_aside.write_aside(rows, _folder(location, batch), partitions, options, storage=storage)


def publish_batch(location: str, batch: SinkBatch, aside: Aside, *, storage: Storage) -> None:
    """Commit what was written aside; see `StagingSink.publish_batch`."""
    from deltalake.exceptions import CommitFailedError

    failed: Exception | None = None
    for _ in range(_MOST_TRIES):
        try:
            _commit(location, batch, aside, storage)
        except CommitFailedError as exc:
            # Somebody else has committed meanwhile, maybe this very batch; or the commit is there, and only its answer
            # was lost: the log tells.
            failed = exc
        else:
            return
    if not _holds(load_table(location, storage=storage), batch):
        raise _not_committed(location, str(failed)) from failed


def _commit(location: str, batch: SinkBatch, aside: Aside, storage: Storage) -> None:
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    table = load_table(location, storage=storage)
    if _holds(table, batch):
        return
    if (rule := obstacle(table)) is not None:
        raise _not_committed(location, f"{rule}, since the batch was written")
    partitions = table.metadata().partition_columns
    added, _rows = parquet_aside.find_added(location, aside, partitions, storage=storage)
    with library_call(_NOT_PUBLISHED, location, passing=CommitFailedError, remedy=_TRY_AGAIN):
        table.create_write_transaction(
            [*added],
            "append",
            table.schema(),
            partition_by=partitions,
            commit_properties=CommitProperties(app_transactions=[Transaction(batch.query_id, batch.batch_id)]),
        )


def forget_batch(location: str, batch: SinkBatch, *, storage: Storage) -> None:
    """Delete what this driver wrote aside; see `StagingSink.forget_batch`."""
    storage.delete_folder(_folder(location, batch))


def read_versions(location: str, spark: SparkSession, versions: Sequence[int], *, storage: Storage) -> DataFrame:
    """The rows that versions of a table added; see `StagingSink.read_versions`."""
    from functools import reduce

    frames = [
        _read_files(location, spark, version, files) for version, files in _snapshots(location, versions, storage)
    ]
    if not frames:
        return spark.read.format("delta").load(spark_location(location)).limit(0)
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def read_table(location: str, spark: SparkSession, version: int) -> DataFrame:
    """A table as a version left it; see `StagingSink.read_table`."""
    return spark.read.format("delta").option("versionAsOf", version).load(spark_location(location))


def _read_files(location: str, spark: SparkSession, version: int, files: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions

    return read_table(location, spark, version).where(functions.col("_metadata.file_name").isin(*files))


def _snapshots(location: str, versions: Sequence[int], storage: Storage) -> list[tuple[int, list[str]]]:
    """The fewest versions whose snapshots have all the files that some versions added, and which files of each."""
    wanted = sorted(set(versions))
    found: list[tuple[int, list[str]]] = []
    files: dict[str, None] = {}
    log = open_log(location, storage=storage) if wanted else None
    for version in range(wanted[0], wanted[-1] + 1) if wanted else ():
        commit = read_commit(log, version, storage=storage) if log is not None else None
        if commit is None and version in wanted:
            raise _gone(location, version)
        if files and (commit is None or not files.keys().isdisjoint(commit.removed)):
            found.append((version - 1, [_file_name(path) for path in files]))
            files = {}
        if commit is not None and version in wanted:
            files |= dict.fromkeys(file.path for file in commit.files)
    return [*found, (wanted[-1], [_file_name(path) for path in files])] if files else found


def _gone(location: str, version: int) -> RefusedError:
    return RefusedError(
        Problem(
            code="OUTPUT_GONE",
            file=commit_file(location, version),
            cause=f"version {version}, which this run made, can't be read any more",
            consequence="its rows can't be checked",
            remedy="look at the table, then release the stream with `sluice quality release`",
        )
    )


def _file_name(path: str) -> str:
    return unquote(path).rpartition("/")[2]


def _holds(table: DeltaTable, batch: SinkBatch) -> bool:
    last = table.transaction_version(batch.query_id)
    return last is not None and last >= batch.batch_id


def _folder(location: str, batch: SinkBatch) -> str:
    # With the lease's token: a driver that lost its lease may still write, and must not write over this one's files.
    return join(location, f"batch-{batch.query_id}-{batch.batch_id:08d}-{batch.token}")


def _not_committed(location: str, why: str) -> StorageError:
    return StorageError(f"{_NOT_PUBLISHED}: {why.partition(chr(10))[0]}", where=location, remedy=_TRY_AGAIN)
