"""A Delta table whose rows are replaced by their keys: each batch is merged into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from sluice.delta_log.table import find_table, last_transaction
from sluice.locations import spark_location
from sluice.sinks.contract import FunctionLoader, OutputMode, SinkBatch, SinkUse
from sluice.sinks.delta import merge, nested_fields
from sluice.sinks.delta.far_times import refusing_far_times
from sluice.sinks.delta.keyed import KeyedDeltaSink
from sluice.sinks.delta.keys import (
    check_begun_with,
    check_changeable,
    check_key_columns,
    check_key_types,
    check_keys,
)
from sluice.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class MergedDeltaSink(KeyedDeltaSink):
    """Declared by `sinks.delta` with `merge_on`."""

    output_modes: ClassVar[tuple[OutputMode, ...]] = ("append", "update", "complete")

    keys: tuple[str, ...] = field(kw_only=True)

    @property
    def named(self) -> str:
        return "a delta sink with `merge_on`"

    @property
    def form(self) -> str:
        return f"{self.kind}, merged on {', '.join(sorted(self.keys))}"

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.keys

    @property
    def takes_keys_once(self) -> bool:
        return True

    @property
    def step(self) -> str:
        return f"merge it into the table on {', '.join(f'`{key}`' for key in self.keys)}"

    @property
    def replace_obstacle(self) -> str:
        return f"{self.named} can't replace the rows of an interval: rows of others may have their keys by now"

    @property
    def split_obstacle(self) -> tuple[str, str]:
        why = "a row that is released later would replace a newer one of its keys"
        return f"with `merge_on`, {why}", "use `drop` or `fail`"

    def check_table(self, use: SinkUse) -> None:
        super().check_table(use)
        table, where = find_table(self.path, storage=use.storage), f"{use.place}, {self.path}"
        if table is None:
            return
        check_changeable(table, place=where)
        check_key_columns(self.keys, table, place=where)

    def check_result(self, frame: DataFrame, use: SinkUse) -> None:
        table = find_table(self.path, storage=use.storage)
        if table is not None:
            # First of all: a type to which the table might follow is none for a key.
            check_key_types(self.keys, frame, table, place=f"{use.place}, {self.path}")
        super().check_result(frame, use)

    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        partitions = self.partitions(dict(frame.dtypes), batch.output_mode, storage=storage)
        frame = refusing_far_times(frame, partitions)
        rows = check_keys(frame, self.keys, batch.batch_id, place=self.path, partitions=partitions)
        table = find_table(self.path, storage=storage)
        if table is None:
            new = self._batch_writer(frame, "errorifexists").option("txnAppId", batch.query_id)
            new.option("txnVersion", batch.batch_id).save(spark_location(self.path))
            return
        if last_transaction(table, self.path, batch.query_id, storage=storage) is None:
            there = frame.sparkSession.read.format("delta").load(spark_location(self.path))
            check_begun_with(there, self.keys, place=self.path)
        is_whole = batch.output_mode == "complete"
        if rows == 0 and not is_whole:
            # A commit that changes nothing would wake whoever reads the table.
            return
        clauses = [
            f"WHEN MATCHED THEN {merge.update(frame.columns)}",
            f"WHEN NOT MATCHED THEN {merge.insert(frame.columns)}",
            *(["WHEN NOT MATCHED BY SOURCE THEN DELETE"] if is_whole else []),
        ]
        self.check_batch(table, frame)
        merge.merge(nested_fields.fitted(table, frame), self.path, merge.same_keys(self.keys), clauses, batch=batch)
