"""What the stateful operators of a query keep, told by its plan: of state, Spark compares the types alone.

Of an operator that is what stands in itself: keys, aggregates, windows, conditions. What is computed before it may be
edited, as in a query without state: such a column goes by its name, and as a key also by what it is made of.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from sluice.errors import Problem, RefusedError
from sluice.generation_notes import KeptState, StatefulOperator
from sluice.locations import join
from sluice.spark.connect_session import is_connected
from sluice.spark.function_code import function_digests
from sluice.spark.plan_columns import (
    ALIAS,
    ATTRIBUTE,
    DEDUPES,
    PYTHON,
    closed,
    is_nested,
    lists,
    optimised_plan,
    split,
    whole_plan,
)
from sluice.spark.plan_tree import BY_CODE, Node, digest_of, has_stream, is_stateful
from sluice.spark.python_zone import TIME_ZONE
from sluice.spark.query import Query, plan_reader, spark_failed
from sluice.spark.shown_plan import masked_expression
from sluice.spark.state_check import STATE_REMEDY
from sluice.spark.traced_columns import (
    NOT_SHOWN,
    Column,
    TracedColumns,
    source_prefixes,
    without_variables,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORM = 6
"""How plans are read here; another one spells the same state in other words."""
_WATERMARK = re.compile(r".*?, (.*#\d+(?:-T\d+ms)?): .*", re.DOTALL)
_CALL = re.compile(r"(?<![\w.$])([a-z_0-9]+)\(")
_AND = " AND "
_EQUALS = (" = ", " <=> ")
_FILTER = " FILTER (WHERE "
_MOST_SHOWN = 300
_TIME_OUT = re.compile(r"\b(?:No|EventTime|ProcessingTime)Timeout\b")
"""By which clock a group of `applyInPandasWithState` is told that its time is out."""
_TIMES = re.compile(r" \(\d+\)\.")
_SPARKS_AGGREGATES = """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
    array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list
    collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value histogram_numeric
    hll_sketch_agg hll_union_agg kurtosis last last_value listagg max max_by mean measure median min min_by mode
    percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum
    var_pop var_samp variance"""
"""Those of Spark. Of a function that is not among them, what is made of its value counts as well."""
_AGGREGATES = frozenset(_SPARKS_AGGREGATES.split())
_SYNONYMS = {"mean": "avg", "std": "stddev_samp", "stddev": "stddev_samp", "variance": "var_samp"}


def read_kept_state(query: Query) -> KeptState:
    """What a query keeps, as its optimised plan tells: of what nobody uses, Spark keeps nothing.

    Raises:
        BatchFailedError: Spark can't make one.
    """
    session = query.frame.sparkSession
    plans = plan_reader(session)
    analysed, zone = whole_plan(query.frame, plans), str(session.conf.get(TIME_ZONE))
    if not keeps_state(analysed):
        return KeptState(_reader(session), (), zone)
    try:
        root = optimised_plan(query.frame, plans)
    except Exception as exc:
        raise spark_failed(exc, where=query.stream.place, consequence="nothing is planned") from exc
    is_called = any(node.kind in PYTHON or BY_CODE.fullmatch(node.kind) for node in root.walk())
    functions = function_digests(plans.python_functions(query.frame)) if is_called else {}
    columns = TracedColumns(root, source_prefixes(root, analysed, query.lines), functions)
    found = (_operator(node, columns) for node in root.walk() if is_stateful(node))
    return KeptState(_reader(session), tuple(operator for operator in found if operator is not None), zone)


def keeps_state(root: Node) -> bool:
    """Whether a query keeps any, by its analysed plan."""
    return any(map(is_stateful, root.walk()))


def check_kept_state(now: KeptState, then: KeptState | None, checkpoint: str, place: str) -> None:
    """Make sure that a query goes on with state that means to it what it has meant.

    Args:
        now: What the query keeps.
        then: What was noted of the state when a run last began, if anything was.
        checkpoint: Where it is.
        place: Where the transform is, for messages.

    Raises:
        RefusedError: It would take the state for another one.
    """
    found = None if then is None else what_changed(then, now)
    if found is not None:
        cause, remedy = found
        raise RefusedError(
            Problem(
                code="STATE_CHANGED",
                file=place,
                cause=f"the query keeps other state than the checkpoint has in {join(checkpoint, 'state')}: {cause}",
                consequence="what the stream remembers of earlier rows would be taken for something else",
                remedy=remedy,
            )
        )


def what_changed(then: KeptState, now: KeptState) -> tuple[str, str] | None:
    """What a query would take for something else, and what to do; None where it goes on as it was.

    None also where the plan was read by another version, whose words can't be compared.
    """
    if then.read_by != now.read_by:
        return None
    if [found.digest for found in then.operators] != [found.digest for found in now.operators]:
        return f"it was edited {_change(then, now)}", STATE_REMEDY
    if (exchanged := _exchanged(then, now)) is not None:
        return f"what feeds {_shown(exchanged)} was exchanged for what fed its like", STATE_REMEDY
    if now.operators and then.time_zone != now.time_zone:
        remedy = f"set it back: `{TIME_ZONE} = {then.time_zone}`; or declare a new stream with a sink of its own"
        return f"the session's time zone was {then.time_zone} and is {now.time_zone}", remedy
    return None


def _change(then: KeptState, now: KeptState) -> str:
    """What was edited, by the first operator that is another one."""
    pairs = list(zip_longest(then.operators, now.operators))
    was, becomes = next(pair for pair in pairs if len({found and found.digest for found in pair}) > 1)
    shown = _shown(was), _shown(becomes)
    return f"from {shown[0]} to {shown[1]}" if shown[0] != shown[1] else f"in the literals or functions of {shown[0]}"


def _exchanged(then: KeptState, now: KeptState) -> StatefulOperator | None:
    """An operator, or the side of a join, that would go on with the state of another one of its like.

    What feeds an operator may be edited: it then is as nothing was. It may not be what fed another place, which by now
    something else feeds.
    """
    places = [
        (operator, was, feed)
        for before, operator in zip(then.operators, now.operators, strict=True)
        for was, feed in zip(before.feeds, operator.feeds, strict=False)
    ]
    moved = [(operator, was, feed) for operator, was, feed in places if was != feed]
    left = {(_like(operator), was) for operator, was, _ in moved}
    return next((operator for operator, _, feed in moved if (_like(operator), feed) in left), None)


def _like(operator: StatefulOperator) -> str:
    """What others of its kind have in common with it: of a source that is read twice, it may read the other time."""
    return _TIMES.sub(".", operator.shown)


def _shown(operator: StatefulOperator | None) -> str:
    return "no further operator with state" if operator is None else f"`{operator.shown}`"


def _reader(session: SparkSession) -> str:
    where = ", a server" if is_connected(session) else ""
    return f"{_FORM}, Spark {session.version}, Python {'.'.join(map(str, sys.version_info[:2]))}{where}"


@dataclass(frozen=True)
class _Kept:
    what: str
    keys: list[str]
    values: list[str]
    times: list[str] = field(default_factory=list)
    """The event times by whose watermark it forgets, where they are not among the keys."""


def _operator(node: Node, columns: TracedColumns) -> StatefulOperator | None:
    kept = _kept(node, columns)
    if kept is None:
        return None
    known = frozenset(map(_readable, columns.spelled))
    parts = ([masked_expression(_readable(part), known) for part in found] for found in (kept.keys, kept.values))
    keys, values = map(", ".join, parts)
    times = f", with the watermark of {_readable(', '.join(kept.times))}" if kept.times else ""
    shown = f"{kept.what} by {keys or 'nothing'}{f': {values}' if values else ''}{times}"
    digest = hashlib.sha256(repr(kept).encode()).hexdigest()[:16]
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
    return StatefulOperator(shown, digest, tuple(_feeds(node, columns)))


def _feeds(node: Node, columns: TracedColumns) -> Iterator[str]:
    if node.kind == "Join":
        yield from (digest_of(side.walk()) for side in node.children)
        return
    # With the code that it calls, without what tells one source from the same that is read once more.
    code = columns.spell(node.rest, node, lambda _: "") if BY_CODE.fullmatch(node.kind) is not None else ""
    yield digest_of([Node(code, node.is_streaming, ""), *islice(node.walk(), 1, None)])


def _readable(spelled: str) -> str:
    return NOT_SHOWN.sub("", spelled)


def _kept(node: Node, columns: TracedColumns) -> _Kept | None:
    """What a node keeps; None where it keeps nothing, or what code of the user's says."""
    listed = lists(node.rest)
    if node.kind == "Aggregate" and not is_nested(node.rest):
        return _Kept(node.kind, [columns.spell(node.rest, node, _key)], [])
    if node.kind == "Aggregate":
        keys = _keys(listed[0] if listed else [], node, columns)
        return _Kept(node.kind, keys, list(_aggregates(node, listed, columns)))
    if node.kind in DEDUPES:
        keys = _keys(listed[0] if listed else [], node, columns)
        return _Kept(node.kind, keys, [], _times(node, columns) if node.kind != "Deduplicate" else [])
    if node.kind == "Distinct":
        return _Kept(node.kind, columns.outputs(node, _key), [])
    if node.kind == "Join" and all(map(has_stream, node.children)):
        kind, *written = split(node.rest.strip())
        rows = [column for side in node.children for column in _row(side, columns)]
        return _Kept(f"{kind.replace('Cross', 'Inner')} Join", _conditions(", ".join(written), node, columns), rows)
    if BY_CODE.fullmatch(node.kind) is not None:
        what = " with ".join([node.kind, *_TIME_OUT.findall(node.rest)])
        return _Kept(what, _grouping(node, listed, columns), [], _times(node, columns))
    return None


