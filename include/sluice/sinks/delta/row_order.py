"""Which of two rows is the greater: an order in which no two rows are equal that are not the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sluice.sql_text import identifier

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

UNORDERED = ("map<", "variant", "interval")
"""What the name of a type has in it whose values are in no order that Spark knows."""


def ordered(columns: Sequence[str], kinds: Mapping[str, DataType], before: str = "") -> Iterator[str]:
    """What rows are compared by, in SQL, each column after the other.

    By their names: the order in which a transform gives them means nothing.

    Args:
        columns: Their columns.
        kinds: The types of these, by name.
        before: Stands before each name: whose columns they are.
    """
    for name in sorted(columns):
        yield comparable(f"{before}{identifier(name)}", kinds[name])


def comparable(value: str, kind: DataType, depth: int = 0) -> str:
    """A value such that Spark compares it, and finds no other one equal; null stays null.

    Args:
        value: In SQL.
        kind: Its type.
        depth: Within how many arrays and maps it lies.
    """
    from pyspark.sql import types

    if not _needs_help(kind):
        return value
    each, inner = f"each{depth}", depth + 1
    match kind:
        case types.StructType():
            fields = (comparable(f"{value}.{identifier(field.name)}", field.dataType, depth) for field in kind.fields)
            found = f"struct({', '.join(fields)})"
        case types.ArrayType():
            found = f"transform({value}, {each} -> {comparable(each, kind.elementType, inner)})"
        case types.MapType():
            pair = f"{each}.key", f"{each}.value"
            key, element = comparable(pair[0], kind.keyType, inner), comparable(pair[1], kind.valueType, inner)
            found = f"transform(map_entries({value}), {each} -> struct({key}, {element}))"
        case types.FloatType() | types.DoubleType():
            # To Spark, both zeros are one.
            found = f"struct({value}, CAST({value} AS STRING) <> '-0.0')"
        case types.StringType():
            found = f"struct({value}, CAST({value} AS BINARY))"
        case types.VariantType():
            # As text, a 1 is a 1, whatever number it is.
            found = f"struct(to_json({value}), schema_of_variant({value}))"
        case _:
            found = f"CAST({value} AS STRING)"
    return f"CASE WHEN {value} IS NOT NULL THEN {found} END"


def _needs_help(kind: DataType) -> bool:
    """Whether Spark can't compare values of a type, or takes some of them for equal that are not the same."""
    from pyspark.sql import types

    match kind:
        case types.StructType():
            return any(_needs_help(field.dataType) for field in kind.fields)
        case types.ArrayType():
            return _needs_help(kind.elementType)
        case types.StringType():
            return not kind.isUTF8BinaryCollation()
    unlike = types.FloatType, types.DoubleType, types.MapType, types.VariantType, types.CalendarIntervalType
    return isinstance(kind, unlike)
