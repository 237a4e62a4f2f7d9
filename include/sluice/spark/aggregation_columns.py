"""What the columns above a streaming aggregation tell of its groups: which they tell apart, and whether for good."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluice.delta_log.exact_types import is_exact
from sluice.delta_log.table import spark_type
from sluice.delta_log.types import DIGITS
from sluice.spark.partition_times import has_hours_twice, is_fixed
from sluice.spark.plan_expressions import Operator, column_number, fold, kind_of, own_text

KEEPS_ROWS = {
    *("CollectMetrics", "EventTimeWatermark", "Filter", "Project", "Repartition", "RepartitionByExpression"),
    *("ResolvedHint", "Sort", "SubqueryAlias", "View"),
}
"""Operators that make no two rows of one."""
_MOVES = re.compile(
    r"Current\w*|Now|Local(?:Date|Time|Timestamp)|Rand\w*|Uniform|Uuid\w*|Shuffle|MonotonicallyIncreasingID"
    r"|SparkPartitionID|InputFile\w+|CallMethodViaReflection|TryReflect|\w*Subquery\w*|Exists|ListQuery"
)
"""Expressions that may be something else in the next batch, whatever they are computed of."""
_SAME = {"Alias", "KnownNotNull", "KnownNullable", "KnownFloatingPointNormalized", "NormalizeNaNAndZero"}
"""Those that are what they are made of."""
_WHOLE = {"CreateArray", "CreateNamedStruct"}
"""Those that have all of it."""
_SHIFTS: Mapping[str, Collection[str]] = {"Concat": {"string"}, "Add": DIGITS, "Subtract": DIGITS}
"""Those that move values of some types by what else they have, so that no two become the same where that is literal."""
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Column:
    """What is known of a column, or of an expression, above an aggregation."""

    text: str
    """How a person is told of it."""
    meaning: str
    """The same for those that mean the same."""
    kind: Any = None
    """Its type, as Spark's JSON has it; None where that is not told."""
    reads: frozenset[int] = frozenset()
    """The groupings that it is computed of."""
    tells: frozenset[int] = frozenset()
    """Those of which two groups that differ in them have different values."""
    moves: bool = False
    """Whether a group may have another value of it in a later batch."""
    is_aggregate: bool = False
    """Whether the aggregation computes it, as it is."""
    reads_aggregate: bool = False
    """Whether it is computed of such a one."""
    is_literal: bool = False
    is_null: bool = False
    """Whether it is always null."""
    window: _Window | None = None
    """Of which window it is the whole, or the start or the end."""


@dataclass(frozen=True)
class _Window:
    slide_us: int | None
    """From one start to the next; None for a session."""
    is_part: bool = False


@dataclass(frozen=True)
class Aggregation:
    """The aggregation that a plan's rows come from, one of each group, and what is made of its columns."""

    groups: Mapping[int, str]
    """What it groups by, as a person is told."""
    columns: Sequence[Column]
    """Those of the plan, in order; of a root that makes its columns."""
    conditions: Sequence[Column]
    """By which rows are left out above it."""


def find_aggregation(root: Operator) -> Aggregation | None:
    """The streaming aggregation whose rows a plan has; None without one, or where another operator stands above it."""
    above, node = [], root
    while node.kind in KEEPS_ROWS and len(node.children) == 1:
        above.append(node)
        node = node.children[0]
    if node.kind != "Aggregate" or not node.is_streaming:
        return None
    groups = _groups(node)
    known, columns, names = dict[int, Column](), list[Column](), dict[int, str]()
    for output in node.fields["aggregateExpressions"]:
        column, number = _column(output, groups), column_number(output[0])
        known |= {} if number is None else {number: column}
        if len(column.reads) == 1 and column.tells == column.reads and not column.moves:
            names.setdefault(min(column.reads), output[0]["name"])
    conditions = []
    for operator in reversed(above):
        if operator.kind == "Filter":
            conditions.append(_column(operator.fields["condition"], known))
        if operator.kind == "Project":
            columns = [_column(made, known) for made in operator.fields["projectList"]]
            numbers = [column_number(made[0]) for made in operator.fields["projectList"]]
            known = {number: column for number, column in zip(numbers, columns, strict=True) if number is not None}
    told = {min(group.reads): names.get(min(group.reads), group.text) for group in groups.values()}
    return Aggregation(told, columns, conditions)


def _groups(aggregate: Operator) -> dict[str, Column]:
    """What an aggregation groups by, by its meaning."""
    found = {}
    for number, grouping in enumerate(aggregate.fields["groupingExpressions"]):
        column, its = _column(grouping, {}), frozenset([number])
        if not column.is_literal:
            window = _window_of(grouping, aggregate.children[0])
            found[column.meaning] = replace(column, reads=its, tells=its, moves=False, window=window)
    return found


def _column(expression: Sequence[Mapping[str, Any]], known: Mapping[Any, Column]) -> Column:
    """What is known of an expression, by what is known of columns, by number, or of expressions, by meaning."""
    return fold(expression, lambda node, below: _made(node, below, known))


