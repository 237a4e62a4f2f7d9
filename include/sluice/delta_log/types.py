"""Types of columns, as Delta's log and Spark's JSON have them: by their name, or as an object where they are nested."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sluice.delta_log.table import spark_type
from sluice.sql_text import identifier

DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""The whole numbers, the narrowest first, and how many digits one can have."""
PARTS = {"elementType": "element", "keyType": "key", "valueType": "value"}
"""What an array or a map has within it, and what Delta calls that in the path of a column."""
TYPE_WIDENING = "delta.enableTypeWidening"
"""The property by which a column of a table may get a wider type."""
_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
"""By a type, those that Delta widens it to; decimals are told by their places."""
_DIGITS_FOR = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""How many digits before its point a decimal needs that a whole number is widened to."""
_PART_OF_A_PATH = re.compile(r"[.`\n]")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def read_columns(schema: str) -> Any:
    """The columns of a result, from Spark's JSON; a type of a user's is the one that it is kept as."""
    return json.loads(schema, object_hook=_as_kept)


def _as_kept(kind: dict[str, Any]) -> Any:
    return kind["sqlType"] if kind.get("type") == "udt" else kind


def result_columns(schema: str) -> str:
    """The columns of a result, and the fields within them, from Spark's JSON: a line for each."""
    return "\n".join(path for path, _ in column_paths(read_columns(schema)))


def column_paths(kind: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """The columns of a type, and the fields within them, each with its own type."""
    if not isinstance(kind, dict):
        return
    for found in kind.get("fields", ()):
        path = f"{before}{path_part(found['name'])}"
        yield path, found["type"]
        yield from column_paths(found["type"], f"{path}.")
    for part, name in PARTS.items():
        if part in kind:
            yield from column_paths(kind[part], f"{before}{name}.")


def path_part(name: str) -> str:
    """A column or a field in the path of what is within it: a dot of its own is none of the path's."""
    return identifier(name).replace("\n", "\\n") if _PART_OF_A_PATH.search(name) else name


def is_wider(was: str, to: str) -> bool:
    """Whether Delta widens a column of one type to another one, in a table with that feature."""
    before, after = places(was), places(to)
    if before is None or after is None or to in DIGITS:
        return to in _WIDER.get(was, ())
    return after[0] >= _DIGITS_FOR.get(was, before[0]) and after[1] >= before[1]


def places(kind: str) -> tuple[int, int] | None:
    """How many digits an exact number has before and after its point; None for other types."""
    if kind in DIGITS:
        return DIGITS[kind], 0
    match = _DECIMAL.fullmatch(kind)
    return None if match is None else (int(match[1]) - int(match[2]), int(match[2]))


def is_same(one: Any, other: Any) -> bool:
    """Whether two types are the same, whatever may be null in them."""
    return spark_type(one).lower() == spark_type(other).lower()


def sql_type(kind: Any) -> str:
    """A type in SQL."""
    if not isinstance(kind, dict):
        return spark_type(kind)
    if kind["type"] == "struct":
        fields = (f"{identifier(found['name'])}: {sql_type(found['type'])}" for found in kind["fields"])
        return f"STRUCT<{', '.join(fields)}>"
    return f"{kind['type'].upper()}<{', '.join(sql_type(kind[part]) for part in PARTS if part in kind)}>"
