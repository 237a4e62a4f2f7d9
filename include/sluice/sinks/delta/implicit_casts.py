"""Values whose type in the result is not that of the table's column, and which the column has as they are.

Spark's writers cast also others, as `spark.sql.storeAssignmentPolicy` says: a fraction or a time of day that the column
has no place for is dropped without a word, and a text fails its batch at the first one that is no number. Such types
are refused before a batch is planned; the casts by which no value changes, and none fails, are made here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice.delta_log.exact_types import NOTHING, is_exact
from sluice.delta_log.types import PARTS, is_same, read_columns, sql_type
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame


def with_types(kinds: Mapping[str, Any], frame: DataFrame) -> DataFrame:
    """A result with its columns cast to types, by name in small letters, where every value is the same there.

    Delta's batch writer casts nothing. Its stream writer does, and then Spark does not know how many rows it has read.
    """
    columns, is_cast = [], False
    for found in columns_of(frame)["fields"]:
        named, was = identifier(found["name"]), found["type"]
        to = kinds.get(found["name"].lower(), was)
        if has_values(to, was) and not is_same(was, to):
            columns.append(f"CAST({named} AS {sql_type(to)}) AS {named}")
            is_cast = True
        else:
            columns.append(named)
    return frame.selectExpr(*columns) if is_cast else frame


def types_of(table: DeltaTable) -> dict[str, Any]:
    """The types of a table's columns, by their names in small letters, as Delta's log has them."""
    return {found["name"].lower(): found["type"] for found in json.loads(table.schema().to_json())["fields"]}


def columns_of(frame: DataFrame) -> Any:
    """The columns of a result."""
    return read_columns(frame.schema.json())


def has_values(to: Any, was: Any) -> bool:
    """Whether a type has every value of another one as it is; of structs, whose fields are the same in order."""
    if was == NOTHING:
        # Delta refuses what has no type before it casts.
        return True
    if not isinstance(was, dict) or not isinstance(to, dict):
        return isinstance(was, str) and isinstance(to, str) and is_exact(was, to)
    if was["type"] != to["type"]:
        return False
    if was["type"] == "struct":
        names = [[found["name"].lower() for found in kind["fields"]] for kind in (was, to)]
        pairs = zip(to["fields"], was["fields"], strict=False)
        return names[0] == names[1] and all(has_values(one["type"], other["type"]) for one, other in pairs)
    return all(has_values(to[part], was[part]) for part in PARTS if part in was and part in to)
