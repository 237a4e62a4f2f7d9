"""Row-level expectations as Spark SQL: the rows they look at, the missing ones, and the unexpected ones.

The texts are what Great Expectations' own Spark engine evaluates, so that nulls, NaN and casts count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any

from sluice.errors import DeclarationError
from sluice.quality.columns import INTEGRAL, Column, Schema
from sluice.quality.comparability import check_comparable, check_same_family, require_family
from sluice.quality.row_conditions import condition_sql
from sluice.quality.suite import Expectation
from sluice.sql_text import all_of, any_of, literal, string_literal


@dataclass(frozen=True)
class RowRule:
    """What one row-level expectation asks of a row."""

    columns: tuple[Column, ...]
    domain: str | None
    """The rows that it looks at (`row_condition`); None for all. Never null."""
    missing: str | None
    """Of those, the ones that are left out of the count (nulls, `ignore_row_if`); None when none are. Never null."""
    unexpected: str
    """The unexpected rows: true for them, false or null for all others."""


def row_rule(expectation: Expectation, schema: Schema) -> RowRule:
    """Compile a row-level expectation whose path is `exact`.

    Raises:
        DeclarationError: A column does not exist or has a type that the expectation can't use.
    """
    arguments, place = expectation.arguments, expectation.place
    domain = condition_sql(arguments["row_condition"], arguments["condition_parser"], schema, place=place)
    if "column" in arguments:
        column = schema.find(arguments["column"], place=place)
        if expectation.type in _NULLITY:
            unexpected = _NULLITY[expectation.type].format(column.sql)
            return RowRule((column,), domain, None, _both(domain, unexpected))
        expected = _COLUMN[expectation.type](column, arguments, place)
        unexpected = f"{column.sql} IS NOT NULL AND NOT ({expected})"
        return RowRule((column,), domain, f"{column.sql} IS NULL", _both(domain, unexpected))
    names = [arguments["column_A"], arguments["column_B"]] if "column_A" in arguments else arguments["column_list"]
    columns = [schema.find(name, place=place) for name in names]
    missing = _ignored(arguments["ignore_row_if"], columns)
    expected = _COLUMNS[expectation.type](columns, arguments, place)
    kept = f"NOT ({missing})" if missing else None
    return RowRule(tuple(columns), domain, missing, all_of(domain, kept, f"NOT ({expected})") or "false")


def _both(domain: str | None, condition: str) -> str:
    return all_of(domain, condition) if domain else condition  # type: ignore[return-value]  # one is there


def _ignored(directive: str, columns: list[Column]) -> str | None:
    nulls = [f"{column.sql} IS NULL" for column in columns]
    match directive:
        case "both_values_are_missing" | "all_values_are_missing":
            return " AND ".join(nulls)
        case "either_value_is_missing" | "any_value_is_missing":
            return " OR ".join(nulls)
    return None


def _between(column: Column, arguments: Mapping[str, Any], place: str) -> str:
    require_family(column, ("number", "date", "timestamp", "timestamp_ntz"), "numbers, dates or times", place)
    for name in ("min_value", "max_value"):
        check_comparable(column, arguments[name], name, place)
    return _bounded(column.sql, arguments, is_zoned=column.family != "timestamp_ntz")


def _bounded(expression: str, arguments: Mapping[str, Any], *, is_zoned: bool = True) -> str:
    sides = []
    for name, strict, sign in (("min_value", "strict_min", ">"), ("max_value", "strict_max", "<")):
        bound: float | date | datetime | None = arguments[name]
        if bound is not None:
            sides.append(f"{expression} {sign}{'' if arguments[strict] else '='} {literal(bound, is_zoned=is_zoned)}")
    return " AND ".join(sides)


def _length_between(column: Column, arguments: Mapping[str, Any], place: str) -> str:
    require_family(column, ("string", "binary"), "strings", place)
    return _bounded(f"length({column.sql})", arguments)


def _length_equal(column: Column, arguments: Mapping[str, Any], place: str) -> str:
    require_family(column, ("string", "binary"), "strings", place)
    return f"length({column.sql}) = {literal(arguments['value'])}"


def in_list(column: Column, values: list[Any], place: str) -> str:
    """Whether the column's value is one of a suite's values."""
    for value in values:
        check_comparable(column, value, "value_set", place)
    return f"{column.sql} IN ({', '.join(_value(value, place) for value in values)})" if values else "false"


def _in_set(column: Column, arguments: Mapping[str, Any], place: str) -> str:
    return in_list(column, arguments["value_set"], place)


def _not_in_set(column: Column, arguments: Mapping[str, Any], place: str) -> str:
    return f"NOT ({in_list(column, arguments['value_set'], place)})"


def _value(value: Any, place: str) -> str:
    try:
        return literal(value)
    except ValueError as exc:
        raise DeclarationError(str(exc), where=place, remedy="leave it out: no column can hold it") from exc


def _patterns(
    column: Column,
    arguments: Mapping[str, Any],
    place: str,
    *,
    operator: str,
    one: str,
    several: str,
    is_negated: bool,
) -> str:
    require_family(column, ("string",), "strings", place)
    patterns: list[str] = arguments[several] if several in arguments else [arguments[one]]
    escape = arguments.get("escape")
    ending = f" ESCAPE {string_literal(escape)}" if escape else ""
    if operator == "RLIKE" and arguments.get("match_on") == "any":
        patterns = ["|".join(patterns)]
    matches = [f"{column.sql} {operator} {string_literal(pattern)}{ending}" for pattern in patterns]
    if is_negated:
        return " AND ".join(f"NOT ({match})" for match in matches)
    return any_of(matches) if arguments.get("match_on") == "any" else " AND ".join(f"({match})" for match in matches)


_regex = partial(_patterns, operator="RLIKE", one="regex", several="regex_list", is_negated=False)
_no_regex = partial(_patterns, operator="RLIKE", one="regex", several="regex_list", is_negated=True)
_like = partial(_patterns, operator="LIKE", one="like_pattern", several="like_pattern_list", is_negated=False)
_no_like = partial(_patterns, operator="LIKE", one="like_pattern", several="like_pattern_list", is_negated=True)


def _greater(columns: list[Column], arguments: Mapping[str, Any], place: str) -> str:
    check_same_family(columns, place)
    a, b = (column.sql for column in columns)
    return f"{a} >= {b} OR {a} <=> {b}" if arguments["or_equal"] else f"{a} > {b}"


def _pair_in_set(columns: list[Column], arguments: Mapping[str, Any], place: str) -> str:
    a, b = columns
    wanted = []
    for first, second in arguments["value_pairs_set"]:
        check_comparable(a, first, "value_pairs_set", place)
        check_comparable(b, second, "value_pairs_set", place)
        wanted.append(f"{a.sql} <=> {_value(first, place)} AND {b.sql} <=> {_value(second, place)}")
    return any_of(wanted)


def _all_equal(columns: list[Column], _: Mapping[str, Any], place: str) -> str:
    check_same_family(columns, place)
    return " AND ".join(f"{columns[0].sql} <=> {column.sql}" for column in columns[1:])


def _all_different(columns: list[Column], _: Mapping[str, Any], place: str) -> str:
    check_same_family(columns, place)
    equal = [f"{one.sql} <=> {other.sql}" for number, one in enumerate(columns) for other in columns[number + 1 :]]
    return f"NOT ({any_of(equal)})"


def _sum_equals(columns: list[Column], arguments: Mapping[str, Any], place: str) -> str:
    total = ""
    for column in columns:
        require_family(column, ("number",), "numbers", place)
        term = f"coalesce({column.sql}, 0)"
        if column.base in INTEGRAL:
            term = f"CAST({term} AS DECIMAL(38, 0))"
        total = f"try_add({total}, {term})" if total else term
    return f"{total} = {literal(arguments['sum_total'])}"


_NULLITY = {
    "expect_column_values_to_not_be_null": "{} IS NULL",
    "expect_column_values_to_be_null": "{} IS NOT NULL",
}
_COLUMN: Mapping[str, Callable[[Column, Mapping[str, Any], str], str]] = {
    "expect_column_values_to_be_between": _between,
    "expect_column_value_lengths_to_be_between": _length_between,
    "expect_column_value_lengths_to_equal": _length_equal,
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_not_be_in_set": _not_in_set,
    "expect_column_values_to_match_regex": _regex,
    "expect_column_values_to_match_regex_list": _regex,
    "expect_column_values_to_not_match_regex": _no_regex,
    "expect_column_values_to_not_match_regex_list": _no_regex,
    "expect_column_values_to_match_like_pattern": _like,
    "expect_column_values_to_match_like_pattern_list": _like,
    "expect_column_values_to_not_match_like_pattern": _no_like,
    "expect_column_values_to_not_match_like_pattern_list": _no_like,
}
_COLUMNS: Mapping[str, Callable[[list[Column], Mapping[str, Any], str], str]] = {
    "expect_column_pair_values_a_to_be_greater_than_b": _greater,
    "expect_column_pair_values_to_be_equal": _all_equal,
    "expect_column_pair_values_to_be_in_set": _pair_in_set,
    "expect_multicolumn_sum_to_equal": _sum_equals,
    "expect_multicolumn_values_to_be_equal": _all_equal,
    "expect_select_column_values_to_be_unique_within_record": _all_different,
}
