"""Columns that no Delta table has: types that Delta does not keep, names that it does not take, nothing but partitions.

Delta says so once a first batch is planned and begun. Here it is said before, and by `sluice check`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sluice.delta_log.exact_types import NOTHING
from sluice.delta_log.types import PARTS
from sluice.errors import DeclarationError
from sluice.sinks.delta.implicit_casts import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
"""What Delta takes in no column's name, unless it maps columns."""
_NOT_KEPT = re.compile(rf"{NOTHING}|interval\b.*|time(?:\(\d+\))?|geography\b.*|geometry\b.*")
_COLLATIONS = "__COLLATIONS"
_TYPE_CHECK = "spark.databricks.delta.schema.typeCheck.enabled"
_MAPPING = "delta.columnMapping.mode"
_DEFAULT_MAPPING = "spark.databricks.delta.properties.defaults.columnMapping.mode"


def type_not_kept(column: Any) -> str | None:
    """The first type in a column, or in a whole result, that Delta does not keep; None where it keeps them all.

    Args:
        column: A field, or a type, as Spark's JSON has it.
    """
    return next((kind for part in _with_parts(column) if (kind := _kind_not_kept(part)) is not None), None)


def name_not_taken(column: Any) -> str | None:
    """The first name of a column, or of a field in it, that Delta takes only where it maps columns; or None."""
    names = (str(part.get("name", "")) for part in _with_parts(column) if isinstance(part, Mapping))
    return next((name for name in names if _FORBIDDEN.search(name)), None)


def _with_parts(column: Any) -> Iterator[Any]:
    """A field, or a type, and all that is within it."""
    yield column
    if isinstance(column, Mapping):
        for part in (*column.get("fields", ()), *(column[name] for name in ("type", *PARTS) if name in column)):
            yield from _with_parts(part)


def _kind_not_kept(part: Any) -> str | None:
    if isinstance(part, str):
        return part if _NOT_KEPT.fullmatch(part) else None
    collations = part.get("metadata", {}).get(_COLLATIONS)
    return f"string with the collation {next(iter(collations.values()))}" if collations else None


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
        if kind == NOTHING:
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
