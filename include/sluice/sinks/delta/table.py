"""A Delta table that batches are written into, however: what its own log tells of them, without a JVM.

Every batch is one commit that carries the query id and the batch id as an application transaction; Delta skips a
batch that the table holds already. So a batch runs twice without doubling rows, and the table's own log tells which
batch it holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from sluice.amounts import known_sum
from sluice.declared_table import DeclaredTable
from sluice.delta_log.digest import version_digest
from sluice.delta_log.table import (
    Commit,
    find_table,
    last_transaction,
    open_log,
    open_table,
    read_commit,
    refuse_other,
    spark_columns,
    transactions,
)
from sluice.errors import Problem, SluiceError
from sluice.locations import spark_location
from sluice.sinks.contract import (
    BatchOutcome,
    BatchSink,
    OutputMode,
    ReadableSink,
    SinkState,
    SinkUse,
    Unknown,
)
from sluice.sinks.delta import forgotten, published_batch, schema_evolution
from sluice.sinks.delta.declared_columns import check_alike, check_partitions, interval_kind
from sluice.sinks.delta.far_times import far_time_told
from sluice.sinks.delta.read_back import ReadBackDeltaTable
from sluice.sinks.delta.refused_columns import check_new
from sluice.sinks.delta.schema_evolution import SchemaEvolution
from sluice.sinks.delta.taken_back import is_restored, taken_back_since
from sluice.sinks.keyed import KeyedSink
from sluice.sinks.replaceable import ReplaceableSink
from sluice.storage import Storage
from sluice.surroundings import Surroundings

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

QUERY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Spark's id of a query; other writers that name their transactions choose names of their own."""


