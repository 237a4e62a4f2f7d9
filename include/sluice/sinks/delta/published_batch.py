"""Batches of a stream that are written aside, audited, and published into a Delta table by a commit of metadata.

The commit carries the application transaction that Delta's own stream writer would leave, so that the table's log tells
which batch it holds, and a second try passes over a batch that is there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sluice.delta_log.table import (
    commit_file,
    find_table,
    last_transaction,
    open_log,
    read_commit,
    spark_columns,
    transaction_of,
)
from sluice.errors import DeclarationError, Problem, RefusedError, SluiceError, StorageError
from sluice.locations import join, spark_location
from sluice.sinks.contract import Aside, SinkBatch
from sluice.sinks.delta import new_table, parquet_aside
from sluice.sinks.delta.far_times import check_far_times
from sluice.sinks.delta.settings import setting_for_delta
from sluice.sinks.delta.table_form import changed_since, form_of
from sluice.sinks.delta.table_rules import rule_for_spark, rule_of_partitions
from sluice.sql_text import identifier
from sluice.storage import Storage
from sluice.storage_failures import library_call

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)


class _UnfitError(Exception):
    """What was written aside does not go into the table any more; says why, in words."""


_USER_METADATA = "userMetadata"

_MOST_TRIES = 5
"""How often a batch is committed anew that met a commit by others which delta-rs does not pass over: a delete."""
_CHECKPOINT_INTERVAL = 10
_INTERVAL_SETTING = "delta.checkpointInterval"
"""Spark makes a checkpoint every 10 commits where the table says nothing, and delta-rs every 100."""
_NOT_PUBLISHED, _TRY_AGAIN = "the batch could not be published", "nothing was published; try again"
_COMPACTIONS = ("delta.autoOptimize", "delta.autoOptimize.autoCompact", "delta.autoOptimize.optimizeWrite")
"""Settings by which Spark's writer makes few large files of a batch and of those before it."""


def obstacle(table: DeltaTable) -> str | None:
    """Why a batch can't be published into a table by a commit of metadata; None when it can."""
    kinds = {found.name: getattr(found.type, "type", "nested") for found in table.schema().fields}
    metadata = table.metadata()
    if (rule := rule_of_partitions(kinds, metadata.partition_columns)) is not None:
        return rule
    for setting in _COMPACTIONS:
        if metadata.configuration.get(setting, "false") != "false":
            return f"the table has `{setting}`, which only Spark heeds"
    return rule_for_spark(table)


def obstacle_of_batch(table: DeltaTable | None, frame: DataFrame, partition_by: Sequence[str]) -> str | None:
    """Why a batch can't be published; None when it can.

    Args:
        table: The table; None when the batch makes it.
        frame: The batch, or the result that it is one of.
        partition_by: What a table is partitioned by that is made.
    """
    if (setting := setting_for_delta(frame.sparkSession, is_new=table is None)) is not None:
        return f"only Spark's own writer heeds the setting `{setting}`"
    if table is None:
        return new_table.obstacle(frame.schema.json(), partition_by)
    if (rule := obstacle(table)) is not None:
        return rule
    if {found.name: found.dataType.simpleString() for found in frame.schema} != spark_columns(table):
        return "the table has other columns than the batch, which only Spark fits into it"
    return None


def write_batch_aside(
    location: str,
    frame: DataFrame,
    batch: SinkBatch,
    options: Mapping[str, str],
    partition_by: Sequence[str],
    *,
    storage: Storage,
) -> Aside | None:
    """Write a batch aside; see `StagingSink.write_batch_aside`."""
    table = find_table(location, storage=storage)
    if obstacle_of_batch(table, frame, partition_by) is not None:
        # Somebody has given the table a rule or a column since the run was planned.
        return None
    folder = _folder(location, batch)
    rows, partitions, form = frame, partition_by, None
    if table is not None:
        form = form_of(table)
        rows = frame.selectExpr(*(identifier(name) for name in form.columns))
        partitions = form.partition_by
    try:
        aside = parquet_aside.write_aside(rows, folder, partitions, options, storage=storage)
    except Exception as exc:
        if not parquet_aside.is_one_folder_for_two(exc):
            raise
        # Delta's own writer takes both for none.
        storage.delete_folder(folder)
        return None
    if table is not None:
        # As it was when the rows were fitted to it: the batch may take long, and others may make it another one.
        return replace(aside, table=form)
    return replace(aside, columns=frame.schema.json(), partition_by=tuple(partition_by))