def _row(node: Node, columns: TracedColumns) -> list[str]:
    """The columns of a row that a join keeps, which Spark knows by their places.

    Of a node that the text tells no output of, such as `Generate`, what it adds to the rows that it takes.
    """
    if found := columns.outputs(node, _value):
        return found
    added = [columns.spell(item, node, _value) for listed in lists(node.rest) for item in listed]
    return [*added, *(column for child in node.children for column in _row(child, columns))]


def _conditions(written: str, node: Node, columns: TracedColumns) -> list[str]:
    """Equalities by which a join stores rows, in their order, and what else must hold, in any."""
    equal: list[str] = []
    others: list[str] = []
    for condition in _all_of(written):
        equals = next((found for found in _EQUALS if len(split(condition[1:-1], found)) > 1), "")
        parts = split(condition[1:-1], equals) if equals else [condition]
        spelled = sorted(columns.spell(part, node, _key) for part in parts)
        (equal if equals and all(map(ATTRIBUTE.search, parts)) else others).append(equals.join(spelled))
    return [*equal, *sorted(others)]


def _all_of(text: str) -> Iterator[str]:
    """The conditions that an expression joins by AND, brackets within brackets."""
    parts = split(text[1:-1], _AND) if is_nested(text) and closed(text, 1) == len(text) else []
    if len(parts) > 1:
        for part in parts:
            yield from _all_of(part)
    elif text:
        yield text


