"""Whether a table takes the columns of a result, and what is done where it does not.

By `schema_evolution="add"`, a run gives the table the columns that the result has in addition, and the wider types that
Delta allows a table with the feature `typeWidening`: before its first batch, in commits of their own, so that every
batch meets a table that fits. A driver that is killed between leaves columns without values, and the next one goes on.
Without that word, nothing of a table changes, and a result that differs is refused. So is, with it or without, one that
lacks what no row of the table can be without.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from sluice.delta_log.exact_types import NOTHING, is_exact
from sluice.delta_log.table import find_table, spark_type
from sluice.delta_log.types import PARTS, TYPE_WIDENING, column_paths, is_same, is_wider, path_part, sql_type
from sluice.errors import DeclarationError
from sluice.locations import spark_location
from sluice.sinks.delta.implicit_casts import columns_of
from sluice.sinks.delta.refused_columns import type_not_kept
from sluice.sql_text import identifier
from sluice.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

SchemaEvolution = Literal["add"]
DECLARED = '`schema_evolution="add"`'
_NUMBERS = {"short", "integer", "long", "float", "double"}
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] [^\n]*")
_FEATURES = "DELTA_FEATURE"
"""How conditions begin that tell of a feature which a table lacks."""
_CONFLICTS = ("DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "DELTA_CONCURRENT_")
"""How conditions begin that tell of a commit which came in between."""
_MOST_CONFLICTS = 20
_GENERATED = "delta.generationExpression"
_FILLED = {_GENERATED, "CURRENT_DEFAULT", "delta.identity.step"}
"""What the log notes beside columns that Delta gives a value where a row has none."""


@dataclass(frozen=True)
class Difference:
    """A column, or a field within one, that is not the same in a table and in a result."""

    path: tuple[str, ...]
    """Its names, from the column's on; those of the table where it has them."""
    kind: Literal["new", "wider", "narrower", "other", "gone", "needed"]
    """Only the result has it; it has a wider type there, to which Delta may widen the table's; one that the table has
    every value of; any other one; only the table has it; or that, and no row of it can be without."""
    table: Any = None
    """Its type in the table, as Delta's log has it."""
    result: Any = None
    """That in the result."""
    is_of_partitions: bool = False
    """Whether it partitions the table, and what its partitions are called could not be read as of the other type."""
    computed_from: str | None = None
    """By which expression the table computes it, if it does."""

    @property
    def line(self) -> str:
        """What a person is told of it."""
        if self.computed_from is not None:
            return (
                f"{'.'.join(self.path)}: computed by the table as `{self.computed_from}`, not of the result's columns"
            )
        if self.kind == "needed":
            return f"{'.'.join(self.path)}: {spark_type(self.table)} NOT NULL in the table, not in the result"
        there = "not in the table" if self.table is None else f"{spark_type(self.table)} in the table"
        now = "no longer in the result" if self.result is None else f"{spark_type(self.result)} in the result"
        why = "; the partitions that there are could not be read as of it" if self.is_of_partitions else ""
        return f"{'.'.join(self.path)}: {there}, {now}{why}"


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
    partitions = table.metadata().partition_columns
    found = _differing(json.loads(table.schema().to_json()), columns_of(frame), ())
    return [
        replace(difference, kind="other", is_of_partitions=True)
        if difference.kind == "wider" and difference.path[0] in partitions and not _reads_as(difference)
        else difference
        for difference in found
    ]


def _reads_as(difference: Difference) -> bool:
    """Whether what Delta's log says of the partitions that there are is read as a value of the wider type, too.

    It says so in words: a day is no time to whoever reads them, and `1` is no number with two digits behind the point.
    """
    table, result = str(difference.table), str(difference.result)
    return result in _NUMBERS or (result.startswith("decimal") and _scale(table) == _scale(result))


def _scale(kind: str) -> str:
    """The digits behind the point of a number's type."""
    return kind.partition(",")[2].strip(" )") or "0"


def lines_of(found: Collection[Difference]) -> str:
    """A line for each, to stand below a message."""
    return "".join(f"\n  {difference.line}" for difference in found)


def check_result(
    table: DeltaTable,
    frame: DataFrame,
    evolution: SchemaEvolution | None,
    written: str = "",
    *,
    only_adds: bool = False,
    place: str,
) -> None:
    """Make sure that a table has every value of a result as it is, or that it may be changed so that it does.

    Args:
        table: The table.
        frame: The result, analysed.
        evolution: What is declared.
        written: By `result_columns`, what the newest batch in the table had; empty where nobody knows.
        only_adds: Whether each row of the result is one more row of the table.
        place: For messages.

    Raises:
        DeclarationError: It has not; names every column, with both types.
    """
    found = [*differences(table, frame), *_missing(table, frame, written, only_adds=only_adds)]
    fits = _taken(table, evolution) | {"narrower"}
    if not (refused := [difference for difference in found if difference.kind not in fits]):
        return
    kinds = {difference.kind for difference in refused}
    may_follow = evolution is None and kinds - {"other", "needed"}
    feature = "wider" in kinds and not may_widen(table)
    remedies = []
    if may_follow:
        also = f", for wider types with the property `{TYPE_WIDENING}` of the table" if feature else ""
        remedies.append(f'let the table follow: `sinks.delta(PATH, schema_evolution="add")`{also}')
    elif feature:
        remedies.append(f"for wider types, set the property `{TYPE_WIDENING}` of the table")
    if "needed" in kinds:
        remedies.append("let the table do without: `ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL`")
    if kinds & {"wider", "other"}:
        remedies.append("cast in the transform, as you mean it, what has another type")
    if kinds & {"new", "gone", "needed"}:
        remedies.append("let the transform give the columns of the table")
    raise DeclarationError(
        f"the columns of the result are not those of the table:{lines_of(refused)}",
        where=place,
        remedy="; or ".join(remedies),
    )


