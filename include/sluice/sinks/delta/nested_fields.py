"""The fields of structs that lie in a column: a merge takes those below a map, or an array of arrays, by their place.

So a batch has them in the order of the table, whatever order the transform gives them in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_NESTED = {"struct", "array", "map"}
_PARTS = {"elementType": "element", "keyType": "key", "valueType": "value"}


def check_fields(table: DeltaTable, frame: DataFrame, *, place: str) -> None:
    """Make sure that one field is not taken for another: that those below a map or an array have the table's names.

    Args:
        table: The table.
        frame: The result, analysed.
        place: For messages.

    Raises:
        DeclarationError: They have others.
    """
    kinds = _columns(table)
    for found in json.loads(frame.schema.json())["fields"]:
        to = kinds.get(found["name"].casefold())
        for path, was, there in _renamed(found["type"], to, found["name"], is_below=False):
            raise DeclarationError(
                f"the structs in `{path}` have the fields {', '.join(was)} in the result and {', '.join(there)} in the"
                " table: a merge would take one for the other",
                where=place,
                remedy="give them in the transform the names that they have in the table",
            )


def in_order(table: DeltaTable, frame: DataFrame) -> DataFrame:
    """A batch with the fields of all its structs in the order of the table's."""
    kinds, columns, is_other = _columns(table), [], False
    for found in json.loads(frame.schema.json())["fields"]:
        named, to = identifier(found["name"]), kinds.get(found["name"].casefold())
        value = _ordered(named, found["type"], to, 0)
        is_other = is_other or value != named
        columns.append(named if value == named else f"{value} AS {named}")
    return frame.selectExpr(*columns) if is_other else frame


def _columns(table: DeltaTable) -> dict[str, Any]:
    return {found["name"].casefold(): found["type"] for found in json.loads(table.schema().to_json())["fields"]}


def _renamed(was: Any, to: Any, path: str, *, is_below: bool) -> Iterator[tuple[str, list[str], list[str]]]:
    if not _is_like(was, to):
        return
    if was["type"] == "struct":
        own, other = ([field["name"] for field in kind["fields"]] for kind in (was, to))
        if is_below and len(own) == len(other) and set(_folded(own)) != set(_folded(other)):
            yield path, own, other
        there = {field["name"].casefold(): field["type"] for field in to["fields"]}
        for field in was["fields"]:
            inner = there.get(field["name"].casefold())
            yield from _renamed(field["type"], inner, f"{path}.{field['name']}", is_below=is_below)
    for part, name in _PARTS.items():
        yield from _renamed(was.get(part), to.get(part), f"{path}.{name}", is_below=True)


def _ordered(value: str, was: Any, to: Any, depth: int) -> str:
    """A value, in SQL, with the fields in it in another order; as it was where they have that order."""
    if not _is_like(was, to):
        return value
    each, inner = f"each{depth}", depth + 1
    match was["type"]:
        case "struct":
            fields = {field["name"].casefold(): field for field in was["fields"]}
            names = [field["name"].casefold() for field in to["fields"]]
            # Those that only one of the two has stay where they are: at the end.
            names = [name for name in names if name in fields] + [name for name in fields if name not in names]
            kinds, own = {field["name"].casefold(): field["type"] for field in to["fields"]}, list(fields)
            parts = {name: f"{value}.{identifier(fields[name]['name'])}" for name in names}
            made = {name: _ordered(part, fields[name]["type"], kinds.get(name), depth) for name, part in parts.items()}
            if names == own and made == parts:
                return value
            found = ", ".join(f"{part} AS {identifier(fields[name]['name'])}" for name, part in made.items())
            return f"CASE WHEN {value} IS NOT NULL THEN struct({found}) END"
        case "array":
            made_element = _ordered(each, was["elementType"], to["elementType"], inner)
            return value if made_element == each else f"transform({value}, {each} -> {made_element})"
        case _:
            sides = {"key": "keyType", "value": "valueType"}
            pair = {name: _ordered(f"{each}.{name}", was[part], to[part], inner) for name, part in sides.items()}
            if all(made == f"{each}.{name}" for name, made in pair.items()):
                return value
            entry = f"struct({pair['key']} AS key, {pair['value']} AS value)"
            return f"map_from_entries(transform(map_entries({value}), {each} -> {entry}))"


def _is_like(was: Any, to: Any) -> bool:
    return isinstance(was, dict) and isinstance(to, dict) and was["type"] == to["type"] and was["type"] in _NESTED


def _folded(names: list[str]) -> list[str]:
    return [name.casefold() for name in names]
