"""A Delta table whose rows are replaced by their keys: each batch is merged into it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from sluice.delta_table import find_table, spark_columns
from sluice.errors import DeclarationError
from sluice.locations import spark_location
from sluice.sinks.contract import FunctionLoader, KeyedSink, OutputMode, SinkBatch
from sluice.sinks.delta import merge
from sluice.sinks.delta.implicit_casts import AUTO_MERGE
from sluice.sinks.delta.table import DeltaTableSink
from sluice.sql_text import identifier
from sluice.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

HEEDED_OPTIONS = frozenset({"mergeSchema"})
"""The options of Delta's writer that a merge heeds."""
_APPEND_ONLY = "delta.appendOnly"


@dataclass(frozen=True)
class MergedDeltaSink(DeltaTableSink, KeyedSink):
    """Declared by `sinks.delta` with `merge_on`."""

    output_modes: ClassVar[tuple[OutputMode, ...]] = ("append", "update", "complete")
    needs_own_spark: ClassVar[bool] = True

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

    def check_table(
        self,
        output_mode: OutputMode,
        interval_column: str | None,
        conf: Mapping[str, str],
        *,
        place: str,
        storage: Storage,
    ) -> None:
        super().check_table(output_mode, interval_column, conf, place=place, storage=storage)
        table = find_table(self.path, storage=storage)
        if table is None:
            return
        check_changeable(table, place=f"{place}, {self.path}")
        if not self._takes_new_columns(conf.get):
            check_key_columns(self.keys, table, place=f"{place}, {self.path}")

    def check_result(self, frame: DataFrame, output_mode: OutputMode, *, place: str, storage: Storage) -> None:
        super().check_result(frame, output_mode, place=place, storage=storage)
        table, where = find_table(self.path, storage=storage), f"{place}, {self.path}"
        if table is None:
            return
        check_key_types(self.keys, frame, table, place=where)
        if not self._takes_new_columns(frame.sparkSession.conf.get):
            check_columns(frame.columns, table, place=where)

    def _takes_new_columns(self, setting: Callable[[str, str], str | None]) -> bool:
        return "true" in {self.options.get("mergeSchema"), (setting(AUTO_MERGE, "false") or "").lower()}

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        raise TypeError(self.named)  # pragma: no cover - Spark has none

    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        rows = check_keys(frame, self.keys, batch.batch_id, place=self.path)
        if find_table(self.path, storage=storage) is None:
            make_table(frame, self.path, batch, self.partition_by)
            return
        is_whole = batch.output_mode == "complete"
        if rows == 0 and not is_whole:
            # A commit that changes nothing would wake whoever reads the table.
            return
        clauses = [
            f"WHEN MATCHED THEN {merge.update(frame.columns)}",
            f"WHEN NOT MATCHED THEN {merge.insert(frame.columns)}",
            *(["WHEN NOT MATCHED BY SOURCE THEN DELETE"] if is_whole else []),
        ]
        merge.merge(
            frame,
            self.path,
            merge.same_keys(self.keys),
            clauses,
            application=batch.query_id,
            version=batch.batch_id,
            evolves=self._takes_new_columns(frame.sparkSession.conf.get),
        )


def make_table(frame: DataFrame, location: str, batch: SinkBatch, partition_by: Sequence[str]) -> None:
    """Make a table of a first batch, in one commit; fails where one is there meanwhile."""
    writer = frame.write.format("delta").mode("errorifexists")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.option("txnAppId", batch.query_id).option("txnVersion", batch.batch_id).save(spark_location(location))


def check_key_columns(keys: Sequence[str], table: DeltaTable, *, place: str) -> None:
    """Make sure that a table has the columns by which rows are to be found in it.

    Raises:
        DeclarationError: It has not.
    """
    columns = list(spark_columns(table))
    known = {name.casefold() for name in columns}
    missing = next((key for key in keys if key.casefold() not in known), None)
    if missing is not None:
        near = difflib.get_close_matches(missing, columns, n=1)
        raise DeclarationError(
            f"rows are to be found by `{missing}`, which is no column of the table",
            where=place,
            remedy=f"did you mean `{near[0]}`?" if near else f"the table has: {', '.join(columns)}",
        )


