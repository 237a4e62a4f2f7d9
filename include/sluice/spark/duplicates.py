"""Whether a query that drops duplicates can be backfilled: which of them stays must not decide about the interval.

A backfill computes everything as one batch. There one row of each key stays, however far apart in time the rows are,
and it may be any of them. That concerns one interval only if the interval column is a function of the keys. The text
of the analysed plan tells: a server shows nothing else of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
_OF_EVENT_TIME = re.compile(r"#\d+-T\d+ms")
_ONE_NAME = r"[^()]*#(\d+)L?(?:-T\d+ms)?"
_NAME = re.compile(_ONE_NAME)
_DATE = re.compile(rf"cast\({_ONE_NAME} as date\)|to_date\({_ONE_NAME}, None, .*\)")
_WATERMARK = re.compile(r".*#(\d+)(?:-T\d+ms)?: timestamp(?:_ntz)?, .*")
_UTC = {"UTC", "Etc/UTC", "Z", "GMT", "+00:00", "+0"}
_MOST_FIELDS = "spark.sql.debug.maxToStringFields"
_ALL_FIELDS = "100000"

_Columns = frozenset[str]
"""Columns by the number that Spark gives each."""


@dataclass(frozen=True)
class Dropped:
    """By what a query drops duplicates that a backfill could not."""

    across: str | None = None
    """The first operator by keys that the interval column is no function of; None when there is none. Where the
    column's origin can't be traced, an operator is taken for such a one."""
    timeless: str | None = None
    """The first operator by which a key that came too late may come again in time, in an interval that is long over.

    Not so where the event time is among the keys: that one is as late as before. Nor where the interval column is the
    event time, or its date: what is in time then is of no interval that the watermark has passed."""


def find_dropped(frame: DataFrame, column: str, plans: PlanReader) -> Dropped:
    """What drops duplicates in a query, as far as that matters to its intervals.

    Args:
        frame: The result of a transform: a stream, of which static tables are left alone, or a batch.
        column: The interval column.
        plans: Shows the plan.
    """
    if column not in frame.columns:
        # The sink tells which columns are missing.
        return Dropped()
    session: SparkSession = frame.sparkSession
    with spark_setting(session, _MOST_FIELDS, _ALL_FIELDS):
        # A projection, so that the root names the column.
        tree = plans.analysed_text(frame.select(f"`{column}`"))
    root = parse_plan(tree)
    wanted = _ATTRIBUTE.findall(root.rest)
    across = next(_ambiguous(root, frozenset(wanted), only_streaming=frame.isStreaming), None)
    is_utc = session.conf.get("spark.sql.session.timeZone") in _UTC
    return Dropped(across, next(_timeless(root, wanted[0], takes_dates=is_utc), None))


def check_duplicates(frame: DataFrame, stream: Stream, plans: PlanReader) -> None:
    """Refuse a stream's query that drops duplicates across intervals.

    Raises:
        RefusedError: It does, or nobody can tell.
    """
    operator = find_dropped(frame, stream.interval_column or "", plans).across
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


def _timeless(root: Node, wanted: str, *, takes_dates: bool) -> Iterator[str]:
    made = {column: expression for node in _nodes(root) for column, expression in _made(node).items()}
    for node in _nodes(root):
        if node.kind not in _DEDUPES or not node.is_streaming or _OF_EVENT_TIME.search(node.rest):
            continue
        below = list(_nodes(node))
        times = {found[1] for each in below if (found := _WATERMARK.fullmatch(each.rest)) is not None}
        # The second side of a union has columns of its own.
        is_traced = all(each.kind != "Union" for each in below)
        if times and not (is_traced and _is_time(wanted, made, times, takes_dates=takes_dates)):
            yield f"{node.kind}{node.rest}"


def _is_time(wanted: str, made: Mapping[str, str], times: set[str], *, takes_dates: bool) -> bool:
    """Whether a column is one of those times, or the date of one; further down, a time may have another number."""
    known = {*times, *(_unnamed(found, made) for found in times)}
    column = _unnamed(wanted, made)
    date = _DATE.fullmatch(made.get(column, ""))
    if wanted in known or column in known:
        return True
    return takes_dates and date is not None and _unnamed(date[1] or date[2], made) in known


def _unnamed(column: str, made: Mapping[str, str]) -> str:
    """The column that one is another name of, however often."""
    while (named := _NAME.fullmatch(made.get(column, ""))) is not None:
        column = named[1]
    return column


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


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


def _made(node: Node) -> dict[str, str]:
    """What a node makes columns of, by their numbers."""
    if node.kind not in _MAKES_COLUMNS:
        return {}
    return {match["id"]: match["expression"] for item in _items(node.rest) if (match := _ALIAS.fullmatch(item))}


def _origins(node: Node, wanted: _Columns | None) -> _Columns | None:
    if wanted is None:
        return None
    made = _made(node)
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