def check_same(
    table: DeltaTable, frame: DataFrame, evolution: SchemaEvolution | None, *, place: str, otherwise: str
) -> None:
    """Make sure that a table has the columns of a result, as a quarantine has them: see `SplittingSink.check_same`.

    Raises:
        DeclarationError: It has not.
    """
    fits = _taken(table, evolution)
    found = [difference for difference in differences(table, frame) if difference.kind not in fits]
    # What a type was widened to takes it: whoever takes the change back goes on, and rows are released as they were.
    if refused := [one for one in found if not (one.kind == "narrower" and is_wider(one.result, one.table))]:
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

    Other streams may let it follow theirs at the same time: whoever comes second looks again, and goes on from there.
    What the table has in the end is to be compared with the result once more.

    Args:
        location: Where the table is.
        frame: The result, which `check_result` has let pass.
        storage: Where to look.

    Raises:
        DeclarationError: Delta does not take them. Other errors of Spark's are raised as they are.
        StorageError: The table can't be read right now.
    """
    conflicts, done = 0, None
    while (left := _to_do(location, frame, storage)) and left[0] != done:
        statement = _statement(location, left[0])
        try:
            frame.sparkSession.sql(statement)
        except Exception as exc:
            if left[0] not in _to_do(location, frame, storage):
                # Another stream of the table has done it this very moment, or something else of that name.
                continue
            said = _CONDITION.search(str(exc))
            conflicts += 1
            if said is not None and said[1].startswith(_CONFLICTS) and conflicts <= _MOST_CONFLICTS:
                continue
            if not _is_of_declaration(exc, "" if said is None else said[1]):
                raise
            raise DeclarationError(
                f"Delta does not let the table follow: {type(exc).__name__ if said is None else said[0]}"
                f"{lines_of(left[:1])}",
                where=location,
                remedy=f"do as Delta says, or correct the transform; what was asked of it is: {statement}",
            ) from exc
        done = left[0]


def _is_of_declaration(exc: Exception, condition: str) -> bool:
    """Whether a statement failed for what it says, and would at every try."""
    from pyspark.errors import AnalysisException, ParseException, UnsupportedOperationException

    refused = AnalysisException, ParseException, UnsupportedOperationException
    return isinstance(exc, refused) or condition.startswith(_FEATURES)


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
        known = {found["name"].lower(): found for found in table["fields"]}
        for found in result["fields"]:
            there = known.get(found["name"].lower())
            if there is not None:
                yield from _differing(there["type"], found["type"], (*path, there["name"]))
            else:
                may_come = type_not_kept(found) is None
                yield Difference((*path, found["name"]), "new" if may_come else "other", None, found["type"])
    for part, name in PARTS.items():
        if part in result and part in table:
            yield from _differing(table[part], result[part], (*path, name))


def _kind(table: Any, result: Any) -> Literal["wider", "narrower", "other"]:
    if isinstance(table, dict) or isinstance(result, dict):
        return "other"
    if is_exact(result, table):
        return "narrower"
    return "wider" if is_wider(table, result) else "other"


def _missing(table: DeltaTable, frame: DataFrame, written: str, *, only_adds: bool) -> Iterator[Difference]:
    """What the table has, and the result has not; of a struct that it lacks, no field.

    Told is what the newest batch had, and what no row can be without: where rows are only added, of any column, and
    where they also replace others, of those that it had.
    """
    before = set(written.lower().split("\n"))
    now = {path.lower() for path, _ in column_paths(columns_of(frame))}
    told: list[str] = []
    columns = json.loads(table.schema().to_json())
    needed = _never_null(columns)
    for path, kind in column_paths(columns):
        lost = path.lower()
        is_needed = lost in needed and (only_adds or lost in before)
        if lost in now or not (is_needed or lost in before):
            continue
        if is_needed or not any(lost.startswith(f"{above}.") for above in told):
            told.append(lost)
            yield Difference((path,), "needed" if is_needed else "gone", kind, None)
    for column in columns["fields"] if only_adds else ():
        expression = column["metadata"].get(_GENERATED)
        if expression is not None and not _is_of(frame, expression):
            yield Difference((column["name"],), "needed", column["type"], computed_from=str(expression))


def _never_null(kind: Any, before: str = "") -> set[str]:
    """The columns, and the fields within structs, that a row has to have a value in, and that Delta gives none."""
    found: set[str] = set()
    for column in kind["fields"]:
        path = f"{before}{path_part(column['name']).lower()}"
        if not column["nullable"] and not _FILLED & column["metadata"].keys():
            found.add(path)
        if isinstance(column["type"], dict) and column["type"]["type"] == "struct":
            found |= _never_null(column["type"], f"{path}.")
    return found


def _is_of(frame: DataFrame, expression: str) -> bool:
    """Whether an expression can be computed of a result."""
    from pyspark.errors import AnalysisException

    try:
        _ = frame.selectExpr(expression).schema
    except AnalysisException:
        return False
    return True
