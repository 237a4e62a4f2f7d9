"""Whether rows can be found in a Delta table by keys: what its columns tell, and what a batch tells."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from sluice.delta_log.table import spark_columns
from sluice.errors import DeclarationError
from sluice.locations import spark_location
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, Row

_APPEND_ONLY = "delta.appendOnly"
_PADDED = "__CHAR_VARCHAR_TYPE_STRING"
"""What Spark notes beside a column of texts that are of one length, or of no more than one."""
_NO_VALUE = "'', '__HIVE_DEFAULT_PARTITION__'"
"""The texts that Delta keeps as a null where a column partitions the table."""
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
    known = {name.lower() for name in columns}
    missing = next((key for key in keys if key.lower() not in known), None)
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
    kinds = {name.lower(): kind for name, kind in spark_columns(table).items()}
    for found in json.loads(table.schema().to_json())["fields"]:
        noted = str(found["metadata"].get(_PADDED, ""))
        if noted.startswith("char("):
            # What is read of it has spaces at its end, which no text of the result has.
            kinds[found["name"].lower()] = noted
    for key, kind in frame.dtypes:
        there = kinds.get(key.lower(), kind)
        if key in keys and there != kind:
            raise DeclarationError(
                f"rows are to be found by `{key}`, which is {kind} in the result and {there} in the table",
                where=place,
                remedy=f"cast it in the transform to {there}"
                if not there.startswith("char(")
                else "give the table a column of strings: those of `char` have spaces at their end",
            )


def check_widened(kinds: Mapping[str, str], table: DeltaTable, *, location: str, place: str) -> None:
    """Make sure that columns which Sluice has made have the types that those they are about have by now.

    Args:
        kinds: These types, by name of what was made, as Spark names them.
        table: Where it was made.
        location: Where that is.
        place: For messages.

    Raises:
        DeclarationError: One has another type: a merge would cut a value to it.
    """
    there = {name.lower(): kind for name, kind in spark_columns(table).items()}
    for name, kind in kinds.items():
        if (was := there.get(name.lower(), kind)) != kind:
            column, to, each = identifier(name), kind, ""
            if kind.startswith("struct<"):
                column, to, each = f"{column}.FIELD", "...", ", for each field that is narrower"
            raise DeclarationError(
                f"`{name}` is {was} in {location}, and is to have values of {kind}: they would be cut",
                where=place,
                remedy="let it follow as the table's own columns did: ALTER TABLE"
                f" delta.{identifier(spark_location(location))} ALTER COLUMN {column} TYPE {to}{each} (once the"
                " property `delta.enableTypeWidening` is true there); or declare a new stream with a sink of its own",
            )


def check_keys(
    frame: DataFrame,
    keys: Sequence[str],
    batch_id: int,
    *,
    place: str,
    sequence: str | None = None,
    partitions: Collection[str] = (),
) -> int:
    """Make sure that each row of a batch can be found by its keys; gives how many rows there are.

    Args:
        frame: The batch.
        keys: The columns.
        batch_id: Its id.
        place: The table, for messages.
        sequence: The column that orders the rows of a key; without one, no two rows may have the same keys.
        partitions: The columns that partition the table.

    Raises:
        DeclarationError: A key is null, or becomes one in the table; or two rows have the same and no order.
    """
    from pyspark.sql import functions

    names = [f"k{number}" for number in range(len(keys))]
    named = [f"{identifier(key)} AS {name}" for key, name in zip(keys, names, strict=True)]
    texts = texts_of_partitions(frame, partitions)
    is_null = " OR ".join(_is_lost(name, is_text=key in texts) for name, key in zip(names, keys, strict=True))
    is_unordered = "false" if sequence is None else _is_lost(identifier(sequence), is_text=sequence in texts)
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
        lost = next((key for key in keys if key in texts), None)
        raise _unfit_rows(found, keys, batch_id, sequence, lost, place=place)
    return int(found.rows)


def _unfit_rows(
    found: Row, keys: Sequence[str], batch_id: int, sequence: str | None, lost: str | None, *, place: str
) -> DeclarationError:
    shown = ", ".join(f"`{key}`" for key in keys)
    if found.nulls:
        also = (
            ""
            if lost is None
            else f" (or an empty text, or bytes that are none, in `{lost}`, which partitions the table)"
        )
        return _unfit(
            f"{found.nulls:,} of {found.rows:,} rows of batch {batch_id} have a null in {shown}{also}, by which no row"
            " is found",
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


def texts_of_partitions(frame: DataFrame, partitions: Collection[str]) -> set[str]:
    """The columns of a batch whose values Delta keeps as texts, as names of folders have them: empty ones as nulls."""
    folded = {name.lower() for name in partitions}
    return {name for name, kind in frame.dtypes if kind.startswith(("string", "binary")) and name.lower() in folded}


def kept_in_partition(column: str) -> str:
    """What the table has of such a column, in SQL."""
    return f"CASE WHEN CAST({column} AS STRING) IN ({_NO_VALUE}) THEN NULL ELSE {column} END"


def _is_lost(column: str, *, is_text: bool) -> str:
    if not is_text:
        return f"{column} IS NULL"
    # Bytes that are no text become others.
    return f"({kept_in_partition(column)} IS NULL OR NOT is_valid_utf8(CAST({column} AS STRING)))"


def check_begun_with(table: DataFrame, keys: Sequence[str], *, place: str) -> None:
    """Make sure that a table, which a stream begins with, has no two rows of the same keys: a merge changes both.

    Args:
        table: All rows of the table.
        keys: The columns that tell one of its rows.
        place: The table, for messages.

    Raises:
        DeclarationError: It has.
    """
    from pyspark.sql import functions

    names = [f"k{number}" for number in range(len(keys))]
    named = table.selectExpr(*(f"{identifier(key)} AS {name}" for key, name in zip(keys, names, strict=True)))
    # Nobody finds those with a null.
    told = named.where(" AND ".join(f"{name} IS NOT NULL" for name in names))
    repeating = told.groupBy(*names).agg(functions.expr("count(1) AS rows")).where("rows > 1").count()
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
