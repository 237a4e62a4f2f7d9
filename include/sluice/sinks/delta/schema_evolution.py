"""Whether a table takes the columns of a result, and what is done where it does not.

By `schema_evolution="add"`, a run gives the table the columns that the result has in addition, and the wider types that
Delta allows a table with the feature `typeWidening`: before its first batch, in commits of their own, so that every
batch meets a table that fits. A driver that is killed between leaves columns without values, and the next one goes on.
Without that word, nothing of a table changes, and a result that differs is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sluice.delta_table import find_table, spark_type
from sluice.delta_types import PARTS, TYPE_WIDENING, column_paths, is_same, is_wider, sql_type
from sluice.errors import DeclarationError
from sluice.locations import spark_location
from sluice.sinks.delta.implicit_casts import NOTHING, columns_of, is_exact
from sluice.sql_text import identifier
from sluice.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

SchemaEvolution = Literal["add"]
DECLARED = '`schema_evolution="add"`'
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*")
_UNTYPED = re.compile(rf'"(?:type|elementType|keyType|valueType)": "{NOTHING}"')


@dataclass(frozen=True)
class Difference:
    """A column, or a field within one, that is not the same in a table and in a result."""

    path: tuple[str, ...]
    """Its names, from the column's on; those of the table where it has them."""
    kind: Literal["new", "wider", "narrower", "other", "gone"]
    """Only the result has it; it has a wider type there, to which Delta may widen the table's; one that the table has
    every value of; any other one; or only the table has it."""
    table: Any = None
    """Its type in the table, as Delta's log has it."""
    result: Any = None
    """That in the result."""

    @property
    def line(self) -> str:
        """What a person is told of it."""
        there = "not in the table" if self.table is None else f"{spark_type(self.table)} in the table"
        now = "no longer in the result" if self.result is None else f"{spark_type(self.result)} in the result"
        return f"{'.'.join(self.path)}: {there}, {now}"


def check_word(word: object, place: str) -> SchemaEvolution | None:
    """What is declared as `schema_evolution`, if it is that.

    Raises:
        DeclarationError: It is another word.
    """
    if word is None:
        return None
    if word != "add":
        raise DeclarationError(
            f"`schema_evolution` is {word!r}",
            where=place,
            remedy=f"write it as {DECLARED}; or leave it out: then a result with other columns is refused",
        )
    return "add"


def differences(table: DeltaTable, frame: DataFrame) -> list[Difference]:
    """What is not the same in a table and in a result that is analysed; what only the table has is left out."""
    return [*_differing(json.loads(table.schema().to_json()), columns_of(frame), ())]


def lines_of(found: Collection[Difference]) -> str:
    """A line for each, to stand below a message."""
    return "".join(f"\n  {difference.line}" for difference in found)


def check_result(
    table: DeltaTable, frame: DataFrame, evolution: SchemaEvolution | None, written: str, *, place: str
) -> None:
    """Make sure that a table has every value of a result as it is, or that it may be changed so that it does.

    Args:
        table: The table.
        frame: The result, analysed.
        evolution: What is declared.
        written: By `result_columns`, what the newest batch had; empty where nobody knows.
        place: For messages.

    Raises:
        DeclarationError: It has not; names every column, with both types.
    """
    found = [*differences(table, frame), *_gone(table, frame, written)]
    fits = _taken(table, evolution) | {"narrower"}
    if not (refused := [difference for difference in found if difference.kind not in fits]):
        return
    kinds = {difference.kind for difference in refused}
    remedies = []
    if kinds & {"wider", "other"}:
        remedies.append("cast in the transform, as you mean it, what has another type")
    if evolution is None and kinds - {"other"}:
        remedies.append('let the table follow: `sinks.delta(PATH, schema_evolution="add")`')
    if "wider" in kinds and not may_widen(table):
        remedies.append(f"for wider types, set the property `{TYPE_WIDENING}` of the table, too")
    if kinds & {"new", "gone"}:
        remedies.append("or let the transform give the columns of the table")
    raise DeclarationError(
        f"the columns of the result are not those of the table:{lines_of(refused)}",
        where=place,
        remedy="; ".join(remedies),
    )


