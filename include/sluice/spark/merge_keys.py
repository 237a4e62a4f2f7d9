"""Whether the keys by which rows are to replace others are those by which the result of a transform tells its rows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sluice.errors import DeclarationError
from sluice.sinks.keyed import KeyedSink
from sluice.spark.aggregation_columns import KEEPS_ROWS, Column, find_aggregation
from sluice.spark.plan_expressions import read_operators
from sluice.spark.plan_reader import PlanReader
from sluice.sql_text import identifier
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NO_ORDER = ("map<", "variant")


def check_merge_keys(stream: Stream, frame: DataFrame, plans: PlanReader) -> None:
    """Make sure of the keys that the sink is declared with, as far as the query tells.

    Args:
        stream: The declaration.
        frame: The result, analysed.
        plans: Shows its plan.

    Raises:
        DeclarationError: One is no column that rows can be found by, or the result is aggregated by others.
    """
    sink = stream.sink
    if not isinstance(sink, KeyedSink):
        return
    for key in sink.key_columns:
        _check_column(key, dict(frame.dtypes), stream)
        if [name.lower() for name in frame.columns].count(key.lower()) > 1:
            raise DeclarationError(
                f"rows are to be found by `{key}`, and the result has such a column more than once",
                where=stream.place,
                remedy="rename the others in the transform",
            )
    if sink.takes_keys_once:
        _check_grouping(sink.key_columns, frame, plans, stream)
        if stream.output_mode == "update":
            _check_leaving(frame, plans, stream)


def _check_column(key: str, kinds: Mapping[str, str], stream: Stream) -> None:
    if key not in kinds:
        near = next((name for name in kinds if name.lower() == key.lower()), None)
        near = near or next(iter(difflib.get_close_matches(key, kinds, n=1)), None)
        column, _, field = key.partition(".")
        remedy = f"did you mean `{near}`?" if near is not None else f"the result has: {', '.join(kinds)}"
        if field and column in kinds:
            name = field.rpartition(".")[2]
            remedy = f'make a column of the field in the transform, as by `col("{key}").alias("{name}")`, and name that'
        raise DeclarationError(
            f"rows are to be found by `{key}`, which is no column of the result", where=stream.place, remedy=remedy
        )
    if any(word in kinds[key] for word in _NO_ORDER):
        raise DeclarationError(
            f"rows are to be found by `{key}`, of type {kinds[key]}, which Spark does not compare",
            where=stream.place,
            remedy="name columns of other types, or make one of it in the transform",
        )


def _check_grouping(keys: tuple[str, ...], frame: DataFrame, plans: PlanReader, stream: Stream) -> None:
    """Two rows of one aggregation differ in what it groups by, and a later one has the same of it."""
    # A projection, so that the root makes the columns.
    plan = plans.analysed_json(frame.select(*map(identifier, keys)))
    found = None if plan is None else find_aggregation(read_operators(plan))
    if found is None:
        return
    names, grouped = ", ".join(f"`{key}`" for key in keys), _told(found.groups.values())
    for key, column in zip(keys, found.columns, strict=True):
        if column.is_aggregate:
            raise DeclarationError(
                f"rows are to be found by {names}, and `{key}` is what the aggregation computes: a row of a later batch"
                " would not find the one before it",
                where=stream.place,
                remedy=f"name what it groups by: {grouped}"
                if found.groups
                else "it has one row in all: give it a column that never changes, as by `lit(1)`, and name that",
            )
        if column.moves:
            raise _computed(names, key, column, grouped, stream)
    left = found.groups.keys() - frozenset[int]().union(*(column.tells for column in found.columns))
    for key, column in zip(keys, found.columns, strict=True):
        if column.reads & left:
            raise _computed(names, key, column, grouped, stream)
    if left:
        others = _told(sorted(found.groups[number] for number in left))
        raise DeclarationError(
            f"rows are to be found by {names}, and the aggregation groups by {others}, too: two rows of a batch would"
            " have the same keys",
            where=stream.place,
            remedy="name all that it groups by, or group by less",
        )


def _computed(keys: str, key: str, column: Column, grouped: str, stream: Stream) -> DeclarationError:
    why = "a group may have another one by the next batch" if column.moves else "two groups may have the same"
    return DeclarationError(
        f"rows are to be found by {keys}, and `{key}` is computed above the aggregation, as `{column.text}`: {why}",
        where=stream.place,
        remedy="compute it before, and group by it; or name what the aggregation groups by, as it is:"
        f" {grouped or 'nothing, so that it has one row'}",
    )


def _check_leaving(frame: DataFrame, plans: PlanReader, stream: Stream) -> None:
    """A row of an aggregation that is emitted once must be emitted whenever it changes: else the older one stays."""
    if (plan := plans.analysed_json(frame)) is None:
        return
    root = read_operators(plan)
    if (found := find_aggregation(root)) is not None:
        is_read = any(condition.reads_aggregate for condition in found.conditions)
        moving = next((condition.text for condition in found.conditions if condition.moves), None)
        why = None if moving is None else f"a condition above the aggregation, `{moving}`, changes by itself"
        why = "a condition above the aggregation reads what it computes" if is_read else why
    else:
        above = next(node for node in root.walk() if node.kind not in KEEPS_ROWS or len(node.children) != 1)
        is_above = any(below.kind == "Aggregate" and below.is_streaming for below in above.walk())
        why = f"`{above.kind}` stands above the aggregation" if is_above else None
    if why is not None:
        raise DeclarationError(
            f"{why}: in output mode `update`, a row that is not in the result any more would stay in the table as it"
            " was, for nothing says that it has left",
            where=stream.place,
            remedy="make a column of the condition, and let readers ask for it; or do it before the aggregation; or"
            ' declare `output_mode="complete"`, by which a row that has left is deleted',
        )


def _told(groups: Iterable[str]) -> str:
    return ", ".join(f"`{group}`" for group in groups)
