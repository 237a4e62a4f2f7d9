"""The tree of a plan, read from the text that Spark shows of it: a server shows nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_NODE = re.compile(r"(?P<indent>(?:[: ] {2})*(?:[:+]- )?)(?P<mark>[~'!]*)(?P<kind>\w+)(?P<rest>.*)")
_LEVEL = 3
"""How many characters one level of the tree is wide."""


@dataclass
class Node:
    """One operator of a plan."""

    kind: str
    is_streaming: bool
    rest: str
    """What its line says after the kind."""
    children: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """The node and all below it, from itself down."""
        pending = [self]
        while pending:
            found = pending.pop()
            yield found
            pending += reversed(found.children)


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
