"""A Delta table as the sink, to which batches are appended, or whose rows are all written anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sluice.declaration_checks import column_names, declares, snake_case
from sluice.declared_table import declared_place, path_or_name
from sluice.delta_log.table import (
    expired_transactions,
    find_table,
    open_log,
    read_commit,
    spark_columns,
)
from sluice.errors import DeclarationError
from sluice.interval import Interval
from sluice.locations import is_local, spark_location
from sluice.option_values import any_text, boolean, whole_number
from sluice.other_names import SINK_WORDS
from sluice.sinks.contract import (
    Aside,
    FunctionLoader,
    OutputMode,
    SinkBatch,
    SinkState,
)
from sluice.sinks.delta import nested_fields, published_batch, replacement, schema_evolution, sealing, undated
from sluice.sinks.delta.changed import ChangedDeltaSink
from sluice.sinks.delta.changes import Changes
from sluice.sinks.delta.far_times import check_rows, refusing_far_times
from sluice.sinks.delta.merged import MergedDeltaSink
from sluice.sinks.delta.schema_evolution import SchemaEvolution, check_same, check_word
from sluice.sinks.delta.table import QUERY_ID, DeltaTableSink
from sluice.sinks.replaceable import ReplaceableSink, Replaced, Replacement, SinkSnapshot
from sluice.sinks.splitting import SplittingSink
from sluice.spark_options import spark_options
from sluice.storage import Storage

if TYPE_CHECKING:
    from delta.tables import DeltaTable as SparkTable
    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_OPTIONS = {
    **dict.fromkeys(["overwriteSchema", "optimizeWrite"], boolean),
    "maxRecordsPerFile": whole_number,
    "userMetadata": any_text,
}
_HEEDED_ASIDE = frozenset({"maxRecordsPerFile", "userMetadata"})
"""Those that also count for a batch that is written aside; for any other, Spark's own writer writes."""


