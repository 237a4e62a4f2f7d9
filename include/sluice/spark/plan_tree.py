"""The tree of a plan, read from the text that Spark shows of it: a server shows nothing else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

_NODE = re.compile(r"(?P<indent>(?:[: ] {2})*(?:[:+]- )?)(?P<mark>[~'!]*)(?P<kind>\w+)(?P<rest>.*)")
TAGGED = re.compile(r"#(?P<id>\d+)L?(?:-T\d+ms)?")
"""The number that Spark gives a column, which is another one at every start."""
_NAMED = re.compile(rf"[\w$.]*{TAGGED.pattern}")
PASSING = re.compile(
    r"(?<=\w)@[0-9a-f]{5,8}\b|\bSome\([^()]*\)|\b(?:rand|randn|random|uniform)\([^()]*\)|(?<!\.)\b\d{16,}\b"
    r"|\b\d{4,}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)
"""What else an expression may have that is: objects, time zones, seeds, times and run ids."""
_TAKEN_OUT = re.compile(r"\b_(?:common_expr|gen_alias)_\d+")
"""What Spark calls an expression that it computes before an operator, by numbers of the session's."""
BY_CODE = re.compile(r"FlatMapGroups\w*WithState|TransformWithState\w*")
"""Operators whose state is what code of the user's says."""
_STATEFUL = re.compile(rf"Aggregate|Deduplicate\w*|Distinct|Join|{BY_CODE.pattern}")
_LEVEL = 3
"""How many characters one level of the tree is wide."""


class Tree:
    """A node of a tree, however it was read."""

    children: Sequence[Self]

    def walk(self) -> Iterator[Self]:
        """The node and all below it, from itself down."""
        pending = [self]
        while pending:
            found = pending.pop()
            yield found
            pending += reversed(found.children)


@dataclass
class Node(Tree):
    """One operator of a plan."""

    kind: str
    is_streaming: bool
    rest: str
    """What its line says after the kind."""
    children: list[Node] = field(default_factory=list)


def parse_plan(text: str) -> Node:
    """The root of a plan, by the text of its tree."""
    above: list[tuple[int, Node]] = []
    for line in text.split("\n"):
        found = _NODE.fullmatch(line)
        if found is None or (above and not found["indent"]):
            # A literal goes on in another line; only the root stands at the margin.
            if line and above:
                above[-1][1].rest += f"\n{line}"
            continue
        depth = len(found["indent"]) // _LEVEL
        node = Node(found["kind"], "~" in found["mark"], found["rest"])
        # Subqueries stand two levels below the operator that they are part of.
        while above and above[-1][0] >= depth:
            above.pop()
        if above:
            above[-1][1].children.append(node)
        above.append((depth, node))
    return above[0][1]


def without_numbers(nodes: Iterable[Node], column: re.Pattern[str] = TAGGED) -> list[str]:
    """What nodes say, with columns by the order in which they are mentioned: Spark numbers those of a session.

    Args:
        nodes: The nodes.
        column: What of a column is left out: its number, or its name as well.
    """
    order: dict[str, str] = {}
    return [
        column.sub(
            lambda found: order.setdefault(found[0].rpartition("#")[2], str(len(order))),
            PASSING.sub("?", node.kind + node.rest),
        )
        for node in nodes
    ]


def digest_of(nodes: Iterable[Node]) -> str:
    """Tells operators from others, whatever of them was edited, but for what columns are called.

    What only observes rows is none of them.
    """
    found = repr(without_numbers((node for node in nodes if node.kind != "CollectMetrics"), _NAMED))
    return hashlib.sha256(_TAKEN_OUT.sub("?", found).encode()).hexdigest()[:16]


def is_streaming_leaf(node: Node) -> bool:
    """Whether a node is a stream that the query reads."""
    return not node.children and node.kind.startswith("Streaming")


def has_stream(node: Node) -> bool:
    """Whether a stream is below a node, or is it."""
    return any(map(is_streaming_leaf, node.walk()))


def is_stateful(node: Node) -> bool:
    """Whether an operator may keep state: it is of a kind that does, and a stream is below it."""
    return _STATEFUL.fullmatch(node.kind) is not None and has_stream(node)
