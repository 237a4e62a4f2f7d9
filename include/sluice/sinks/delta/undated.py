"""Rows of a table that are in no interval, for they have no value there: a backfill would leave them beside its own."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from sluice.delta_log.table import load_table
from sluice.sinks.delta.published_batch import read_table
from sluice.sinks.delta.row_order import UNORDERED
from sluice.sinks.replaceable import Replacement
from sluice.sql_text import identifier
from sluice.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame


def undated_rows(location: str, frame: DataFrame, wanted: Replacement, *, storage: Storage) -> int:
    """How many of them are else like rows of the interval; see `ReplaceableSink.undated_rows`.

    A column in which all of them have a null is left out: it may have come later. One that Spark does not compare, too.
    """
    column, kinds = wanted.column, dict(frame.dtypes)
    table = load_table(location, storage=storage, version=wanted.version)
    if column not in kinds or not _may_have_nulls(table, column):
        # A result without the column is refused as one that the table does not take.
        return 0
    undated = read_table(location, frame.sparkSession, wanted.version).where(f"{identifier(column)} IS NULL")
    likely = [name for name, kind in undated.dtypes if kinds.get(name) == kind and name != column]
    names = [name for name in likely if not any(word in kinds[name] for word in UNORDERED)]
    values = [f"count({identifier(name)}) AS {_nth(number)}" for number, name in enumerate(names)]
    found = undated.selectExpr("count(1)", *values).collect()[0]
    told = [name for number, name in enumerate(names) if found[_nth(number)]]
    if not told:
        # There are none, or nothing tells one from another.
        return 0
    rows = frame.where(wanted.interval.condition(column, kinds[column]))
    there, computed = (
        side.selectExpr(*(f"{identifier(name)} AS {_nth(number)}" for number, name in enumerate(told)))
        for side in (undated, rows)
    )
    same = (there[_nth(number)].eqNullSafe(computed[_nth(number)]) for number in range(len(told)))
    return int(there.join(computed, reduce(and_, same), "left_semi").count())


def _nth(number: int) -> str:
    return f"c{number}"


def _may_have_nulls(table: DeltaTable, column: str) -> bool:
    """Whether any row may have one in a column, by the statistics of the files."""
    import pyarrow as pa
    import pyarrow.compute as pc

    actions = pa.table(table.get_add_actions(flatten=True))
    partition, nulls = f"partition.{column}", f"null_count.{column}"
    if partition in actions.column_names:
        return bool(actions.column(partition).null_count)
    if nulls not in actions.column_names:
        return bool(actions.num_rows)
    found = actions.column(nulls)
    return bool(found.null_count) or bool(pc.sum(found).as_py())
