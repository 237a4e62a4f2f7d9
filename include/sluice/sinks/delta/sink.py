"""A Delta table as the sink.

Every batch is one commit that carries the query id and the batch id as an application transaction; Delta skips a
batch that the table holds already. So a batch runs twice without doubling rows, and the table's own log tells,
without a JVM, which batch it holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sluice.declaring import check_path, declares, partition_columns
from sluice.delta_table import (
    Commit,
    expired_transactions,
    find_table,
    last_transaction,
    open_log,
    open_table,
    read_commit,
    refuse_other,
    transactions,
)
from sluice.interval import Interval
from sluice.locations import is_local, spark_location
from sluice.option_values import any_text, boolean, whole_number
from sluice.other_names import SINK_WORDS
from sluice.paths import resolve_path
from sluice.sinks.contract import (
    Aside,
    BatchOutcome,
    FunctionLoader,
    OutputMode,
    SinkBatch,
    SinkState,
    SplittingSink,
    Unknown,
)
from sluice.sinks.delta import forgotten, implicit_casts, published_batch, replacement, sealing
from sluice.sinks.delta.declared_columns import check_partitions, interval_kind
from sluice.sinks.replaceable import ReplaceableSink, Replaced, Replacement, SinkSnapshot
from sluice.spark_options import spark_options
from sluice.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_QUERY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Spark's id of a query; other writers that name their transactions choose names of their own."""
_OPTIONS = {
    **dict.fromkeys(["mergeSchema", "overwriteSchema", "optimizeWrite"], boolean),
    "maxRecordsPerFile": whole_number,
    "userMetadata": any_text,
}


