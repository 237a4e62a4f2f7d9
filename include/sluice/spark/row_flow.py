"""What a transform makes of each row, as far as its analysed plan tells: a row of the result, one or none, or more."""

from __future__ import annotations

from typing import Literal

from sluice.spark.plan_tree import Node, parse_plan
from sluice.spark.query import Query, plan_reader

RowFlow = Literal["each", "some"]
"""`each`: every row that is read is one of the result; `some`: it is one or none."""
_EACH = {
    "CollectMetrics",
    "EventTimeWatermark",
    "Project",
    "RebalancePartitions",
    "Repartition",
    "RepartitionByExpression",
    "SubqueryAlias",
    "Union",
}
_SOME = {"Filter", "Sample"}


def row_flow(query: Query) -> RowFlow | None:
    """What becomes of a row; None where it may become several, or a part of one, or where that is not known."""
    if query.results:
        # Each sink gets what it gets.
        return None
    sources = [line.source for line in query.lines]
    if len(set(sources)) < len(sources):
        # Spark counts such a source once or twice, by how it reads it.
        return None
    return _flow(parse_plan(plan_reader(query.frame.sparkSession).analysed_text(query.frame)))


def _flow(node: Node) -> RowFlow | None:
    if not node.children:
        return "each" if node.kind.startswith("Streaming") else None
    below = [_flow(child) for child in node.children]
    if None in below or node.kind not in _EACH | _SOME:
        return None
    return "some" if node.kind in _SOME or "some" in below else "each"
