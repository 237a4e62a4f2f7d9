"""Whether rows can be found in a Delta table by keys: what its columns tell, and what a batch tells."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.delta_table import spark_columns
from sluice.errors import DeclarationError
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_APPEND_ONLY = "delta.appendOnly"


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
