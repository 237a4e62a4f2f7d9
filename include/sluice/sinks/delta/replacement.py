"""Replaces the rows of an interval in a Delta table, beside whoever appends to it.

Spark writes the new rows aside, under the table's folder and under new names; one commit of metadata then removes the
interval's files *of version V* and adds the new ones. What was committed after V stays. Delta does not notice when one
of the replaced files was rewritten meanwhile (a compaction): its rows would be there twice. So the log is looked at
before the commit, and again after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from sluice.amounts import known_sum
from sluice.delta_log.table import (
    Commit,
    DeltaLog,
    find_table,
    last_transaction,
    load_table,
    open_log,
    read_commit,
    spark_columns,
    transaction_of,
)
from sluice.delta_log.types import column_paths
from sluice.errors import DeclarationError
from sluice.interval import Interval
from sluice.locations import join, spark_location
from sluice.sinks.contract import Aside
from sluice.sinks.delta import parquet_aside
from sluice.sinks.delta.declared_columns import interval_kind
from sluice.sinks.delta.far_times import check_far_times
from sluice.sinks.delta.implicit_casts import columns_of
from sluice.sinks.delta.nested_fields import fitted_to
from sluice.sinks.delta.table_form import changed_since, form_of
from sluice.sinks.delta.table_rules import rule_for_spark
from sluice.sinks.delta.taken_back import taken_back_since
from sluice.sinks.replaceable import RETURN_PREFIX, Replaced, Replacement, SinkSnapshot
from sluice.sql_text import identifier
from sluice.storage import Storage
from sluice.storage_failures import library_call
from sluice.times import epoch_micros
from sluice.typed_json import decode_as

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_DAY_MICROS = 86_400_000_000


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a replacement writes into its commit, for its own retries and for other backfills."""

    application: str
    attempt: int
    read_version: int
    start: datetime
    end: datetime
    is_alone: bool = False
    """Whether Spark replaced the rows by itself, from the version just before."""
    rows_replaced: int | None = None
    rows_written: int | None = None


class _Noted(msgspec.Struct, frozen=True):
    sluice_backfill: _Note


def snapshot(location: str, column: str, query_id: str, *, storage: Storage) -> SinkSnapshot | None:
    """The newest version of a table, as a backfill needs it; see `ReplaceableSink.snapshot`."""
    table = find_table(location, storage=storage)
    if table is None:
        return None
    metadata = table.metadata()
    if metadata.configuration.get("delta.appendOnly") == "true":
        raise DeclarationError(
            "the table takes no replacement: it is declared `delta.appendOnly`",
            where=location,
            remedy="unset that property of the table, if its rows may be replaced",
        )
    kind = interval_kind(table, column, place=location) or ""
    return SinkSnapshot(
        version=table.version(),
        identity=str(metadata.id),
        last_batch=last_transaction(table, location, query_id, storage=storage),
        column_kind=kind,
        obstacle=_obstacle(table, column, kind),
    )


def may_have_rows(location: str, version: int, column: str, interval: Interval, *, storage: Storage) -> bool:
    """Whether any file may have rows, by its partition or its statistics; see `ReplaceableSink.may_have_rows`."""
    import pyarrow as pa

    table = load_table(location, storage=storage, version=version)
    actions = pa.table(table.get_add_actions(flatten=True))
    names = (
        [f"partition.{column}"] * 2
        if column in table.metadata().partition_columns
        else [f"min.{column}", f"max.{column}"]
    )
    if not actions.num_rows or not set(names) <= set(actions.column_names):
        return bool(actions.num_rows)
    least, most = (_micros(actions.column(name)) for name in names)
    start, end = epoch_micros(interval.start), epoch_micros(interval.end)
    return any(
        low is None or high is None or (high >= start and low < end) for low, high in zip(least, most, strict=True)
    )


def _micros(times: pa.ChunkedArray) -> list[int | None]:
    """Days or times in microseconds since the epoch, in UTC: Python has no years beyond 9999, and none before 1."""
    import pyarrow as pa

    if pa.types.is_date32(times.type):
        return [None if day is None else day * _DAY_MICROS for day in times.cast(pa.int32()).to_pylist()]
    zone = times.type.tz
    return times.cast(pa.timestamp("us", zone)).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _obstacle(table: DeltaTable, column: str, kind: str) -> str | None:
    import pyarrow as pa

    if column not in table.metadata().partition_columns or kind != "date":
        return f"the table is not partitioned by `{column}` as a date"
    paths = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
    if not all(map(str.isascii, paths)):
        # What delta-rs removes, it spells with escapes, and Delta takes that for other files: all would be there twice.
        return "only Spark spells the names of the table's files as its log has them"
    return rule_for_spark(table)


