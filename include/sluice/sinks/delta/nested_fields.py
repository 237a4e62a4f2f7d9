"""The fields of structs that lie in a column: a merge takes them by their place, and fails where one is missing.

So a batch has them as the table does, whatever order the transform gives them in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sluice.delta_log.types import PARTS, sql_type
from sluice.errors import DeclarationError
from sluice.sinks.delta.implicit_casts import columns_of, types_of, with_types
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame


def check_whole(table: DeltaTable, frame: DataFrame, *, may_be_null: bool, place: str) -> None:
    """Make sure that no struct of a table loses a field to a merge: unlike a column, it is replaced as a whole.

    Args:
        table: The table.
        frame: The result, analysed.
        may_be_null: Whether a field that the result lacks may become null, unless the table forbids that.
        place: For messages.

    Raises:
        DeclarationError: It would.
    """
    kinds = types_of(table)
    for found in columns_of(frame)["fields"]:
        for path, is_nullable in _missing(found["type"], kinds.get(found["name"].lower()), found["name"]):
            if may_be_null and is_nullable:
                continue
            raise DeclarationError(
                f"the table has a field `{path}`{'' if is_nullable else ', NOT NULL'}, and the result has not: a merge"
                " replaces a struct as a whole, and would leave a null there",
                where=place,
                remedy="give the field in the transform, as a null if that is meant; or let the merge do so:"
                ' `sinks.delta(PATH, schema_evolution="add")`'
                if is_nullable
                else "give the field in the transform; or let the table do without:"
                f" `ALTER TABLE ... ALTER COLUMN {path} DROP NOT NULL`",
            )


def fitted(table: DeltaTable, frame: DataFrame) -> DataFrame:
    """A batch with the fields of its structs as the table has them, and with its types.

    A field that it lacks is null. It must be one that `schema_evolution.check_result` lets pass.
    """
    return fitted_to(types_of(table), frame)


def fitted_to(kinds: Mapping[str, Any], frame: DataFrame) -> DataFrame:
    """A batch as `fitted` gives it, for a table that has these types, by name in small letters."""
    # In this order: structs are cast by the places of their fields.
    return with_types(kinds, _in_order(kinds, frame))


def _in_order(kinds: Mapping[str, Any], frame: DataFrame) -> DataFrame:
    columns, is_other = [], False
    for found in columns_of(frame)["fields"]:
        named, to = identifier(found["name"]), kinds.get(found["name"].lower())
        value = _ordered(named, found["type"], to, 0)
        is_other = is_other or value != named
        columns.append(named if value == named else f"{value} AS {named}")
    return frame.selectExpr(*columns) if is_other else frame


def _missing(was: Any, to: Any, path: str) -> Iterator[tuple[str, bool]]:
    """The fields that only the table has, within what both have, and whether each may be null there."""
    if not _is_like(was, to):
        return
    if was["type"] == "struct":
        own = {field["name"].lower(): field["type"] for field in was["fields"]}
        for field in to["fields"]:
            below = f"{path}.{field['name']}"
            if (kind := own.get(field["name"].lower())) is None:
                yield below, field["nullable"]
            else:
                yield from _missing(kind, field["type"], below)
    for part, name in PARTS.items():
        yield from _missing(was.get(part), to.get(part), f"{path}.{name}")


def _ordered(value: str, was: Any, to: Any, depth: int) -> str:
    """A value, in SQL, with the fields in it as the table has them; as it was where it has them so."""
    if not _is_like(was, to):
        return value
    each, inner = f"each{depth}", depth + 1
    match was["type"]:
        case "struct":
            return _ordered_struct(value, was, to, depth)
        case "array":
            made_element = _ordered(each, was["elementType"], to["elementType"], inner)
            return value if made_element == each else f"transform({value}, {each} -> {made_element})"
        case _:
            key, made = f"key{depth}", value
            made_key = _ordered(key, was["keyType"], to["keyType"], inner)
            made_value = _ordered(each, was["valueType"], to["valueType"], inner)
            if made_value != each:
                # It asks for no keys: those that a map of JSON has twice are there twice.
                made = f"transform_values({made}, ({key}, {each}) -> {made_value})"
            return made if made_key == key else f"transform_keys({made}, ({key}, {each}) -> {made_key})"


def _ordered_struct(value: str, was: Any, to: Any, depth: int) -> str:
    own = {field["name"].lower(): field for field in was["fields"]}
    there = {field["name"].lower(): field for field in to["fields"]}
    # What only the result has, the table was to get before: the merge fails by it.
    names = [*there, *(name for name in own if name not in there)]
    made, is_other = [], names != list(own)
    for name in names:
        if (field := own.get(name)) is None:
            made.append(f"CAST(NULL AS {sql_type(there[name]['type'])}) AS {identifier(there[name]['name'])}")
            continue
        part = f"{value}.{identifier(field['name'])}"
        found = _ordered(part, field["type"], there.get(name, field)["type"], depth)
        is_other = is_other or found != part
        made.append(f"{found} AS {identifier(field['name'])}")
    return f"CASE WHEN {value} IS NOT NULL THEN struct({', '.join(made)}) END" if is_other else value


def _is_like(was: Any, to: Any) -> bool:
    """Whether both are structs, arrays or maps: others have nothing within them."""
    return isinstance(was, dict) and isinstance(to, dict) and was["type"] == to["type"]
