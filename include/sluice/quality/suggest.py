"""Suggests a suite from what a slice of rows looks like: ranges, sets, lengths, patterns, and how often values lack.

    profile_measures -> one reading -> few_valued -> a second one of those columns -> suggest_suite

Everything that is suggested holds for the very rows it was seen in. Pure: Spark computes the measures elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sluice.quality.columns import INTEGRAL, Column, Schema
from sluice.quality.measures import as_text, decode, reading_of
from sluice.sql_text import only_where, string_literal

MOST_VALUES = 20
"""How many different values a set may have."""
_ROWS_PER_VALUE = 10
"""How often each value of a set must have been seen on average: fewer, and the next run has a new one."""
_LEAST_ROWS = 20
"""With fewer rows than that, a pattern is chance."""
_LARGEST_EXACT = 2**53
_PATTERNS = {
    "UUIDs": r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "dates": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "times in ISO 8601": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][0-9:]+)?$",
    "mail addresses": r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
    "digits": r"^[0-9]+$",
    "capital letters": r"^[A-Z]+$",
    "capital letters and digits": r"^[A-Z0-9]+$",
}
"""What is obvious, by what people call it; the first one that every value matches counts."""
ROWS = "rows"


def profile_measures(schema: Schema) -> dict[str, str]:
    """The aggregates of one reading, as Spark SQL by name."""
    found = {ROWS: "count(1)"}
    for number, column in _profiled(schema):
        found |= {f"{role}_{number}": sql for role, sql in _column_measures(column)}
    return found


def few_valued(schema: Schema, profile: Mapping[str, Any]) -> dict[str, str]:
    """The aggregates of the second reading: the values of strings that have few, as Spark SQL by name.

    Args:
        schema: The columns.
        profile: What the first reading gave.
    """
    found = {}
    for number, column in _profiled(schema):
        present, distinct = profile[f"present_{number}"], profile.get(f"distinct_{number}")
        # The count is approximate: whether there are few enough is known when the values are there.
        if distinct is not None and distinct <= 1.2 * MOST_VALUES and present >= _ROWS_PER_VALUE * distinct * 0.8:
            found[f"values_{number}"] = f"array_sort(collect_set({column.sql}))"
    return found


def suggest_suite(name: str, schema: Schema, profile: Mapping[str, Any], seen_in: str) -> dict[str, Any]:
    """A suite in the form that Great Expectations writes, to be edited.

    Args:
        name: What the suite is called.
        schema: The columns.
        profile: What both readings gave.
        seen_in: Where the rows are from, for the suite's notes.
    """
    rows = profile[ROWS]
    expectations = [
        _expectation(
            "expect_table_row_count_to_be_between",
            {"min_value": 1},
            f"The slice had {rows:,} rows. A run has its own number: set bounds that fit one.",
        ),
        _expectation(
            "expect_table_columns_to_match_set",
            {"column_set": schema.names, "exact_match": False},
            f"The {len(schema.names)} columns of the slice; more are fine.",
        ),
    ]
    left_out = [column.name for column in schema.columns if not _is_nameable(column)]
    for number, column in _profiled(schema):
        expectations += _column_expectations(column, _Seen(profile, number))
    notes = [
        f"Suggested by `sluice quality suggest` from {rows:,} rows of {seen_in}.",
        "Everything here holds for those rows, and none of it stops a run: every policy is `warn`.",
        "Remove what is chance, widen what is narrow, then set `drop`, `quarantine` or `fail`.",
    ]
    if left_out:
        notes.append(f"Columns that SQL can't name are left out: {', '.join(left_out)}.")
    return {
        "name": name,
        "id": None,
        "expectations": expectations,
        "meta": {"notes": {"format": "markdown", "content": notes}},
        "notes": None,
    }


class _Seen:
    """What both readings gave of one column."""

    def __init__(self, profile: Mapping[str, Any], number: int) -> None:
        self._profile, self._number = profile, number
        self.rows: int = profile[ROWS]
        self.present: int = profile[f"present_{number}"]

    def __getitem__(self, role: str) -> Any:
        return self._profile.get(f"{role}_{self._number}")


def _profiled(schema: Schema) -> Iterator[tuple[int, Column]]:
    return ((number, column) for number, column in enumerate(schema.columns) if _is_nameable(column))


def _is_nameable(column: Column) -> bool:
    return "${" not in column.name


def _column_measures(column: Column) -> Iterator[tuple[str, str]]:
    yield "present", f"count({column.sql})"
    if column.family in {"number", "date", "timestamp", "timestamp_ntz"}:
        value = column.sql
        if column.base in {"float", "double"}:
            # NaN is greater than every number, and no bound for people.
            is_nan = f"isnan({column.sql})"
            yield "nan", f"count_if({is_nan})"
            value = only_where(f"NOT {is_nan}", column.sql)
        yield "least", as_text(column, f"min({value})")
        yield "greatest", as_text(column, f"max({value})")
    elif column.base == "string":
        yield "shortest", f"min(length({column.sql}))"
        yield "longest", f"max(length({column.sql}))"
        yield "distinct", f"approx_count_distinct({column.sql})"
        for number, pattern in enumerate(_PATTERNS.values()):
            yield f"pattern{number}", f"count_if({column.sql} RLIKE {string_literal(pattern)})"


def _column_expectations(column: Column, seen: _Seen) -> Iterator[dict[str, Any]]:
    named = {"column": column.name if len(column.path) == 1 and "." not in column.path[0] else column.sql}
    if not seen.present:
        return
    yield from _presence(named, seen)
    if column.family == "number":
        yield from _range(column, named, seen)
    elif column.family in {"date", "timestamp", "timestamp_ntz"}:
        yield from _moments(column, named, seen)
    elif column.base == "string":
        yield from _texts(named, seen)


def _presence(named: Mapping[str, Any], seen: _Seen) -> Iterator[dict[str, Any]]:
    missing = seen.rows - seen.present
    share = _share(seen.present, seen.rows)
    if not missing:
        yield _expectation("expect_column_values_to_not_be_null", named, "Every row had a value.")
    elif share > 0:
        note = f"{missing:,} of {seen.rows:,} rows ({100 * missing / seen.rows:.2g} %) had no value."
        yield _expectation("expect_column_values_to_not_be_null", {**named, "mostly": share}, note)


def _range(column: Column, named: Mapping[str, Any], seen: _Seen) -> Iterator[dict[str, Any]]:
    low, high = (decode(seen[role], reading_of(column)) for role in ("least", "greatest"))
    if low is None:
        return
    bounds = {"min_value": _outward(low, -math.inf), "max_value": _outward(high, math.inf)}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    nans = seen["nan"] or 0
    share = _share(seen.present - nans, seen.present)
    if not bounds or share <= 0:
        return
    note = f"Values from {low} to {high} were seen."
    if nans:
        bounds, note = {**bounds, "mostly": share}, f"{note} {nans:,} were no number (NaN)."
    elif column.base not in INTEGRAL and low == high:
        note += " It was always the same."
    yield _expectation("expect_column_values_to_be_between", {**named, **bounds}, note)


def _moments(column: Column, named: Mapping[str, Any], seen: _Seen) -> Iterator[dict[str, Any]]:
    low, high = (decode(seen[role], reading_of(column)) for role in ("least", "greatest"))
    if not isinstance(low, date | datetime):
        return
    note = f"From {low.isoformat()} to {high.isoformat()} were seen. There is no upper bound: time goes on."
    yield _expectation("expect_column_values_to_be_between", {**named, "min_value": low.isoformat()}, note)


def _texts(named: Mapping[str, Any], seen: _Seen) -> Iterator[dict[str, Any]]:
    values: Sequence[str] | None = seen["values"]
    if values is not None and len(values) <= MOST_VALUES and seen.present >= _ROWS_PER_VALUE * len(values):
        note = f"{seen.present:,} rows had {len(values)} different values."
        yield _expectation("expect_column_values_to_be_in_set", {**named, "value_set": list(values)}, note)
        return
    shortest, longest = seen["shortest"], seen["longest"]
    note = f"The shortest had {shortest:,} characters, the longest {longest:,}."
    if shortest == longest:
        yield _expectation("expect_column_value_lengths_to_equal", {**named, "value": shortest}, note)
    else:
        lengths = {"min_value": shortest, "max_value": longest}
        yield _expectation("expect_column_value_lengths_to_be_between", {**named, **lengths}, note)
    if seen.present < _LEAST_ROWS:
        return
    for number, (what, pattern) in enumerate(_PATTERNS.items()):
        if seen[f"pattern{number}"] == seen.present:
            note = f"All {seen.present:,} values were {what}."
            yield _expectation("expect_column_values_to_match_regex", {**named, "regex": pattern}, note)
            return


def _share(part: int, whole: int) -> float:
    """A share that is met, in whole percent."""
    return math.floor(100 * part / whole) / 100 if whole else 0.0


def _outward(value: Any, direction: float) -> float | int | None:
    """A bound that holds for a value, as JSON can have it and Great Expectations reads it: a double."""
    if isinstance(value, int) and abs(value) <= _LARGEST_EXACT:
        return value
    bound = float(value)
    if not math.isfinite(bound):
        return None
    is_inside = Decimal(bound) > Decimal(value) if direction < 0 else Decimal(bound) < Decimal(value)
    return math.nextafter(bound, direction) if is_inside else bound


def _expectation(kind: str, kwargs: Mapping[str, Any], note: str) -> dict[str, Any]:
    return {
        "type": kind,
        "kwargs": dict(kwargs),
        "severity": "warning",
        "meta": {"notes": {"format": "markdown", "content": [note]}, "sluice": {"policy": "warn"}},
    }