def publish_batch(
    location: str, batch: SinkBatch, aside: Aside, options: Mapping[str, str], *, storage: Storage
) -> None:
    """Commit what was written aside; see `StagingSink.publish_batch`."""
    from deltalake.exceptions import CommitFailedError

    partitions = aside.partition_by if aside.table is None else aside.table.partition_by
    try:
        # Before the table is looked at: it takes time, in which another one may be made in its place.
        added, told = _found(location, batch, aside, partitions, options, storage=storage)
    except StorageError as exc:
        table = find_table(location, storage=storage)
        if table is not None and _holds(table, location, batch, storage):
            # Whoever published it has tidied up.
            return
        other = None if table is None or aside.table is None else changed_since(aside.table, table)
        if other is not None:
            # Its files went with the table that was there.
            raise _unfit(location, other) from exc
        raise
    failed: Exception | None = None
    for _ in range(_MOST_TRIES):
        try:
            _commit(location, batch, aside, added, told, storage=storage)
        except (DeclarationError, _UnfitError) as exc:
            forget_batch(location, batch, storage=storage)
            if isinstance(exc, _UnfitError):
                raise _unfit(location, str(exc)) from exc
            raise
        except CommitFailedError as exc:
            # Somebody else has committed meanwhile, maybe this very batch; or the commit is there, and only its answer
            # was lost: the log tells.
            failed = exc
        else:
            return
    table = find_table(location, storage=storage)
    if table is None or not _holds(table, location, batch, storage):
        raise _not_committed(location, str(failed)) from failed


def _commit(
    location: str,
    batch: SinkBatch,
    aside: Aside,
    added: Sequence[AddAction],
    told: CommitProperties,
    *,
    storage: Storage,
) -> None:
    from deltalake.exceptions import CommitFailedError

    if aside.columns is not None and open_log(location, storage=storage) is None:
        columns = json.loads(aside.columns)["fields"]
        check_far_times(added, {column["name"]: column["type"] for column in columns}, place=location)
        new_table.create(location, aside.columns, aside.partition_by, added, told, storage=storage)
        _tidy(location, aside, added, storage)
        return
    table = find_table(location, storage=storage)
    if table is None:
        raise _UnfitError("the table is gone")
    if _holds(table, location, batch, storage):
        return
    # Looked at in the very snapshot that the commit follows: a later change of columns lets the commit fail.
    if (unfit := changed_since(aside.table, table) or obstacle(table)) is not None:
        raise _UnfitError(unfit)
    partitions = table.metadata().partition_columns
    check_far_times(added, spark_columns(table), place=location)
    with library_call(_NOT_PUBLISHED, location, passing=CommitFailedError, remedy=_TRY_AGAIN):
        table.create_write_transaction(
            [*added], "append", table.schema(), partition_by=partitions, commit_properties=told
        )
    _tidy(location, aside, added, storage)
    _checkpoint(location, table)


def _found(
    location: str,
    batch: SinkBatch,
    aside: Aside,
    partitions: Sequence[str],
    options: Mapping[str, str],
    *,
    storage: Storage,
) -> tuple[Sequence[AddAction], CommitProperties]:
    """The files of a batch as a commit adds them, and what the commit tells of them."""
    from deltalake import CommitProperties

    added, rows = parquet_aside.find_added(location, aside, partitions, storage=storage)
    transaction = transaction_of(batch.query_id, batch.batch_id)
    return added, CommitProperties(custom_metadata=_told(added, rows, options), app_transactions=[transaction])


def _told(added: Sequence[AddAction], rows: int, options: Mapping[str, str]) -> dict[str, Any]:
    """What Delta's own stream writer tells of a batch in the commit.

    Without `isBlindAppend`, a `MERGE` or `DELETE` that runs beside would fail, for the batch might have read what it
    changes.
    """
    size_bytes = sum(action.size for action in added)
    metrics = {"numOutputRows": rows, "numOutputBytes": size_bytes, "numAddedFiles": len(added), "numRemovedFiles": 0}
    told = {"isBlindAppend": True, "operationMetrics": {name: str(count) for name, count in metrics.items()}}
    return told | ({_USER_METADATA: options[_USER_METADATA]} if _USER_METADATA in options else {})


def _tidy(location: str, aside: Aside, added: Sequence[AddAction], storage: Storage) -> None:
    """Leave no file that counts for nobody. The batch counts already: nothing fails for this."""
    try:
        parquet_aside.delete_empty(location, aside, added, storage=storage)
    except SluiceError:
        logger.warning("%s has files without rows, which nobody reads", aside.folder, exc_info=True)


def _checkpoint(location: str, table: DeltaTable) -> None:
    """Keep the log short for whoever reads it. The batch counts already: nothing fails for this.

    Args:
        location: Where the table is.
        table: The table as it was before the commit.
    """
    if _INTERVAL_SETTING in table.metadata().configuration:
        return
    try:
        with library_call("the checkpoint of the Delta table could not be written", location, passing=()):
            table.update_incremental()
            if table.version() % _CHECKPOINT_INTERVAL == 0:
                table.create_checkpoint()
    except SluiceError:
        logger.warning("the log of %s has no checkpoint of its newest version", location, exc_info=True)


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


def _holds(table: DeltaTable, location: str, batch: SinkBatch, storage: Storage) -> bool:
    last = last_transaction(table, location, batch.query_id, storage=storage)
    return last is not None and last >= batch.batch_id


def _folder(location: str, batch: SinkBatch) -> str:
    # With the lease's token: a driver that lost its lease may still write, and must not write over this one's files.
    return join(location, f"batch-{batch.query_id}-{batch.batch_id:08d}-{batch.token}")


def _unfit(location: str, why: str) -> StorageError:
    return _not_committed(location, f"{why}, since the batch was written")


def _not_committed(location: str, why: str) -> StorageError:
    return StorageError(f"{_NOT_PUBLISHED}: {why.partition(chr(10))[0]}", where=location, remedy=_TRY_AGAIN)
