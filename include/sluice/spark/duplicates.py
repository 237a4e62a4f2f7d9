"""Whether a query that drops duplicates can be backfilled: which of them stays must not decide about the interval.

A backfill computes everything as one batch. There one row of each key stays, however far apart in time the rows are,
and it may be any of them. That concerns one interval only if the interval column is a function of the keys. The text
of the analysed plan tells: a server shows nothing else of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sluice.errors import Problem, RefusedError
from sluice.spark.plan_reader import PlanReader
from sluice.spark.plan_tree import Node, parse_plan
from sluice.spark_setting import spark_setting
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ATTRIBUTE = re.compile(r"#(\d+)")
_ALIAS = re.compile(r"(?P<expression>.*) AS .*#(?P<id>\d+)L?(?:-T\d+ms)?")
_DEDUPES = {"Deduplicate", "DeduplicateWithinWatermark"}
_MAKES_COLUMNS = {"Project", "Aggregate"}
_KEEPS_COLUMNS = {"EventTimeWatermark", "Filter", "SubqueryAlias", "View", *_DEDUPES}
_MOST_FIELDS = "spark.sql.debug.maxToStringFields"
_ALL_FIELDS = "100000"

_Columns = frozenset[str]
"""Columns by the number that Spark gives each."""


def find_ambiguous(frame: DataFrame, column: str, plans: PlanReader) -> str | None:
    """The first operator that drops duplicates by keys that the column is no function of; None when there is none.

    Where the column's origin can't be traced, it is taken for such a one.

    Args:
        frame: The result of a transform: a stream, of which static tables are left alone, or a batch.
        column: The interval column.
        plans: Shows the plan.
    """
    if column not in frame.columns:
        # The sink tells which columns are missing.
        return None
    session: SparkSession = frame.sparkSession
    with spark_setting(session, _MOST_FIELDS, _ALL_FIELDS):
        # A projection, so that the root names the column.
        tree = plans.analysed_text(frame.select(f"`{column}`"))
    root = parse_plan(tree)
    return next(_ambiguous(root, frozenset(_ATTRIBUTE.findall(root.rest)), only_streaming=frame.isStreaming), None)


def check_duplicates(frame: DataFrame, stream: Stream, plans: PlanReader) -> None:
    """Refuse a stream's query that drops duplicates across intervals.

    Raises:
        RefusedError: It does, or nobody can tell.
    """
    operator = find_ambiguous(frame, stream.interval_column or "", plans)
    if operator is not None:
        raise RefusedError(drops_across(stream, operator))


def drops_across(stream: Stream, operator: str) -> Problem:
    """A transform that drops duplicates across intervals."""
    column = stream.interval_column
    return Problem(
        code="BACKFILL_DUPLICATES",
        file=stream.transform,
        cause=f"the transform drops duplicates by keys that do not tell `{column}`: {operator}",
        consequence="a row of the interval would go for one of another interval, which the live stream may have"
        " kept beside it",
        remedy="leave this stream as it is, for other keys do not fit its state; a new stream with a sink of"
        f" its own can be backfilled, with `{column}`, or the columns that it is made of, among the keys",
    )


def _ambiguous(node: Node, wanted: _Columns | None, *, only_streaming: bool) -> Iterator[str]:
    """Walk down, with the columns of the node's output that the interval column is made of; None for unknown ones."""
    if node.kind in _DEDUPES and (node.is_streaming or not only_streaming):
        keys = frozenset(_ATTRIBUTE.findall(node.rest))
        if wanted is None or not wanted <= keys:
            yield f"{node.kind}{node.rest}"
    below = _origins(node, wanted) if node.kind in _MAKES_COLUMNS else wanted
    for child in node.children:
        of_child = below
        if node.kind == "Union" and child is not node.children[0]:
            # Columns of a union are those of its first child, and by position those of the others.
            of_child = _same_positions(node.children[0], child, below)
        yield from _ambiguous(child, of_child, only_streaming=only_streaming)


def _origins(node: Node, wanted: _Columns | None) -> _Columns | None:
    if wanted is None:
        return None
    made = {match["id"]: match["expression"] for item in _items(node.rest) if (match := _ALIAS.fullmatch(item))}
    outputs = _outputs(node)
    if outputs is None or not wanted <= frozenset(outputs):
        return None
    origins = (_ATTRIBUTE.findall(made[column]) if column in made else [column] for column in wanted)
    return frozenset(origin for found in origins for origin in found)


def _same_positions(first: Node, other: Node, wanted: _Columns | None) -> _Columns | None:
    ours, theirs = _outputs(first), _outputs(other)
    if wanted is None or ours is None or theirs is None or len(ours) != len(theirs) or not wanted <= frozenset(ours):
        return None
    return frozenset(there for here, there in zip(ours, theirs, strict=True) if here in wanted)


def _outputs(node: Node) -> list[str] | None:
    """The columns of a node in order; None when the text does not tell."""
    if node.kind in _MAKES_COLUMNS:
        found = [_ATTRIBUTE.findall(item) for item in _items(node.rest)]
        return [ids[-1] for ids in found] if all(found) else None
    if node.kind in _KEEPS_COLUMNS or node.kind == "Union":
        return _outputs(node.children[0]) if node.children else None
    return None


def _items(rest: str) -> list[str]:
    """The expressions of the last list in a node's text.

    A literal with a bracket of its own makes one expression of several, whose origins then are those of all.
    """
    lists = _split(rest.strip())
    return _split(lists[-1].strip()[1:-1]) if lists and lists[-1].strip().startswith("[") else []


def _split(text: str) -> list[str]:
    depth, start, parts = 0, 0, []
    for index, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]
