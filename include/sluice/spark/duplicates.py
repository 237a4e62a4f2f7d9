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

from sluice.generation_notes import DropsDuplicates
from sluice.planning.transform_text import transform_digest
from sluice.spark.plan_columns import ATTRIBUTE, DEDUPES, MAKES_COLUMNS, made_columns, output_columns, whole_plan
from sluice.spark.plan_reader import PlanReader
from sluice.spark.plan_tree import Node
from sluice.spark.python_zone import TIME_ZONE
from sluice.spark.query import Query, plan_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_EVENT_TIME = re.compile(r"#\d+-T\d+ms")
_ONE_NAME = r"[^()]*#(\d+)L?(?:-T\d+ms)?"
_NAME = re.compile(_ONE_NAME)
_DATE = re.compile(rf"cast\({_ONE_NAME} as date\)|to_date\({_ONE_NAME}, None, .*\)")
_TIME_OF = re.compile(rf"cast\({_ONE_NAME} as timestamp(?:_ntz)?\)")
_WATERMARK = re.compile(r".*#(\d+)(?:-T\d+ms)?: timestamp(?:_ntz)?, .*")
_UTC = {"UTC", "Etc/UTC", "Z", "GMT", "+00:00", "+0"}

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

    Not so where the event time is among the keys, or cast from one of them: that one is as late as before. Nor where
    the interval column is the event time, or its date: what is in time then is of no interval that the watermark has
    passed."""


def drops_duplicates(frame: DataFrame, plans: PlanReader) -> bool:
    """Whether a query drops duplicates, also of a static table."""
    return any(node.kind in DEDUPES for node in whole_plan(frame, plans).walk())


def noted_duplicates(query: Query) -> DropsDuplicates | None:
    """Which rows a query drops; None for a stream that can't be backfilled."""
    stream = query.stream
    if stream.interval_column is None:
        return None
    found = find_dropped(query.frame, stream.interval_column, plan_reader(query.frame.sparkSession))
    digest = transform_digest(query.project, stream, query.sql)
    return DropsDuplicates(stream.interval_column, digest, found.across, found.timeless)


def find_dropped(frame: DataFrame, column: str, plans: PlanReader) -> Dropped:
    """What drops duplicates in a query, as far as that matters to its intervals.

    Args:
        frame: The result of a transform, as a stream; a batch does not tell the sources from static tables, whose
            duplicates the live stream drops all at once.
        column: The interval column.
        plans: Shows the plan.
    """
    if column not in frame.columns:
        # The sink tells which columns are missing.
        return Dropped()
    session: SparkSession = frame.sparkSession
    # A projection, so that the root names the column.
    root = whole_plan(frame.select(f"`{column}`"), plans)
    wanted = ATTRIBUTE.findall(root.rest)
    made = {made: expression for node in root.walk() for made, expression in made_columns(node).items()}
    across = next(_ambiguous(root, frozenset(wanted), made), None)
    is_utc = session.conf.get(TIME_ZONE) in _UTC
    return Dropped(across, next(_timeless(root, wanted[0], made, takes_dates=is_utc), None))


def _timeless(root: Node, wanted: str, made: Mapping[str, str], *, takes_dates: bool) -> Iterator[str]:
    for node in root.walk():
        if node.kind not in DEDUPES or not node.is_streaming or _OF_EVENT_TIME.search(node.rest):
            continue
        below = list(node.walk())
        times = {found[1] for each in below if (found := _WATERMARK.fullmatch(each.rest)) is not None}
        is_traced = not _is_over_union(node)
        is_told = _is_time(wanted, made, times, takes_dates=takes_dates) or _tell_times(node, made, times)
        if times and not (is_traced and is_told):
            yield f"{node.kind}{node.rest}"


def _is_time(wanted: str, made: Mapping[str, str], times: set[str], *, takes_dates: bool) -> bool:
    """Whether a column is one of those times, or the date of one; further down, a time may have another number."""
    known = {*times, *(_unnamed(found, made) for found in times)}
    column = _unnamed(wanted, made)
    date = _DATE.fullmatch(made.get(column, ""))
    if wanted in known or column in known:
        return True
    return takes_dates and date is not None and _unnamed(date[1] or date[2], made) in known


def _tell_times(node: Node, made: Mapping[str, str], times: set[str]) -> bool:
    """Whether each of those times is cast from one of the keys by which a node drops duplicates."""
    keys = {_unnamed(key, made) for key in ATTRIBUTE.findall(node.rest)}
    casts = [_TIME_OF.fullmatch(made.get(_unnamed(found, made), "")) for found in times]
    return all(cast is not None and _unnamed(cast[1], made) in keys for cast in casts)


def _unnamed(column: str, made: Mapping[str, str]) -> str:
    """The column that one is another name of, however often."""
    while (named := _NAME.fullmatch(made.get(column, ""))) is not None:
        column = named[1]
    return column


def _is_over_union(node: Node) -> bool:
    """Whether columns can't be traced by what is made: the second side of a union has columns of its own."""
    return any(each.kind == "Union" for each in node.walk())


def _ambiguous(node: Node, wanted: _Columns | None, made: Mapping[str, str]) -> Iterator[str]:
    """Walk down, with the columns of the node's output that the interval column is made of; None for unknown ones."""
    if node.kind in DEDUPES and node.is_streaming:
        keys = frozenset(ATTRIBUTE.findall(node.rest))
        traced = {} if _is_over_union(node) else made
        if wanted is None or not all(_is_told(column, keys, traced) for column in wanted):
            yield f"{node.kind}{node.rest}"
    below = _origins(node, wanted) if node.kind in MAKES_COLUMNS else wanted
    for child in node.children:
        of_child = below
        if node.kind == "Union" and child is not node.children[0]:
            # Columns of a union are those of its first child, and by position those of the others.
            of_child = _same_positions(node.children[0], child, below)
        yield from _ambiguous(child, of_child, made)


def _is_told(column: str, keys: _Columns, made: Mapping[str, str]) -> bool:
    """Whether a column is one of the keys by which a node drops duplicates, or a time or a date that is cast of one."""
    while column not in keys:
        cast = next(filter(None, (form.fullmatch(made.get(column, "")) for form in (_NAME, _DATE, _TIME_OF))), None)
        if cast is None:
            return False
        column = next(filter(None, cast.groups()))
    return True


def _origins(node: Node, wanted: _Columns | None) -> _Columns | None:
    if wanted is None:
        return None
    made = made_columns(node)
    outputs = output_columns(node)
    if outputs is None or not wanted <= frozenset(outputs):
        return None
    origins = (ATTRIBUTE.findall(made[column]) if column in made else [column] for column in wanted)
    return frozenset(origin for found in origins for origin in found)


def _same_positions(first: Node, other: Node, wanted: _Columns | None) -> _Columns | None:
    ours, theirs = output_columns(first), output_columns(other)
    if wanted is None or ours is None or theirs is None or len(ours) != len(theirs) or not wanted <= frozenset(ours):
        return None
    return frozenset(there for here, there in zip(ours, theirs, strict=True) if here in wanted)