def check_changeable(table: DeltaTable, *, place: str) -> None:
    """Make sure that rows of a table may be replaced.

    Raises:
        DeclarationError: They may not.
    """
    if table.metadata().configuration.get(_APPEND_ONLY, "false").lower() == "true":
        raise DeclarationError(
            f"the table has `{_APPEND_ONLY}`, and a merge replaces rows",
            where=place,
            remedy=f"unset it (ALTER TABLE ... UNSET TBLPROPERTIES ('{_APPEND_ONLY}')), or write to another table",
        )


def check_key_types(keys: Sequence[str], frame: DataFrame, table: DeltaTable, *, place: str) -> None:
    """Make sure that keys are compared as they are: cast, `1` and `01` would be one.

    Raises:
        DeclarationError: A column has another type in the table.
    """
    kinds = {name.casefold(): kind for name, kind in spark_columns(table).items()}
    for key, kind in frame.dtypes:
        there = kinds.get(key.casefold(), kind)
        if key in keys and there != kind:
            raise DeclarationError(
                f"rows are to be found by `{key}`, which is {kind} in the result and {there} in the table",
                where=place,
                remedy=f"cast it in the transform to {there}",
            )


def check_columns(columns: Sequence[str], table: DeltaTable, *, place: str) -> None:
    """Make sure that a table has all columns of a result, where none may be added.

    Raises:
        DeclarationError: It has not.
    """
    known = {name.casefold() for name in spark_columns(table)}
    if new := [name for name in columns if name.casefold() not in known]:
        raise DeclarationError(
            f"the result has a column `{new[0]}`, which the table does not have",
            where=place,
            remedy="leave it out in the transform; or let it be added: `merge_schema=True`",
        )


def check_keys(frame: DataFrame, keys: Sequence[str], batch_id: int, *, place: str, once: bool = True) -> int:
    """Make sure that each row of a batch can be found by its keys; gives how many rows there are.

    Args:
        frame: The batch.
        keys: The columns.
        batch_id: Its id.
        place: The table, for messages.
        once: Whether no two rows may have the same keys.

    Raises:
        DeclarationError: A key is null, or two rows have the same.
    """
    names = [f"k{number}" for number in range(len(keys))]
    named = (f"{identifier(key)} AS {name}" for key, name in zip(keys, names, strict=True))
    is_null = " OR ".join(f"{name} IS NULL" for name in names)
    found = (
        frame.selectExpr(*named)
        .groupBy(*names)
        .count()
        .selectExpr(
            "coalesce(sum(count), 0) AS rows",
            f"coalesce(sum(count) FILTER (WHERE {is_null}), 0) AS nulls",
            "coalesce(sum(count) FILTER (WHERE count > 1), 0) AS repeated",
            "count_if(count > 1) AS repeating",
        )
        .collect()[0]
    )
    shown = ", ".join(f"`{key}`" for key in keys)
    if found.nulls:
        raise DeclarationError(
            f"{found.nulls:,} of {found.rows:,} rows of batch {batch_id} have a null in {shown}, by which no row is"
            " found; nothing of the batch was written",
            where=place,
            remedy="leave such rows out in the transform, or give them a value there; or drop them by the suite"
            " (`expect_column_values_to_not_be_null` with the policy `drop`), which counts them",
        )
    if once and found.repeating:
        raise DeclarationError(
            f"{found.repeated:,} of {found.rows:,} rows of batch {batch_id} share {shown} with others of the batch"
            f" ({found.repeating:,} keys), and no rule says which of them counts; nothing of the batch was written",
            where=place,
            remedy="give one row for each in the transform (an aggregation by these keys in mode `update`), or name all"
            " columns that tell rows apart in `merge_on`",
        )
    return int(found.rows)
