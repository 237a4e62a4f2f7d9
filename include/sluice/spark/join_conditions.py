"""By what joins hold rows against each other, wherever it is written: Spark takes filters above a join into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sluice.spark.plan_columns import ATTRIBUTE, closed, is_nested, made_columns, split
from sluice.spark.plan_tree import Node

_AND = " AND "
_EQUALS = (" = ", " <=> ")
_SYMMETRIC = {"Inner", "Cross"}
"""The joins that Spark takes filters into."""
_PASSED = {"SubqueryAlias", "View"}


@dataclass(frozen=True)
class Condition:
    """One of the conditions of a join; all of them hold."""

    parts: tuple[str, ...]
    """The two sides of an equality between both sides of the join, by which Spark stores rows; or the whole."""
    node: Node
    """Whose expression it is."""


@dataclass(frozen=True)
class _Filter:
    text: str
    node: Node
    columns: frozenset[str]
    """The columns that it is about, by the numbers that they have further down."""

    def below(self, node: Node) -> _Filter:
        made = made_columns(node)
        numbers = {number for column in self.columns for number in _origins(column, made)}
        return _Filter(self.text, self.node, frozenset(numbers))


def join_conditions(root: Node) -> dict[int, tuple[Condition, ...]]:
    """The conditions of every join of a plan in the order in which Spark takes them, by the id of the join's node."""
    found: dict[int, tuple[Condition, ...]] = {}
    pending: list[tuple[Node, Sequence[_Filter]]] = [(root, ())]
    while pending:
        node, above = pending.pop()
        if node.kind == "Filter":
            above = [*_filters(node.rest, node), *above]
        elif node.kind == "Project":
            above = [filtered.below(node) for filtered in above]
        elif node.kind == "Join":
            kind, *written = split(node.rest.strip())
            above = above if kind in _SYMMETRIC else ()
            sides = [_numbers(child) for child in node.children]
            both = [filtered for filtered in above if all(filtered.columns & side for side in sides)]
            conditions = [*both, *_filters(", ".join(written), node)]
            found[id(node)] = tuple(_condition(condition, sides) for condition in conditions)
        elif node.kind not in _PASSED:
            above = ()
        pending += [(child, above) for child in node.children]
    return found


def _condition(found: _Filter, sides: Sequence[frozenset[str]]) -> Condition:
    for equals in _EQUALS if all(found.columns & side for side in sides) else ():
        parts = tuple(split(found.text[1:-1], equals))
        if len(parts) > 1 and all(map(ATTRIBUTE.search, parts)):
            return Condition(parts, found.node)
    return Condition((found.text,), found.node)


def _filters(text: str, node: Node) -> Iterator[_Filter]:
    for part in _all_of(text.strip()):
        yield _Filter(part, node, frozenset(ATTRIBUTE.findall(part)))


def _all_of(text: str) -> Iterator[str]:
    """The conditions that an expression joins by AND, brackets within brackets."""
    parts = split(text[1:-1], _AND) if is_nested(text) and closed(text, 1) == len(text) else []
    if len(parts) > 1:
        for part in parts:
            yield from _all_of(part)
    elif text:
        yield text


def _origins(column: str, made: Mapping[str, str]) -> list[str]:
    return ATTRIBUTE.findall(made[column]) if column in made else [column]


def _numbers(node: Node) -> frozenset[str]:
    return frozenset(number for below in node.walk() for number in ATTRIBUTE.findall(below.rest))