def write_aside(location: str, frame: DataFrame, wanted: Replacement, *, storage: Storage) -> Aside:
    """Write the interval's rows aside; see `ReplaceableSink.write_aside`."""
    rows = interval_rows(location, frame, wanted)
    form = form_of(load_table(location, storage=storage, version=wanted.version))
    aside = parquet_aside.write_aside(rows, _folder(location, wanted), form.partition_by, storage=storage)
    return replace(aside, table=form)


def replace_rows(location: str, rows: DataFrame, wanted: Replacement) -> None:
    """Let Spark replace the interval's rows; see `ReplaceableSink.replace_rows`."""
    writer = rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "static")
    writer = writer.option("replaceWhere", wanted.interval.condition(wanted.column, _kind(rows, wanted.column)))
    # The application's transaction: a retry that comes to this point twice is skipped by Delta itself.
    writer = writer.option("txnAppId", wanted.application).option("txnVersion", wanted.number)
    writer.option("userMetadata", _note(wanted, is_alone=True)).save(spark_location(location))


def interval_rows(location: str, frame: DataFrame, wanted: Replacement) -> DataFrame:
    """The interval's rows with the table's columns, in its order; see `ReplaceableSink.interval_rows`."""
    reader = frame.sparkSession.read.format("delta").option("versionAsOf", wanted.version)
    there = reader.load(spark_location(location))
    if _paths(there) == _paths(frame):
        # As a live run does: by name, where every value is the same.
        frame = fitted_to({found["name"].lower(): found["type"] for found in columns_of(there)["fields"]}, frame)
    table = {found.name: found.dataType.simpleString() for found in there.schema}
    result = {found.name: found.dataType.simpleString() for found in frame.schema}
    if table != result:
        differing = sorted(name for name in table.keys() | result.keys() if table.get(name) != result.get(name))
        told = ", ".join(f"`{name}` ({table.get(name, 'none')} / {result.get(name, 'none')})" for name in differing)
        raise DeclarationError(
            f"the transform's columns are not the table's; they differ in (table / result): {told}",
            where=location,
            remedy=_remedy(table.keys(), result.keys()),
        )
    rows = frame.where(wanted.interval.condition(wanted.column, _kind(frame, wanted.column)))
    return rows.selectExpr(*(identifier(name) for name in table))


def _remedy(table: AbstractSet[str], result: AbstractSet[str]) -> str:
    """What to do where the columns of a result are not those of a table; of the same names, types differ."""
    if table == result:
        return "cast in the transform what has another type, and give every field of the table, as a null if need be"
    if table > result:
        return "let the transform give every column of the table, those that the table generates, too"
    return (
        "give the table the new columns first (ALTER TABLE, or a run of the live stream that reads something,"
        ' with `schema_evolution="add"`), or correct the transform'
    )


def _paths(frame: DataFrame) -> set[str]:
    """The columns, and the fields within them."""
    return {path for path, _ in column_paths(columns_of(frame))}


def _kind(frame: DataFrame, column: str) -> str:
    return str(frame.schema[column].dataType.simpleString())


def publish(location: str, wanted: Replacement, aside: Aside, *, storage: Storage) -> Replaced | None:
    """Replace the interval's files of a version by those written aside; see `ReplaceableSink.publish`."""
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    log = open_log(location, storage=storage)
    if log is None:
        return None
    table = load_table(location, storage=storage, version=wanted.version)
    if changed_since(aside.table, table) is not None:
        # Another table may have a version of that number, too.
        return None
    files = _files_of_interval(table, wanted)
    since = range(wanted.version + 1, log.latest + 1)
    if _is_sealed(log, since, wanted, storage):
        return None
    if _conflict(log, since, set(files), wanted.interval, storage) is not None:
        return None
    partitions = table.metadata().partition_columns
    added, rows_written = parquet_aside.find_added(location, aside, partitions, storage=storage)
    # To measure the files takes time, in which another table may be made in the place of this one.
    table = load_table(location, storage=storage, version=wanted.version)
    if changed_since(aside.table, table) is not None:
        return None
    check_far_times(added, spark_columns(table), place=location)
    rows_replaced = known_sum(files.values())
    note = _note(wanted, rows_replaced=rows_replaced, rows_written=rows_written)
    start, end = (moment.astimezone(UTC).date().isoformat() for moment in (wanted.interval.start, wanted.interval.end))
    failed = "the replacement could not be committed"
    # Where the commit fails, somebody else replaced these rows; or it is there, and only its answer was lost: the log
    # tells.
    with (
        suppress(CommitFailedError),
        library_call(failed, location, passing=CommitFailedError, remedy="nothing was replaced; try again"),
    ):
        table.create_write_transaction(
            [*added],
            "overwrite",
            table.schema(),
            partition_by=partitions,
            partition_filters=[(wanted.column, ">=", start), (wanted.column, "<", end)],
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": note},
                app_transactions=[transaction_of(wanted.application, wanted.number)],
            ),
        )
    found = find_replacement(location, wanted.application, wanted.version, storage=storage)
    return found if found is not None and found.attempt == wanted.attempt else None


