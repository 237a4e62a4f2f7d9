"""Row conditions of Great Expectations 1.24 as Spark SQL: which rows an expectation looks at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sluice.errors import DeclarationError
from sluice.quality.columns import Column, Schema
from sluice.quality.comparability import check_comparable
from sluice.sql_text import string_literal

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_MAX_DEPTH = 20
_LEGACY = re.compile(
    r"""\s*col\("(?P<column>[^"]+)"\)
    (?:(?P<notnull>\.notnull\(\)) | \s*(?P<operator>==|!=|<=|>=|<|>)\s*
       (?: (?P<number>[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
         | (?:date\(\s*)? (?:"(?P<double>[^"']+)"|'(?P<single>[^"']+)') (?:\s*\))? ) )\s*""",
    re.VERBOSE | re.IGNORECASE,
)


def condition_sql(condition: Any, parser: Any, schema: Schema, *, place: str) -> str | None:
    """The rows that an expectation looks at, as a condition that is never null; None for all rows.

    Args:
        condition: `row_condition`, in any form that Great Expectations writes.
        parser: `condition_parser`; says what language a string is.
        schema: The columns.
        place: The expectation, for messages.

    Raises:
        DeclarationError: It does not parse, names no column, or compares what can't be compared.
    """
    if condition is None or condition == "":
        return None
    if isinstance(condition, str):
        if parser == "spark":
            return f"coalesce(({condition}), false)"
        if parser in {"great_expectations", "great_expectations__experimental__"}:
            return f"coalesce({_legacy(condition, schema, place)}, false)"
        raise DeclarationError(
            f"`condition_parser` is {parser!r}",
            where=place,
            remedy="use `great_expectations` or `spark`, or a condition made with `Column`",
        )
    return f"coalesce({_structured(condition, schema, place, 0)}, false)"


def _structured(condition: Any, schema: Schema, place: str, depth: int) -> str:
    if not isinstance(condition, Mapping) or depth > _MAX_DEPTH:
        raise _unknown(condition, place)
    match condition.get("type"):
        case "pass_through" if isinstance(condition.get("pass_through_filter"), str):
            return f"({condition['pass_through_filter']})"
        case "and" | "or" if isinstance(condition.get("conditions"), list) and condition["conditions"]:
            parts = [_structured(part, schema, place, depth + 1) for part in condition["conditions"]]
            return "(" + f" {condition['type'].upper()} ".join(parts) + ")"
        case "nullity" if isinstance(condition.get("is_null"), bool):
            negation = "" if condition["is_null"] else "NOT "
            return f"{_column(condition, schema, place).sql} IS {negation}NULL"
        case "comparison":
            return _comparison(
                _column(condition, schema, place), condition.get("operator"), condition.get("parameter"), place
            )
    raise _unknown(condition, place)


def _comparison(column: Column, operator: Any, value: Any, place: str) -> str:
    if operator in {"IN", "NOT_IN"} and isinstance(value, list):
        for item in value:
            check_comparable(column, item, "row_condition", place)
        negation = "NOT " if operator == "NOT_IN" else ""
        if not value:
            return "true" if negation else "false"
        return f"{column.sql} {negation}IN ({', '.join(_text(item, place) for item in value)})"
    if operator not in _COMPARISONS or value is None:
        raise _unknown({"operator": operator, "parameter": value}, place)
    check_comparable(column, value, "row_condition", place)
    return f"{column.sql} {operator} {_text(value, place)}"


def _legacy(condition: str, schema: Schema, place: str) -> str:
    match = _LEGACY.fullmatch(condition)
    if match is None:
        raise DeclarationError(
            f"the row condition {condition[:80]!r} does not parse",
            where=place,
            remedy='write `col("name") > 5`, `col("name") == "text"` or `col("name").notnull()`',
        )
    column = schema.find(match["column"], place=place)
    if match["notnull"]:
        return f"{column.sql} IS NOT NULL"
    text = match["number"] or match["double"] or match["single"]
    value: Any = text
    if match["number"] or column.family == "number":
        try:
            value = int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        except ValueError:
            value = text
    return _comparison(column, match["operator"], value, place)


def _column(condition: Mapping[str, Any], schema: Schema, place: str) -> Column:
    column = condition.get("column")
    name = column.get("name") if isinstance(column, Mapping) else None
    if not isinstance(name, str):
        raise _unknown(condition, place)
    return schema.find(name, place=place)


def _text(value: Any, place: str) -> str:
    """A value as Great Expectations spells it in a filter: a fraction is a decimal there, not a double."""
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise _unknown(value, place)


def _unknown(condition: Any, place: str) -> DeclarationError:
    return DeclarationError(
        f"the row condition {str(condition)[:100]} is none",
        where=place,
        remedy="write it as Great Expectations does: comparison, nullity, and, or, pass_through",
    )
