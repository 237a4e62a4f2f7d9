"""Columns that no Delta table has: types that Delta does not keep, names that it does not take, nothing but partitions.

Delta says so once a first batch is planned and begun. Here it is said before, and by `sluice check`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.sinks.delta.implicit_casts import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
"""What Delta takes in no column's name, unless it maps columns."""
_NOT_KEPT = re.compile(r"void|interval\b.*|time(?:\(\d+\))?|geography\b.*|geometry\b.*")
_UNTYPED = "void"
_COLLATIONS = "__COLLATIONS"
_TYPE_CHECK = "spark.databricks.delta.schema.typeCheck.enabled"
_MAPPING = "delta.columnMapping.mode"
_DEFAULT_MAPPING = f"spark.databricks.{_MAPPING.replace('delta.', 'delta.properties.defaults.', 1)}"


def type_not_kept(column: Any) -> str | None:
    """The first type in a column, or in a whole result, that Delta does not keep; None where it keeps them all.

    Args:
        column: A field, or a type, as Spark's JSON has it.
    """
    if isinstance(column, str):
        return column if _NOT_KEPT.fullmatch(column) else None
    if not isinstance(column, Mapping):
        return None
    if collations := column.get("metadata", {}).get(_COLLATIONS):
        return f"string with the collation {next(iter(collations.values()))}"
    within = (
        *column.get("fields", ()),
        *(column.get(part) for part in ("type", "elementType", "keyType", "valueType")),
    )
    return next((found for part in within if (found := type_not_kept(part)) is not None), None)


def name_not_taken(column: Any) -> str | None:
    """The first name of a column, or of a field in it, that Delta takes only where it maps columns; or None."""
    if not isinstance(column, Mapping):
        return None
    name = column.get("name", "")
    if _FORBIDDEN.search(name):
        return str(name)
    within = (
        *column.get("fields", ()),
        *(column.get(part) for part in ("type", "elementType", "keyType", "valueType")),
    )
    return next((found for part in within if (found := name_not_taken(part)) is not None), None)


def check_new(
    frame: DataFrame, partition_by: Sequence[str], properties: Mapping[str, str], conf: Mapping[str, str], *, place: str
) -> None:
    """Refuse a result of which Delta makes no table.

    Args:
        frame: The result, analysed.
        partition_by: The columns that the sink is declared to be partitioned by.
        properties: Those of the table that is made anew, and the options of the writer.
        conf: The settings of Spark that the stream runs with.
        place: For messages.

    Raises:
        DeclarationError: It is such a one. What has no name is called after its expression, literals and all: columns
            are told by their places.
    """
    columns = columns_of(frame)["fields"]
    checks_types = conf.get(_TYPE_CHECK, "").strip().lower() != "false"
    takes_names = {**conf, **properties}.keys() & {_MAPPING, _DEFAULT_MAPPING}
    for number, column in enumerate(columns, 1):
        kind = type_not_kept(column)
        if kind == _UNTYPED:
            raise DeclarationError(
                f"column {number} of the result has no type, or something without one in it",
                where=place,
                remedy="cast it in the transform to what it will be, as by `CAST(NULL AS string)`",
            )
        if kind is not None and checks_types:
            raise DeclarationError(
                f"column {number} of the result is of type {kind}, or has such in it, which Delta does not keep",
                where=place,
                remedy="cast it in the transform to a type that a table can have",
            )
        if not takes_names and (name := name_not_taken(column)) is not None:
            letter = json.dumps(_FORBIDDEN.search(name)[0])  # type: ignore[index]
            raise DeclarationError(
                f"column {number} of the result, or a field in it, has {letter} in its name, which Delta does not take",
                where=place,
                remedy="give it a name in the transform, as by `.alias(...)`",
            )
    if columns and {name.lower() for name in partition_by} >= {column["name"].lower() for column in columns}:
        raise DeclarationError(
            "the table would be partitioned by every column, which Delta does not take",
            where=place,
            remedy="leave one out of `partition_by`",
        )