def find_replacement(location: str, application: str, since: int, *, storage: Storage) -> Replaced | None:
    """Look a backfill's newest replacement up in the log; see `ReplaceableSink.find_replacement`."""
    log = open_log(location, storage=storage)
    if log is None:
        return None
    later: dict[str, None] = {}
    for version in reversed([version for version in log.versions if version > since]):
        commit = read_commit(log, version, storage=storage)
        note = _noted(commit)
        if commit is None or note is None:
            continue
        if taken_back_since(location, version, is_pending=True, storage=storage) is not None:
            # Somebody has restored the table to before it: the rows are those of then.
            continue
        if note.application != application:
            later[note.application] = None
            continue
        between = range(note.read_version + 1, version)
        if note.is_alone:
            conflict = _change(log, between, storage)
        else:
            files = set(map(unquote, commit.removed))
            conflict = _conflict(log, between, files, Interval(note.start, note.end), storage)
        metrics = commit.metrics if note.is_alone else {}
        return Replaced(
            version=version,
            read_version=note.read_version,
            attempt=note.attempt,
            rows_replaced=_count(metrics.get("numDeletedRows")) if note.is_alone else note.rows_replaced,
            rows_written=_written_by_spark(metrics) if note.is_alone else note.rows_written,
            conflict=conflict,
            later=tuple(later),
        )
    return None


def _is_sealed(log: DeltaLog, versions: Iterable[int], wanted: Replacement, storage: Storage) -> bool:
    """Whether somebody has taken a backfill for dead that is about to replace rows; see `SplittingSink.seal`."""
    commits = (read_commit(log, version, storage=storage) for version in versions)
    return any(
        commit is not None and commit.transactions.get(wanted.application, wanted.number) > wanted.number
        for commit in commits
    )


def _conflict(
    log: DeltaLog, versions: Iterable[int], files: set[str], interval: Interval, storage: Storage
) -> str | None:
    """What the versions did to rows that a replacement takes for its own; None when nothing."""
    there = set(log.versions)
    for version in versions:
        commit = read_commit(log, version, storage=storage) if version in there else None
        if commit is None:
            return f"version {version} can't be read any more"
        if not files.isdisjoint(map(unquote, commit.removed)):
            return f"version {version} ({commit.operation}) rewrote or removed files of the interval"
        note = _noted(commit)
        if note is not None and interval.overlaps(Interval(note.start, note.end)):
            return f"version {version} is a backfill of rows of the same interval"
        if any(writer.startswith(RETURN_PREFIX) for writer in commit.transactions):
            return f"version {version} is a release of quarantined rows"
    return None


def _change(log: DeltaLog, versions: Iterable[int], storage: Storage) -> str | None:
    """What the versions did to the rows that Spark replaces in whatever version is the newest; None when nothing.

    The lease keeps others from writing, but a driver that lost it may be at work still.
    """
    for version in versions:
        commit = read_commit(log, version, storage=storage)
        if commit is None:
            return f"version {version} can't be read any more"
        if commit.files or commit.removes_data:
            return f"version {version} ({commit.operation}) changed rows in spite of the lease"
    return None


def _files_of_interval(table: DeltaTable, wanted: Replacement) -> dict[str, int | None]:
    """The interval's files with their rows, by decoded path."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    rows = actions.column("num_records").to_pylist() if "num_records" in actions.column_names else None
    start, end = epoch_micros(wanted.interval.start), epoch_micros(wanted.interval.end)
    found: dict[str, int | None] = {}
    days = _micros(actions.column(f"partition.{wanted.column}"))
    for index, (path, day) in enumerate(zip(actions.column("path").to_pylist(), days, strict=True)):
        if day is not None and start <= day < end:
            found[unquote(path)] = None if rows is None else rows[index]
    return found


def _folder(location: str, wanted: Replacement) -> str:
    return join(location, f"{wanted.application}-{wanted.attempt}")


def _note(wanted: Replacement, **found: Any) -> str:
    note = _Note(
        application=wanted.application,
        attempt=wanted.attempt,
        read_version=wanted.version,
        start=wanted.interval.start,
        end=wanted.interval.end,
        **found,
    )
    return msgspec.json.encode(_Noted(note)).decode()


def _noted(commit: Commit | None) -> _Note | None:
    if commit is None or commit.user_metadata is None:
        return None
    try:
        return decode_as(commit.user_metadata, _Noted).sluice_backfill
    except (msgspec.DecodeError, RecursionError):
        return None


def _written_by_spark(metrics: Mapping[str, Any]) -> int | None:
    """The rows of a `replaceWhere`, without those beside the interval that Spark only copied."""
    written, copied = _count(metrics.get("numOutputRows")), _count(metrics.get("numCopiedRows", 0))
    return None if written is None or copied is None else written - copied


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, str | int) and str(value).isdigit() else None
