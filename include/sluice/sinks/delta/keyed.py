"""A Delta table in which rows are found by keys, however: what a merge asks of the columns of a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.delta_log.table import find_table, spark_columns
from sluice.errors import DeclarationError
from sluice.sinks.contract import SinkUse
from sluice.sinks.delta import nested_fields, schema_evolution
from sluice.sinks.delta.table import DeltaTableSink
from sluice.sinks.keyed import KeyedSink

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_CASE_SENSITIVE = "spark.sql.caseSensitive"


@dataclass(frozen=True)
class KeyedDeltaSink(DeltaTableSink, KeyedSink):
    """Base of the ways to write a Delta table by a merge."""

    def check_result(self, frame: DataFrame, use: SinkUse) -> None:
        super().check_result(frame, use)
        if (table := find_table(self.path, storage=use.storage)) is not None:
            self._check_mergeable(table, frame, place=f"{use.place}, {self.path}")

    def check_batch(self, table: DeltaTable, frame: DataFrame) -> None:
        """Make sure that the table still takes a batch: since the run was planned, somebody may have changed it.

        Raises:
            DeclarationError: It does not.
        """
        schema_evolution.check_result(table, frame, None, place=self.path)
        self._check_mergeable(table, frame, place=self.path)

    def _check_mergeable(self, table: DeltaTable, frame: DataFrame, *, place: str) -> None:
        nested_fields.check_whole(table, frame, may_be_null=self.schema_evolution is not None, place=place)
        _check_letters(table, frame, place=place)


def _check_letters(table: DeltaTable, frame: DataFrame, *, place: str) -> None:
    """Where Spark tells `a` from `A`, a merge finds no column of a table by the other name; an append finds it."""
    if str(frame.sparkSession.conf.get(_CASE_SENSITIVE)).lower() != "true":
        return
    there = {name.lower(): name for name in spark_columns(table)}
    for name in frame.columns:
        if (other := there.get(name.lower(), name)) != name:
            raise DeclarationError(
                f"the result has `{name}` and the table `{other}`, which are two names to a merge while"
                f" `{_CASE_SENSITIVE}` is true",
                where=place,
                remedy=f"name it `{other}` in the transform and in the sink; or leave the setting out",
            )