@dataclass(frozen=True)
class DeltaSink(DeltaTableSink, ReplaceableSink, SplittingSink):
    """Declared by `sinks.delta` without keys."""

    output_modes: ClassVar[tuple[OutputMode, ...]] = ("append", "complete")
    notes_first_batch: ClassVar[bool] = True

    def mode_remedy(self, output_mode: str) -> str:
        keys = f"; or name the keys by which rows are replaced: `sinks.delta({self.path!r}, merge_on=[...])`"
        return super().mode_remedy(output_mode) + (keys if output_mode == "update" else "")

    def _is_made_anew(self, output_mode: OutputMode) -> bool:
        """Whether every batch makes the table's columns."""
        return output_mode == "complete" and self.options.get("overwriteSchema") == "true"

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        writer = frame.writeStream.format("delta").options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        return writer.option("path", spark_location(self.path))

    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        aside = self.write_batch_aside(frame, batch, storage=storage) if self.can_rename else None
        if aside is not None:
            self.publish_batch(batch, aside, storage=storage)
            return
        table = self._lasting(batch.output_mode, storage)
        if table is not None:
            # Spark's writer would cut what the columns have no place for.
            schema_evolution.check_result(table, frame, None, place=self.path)
        self._write_by_spark(self.fitted(frame, batch.output_mode, storage=storage), batch)

    def fitted(self, frame: DataFrame, output_mode: OutputMode, *, storage: Storage) -> DataFrame:
        table = self._lasting(output_mode, storage)
        rows = frame if table is None else nested_fields.fitted(table, frame)
        return refusing_far_times(rows, self.partitions(dict(rows.dtypes), output_mode, storage=storage))

    def check_rows(self, frame: DataFrame, *, storage: Storage) -> None:
        check_rows(frame, self.partitions(dict(frame.dtypes), "append", storage=storage), place=self.path)

    def _write_by_spark(self, frame: DataFrame, batch: SinkBatch) -> None:
        mode = "overwrite" if batch.output_mode == "complete" else "append"
        # Whatever the session says: all rows are replaced, also those of partitions that have none any more.
        writer = self._batch_writer(frame, mode).options(**self.options).option("partitionOverwriteMode", "static")
        # The transaction that Delta's own stream writer leaves: a batch is known by it, whoever wrote it.
        writer.option("txnAppId", batch.query_id).option("txnVersion", batch.batch_id).save(spark_location(self.path))

    @property
    def can_rename(self) -> bool:
        return is_local(self.path)

    def aside_obstacle(
        self,
        output_mode: OutputMode,
        frame: DataFrame | None = None,
        *,
        state: SinkState | None = None,
        storage: Storage,
    ) -> str | None:
        if (declared := self._declared_obstacle(output_mode)) is not None:
            return declared
        opened = cast("DeltaTable | None", state.opened) if state is not None else None
        table = opened if opened is not None else find_table(self.path, storage=storage)
        if frame is not None:
            return published_batch.obstacle_of_batch(table, frame, self.partition_by)
        return published_batch.obstacle(table) if table is not None else None

    def _declared_obstacle(self, output_mode: OutputMode) -> str | None:
        if output_mode != "append":
            return f"in output mode `{output_mode}` a batch replaces all rows"
        meant = sorted(self.options.keys() - _HEEDED_ASIDE)
        return f"only Spark's own writer heeds the option `{meant[0]}`" if meant else None

    def write_batch_aside(self, frame: DataFrame, batch: SinkBatch, *, storage: Storage) -> Aside | None:
        if self._declared_obstacle(batch.output_mode) is not None:
            return None
        return published_batch.write_batch_aside(
            self.path, frame, batch, self.options, self.partition_by, storage=storage
        )

    def publish_batch(self, batch: SinkBatch, aside: Aside, *, storage: Storage) -> None:
        published_batch.publish_batch(self.path, batch, aside, self.options, storage=storage)

    def forget_batch(self, batch: SinkBatch, *, storage: Storage) -> None:
        published_batch.forget_batch(self.path, batch, storage=storage)

    def check_same(self, frame: DataFrame, *, otherwise: str, storage: Storage) -> None:
        table = find_table(self.path, storage=storage)
        if table is not None:
            check_same(table, frame, self.schema_evolution, place=self.path, otherwise=otherwise)

    def let_follow(self, frame: DataFrame, *, storage: Storage) -> None:
        if self.schema_evolution is not None:
            schema_evolution.evolve(self.path, frame, storage=storage)

    @classmethod
    def at(cls, location: str, partition_by: Sequence[str] = (), options: Mapping[str, str] = {}) -> DeltaSink:
        return cls(location, tuple(partition_by), options)

    def beside(self, ending: str) -> DeltaSink:
        return DeltaSink(f"{self.path.rstrip('/')}{ending}", (), schema_evolution=self.schema_evolution)

    @property
    def writer_options(self) -> Mapping[str, str]:
        return self.options

    def columns(self, *, storage: Storage) -> Mapping[str, str] | None:
        table = find_table(self.path, storage=storage)
        return None if table is None else spark_columns(table)

    def add_column(self, spark: SparkSession, name: str, kind: str, *, storage: Storage) -> None:
        added = self.read_versions(spark, [], storage=storage).selectExpr("*", f"CAST(NULL AS {kind}) AS {name}")
        writer = added.write.format("delta").mode("append").option("mergeSchema", value=True)
        writer.save(spark_location(self.path))

    def update_rows(self, spark: SparkSession, condition: Column, values: Mapping[str, Column]) -> None:
        # Delta's stub has no mapping that may be of columns.
        self._opened(spark).update(condition, {**values})

    def delete_rows(self, spark: SparkSession, condition: Column) -> None:
        self._opened(spark).delete(condition)

    def _opened(self, spark: SparkSession) -> SparkTable:
        from delta.tables import DeltaTable

        return DeltaTable.forPath(spark, spark_location(self.path))

    def seal(
        self,
        application: str,
        number: int,
        session: Callable[[], SparkSession],
        *,
        after: int | None,
        storage: Storage,
    ) -> bool:
        return sealing.seal(self.path, application, number, session, after=after, storage=storage)

    def replace_where(self, frame: DataFrame, condition: str, *, application: str, version: int) -> None:
        writer = self._batch_writer(frame, "overwrite").options(**self.options)
        writer = writer.option("replaceWhere", condition).option("partitionOverwriteMode", "static")
        writer = writer.option("txnAppId", application)
        writer.option("txnVersion", version).save(spark_location(self.path))

    def read_versions(self, spark: SparkSession, versions: Sequence[int], *, storage: Storage) -> DataFrame:
        return published_batch.read_versions(self.path, spark, versions, storage=storage)

    def snapshot(self, column: str, query_id: str, *, storage: Storage) -> SinkSnapshot | None:
        return replacement.snapshot(self.path, column, query_id, storage=storage)

    def may_have_rows(self, version: int, column: str, interval: Interval, *, storage: Storage) -> bool:
        return replacement.may_have_rows(self.path, version, column, interval, storage=storage)

    def undated_rows(self, frame: DataFrame, wanted: Replacement, *, storage: Storage) -> int:
        return undated.undated_rows(self.path, frame, wanted, storage=storage)

    def other_query(self, own: Collection[str], since_ms: int, *, storage: Storage) -> str | None:
        log = open_log(self.path, storage=storage)
        if log is None:
            return None
        for version in reversed(log.versions):
            commit = read_commit(log, version, storage=storage)
            if commit is not None and commit.timestamp_ms is not None and commit.timestamp_ms < since_ms:
                return None
            for writer in commit.transactions if commit is not None else ():
                if writer not in own and QUERY_ID.fullmatch(writer):
                    return writer
        # The commits of that time are gone: those that are there are younger.
        expired = expired_transactions(log, storage=storage)
        since = (found.application for found in expired if found.time_ms is not None and found.time_ms >= since_ms)
        return next((writer for writer in since if writer not in own and QUERY_ID.fullmatch(writer)), None)

    def write_aside(self, frame: DataFrame, wanted: Replacement, *, storage: Storage) -> Aside:
        return replacement.write_aside(self.path, frame, wanted, storage=storage)

    def publish(self, wanted: Replacement, aside: Aside, *, storage: Storage) -> Replaced | None:
        return replacement.publish(self.path, wanted, aside, storage=storage)

    def interval_rows(self, frame: DataFrame, wanted: Replacement) -> DataFrame:
        return replacement.interval_rows(self.path, frame, wanted)

    def replace_rows(self, rows: DataFrame, wanted: Replacement) -> None:
        replacement.replace_rows(self.path, rows, wanted)

    def tells_since(self, version: int, *, storage: Storage) -> bool:
        log = open_log(self.path, storage=storage)
        return log is None or log.first_kept <= version + 1

    def find_replacement(self, application: str, since: int, *, storage: Storage) -> Replaced | None:
        return replacement.find_replacement(self.path, application, since, storage=storage)


