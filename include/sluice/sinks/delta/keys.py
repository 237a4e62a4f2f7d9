"""Whether rows can be found in a Delta table by keys: what its columns tell, and what a batch tells."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.delta_table import spark_columns
from sluice.errors import DeclarationError
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, Row

_APPEND_ONLY = "delta.appendOnly"
_PADDED = "__CHAR_VARCHAR_TYPE_STRING"
"""What Spark notes beside a column of texts that are of one length, or of no more than one."""
_WITHOUT = (
    "leave such rows out in the transform, or give them a value there; or drop them by the suite"
    " (`expect_column_values_to_not_be_null` with the policy `drop`), which counts them"
)


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
    for found in json.loads(table.schema().to_json())["fields"]:
        noted = str(found["metadata"].get(_PADDED, ""))
        if noted.startswith("char("):
            # What is read of it has spaces at its end, which no text of the result has.
            kinds[found["name"].casefold()] = noted
    for key, kind in frame.dtypes:
        there = kinds.get(key.casefold(), kind)
        if key in keys and there != kind:
            raise DeclarationError(
                f"rows are to be found by `{key}`, which is {kind} in the result and {there} in the table",
                where=place,
                remedy=f"cast it in the transform to {there}"
                if not there.startswith("char(")
                else "give the table a column of strings: those of `char` have spaces at their end",
            )


def check_keys(
    frame: DataFrame,
    keys: Sequence[str],
    batch_id: int,
    *,
    place: str,
    sequence: str | None = None,
) -> int:
    """Make sure that each row of a batch can be found by its keys; gives how many rows there are.

    Args:
        frame: The batch.
        keys: The columns.
        batch_id: Its id.
        place: The table, for messages.
        sequence: The column that orders the rows of a key; without one, no two rows may have the same keys.

    Raises:
        DeclarationError: A key is null, or two rows have the same and no order.
    """
    from pyspark.sql import functions

    names = [f"k{number}" for number in range(len(keys))]
    named = [f"{identifier(key)} AS {name}" for key, name in zip(keys, names, strict=True)]
    is_null = " OR ".join(f"{name} IS NULL" for name in names)
    is_unordered = "false" if sequence is None else f"{identifier(sequence)} IS NULL"
    found = (
        frame.selectExpr(*named, f"CAST({is_unordered} AS INT) AS unordered")
        .groupBy(*names)
        .agg(functions.expr("count(1) AS rows"), functions.expr("sum(unordered) AS unordered"))
        .selectExpr(
            "coalesce(sum(rows), 0) AS rows",
            f"coalesce(sum(rows) FILTER (WHERE {is_null}), 0) AS nulls",
            "coalesce(sum(unordered), 0) AS unordered",
            "coalesce(sum(rows) FILTER (WHERE rows > 1), 0) AS repeated",
            "count_if(rows > 1) AS repeating",
        )
        .collect()[0]
    )
    if found.nulls or found.unordered or (sequence is None and found.repeating):
        raise _unfit_rows(found, keys, batch_id, sequence, place)
    return int(found.rows)


def _unfit_rows(found: Row, keys: Sequence[str], batch_id: int, sequence: str | None, place: str) -> DeclarationError:
    shown = ", ".join(f"`{key}`" for key in keys)
    if found.nulls:
        return _unfit(
            f"{found.nulls:,} of {found.rows:,} rows of batch {batch_id} have a null in {shown}, by which no row is"
            " found",
            place,
            _WITHOUT,
        )
    if found.unordered:
        return _unfit(
            f"{found.unordered:,} of {found.rows:,} rows of batch {batch_id} have no `{sequence}`, so that nobody knows"
            " what they come after",
            place,
            _WITHOUT,
        )
    return _unfit(
        f"{found.repeated:,} of {found.rows:,} rows of batch {batch_id} share {shown} with others of the batch"
        f" ({found.repeating:,} keys), and no rule says which of them counts",
        place,
        "give one row for each in the transform (an aggregation by these keys in mode `update`), or name all"
        " columns that tell rows apart in `merge_on`; where rows have an order, declare them as"
        " `changes=sinks.changes(keys=..., sequence_by=...)`",
    )


def check_begun_with(table: DataFrame, keys: Sequence[str], *, place: str) -> None:
    """Make sure that a table, which a stream begins with, has no two rows of the same keys: a merge changes both.

    Args:
        table: All rows of the table.
        keys: The columns that tell one of its rows.
        place: The table, for messages.

    Raises:
        DeclarationError: It has.
    """
    names = list(map(identifier, keys))
    # Nobody finds those with a null.
    found = table.where(" AND ".join(f"{name} IS NOT NULL" for name in names)).groupBy(*names).count()
    repeating = found.where("count > 1").count()
    if repeating:
        shown = ", ".join(f"`{key}`" for key in keys)
        raise DeclarationError(
            f"the table, to which the stream has written nothing yet, has rows that share {shown} ({repeating:,} keys):"
            " which of them is to be replaced, nobody knows",
            where=place,
            remedy="leave one row of each key in it; or write to a new table",
        )


def _unfit(problem: str, place: str, remedy: str) -> DeclarationError:
    return DeclarationError(f"{problem}; nothing of the batch was written", where=place, remedy=remedy)