@dataclass(frozen=True)
class DeltaTableSink(DeclaredTable, BatchSink, ReadableSink, ReadBackDeltaTable):
    """Base of the ways to write a Delta table."""

    kind: ClassVar[str] = "delta"
    is_idempotent: ClassVar[bool] = True
    needs_delta: ClassVar[bool] = True
    declared_by: ClassVar[str] = "sinks.delta"

    partition_by: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    schema_evolution: SchemaEvolution | None = field(default=None, kw_only=True)

    @property
    def location(self) -> str:
        return self.path

    def resolved(self, around: Surroundings) -> Self:
        return self.located(around)

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

    def taken_back_since(self, version: int, *, is_pending: bool, storage: Storage) -> Problem | None:
        can_backfill = isinstance(self, ReplaceableSink)
        return taken_back_since(self.path, version, is_pending=is_pending, can_backfill=can_backfill, storage=storage)

    def is_restored(self, *, storage: Storage) -> bool:
        return is_restored(self.path, storage=storage)

    def version_digest(self, version: int, *, storage: Storage) -> str | None:
        return version_digest(self.path, version, storage=storage)

    def why_unknown(
        self, application: str | None, version: int, since_ms: int | None, *, storage: Storage
    ) -> Unknown | None:
        why = forgotten.why_unknown(self.path, application, version, since_ms, storage=storage)
        return None if why is None else Unknown(why, forgotten.remedy(application, version))

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.partition_by

    def partitions(self, kinds: Mapping[str, str], output_mode: OutputMode, *, storage: Storage) -> Mapping[str, str]:
        table = self._lasting(output_mode, storage)
        if table is None:
            return super().partitions(kinds, output_mode, storage=storage)
        there = spark_columns(table)
        return {name: there[name] for name in table.metadata().partition_columns}

    def check_table(self, use: SinkUse) -> None:
        is_asked = bool(self.partition_by) or use.interval_column is not None
        table = self._lasting(use.output_mode, use.storage) if is_asked else None
        if table is None:
            return
        where = f"{use.place}, {self.path}"
        if self.partition_by:
            check_partitions(table, self.partition_by, place=where)
        if use.interval_column is not None:
            interval_kind(table, use.interval_column, place=where, may_come=self.schema_evolution is not None)

    def _is_made_anew(self, output_mode: OutputMode) -> bool:
        """Whether every batch makes the table's columns."""
        return False

    def _lasting(self, output_mode: OutputMode, storage: Storage) -> DeltaTable | None:
        """The table, whose columns a batch has to fit; None where it makes them."""
        return None if self._is_made_anew(output_mode) else find_table(self.path, storage=storage)

    def check_result(self, frame: DataFrame, use: SinkUse) -> None:
        place = f"{use.place}, {self.path}"
        check_alike(frame, place=place)
        there = find_table(self.path, storage=use.storage)
        if there is None or self._is_made_anew(use.output_mode):
            properties = there.metadata().configuration if there is not None else {}
            check_new(frame, self.partition_by, {**self.options, **properties}, use.conf, place=place)
        else:
            schema_evolution.check_result(
                there,
                frame,
                self.schema_evolution,
                use.written,
                only_adds=not isinstance(self, KeyedSink),
                place=place,
            )

    def evolve(self, frame: DataFrame, use: SinkUse) -> None:
        if self.schema_evolution is None or self._is_made_anew(use.output_mode):
            return
        schema_evolution.evolve(self.path, frame, storage=use.storage)
        if (table := find_table(self.path, storage=use.storage)) is not None:
            # Another stream of the table may have given it a column of the name, and another type, this very moment.
            place = f"{use.place}, {self.path}"
            schema_evolution.check_result(table, frame, self.schema_evolution, place=place)

    def cause(self, said: str) -> SluiceError | None:
        return far_time_told(said, place=self.path)

    def streaming_queries(self, *, storage: Storage) -> Iterator[str]:
        log = open_log(self.path, storage=storage)
        # The newest first: where a stream writes, nearly every commit is one of its batches.
        noted = transactions(log, storage=storage) if log is not None else iter(())
        yield from (found.application for found in noted if QUERY_ID.fullmatch(found.application))

    def outcome(self, query_id: str, batch_id: int, *, storage: Storage) -> BatchOutcome | None:
        return self.outcomes(query_id, [batch_id], storage=storage).get(batch_id)

    def outcomes(self, query_id: str, batch_ids: Collection[int], *, storage: Storage) -> dict[int, BatchOutcome]:
        found: dict[int, BatchOutcome] = {}
        wanted = sorted(set(batch_ids))
        log = open_log(self.path, storage=storage) if wanted else None
        if log is None:
            return found
        # One look at the log for all of them, from its end: each of its commits would be read once per batch otherwise.
        for version in reversed(log.versions):
            commit = read_commit(log, version, storage=storage)
            in_sink = commit.transactions.get(query_id) if commit else None
            if commit is None or in_sink is None:
                continue
            while wanted and wanted[-1] > in_sink:
                wanted.pop()
            if wanted and wanted[-1] == in_sink:
                found[wanted.pop()] = BatchOutcome(
                    _output_rows(commit), version, has_changes=bool(commit.files or commit.removes_data)
                )
            if not wanted:
                break
        return found

    def _batch_writer(self, rows: DataFrame, mode: str) -> DataFrameWriter:
        """A writer of rows into the table, or into a new one; `errorifexists` fails where one is there meanwhile."""
        writer = rows.write.format("delta").mode(mode)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def read_rows(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(spark_location(self.path))

    def read_table(self, spark: SparkSession, version: int) -> DataFrame:
        return published_batch.read_table(self.path, spark, version)


_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated")
"""What a merge tells of the rows that it was given; its `numOutputRows` counts also those that it only wrote again."""


def _output_rows(commit: Commit) -> int | None:
    told = _MERGED if commit.operation == "MERGE" else ("numOutputRows",)
    rows = [commit.metrics.get(name) for name in told]
    if all(isinstance(count, str | int) and str(count).isdigit() for count in rows):
        return sum(int(str(count)) for count in rows)
    # A commit of metadata has no metrics of a write; its files say how many rows they have.
    return known_sum(file.rows for file in commit.files)
