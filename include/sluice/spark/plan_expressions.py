"""The operators of an analysed plan and their expressions, as Spark's JSON has them.

Unlike its text, that tells a literal from a column or a call, whatever stands in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sluice.spark.plan_tree import Tree

_OF_A_PLAN = {"exprId", "resultId", "qualifier", "metadata", "num-children", "nullable"}
"""What two expressions differ in that are the same."""
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Operator(Tree):
    """One operator of a plan."""

    kind: str
    fields: Mapping[str, Any]
    """What Spark says of it; an expression is a list, of itself and all below it."""
    children: tuple[Operator, ...]

    @property
    def is_streaming(self) -> bool:
        """Whether a stream is read below it."""
        return any(
            found.kind.startswith("Streaming") or found.fields.get("isStreaming") is True for found in self.walk()
        )


def read_operators(text: str) -> Operator:
    """The root of a plan, by its JSON."""
    return fold(json.loads(text), lambda node, below: Operator(kind_of(node), node, tuple(below)))


def fold(nodes: Sequence[Mapping[str, Any]], make: Callable[[Mapping[str, Any], list[_Found]], _Found]) -> _Found:
    """What is made of a tree from its leaves up, however deep it is.

    Args:
        nodes: The tree: each node before its children, whose number it says.
        make: Makes it of a node and of what was made of the children.
    """
    made: list[_Found] = []
    for node in reversed(nodes):
        made.append(make(node, [made.pop() for _ in range(node["num-children"])]))
    return made.pop()


def kind_of(node: Mapping[str, Any]) -> str:
    """The name of its class."""
    return str(node["class"]).rpartition(".")[2]


def column_number(node: Mapping[str, Any]) -> int | None:
    """The number of the column that it makes, or is; None where it is none."""
    found = node.get("exprId")
    return int(found["id"]) if isinstance(found, dict) else None


def own_text(node: Mapping[str, Any]) -> str:
    """What a node says itself: the same of those that mean the same."""
    return json.dumps({name: value for name, value in node.items() if name not in _OF_A_PLAN}, sort_keys=True)
