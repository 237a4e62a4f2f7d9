"""By what joins hold rows against each other, wherever it is written: Spark takes filters above a join into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sluice.spark.plan_columns import ATTRIBUTE, closed, made_columns, split
from sluice.spark.plan_tree import Node

_AND = " AND "
_EQUALS = " = "
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
    left, equals, right = found.text[1:-1].partition(_EQUALS)
    if equals and left.count("(") == left.count(")"):
        of_left, of_right = frozenset(ATTRIBUTE.findall(left)), frozenset(ATTRIBUTE.findall(right))
        if of_left and of_right and found.columns & sides[0] and found.columns & sides[1]:
            return Condition((left, right), found.node)
    return Condition((found.text,), found.node)


def _filters(text: str, node: Node) -> Iterator[_Filter]:
    for part in _all_of(text.strip()):
        yield _Filter(part, node, frozenset(ATTRIBUTE.findall(part)))


def _all_of(text: str) -> Iterator[str]:
    """The conditions that an expression joins by AND, brackets within brackets."""
    if not text:
        return
    if not text.startswith("(") or closed(text, 1) != len(text):
        yield text
        return
    inner, depth, start = text[1:-1], 0, 0
    parts = []
    for index, character in enumerate(inner):
        depth += (character == "(") - (character == ")")
        if depth == 0 and inner.startswith(_AND, index):
            parts.append(inner[start:index])
            start = index + len(_AND)
    if not parts:
        yield text
        return
    for part in (*parts, inner[start:]):
        yield from _all_of(part.strip())


def _origins(column: str, made: Mapping[str, str]) -> list[str]:
    return ATTRIBUTE.findall(made[column]) if column in made else [column]


def _numbers(node: Node) -> frozenset[str]:
    return frozenset(number for below in node.walk() for number in ATTRIBUTE.findall(below.rest))