def _key(column: Column) -> str:
    return column.key


def _value(column: Column) -> str:
    return column.value


def _keys(expressions: list[str], node: Node, columns: TracedColumns) -> list[str]:
    return [columns.spell(expression, node, _key) for expression in expressions if expression]


def _grouping(node: Node, listed: list[list[str]], columns: TracedColumns) -> list[str]:
    """The keys of an operator whose state is the user's: its own list, or so many columns of what it reads."""
    _, *rest = split(node.rest.strip())
    if rest and rest[0].isdigit():
        return columns.outputs(node.children[0], _key)[: int(rest[0])]
    return _keys(listed[0] if listed else [], node, columns)


def _times(node: Node, columns: TracedColumns) -> list[str]:
    """The columns of watermarks below an operator."""
    found = ((below, _WATERMARK.fullmatch(below.rest)) for below in node.walk() if below.kind == "EventTimeWatermark")
    return [columns.spell(match[1], below, _key) for below, match in found if match is not None]


def _aggregates(node: Node, listed: list[list[str]], columns: TracedColumns) -> Iterator[str]:
    """The functions that an aggregation adds up, each once, in the order in which Spark keeps their values."""
    grouping, results = (*listed, [], [])[:2]
    known = set(ATTRIBUTE.findall(" ".join(grouping)))
    found: dict[str, None] = {}
    for item in results:
        alias = ALIAS.fullmatch(item)
        expression = without_variables(alias["expression"] if alias is not None else item)
        calls, rest = _calls(expression)
        for key in grouping:
            rest = rest.replace(key, "")
        for call in calls if set(ATTRIBUTE.findall(rest)) <= known else [expression]:
            name = call.partition("(")[0]
            spelled = f"{_SYNONYMS.get(name, name)}{call[len(name) :]}"
            found[columns.spell(spelled, node, _value)] = None
    yield from found


def _calls(expression: str) -> tuple[list[str], str]:
    """The calls of aggregate functions in an expression, the outermost ones, and what is left of it."""
    calls, rest, at = [], "", 0
    while (found := _CALL.search(expression, at)) is not None:
        if found[1] not in _AGGREGATES:
            rest += expression[at : found.end()]
            at = found.end()
            continue
        end = closed(expression, found.end())
        if expression.startswith(_FILTER, end):
            end = closed(expression, end + len(_FILTER))
        calls.append(expression[found.start() : end])
        rest += expression[at : found.start()]
        at = end
    return calls, rest + expression[at:]