@dataclass(frozen=True)
class DeltaSink(ReplaceableSink, SplittingSink):
    """Declared by `sinks.delta`."""

    kind: ClassVar[str] = "delta"
    output_modes: ClassVar[tuple[OutputMode, ...]] = ("append", "complete")
    is_idempotent: ClassVar[bool] = True

    path: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def needs_jars(self) -> bool:
        return True

    @property
    def location(self) -> str:
        return self.path

    def resolved(self, project_root: str) -> DeltaSink:
        return replace(self, path=resolve_path(self.path, project_root, place=f"sinks.delta({self.path!r})"))

    def state(self, query_id: str | None, *, storage: Storage) -> SinkState:
        opened = open_table(self.path, storage=storage)
        if opened is None:
            if query_id is None:
                # Once the query has its id, files without a log are what its first batch left when it was killed.
                refuse_other(self.path, storage)
            return SinkState(exists=False)
        log, table = opened
        forgetful = forgotten.forgetful(self.path, log.configuration)
        found = SinkState(exists=True, identity=log.table_id, version=log.latest, forgetful=forgetful, opened=table)
        if not query_id:
            return found
        last = last_transaction(table, self.path, query_id, storage=storage)
        if last is None or table.transaction_version(query_id) == last:
            return replace(found, last_batch=last)
        return replace(found, last_batch=last, forgotten=forgotten.expired(self.path, last))

    def why_unknown(
        self, application: str | None, version: int, since_ms: int | None, *, storage: Storage
    ) -> Unknown | None:
        why = forgotten.why_unknown(self.path, application, version, since_ms, storage=storage)
        return None if why is None else Unknown(why, forgotten.remedy(application, version))

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.partition_by

    def check_table(
        self,
        output_mode: OutputMode,
        interval_column: str | None,
        conf: Mapping[str, str],
        *,
        place: str,
        storage: Storage,
    ) -> None:
        is_asked = bool(self.partition_by) or interval_column is not None
        table = find_table(self.path, storage=storage) if is_asked and not self._is_made_anew(output_mode) else None
        if table is None:
            return
        where = f"{place}, {self.path}"
        if self.partition_by:
            check_partitions(table, self.partition_by, place=where)
        if interval_column is not None:
            may_come = "true" in {self.options.get("mergeSchema"), conf.get(implicit_casts.AUTO_MERGE, "").lower()}
            interval_kind(table, interval_column, place=where, may_come=may_come)

    def _is_made_anew(self, output_mode: OutputMode) -> bool:
        """Whether every batch makes the table's columns."""
        return output_mode == "complete" and self.options.get("overwriteSchema") == "true"

    def check_result(self, frame: DataFrame, output_mode: OutputMode, *, place: str, storage: Storage) -> None:
        table = None if self._is_made_anew(output_mode) else find_table(self.path, storage=storage)
        if table is not None:
            implicit_casts.check_result(table, frame, self.options, place=f"{place}, {self.path}")

    def streaming_queries(self, *, storage: Storage) -> Iterator[str]:
        log = open_log(self.path, storage=storage)
        # The newest first: where a stream writes, nearly every commit is one of its batches.
        noted = transactions(log, storage=storage) if log is not None else iter(())
        yield from (found.application for found in noted if _QUERY_ID.fullmatch(found.application))

    def outcome(self, query_id: str, batch_id: int, *, storage: Storage) -> BatchOutcome | None:
        log = open_log(self.path, storage=storage)
        if log is None:
            return None
        for version in reversed(log.versions):
            commit = read_commit(log, version, storage=storage)
            held = commit.transactions.get(query_id) if commit else None
            if commit is not None and held == batch_id:
                return BatchOutcome(_output_rows(commit), version)
            if held is not None and held < batch_id:
                return None
        return None

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        writer = frame.writeStream.format("delta").options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        return writer.option("path", spark_location(self.path))

    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        aside = self.write_batch_aside(frame, batch, storage=storage) if self.can_rename else None
        if aside is None:
            table = None if self._is_made_anew(batch.output_mode) else find_table(self.path, storage=storage)
            fitting = frame if table is None else implicit_casts.with_types_of(table, frame, self.options)
            self._write_by_spark(fitting, batch)
        else:
            self.publish_batch(batch, aside, storage=storage)

    def _write_by_spark(self, frame: DataFrame, batch: SinkBatch) -> None:
        mode = "overwrite" if batch.output_mode == "complete" else "append"
        writer = frame.write.format("delta").mode(mode).options(**self.options)
        # Whatever the session says: all rows are replaced, also those of partitions that have none any more.
        writer = writer.option("partitionOverwriteMode", "static")
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
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
        meant = sorted(self.options.keys() - published_batch.HEEDED_OPTIONS)
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

    @property
    def takes_new_columns(self) -> bool:
        return self.options.get("mergeSchema") == "true"

    def beside(self, ending: str) -> DeltaSink:
        return DeltaSink(f"{self.path.rstrip('/')}{ending}", ())

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
        writer = frame.write.format("delta").mode("overwrite").options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer = writer.option("replaceWhere", condition).option("partitionOverwriteMode", "static")
        writer = writer.option("txnAppId", application)
        writer.option("txnVersion", version).save(spark_location(self.path))

    def read_versions(self, spark: SparkSession, versions: Sequence[int], *, storage: Storage) -> DataFrame:
        return published_batch.read_versions(self.path, spark, versions, storage=storage)

    def read_table(self, spark: SparkSession, version: int) -> DataFrame:
        return published_batch.read_table(self.path, spark, version)

    def snapshot(self, column: str, query_id: str, *, storage: Storage) -> SinkSnapshot | None:
        return replacement.snapshot(self.path, column, query_id, storage=storage)

    def may_have_rows(self, version: int, column: str, interval: Interval, *, storage: Storage) -> bool:
        return replacement.may_have_rows(self.path, version, column, interval, storage=storage)

    def other_query(self, own: Collection[str], since_ms: int, *, storage: Storage) -> str | None:
        log = open_log(self.path, storage=storage)
        if log is None:
            return None
        for version in reversed(log.versions):
            commit = read_commit(log, version, storage=storage)
            if commit is not None and commit.timestamp_ms is not None and commit.timestamp_ms < since_ms:
                return None
            for writer in commit.transactions if commit is not None else ():
                if writer not in own and _QUERY_ID.fullmatch(writer):
                    return writer
        # The commits of that time are gone: those that are there are younger.
        expired = expired_transactions(log, storage=storage)
        since = (found.application for found in expired if found.time_ms is not None and found.time_ms >= since_ms)
        return next((writer for writer in since if writer not in own and _QUERY_ID.fullmatch(writer)), None)

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
def delta(path: str, *, partition_by: str | Sequence[str] = (), **options: Any) -> DeltaSink:
    """Declare a Delta table as the sink.

    Args:
        path: The table's folder; relative to the project, absolute, or a URL.
        partition_by: The partition columns, or the one that there is.
        options: Further options of Delta's streaming writer, in snake_case.

    Raises:
        DeclarationError: An option is unknown or its value is not what it must be.
    """
    place = f"sinks.delta({path!r})"
    check_path(path, place)
    known = spark_options(options, _OPTIONS, place=place, ours=("partition_by",), words=SINK_WORDS)
    return DeltaSink(path, partition_columns(partition_by, place), known)


def _output_rows(commit: Commit) -> int | None:
    rows = commit.metrics.get("numOutputRows")
    if isinstance(rows, str | int) and str(rows).isdigit():
        return int(rows)
    # A commit of metadata has no metrics of a write; its files say how many rows they have.
    counts = [file.rows for file in commit.files]
    return None if None in counts else sum(count for count in counts if count is not None)