def _made(node: Mapping[str, Any], below: list[Column], known: Mapping[Any, Column]) -> Column:
    kind = kind_of(node)
    if kind in _SAME and below:
        return below[0]
    if kind == "AttributeReference":
        number = column_number(node)
        found = Column(node["name"], f"#{number}", node["dataType"], moves=True)
        found = known.get(number, known.get(found.meaning, found))
        return replace(found, kind=node["dataType"])
    found = Column(
        _text(kind, node, below),
        f"{own_text(node)}({','.join(column.meaning for column in below)})",
        node.get("dataType", node.get("toType")),
        _all(column.reads for column in below),
        _told_apart(kind, node, below),
        moves=_moves(kind, node, below),
        is_aggregate=kind == "AggregateExpression",
        reads_aggregate=kind == "AggregateExpression" or any(column.reads_aggregate for column in below),
        is_literal=kind == "Literal" or (kind == "Cast" and below[0].is_literal),
        is_null=(kind == "Literal" and node["value"] is None) or (kind == "Cast" and below[0].is_null),
    )
    if kind == "GetStructField" and below[0].window is not None:
        its = _field(node, below[0])["type"]
        found = replace(found, kind=its, tells=below[0].tells, window=replace(below[0].window, is_part=True))
    return known.get(found.meaning, found)


def _moves(kind: str, node: Mapping[str, Any], below: Iterable[Column]) -> bool:
    is_random = node.get("udfDeterministic") is False or _MOVES.fullmatch(kind) is not None
    return is_random or kind == "AggregateExpression" or any(column.moves for column in below)


def _told_apart(kind: str, node: Mapping[str, Any], below: list[Column]) -> frozenset[int]:
    if kind in _WHOLE:
        return _all(column.tells for column in below)
    if kind in {"PreciseTimestampConversion", "Sha2"}:
        return below[0].tells
    if kind in _SHIFTS:
        varied = [column for column in below if not column.is_literal]
        is_told = len(varied) == 1 and isinstance(varied[0].kind, str) and varied[0].kind in _SHIFTS[kind]
        is_told = is_told and not any(column.is_null for column in below)
        return varied[0].tells if is_told else frozenset()
    # By `to_date`, without a format.
    is_cast = kind == "Cast" or (kind == "ParseToDate" and len(below) == 1)
    if is_cast and _is_injective(below[0], node.get("dataType", "date"), str(node.get("timeZoneId") or "")):
        return below[0].tells
    return frozenset()


def _is_injective(column: Column, to: Any, zone: str) -> bool:
    """Whether no two values become the same by a cast."""
    was, window = column.kind, column.window
    if not isinstance(was, str) or not isinstance(to, str):
        return was is not None and was == to
    if to == "date" and window is not None and window.is_part:
        is_daily = window.slide_us is not None and window.slide_us >= _DAY_US
        return is_daily and (was == "timestamp_ntz" or not has_hours_twice(zone))
    if was in {"timestamp", "timestamp_ntz"} and to in {"timestamp", "timestamp_ntz", "string"}:
        is_of_zone = "timestamp" in (was, to)
        return was == to or (is_fixed(zone) if is_of_zone else to == "string")
    if was == "boolean" and to in {*DIGITS, "float", "double"}:
        return True
    if was == "date" and to in {"timestamp", "timestamp_ntz"}:
        return to == "timestamp_ntz" or is_fixed(zone)
    return is_exact(was, to)


def _window_of(grouping: Sequence[Mapping[str, Any]], below: Operator) -> _Window | None:
    """The window of time that a grouping is, by what makes it below the aggregation."""
    made: Sequence[Mapping[str, Any]] | None = grouping
    operators = below.walk()
    while made is not None:
        kinds = [kind_of(part) for part in made]
        if kinds[0] == "CreateNamedStruct" and "PreciseTimestampConversion" in kinds:
            return _Window(_slide_us(made, kinds))
        node = next(operators)
        is_column = kinds[0] == "AttributeReference" and len(node.children) == 1
        made = _made_by(node, column_number(made[0]), made) if is_column else None
    return None


def _made_by(
    node: Operator, number: int | None, column: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]] | None:
    """What an operator makes a column of; the column where it has it from below, None where that is not told."""
    if node.kind == "Project":
        made = next((each for each in node.fields["projectList"] if column_number(each[0]) == number), None)
        return made[1:] if made is not None and kind_of(made[0]) == "Alias" else made
    if node.kind == "Expand":
        numbers = [column_number(each[0]) for each in node.fields["output"]]
        return node.fields["projections"][0][numbers.index(number)] if number in numbers else None
    return column if node.kind in KEEPS_ROWS else None


def _slide_us(made: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> int | None:
    """From one window to the next: what Spark divides a time by, to find when its window begins."""
    return None if "Remainder" not in kinds else fold(made[kinds.index("Remainder") :], _divisor)


def _divisor(node: Mapping[str, Any], below: Sequence[int | None]) -> int | None:
    kind, value = kind_of(node), str(node.get("value"))
    if kind == "Remainder":
        return below[1]
    return int(value) if kind == "Literal" and value.isdecimal() else None


def _text(kind: str, node: Mapping[str, Any], below: Sequence[Column]) -> str:
    texts = [column.text for column in below]
    if kind == "Literal":
        return str(node.get("value"))
    if kind == "AggregateExpression":
        return texts[0]
    if kind == "GetStructField":
        return f"{texts[0]}.{_field(node, below[0])['name']}"
    if kind == "Cast":
        return f"cast({texts[0]} as {spark_type(node['dataType'])})"
    name = node["name"] if kind.endswith("UDF") and node.get("name") else kind.lower()
    return f"{name}({', '.join(texts)})"


def _field(node: Mapping[str, Any], struct: Column) -> Mapping[str, Any]:
    """The field of a struct that is taken: Spark's own expressions give it no name."""
    fields = struct.kind["fields"] if isinstance(struct.kind, dict) else {}
    return fields[node["ordinal"]] if fields else {"name": node.get("name"), "type": None}


def _all(found: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*found)