@declares("sinks.delta()", SINK_WORDS)
def delta(
    path: str | None = None,
    *,
    partition_by: str | Sequence[str] = (),
    merge_on: str | Sequence[str] | None = None,
    changes: Changes | None = None,
    schema_evolution: SchemaEvolution | None = None,
    table: str | None = None,
    **options: Any,
) -> DeltaSink | MergedDeltaSink | ChangedDeltaSink:
    """Declare a Delta table as the sink.

    Args:
        path: The table's folder; relative to the project, absolute, or a URL.
        partition_by: The partition columns, or the one that there is.
        merge_on: The key columns, or the one that there is: a row of a batch replaces the one in the table that has its
            keys, and is added where none has them. In output mode `complete`, a row that no batch has any more is
            deleted.
        changes: By `sinks.changes`: each row of the result is a change, which is applied to the table.
        schema_evolution: `add` lets the table follow the result: it gets new columns, wider types where it has Delta's
            feature for them, and nulls for columns that the result has no longer. Else such a result is refused.
        table: In place of a path, the table's name in a catalog of Spark's: `table`, `database.table` or
            `catalog.database.table`. Where it is, `[tables]` of `sluice.toml` says, or `spark.sql.warehouse.dir`. A
            catalog that lasts gets the table with the first batch that is published.
        options: Further options of Delta's streaming writer, in snake_case.

    Raises:
        DeclarationError: An option is unknown or its value is not what it must be.
    """
    place = declared_place("sinks.delta", path, table)
    known = spark_options(
        options,
        _OPTIONS,
        place=place,
        ours=("table", "partition_by", "merge_on", "changes", "schema_evolution"),
        words=SINK_WORDS,
    )
    where, name = path_or_name(path, table, place)
    evolution = check_word(schema_evolution, place)
    partitions = column_names(partition_by, "partition_by", place)
    if changes is not None:
        checked = _checked(changes, merge_on, partitions, known, place)
        return ChangedDeltaSink(where, partitions, changes=checked, table=name, schema_evolution=evolution)
    if merge_on is None:
        return DeltaSink(where, partitions, known, table=name, schema_evolution=evolution)
    keys = column_names(merge_on, "merge_on", place)
    if not keys:
        raise DeclarationError("`merge_on` names no column", where=place, remedy="name the columns that tell a row")
    if known:
        raise DeclarationError(
            f"option `{snake_case(min(known))}` is of Delta's writer, and with `merge_on` batches are merged",
            where=place,
            remedy="leave it out: a property of the table, or a setting in `Stream(conf=...)`, may say the same",
        )
    return MergedDeltaSink(where, partitions, keys=keys, table=name, schema_evolution=evolution)


def _checked(
    changes: object, merge_on: object, partition_by: Sequence[str], options: Mapping[str, str], place: str
) -> Changes:
    """What is given as changes, if it is that and goes with the rest.

    Raises:
        DeclarationError: It is not, or does not.
    """
    if not isinstance(changes, Changes):
        raise DeclarationError(
            "`changes` is not what `sinks.changes` gives",
            where=place,
            remedy='write it as `changes=sinks.changes(keys=["id"], sequence_by="ts")`',
        )
    if merge_on is not None:
        raise DeclarationError(
            "`merge_on` and `changes` are both set",
            where=place,
            remedy="leave `merge_on` out: `sinks.changes(keys=...)` names the keys",
        )
    if (gone := next((name for name in partition_by if name in changes.except_columns), None)) is not None:
        raise DeclarationError(
            f"`partition_by` names `{gone}`, which the table does not have by `except_columns`",
            where=place,
            remedy="leave it out of one of them",
        )
    if options:
        raise DeclarationError(
            f"option `{snake_case(min(options))}` is of Delta's writer, and with `changes` batches are merged",
            where=place,
            remedy="leave it out: properties of the table say how it is written",
        )
    return changes
