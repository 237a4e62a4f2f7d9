"""Rows as people write them in tests, as values of Spark's types: the same for what is added and what is expected.

A row is a dict by column, or a tuple of all columns. Times may be texts in ISO 8601, in UTC unless they name a zone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.testing.difference import MapValue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

Row = Mapping[str, Any] | Sequence[Any]
"""A row as a test writes it."""


def as_dicts(rows: object, schema: StructType, place: str) -> list[dict[str, Any]]:
    """Rows by column, with values of the columns' types where they can be read so.

    Args:
        rows: As a test wrote them.
        schema: The columns that there are.
        place: What they were given to, for messages.

    Raises:
        DeclarationError: They are no rows, or have other columns.
    """
    return [_as_dict(row, schema, f"{place}, row {number}") for number, row in enumerate(given_rows(rows, place), 1)]


def given_rows(rows: object, place: str) -> list[object]:
    """Rows as a test wrote them.

    Raises:
        DeclarationError: They are no rows.
    """
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise DeclarationError(
            f"the rows are {_shown(rows)}", where=place, remedy="give a list of dicts, or of tuples with all columns"
        )
    return list(rows)


def _as_dict(row: object, schema: StructType, place: str) -> dict[str, Any]:
    names = schema.fieldNames()
    if hasattr(row, "asDict"):
        row = row.asDict()
    if isinstance(row, Mapping):
        unknown = next((name for name in row if name not in names), None)
        if unknown is not None:
            near = difflib.get_close_matches(str(unknown), names, n=1)
            raise DeclarationError(
                f"there is no column `{unknown}`",
                where=place,
                remedy=f"did you mean `{near[0]}`?" if near else f"the columns are: {', '.join(names)}",
            )
        given = dict(row)
    elif isinstance(row, Sequence) and not isinstance(row, str | bytes):
        if len(row) != len(names):
            raise DeclarationError(
                f"it has {len(row)} values, and there are {len(names)} columns",
                where=place,
                remedy=f"give all of them in order ({', '.join(names)}), or a dict of those that count",
            )
        given = dict(zip(names, row, strict=True))
    else:
        raise DeclarationError(f"it is {_shown(row)}", where=place, remedy="give a dict, or a tuple with all columns")
    return {name: as_value(value, schema[name].dataType) for name, value in given.items()}


def as_value(value: Any, kind: DataType) -> Any:
    """A value of a type, as it is compared: aware times in UTC, dicts for structs and maps, lists for arrays.

    What is none of the type is given back as it is.
    """
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        return _as_struct(value, kind)
    if isinstance(kind, types.ArrayType) and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [as_value(item, kind.elementType) for item in value]
    if isinstance(kind, types.MapType) and isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else value
        return MapValue({as_value(key, kind.keyType): as_value(item, kind.valueType) for key, item in pairs})
    if isinstance(kind, types.BinaryType):
        return value.encode() if isinstance(value, str) else bytes(value) if isinstance(value, bytearray) else value
    if isinstance(kind, types.DecimalType):
        return _as_decimal(value)
    return _as_time(value, kind)


def for_spark(value: Any) -> Any:
    """A value of `as_value` as Spark takes it, which knows no dict but Python's own."""
    if isinstance(value, Mapping):
        return {key: for_spark(item) for key, item in value.items()}
    return list(map(for_spark, value)) if isinstance(value, list) else value


def _as_struct(value: Any, kind: StructType) -> Any:
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, Mapping):
        known = {field.name: field.dataType for field in kind}
        return {name: as_value(item, known[name]) if name in known else item for name, item in value.items()}
    if isinstance(value, tuple) and len(value) == len(kind):
        return {field.name: as_value(item, field.dataType) for field, item in zip(kind, value, strict=True)}
    return value


def _as_decimal(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return value


def _as_time(value: Any, kind: DataType) -> Any:
    from pyspark.sql import types

    if not isinstance(kind, types.DateType | types.TimestampType | types.TimestampNTZType):
        return value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return value
    elif type(value) is date and not isinstance(kind, types.DateType):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - its zone is the next line's business
    if not isinstance(value, datetime):
        return value
    if isinstance(kind, types.DateType):
        return value.date() if value.time() == datetime.min.time() else value
    in_utc = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return in_utc if isinstance(kind, types.TimestampType) else in_utc.replace(tzinfo=None)


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Every row of a DataFrame, with values as `as_value` gives them."""
    # Not by `collect`, whose times are in the zone of this machine.
    found = frame.toArrow().to_pylist()
    return [{name: as_value(value, frame.schema[name].dataType) for name, value in row.items()} for row in found]


def _shown(value: object) -> str:
    return repr(value) if len(repr(value)) <= 100 else f"a {type(value).__name__}"
