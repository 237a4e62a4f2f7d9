"""Which values a column can be compared with: Spark 4 raises in the middle of a run where it can't cast."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any

from sluice.errors import DeclarationError
from sluice.quality.columns import Column

_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?")


def check_comparable(column: Column, value: Any, argument: str, place: str) -> None:
    """Refuse a value of a suite that the column's type can't be compared with; None goes with any.

    Raises:
        DeclarationError: It can't.
    """
    if value is not None and not _is_comparable(column, value):
        raise DeclarationError(
            f"`{argument}` has {value!r}, but `{column.name}` is {column.type}",
            where=place,
            remedy=f"give {_wanted(column)}, or check another column",
        )


def check_same_family(columns: list[Column], place: str) -> None:
    """Refuse columns that can't be compared with each other.

    Raises:
        DeclarationError: Two of them can't.
    """
    first = columns[0]
    for other in columns[1:]:
        moments = first.family in _MOMENTS and other.family in _MOMENTS
        alike = first.family == other.family and (first.family not in {"nested", "other"} or first.type == other.type)
        if not (moments or alike):
            raise DeclarationError(
                f"`{first.name}` is {first.type} and `{other.name}` is {other.type}",
                where=place,
                remedy="compare columns of one kind",
            )


def require_family(column: Column, families: tuple[str, ...], what: str, place: str) -> None:
    """Refuse a column whose type an expectation can't use.

    Raises:
        DeclarationError: It can't.
    """
    if column.family not in families:
        raise DeclarationError(
            f"`{column.name}` is {column.type}", where=place, remedy=f"name a column of {what}, or remove this check"
        )


def _is_comparable(column: Column, value: Any) -> bool:
    match column.family:
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "date" | "timestamp" | "timestamp_ntz":
            return isinstance(value, date) or (isinstance(value, str) and _is_moment(value))
    return False


def _is_moment(text: str) -> bool:
    """Whether Spark can cast a text: it knows less of ISO 8601 than Python."""
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _wanted(column: Column) -> str:
    return {
        "number": "numbers",
        "string": "strings",
        "boolean": "true or false",
        "nested": "nothing: it is no single value",
        "other": "nothing: Spark does not compare it",
        "binary": "nothing: a suite has no binary values",
    }.get(column.family, "dates or times in ISO 8601")
