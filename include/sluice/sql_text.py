"""Names and values as the text of Spark SQL expressions."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


def identifier(*parts: str) -> str:
    """A column, or a field of a struct in one, quoted."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def string_literal(value: str) -> str:
    """A string, so that Spark's parser gives back exactly this.

    `$` is written as an escape: Spark replaces variables (`${...}`) in any SQL text before it parses it.
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024").replace("\0", "\\u0000")
    return f"'{escaped}'"


def literal(value: Any, *, is_zoned: bool = True) -> str:
    """A value of a suite, with the type that PySpark's `lit` gives it.

    Args:
        value: None, a bool, a number, a string, a date or a datetime; times without a zone are UTC.
        is_zoned: Whether a datetime becomes a timestamp; else one without time zone.

    Raises:
        ValueError: Spark has no literal for it.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int() if abs(value) <= _LONG_MAX:
            return str(value) if abs(value) <= _INT_MAX else f"{value}L"
        case float():
            return f"{value!r}D" if math.isfinite(value) else f"double('{_spelled(value)}')"
        case Decimal():
            return f"{value:f}BD"
        case str():
            return string_literal(value)
        case datetime():
            moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            # `strftime` gives a year before 1000 fewer than four digits.
            text = moment.isoformat(sep=" ", timespec="microseconds")
            return f"TIMESTAMP'{text} UTC'" if is_zoned else f"TIMESTAMP_NTZ'{text}'"
        case date():
            return f"DATE'{value.isoformat()}'"
    raise ValueError(f"{json.dumps(value, default=str)[:80]} has no literal in Spark SQL")


def _spelled(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def all_of(*conditions: str | None) -> str | None:
    """Conditions joined by AND; None when there are none."""
    found = [f"({condition})" for condition in conditions if condition is not None]
    return " AND ".join(found) or None


def any_of(conditions: list[str]) -> str:
    """Conditions joined by OR; there is at least one."""
    return " OR ".join(f"({condition})" for condition in conditions)


def only_where(condition: str | None, expression: str) -> str:
    """An expression that is null outside of a condition: observed metrics take no FILTER clause."""
    return expression if condition is None else f"IF({condition}, {expression}, NULL)"
