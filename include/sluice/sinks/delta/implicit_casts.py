"""What becomes of values whose type in the result is not that of the table's column.

Delta's stream writer casts them, as `spark.sql.storeAssignmentPolicy` says: a number that is too large fails the batch,
but a fraction, a time of day or a digit that the column has no place for is dropped without a word. Such a pair of
types is refused before a batch is written. Delta's batch writer casts nothing, and refuses every other type; there the
harmless casts are made before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sluice.delta_table import spark_type
from sluice.errors import DeclarationError
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""The whole numbers, the narrowest first, and how many digits one can have."""
_EXACT_IN = {"float": ("byte", "short"), "double": ("byte", "short", "integer", "float")}
"""The numbers of which every one is one of these, too."""
_TIMES = ("timestamp", "timestamp_ntz")
_PARSED = (*_DIGITS, *_EXACT_IN, *_TIMES)
"""What a text is read as whole, or not at all."""
_ATOMIC = {*_PARSED, "boolean", "binary", "date", "string"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def check_result(table: DeltaTable, frame: DataFrame, options: Mapping[str, str], *, place: str) -> None:
    """Make sure that the table has every value as the result has it, or that the batch fails.

    Args:
        table: The table.
        frame: The result, analysed.
        options: The sink's.
        place: For messages.

    Raises:
        DeclarationError: Delta's stream writer would change values.
    """
    is_loud, widens = _is_loud(frame.sparkSession), _widens(table, frame.sparkSession, options)
    columns = json.loads(table.schema().to_json())
    for path, was, to in _differing(json.loads(frame.schema.json()), columns, ""):
        if not _is_kept(was, to, is_loud=is_loud) and not (widens and _is_widened(to, was)):
            raise DeclarationError(
                f"column `{path}` is {spark_type(was)} in the result and {spark_type(to)} in the table: Spark would"
                " change values without a word",
                where=place,
                remedy=f"cast it in the transform, as you mean it, to {spark_type(to)}; or give the table a column of"
                " the result's type",
            )


def with_types_of(table: DeltaTable, frame: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """A batch with its columns cast as Delta's stream writer would, where no value changes, or the batch fails."""
    if _widens(table, frame.sparkSession, options):
        return frame
    is_loud = _is_loud(frame.sparkSession)
    kinds = {found["name"].casefold(): found["type"] for found in json.loads(table.schema().to_json())["fields"]}
    columns, is_cast = [], False
    for found in json.loads(frame.schema.json())["fields"]:
        named, was = identifier(found["name"]), found["type"]
        to = kinds.get(found["name"].casefold(), was)
        if was != to and _is_atomic(was) and _is_atomic(to) and _is_kept(was, to, is_loud=is_loud):
            columns.append(f"CAST({named} AS {spark_type(to)}) AS {named}")
            is_cast = True
        else:
            columns.append(named)
    return frame.selectExpr(*columns) if is_cast else frame


def _is_loud(session: SparkSession) -> bool:
    """Whether a value that does not fit fails the batch, where it would be null or wrapped else."""
    policy = session.conf.get("spark.sql.storeAssignmentPolicy", "ANSI") or ""
    ansi = session.conf.get("spark.sql.ansi.enabled", "true") or ""
    return policy.upper() != "LEGACY" and ansi.lower() != "false"


def _widens(table: DeltaTable, session: SparkSession, options: Mapping[str, str]) -> bool:
    """Whether Delta gives a column the wider type of a batch."""
    if table.metadata().configuration.get("delta.enableTypeWidening") != "true":
        return False
    return "true" in {options.get("mergeSchema"), (session.conf.get(AUTO_MERGE, "false") or "").lower()}


def _differing(result: Any, table: Any, before: str) -> Iterator[tuple[str, Any, Any]]:
    """The atomic types that are not the same, with the path of each; what Delta itself refuses is left out."""
    if _is_atomic(result) and _is_atomic(table):
        if result != table:
            yield before, result, table
        return
    if not isinstance(result, dict) or not isinstance(table, dict) or result["type"] != table["type"]:
        return
    if result["type"] == "struct":
        kinds = {found["name"].casefold(): found["type"] for found in table["fields"]}
        for found in result["fields"]:
            if (to := kinds.get(found["name"].casefold())) is not None:
                yield from _differing(found["type"], to, f"{before}.{found['name']}".removeprefix("."))
    for part, name in (("elementType", "element"), ("keyType", "key"), ("valueType", "value")):
        if part in result and part in table:
            yield from _differing(result[part], table[part], f"{before}.{name}")


def _is_atomic(kind: Any) -> bool:
    return isinstance(kind, str) and (kind in _ATOMIC or _DECIMAL.fullmatch(kind) is not None)


def _is_kept(was: str, to: str, *, is_loud: bool) -> bool:
    """Whether a value of one type is the same in the other, or fails its batch."""
    if was == to or was in _EXACT_IN.get(to, ()):
        return True
    if was == "string":
        return to == "binary" or (to in _PARSED and is_loud)
    if to == "string":
        return was != "binary"
    if was == "date":
        return to in _TIMES
    before, after = _places(was), _places(to)
    if before is None or after is None or before[1] > after[1]:
        return False
    return is_loud or before[0] <= after[0]


def _is_widened(to: str, was: str) -> bool:
    """Whether Delta makes a column wide enough by itself, of those whose values it would change else."""
    return (was == "double" or _DECIMAL.match(was) is not None) and _is_kept(to, was, is_loud=False)


def _places(kind: str) -> tuple[int, int] | None:
    """How many digits an exact number has before and after its point; None for other types."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    match = _DECIMAL.fullmatch(kind)
    return None if match is None else (int(match[1]) - int(match[2]), int(match[2]))
