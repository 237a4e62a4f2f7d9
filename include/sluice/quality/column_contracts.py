"""Expectations that the columns alone answer: which there are, in what order, of what type."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from sluice.errors import DeclarationError
from sluice.quality.columns import Schema
from sluice.quality.suite import Expectation

_INTEGRAL = ("IntegralType", "NumericType", "AtomicType", "DataType")
_FRACTIONAL = ("FractionalType", "NumericType", "AtomicType", "DataType")
_ATOMIC = ("AtomicType", "DataType")
_CLASSES: Mapping[str, tuple[str, ...]] = {
    "tinyint": ("ByteType", *_INTEGRAL),
    "smallint": ("ShortType", *_INTEGRAL),
    "int": ("IntegerType", *_INTEGRAL),
    "bigint": ("LongType", *_INTEGRAL),
    "float": ("FloatType", *_FRACTIONAL),
    "double": ("DoubleType", *_FRACTIONAL),
    "decimal": ("DecimalType", *_FRACTIONAL),
    "string": ("StringType", *_ATOMIC),
    "varchar": ("VarcharType", *_ATOMIC),
    "char": ("CharType", *_ATOMIC),
    "boolean": ("BooleanType", *_ATOMIC),
    "binary": ("BinaryType", *_ATOMIC),
    "date": ("DateType", "DatetimeType", *_ATOMIC),
    "timestamp": ("TimestampType", "DatetimeType", *_ATOMIC),
    "timestamp_ntz": ("TimestampNTZType", "DatetimeType", *_ATOMIC),
    "array": ("ArrayType", "DataType"),
    "map": ("MapType", "DataType"),
    "struct": ("StructType", "DataType"),
    "variant": ("VariantType", *_ATOMIC),
    "void": ("NullType", "DataType"),
}
"""The classes of `pyspark.sql.types` that a column of a type is an instance of, its own first."""
_KNOWN = frozenset(name for names in _CLASSES.values() for name in names)


@dataclass(frozen=True)
class SchemaResult:
    """What the columns say about an expectation, as Great Expectations says it."""

    success: bool
    result: Mapping[str, Any] = field(default_factory=dict)


def check_schema(expectation: Expectation, schema: Schema) -> SchemaResult:
    """Answer an expectation whose path is `schema`.

    Raises:
        DeclarationError: It names a type that Spark does not have, or a column that does not exist.
    """
    arguments = expectation.arguments
    match expectation.type:
        case "expect_column_to_exist":
            return _exists(arguments, schema)
        case "expect_column_type_to_be" | "expect_column_values_to_be_of_type":
            return _type(expectation, [arguments["type_"]], schema)
        case "expect_column_values_to_be_in_type_list":
            return _type(expectation, arguments["type_list"], schema)
        case "expect_table_columns_to_match_ordered_list":
            return _in_order(arguments["column_list"], schema.names)
        case "expect_table_columns_to_match_set":
            return _as_set(arguments, schema.names)
        case "expect_table_column_count_to_equal":
            return _counted(len(schema.names) == arguments["value"], schema)
    low, high = arguments["min_value"], arguments["max_value"]
    count = len(schema.names)
    return _counted((low is None or count >= low) and (high is None or count <= high), schema)


def _counted(success: bool, schema: Schema) -> SchemaResult:  # noqa: FBT001 - the result of a comparison
    return SchemaResult(success, {"observed_value": len(schema.names)})


def _exists(arguments: Mapping[str, Any], schema: Schema) -> SchemaResult:
    index, names = arguments["column_index"], schema.names
    if not index:
        return SchemaResult(arguments["column"] in names)
    return SchemaResult(-len(names) <= index < len(names) and names[index] == arguments["column"])


def _type(expectation: Expectation, wanted: list[str] | None, schema: Schema) -> SchemaResult:
    column = schema.find(expectation.arguments["column"], place=expectation.place)
    classes = _CLASSES.get(column.base, (column.base, "DataType"))
    for name in wanted or []:
        if name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.4)
            raise DeclarationError(
                f"Spark has no type `{name}`",
                where=expectation.place,
                remedy=f"did you mean `{near[0]}`?" if near else f"use one of: {', '.join(sorted(_KNOWN))}",
            )
    success = wanted is None or any(name in classes for name in wanted)
    return SchemaResult(success, {"observed_value": classes[0]})


def _in_order(expected: list[str] | None, found: list[str]) -> SchemaResult:
    if expected is None or expected == found:
        return SchemaResult(success=True, result={"observed_value": found})
    mismatched = [
        {"Expected Column Position": position, "Expected": wanted, "Found": name}
        for position, (wanted, name) in enumerate(zip_longest(expected, found))
        if wanted != name
    ]
    return SchemaResult(success=False, result={"observed_value": found, "details": {"mismatched": mismatched}})


def _as_set(arguments: Mapping[str, Any], names: list[str]) -> SchemaResult:
    expected, found = set(arguments["column_set"] or []), set(names)
    mismatched = {}
    if found - expected:
        mismatched["unexpected"] = sorted(found - expected)
    if expected - found:
        mismatched["missing"] = sorted(expected - found)
    result: dict[str, Any] = {"observed_value": sorted(found)}
    if not mismatched:
        return SchemaResult(success=True, result=result)
    is_wrong = arguments["exact_match"] or "missing" in mismatched
    return SchemaResult(not is_wrong, {**result, "details": {"mismatched": mismatched}})