def check_same(
    table: DeltaTable, frame: DataFrame, evolution: SchemaEvolution | None, *, place: str, otherwise: str
) -> None:
    """Make sure that a table has the columns of a result, as a quarantine has them: see `SplittingSink.check_same`.

    Raises:
        DeclarationError: It has not.
    """
    fits = _taken(table, evolution)
    if refused := [difference for difference in differences(table, frame) if difference.kind not in fits]:
        kinds = {difference.kind for difference in refused}
        remedies = []
        if evolution is None and kinds & {"new", "wider"}:
            remedies.append('let it follow: `Stream(quarantine=sinks.delta(PATH, schema_evolution="add"))`')
        if "wider" in kinds and not may_widen(table):
            remedies.append(f"for wider types, set its property `{TYPE_WIDENING}`")
        raise DeclarationError(
            f"the quarantine has other columns than the result:{lines_of(refused)}",
            where=place,
            remedy="; or ".join([*remedies, otherwise]),
        )


def _taken(table: DeltaTable, evolution: SchemaEvolution | None) -> set[str]:
    """The kinds of differences that a table is let follow."""
    return set() if evolution is None else {"new", "gone", *(["wider"] if may_widen(table) else [])}


def may_widen(table: DeltaTable) -> bool:
    """Whether a table has the feature by which a column may get a wider type."""
    return table.metadata().configuration.get(TYPE_WIDENING) == "true"


def evolve(location: str, frame: DataFrame, *, storage: Storage) -> None:
    """Give a table the columns that only a result has, and the wider types; nothing where there is no table yet.

    Args:
        location: Where the table is.
        frame: The result, which `check_result` has let pass.
        storage: Where to look.

    Raises:
        DeclarationError: Delta does not take them.
        StorageError: The table can't be read right now.
    """
    for difference in _to_do(location, frame, storage):
        statement = _statement(location, difference)
        try:
            frame.sparkSession.sql(statement)
        except Exception as exc:
            if difference not in _to_do(location, frame, storage):
                # Another stream of the table has done it this very moment.
                continue
            found = _CONDITION.search(str(exc))
            said = found[0] if found is not None else type(exc).__name__
            raise DeclarationError(
                f"Delta does not let the table follow: {said}{lines_of([difference])}",
                where=location,
                remedy=f"do as Delta says, or correct the transform; what was asked of it is: {statement}",
            ) from exc


def _to_do(location: str, frame: DataFrame, storage: Storage) -> list[Difference]:
    table = find_table(location, storage=storage)
    found = [] if table is None else differences(table, frame)
    return [difference for difference in found if difference.kind in {"new", "wider"}]


def _statement(location: str, difference: Difference) -> str:
    table, column = f"delta.{identifier(spark_location(location))}", identifier(*difference.path)
    if difference.kind == "new":
        return f"ALTER TABLE {table} ADD COLUMNS ({column} {sql_type(difference.result)})"
    return f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {sql_type(difference.result)}"


def _differing(table: Any, result: Any, path: tuple[str, ...]) -> Iterator[Difference]:
    if not isinstance(table, dict) or not isinstance(result, dict) or table["type"] != result["type"]:
        if not is_same(table, result) and result != NOTHING:
            yield Difference(path, _kind(table, result), table, result)
        return
    if result["type"] == "struct":
        known = {found["name"].casefold(): found for found in table["fields"]}
        for found in result["fields"]:
            there = known.get(found["name"].casefold())
            if there is not None:
                yield from _differing(there["type"], found["type"], (*path, there["name"]))
            else:
                is_typed = _UNTYPED.search(json.dumps(found)) is None
                yield Difference((*path, found["name"]), "new" if is_typed else "other", None, found["type"])
    for part, name in PARTS.items():
        if part in result and part in table:
            yield from _differing(table[part], result[part], (*path, name))


def _kind(table: Any, result: Any) -> Literal["wider", "narrower", "other"]:
    if isinstance(table, dict) or isinstance(result, dict):
        return "other"
    if is_exact(result, table):
        return "narrower"
    return "wider" if is_wider(table, result) else "other"


def _gone(table: DeltaTable, frame: DataFrame, written: str) -> Iterator[Difference]:
    """What the newest batch had, the table has, and the result has no longer; of a struct that is gone, no field."""
    before = set(written.casefold().split("\n"))
    now = {path.casefold() for path, _ in column_paths(columns_of(frame))}
    told: list[str] = []
    for path, kind in column_paths(json.loads(table.schema().to_json())):
        lost = path.casefold()
        if lost in before - now and not any(lost.startswith(f"{above}.") for above in told):
            told.append(lost)
            yield Difference((path,), "gone", kind, None)
