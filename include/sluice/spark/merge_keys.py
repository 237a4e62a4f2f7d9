"""Whether the keys by which rows are to replace others are those by which the result of a transform tells its rows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sluice.errors import DeclarationError
from sluice.sinks.contract import KeyedSink
from sluice.spark.plan_columns import ATTRIBUTE, items, lists, made_columns, output_columns, whole_plan
from sluice.spark.plan_reader import PlanReader
from sluice.spark.plan_tree import Node
from sluice.sql_text import identifier
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEEPS_ROWS = {
    *("CollectMetrics", "EventTimeWatermark", "Filter", "Project", "Repartition", "RepartitionByExpression"),
    *("ResolvedHint", "Sort", "SubqueryAlias", "View"),
}
"""Operators that make no two rows of one."""
_TAG = re.compile(r"#(\d+)L?(?:-T\d+ms)?")
_ATTRIBUTE = re.compile(rf"(?P<name>[^()#]*){_TAG.pattern}(?P<field>\.start|\.end)?")
"""A column as it is; of a window, its start or its end tells it as well."""
_CALL = re.compile(r"\b(?!cast\()\w+\(", re.IGNORECASE)
"""A function: unlike a literal, it may be something else in the next batch."""
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
    if sink.takes_keys_once:
        _check_grouping(sink.key_columns, frame, plans, stream)
        if stream.output_mode == "update":
            _check_leaving(frame, plans, stream)


def _check_column(key: str, kinds: Mapping[str, str], stream: Stream) -> None:
    if key not in kinds:
        near = next((name for name in kinds if name.casefold() == key.casefold()), None)
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
    names = ", ".join(f"`{key}`" for key in keys)
    # A projection, so that the root names the columns.
    node = whole_plan(frame.select(*map(identifier, keys)), plans)
    wanted, computed = dict(zip(output_columns(node) or (), keys, strict=False)), dict[str, str]()
    while node.kind in _KEEPS_ROWS and len(node.children) == 1:
        made = made_columns(node)
        for number in [number for number in wanted if number in made]:
            key, expression = wanted.pop(number), made[number]
            if (found := _ATTRIBUTE.fullmatch(expression)) is not None:
                wanted[found[2]] = key
            elif ATTRIBUTE.search(expression) or _CALL.search(expression):
                computed[key] = expression
        node = node.children[0]
    if node.kind != "Aggregate" or not node.is_streaming:
        return
    grouped = _grouped(node)
    if computed:
        key, expression = next(iter(computed.items()))
        raise DeclarationError(
            f"rows are to be found by {names}, and `{key}` is computed above the aggregation, as"
            f" `{_TAG.sub('', expression)}`: two groups may have the same, or one has another by the next batch",
            where=stream.place,
            remedy="compute it before, and group by it; or name what the aggregation groups by, as it is:"
            f" {_told(grouped.values()) or 'nothing, so that it has one row'}",
        )
    if (other := next((key for number, key in wanted.items() if number not in grouped), None)) is not None:
        raise DeclarationError(
            f"rows are to be found by {names}, and `{other}` is what the aggregation computes: a row of a later batch"
            " would not find the one before it",
            where=stream.place,
            remedy=f"name what it groups by: {_told(grouped.values())}"
            if grouped
            else "it has one row in all: give it a column that never changes, as by `lit(1)`, and name that",
        )
    if left := set(grouped.values()) - {grouped[number] for number in wanted}:
        raise DeclarationError(
            f"rows are to be found by {names}, and the aggregation groups by {_told(sorted(left))}, too: two rows of a"
            " batch would have the same keys",
            where=stream.place,
            remedy="name all that it groups by, or group by less",
        )


def _check_leaving(frame: DataFrame, plans: PlanReader, stream: Stream) -> None:
    """A row of an aggregation that is emitted once must be emitted whenever it changes: else the older one stays."""
    node, read = whole_plan(frame, plans), set[str]()
    while node.kind in _KEEPS_ROWS and len(node.children) == 1:
        made = made_columns(node)
        read = {below for number in read for below in (ATTRIBUTE.findall(made[number]) if number in made else [number])}
        read |= set(ATTRIBUTE.findall(node.rest)) if node.kind == "Filter" else set()
        node = node.children[0]
    if node.kind == "Aggregate" and node.is_streaming:
        why = "a condition above the aggregation reads what it computes" if read - _grouped(node).keys() else None
    else:
        is_above = any(below.kind == "Aggregate" and below.is_streaming for below in node.walk())
        why = f"`{node.kind}` stands above the aggregation" if is_above else None
    if why is not None:
        raise DeclarationError(
            f"{why}: in output mode `update`, a row that is not in the result any more would stay in the table as it"
            " was, for nothing says that it has left",
            where=stream.place,
            remedy="make a column of the condition, and let readers ask for it; or do it before the aggregation; or"
            ' declare `output_mode="complete"`, by which a row that has left is deleted',
        )


def _grouped(node: Node) -> dict[str, str]:
    """The columns of an aggregation's output that are what it groups by: by their numbers, which part of that."""
    by, *outputs = lists(node.rest)
    groups = {_TAG.sub(r"#\1", item): item for item in by} if outputs else {}
    made = made_columns(node)
    found = {}
    for item, number in zip(items(node.rest), output_columns(node) or (), strict=False):
        if (group := groups.get(_TAG.sub(r"#\1", made.get(number, item)))) is not None:
            found[number] = group
    return found


def _told(groups: Iterable[str]) -> str:
    return ", ".join(f"`{_TAG.sub('', group)}`" for group in groups)
