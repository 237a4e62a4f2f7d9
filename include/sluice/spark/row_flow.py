"""What a transform makes of each row, as far as its analysed plan tells: a row of the result, one or none, or more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

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
_BY_RANGE = re.compile(r" (?:ASC|DESC) NULLS (?:FIRST|LAST)\b")
"""How a repartition sorts that samples its input first: Spark counts the rows twice."""
COUNTED = "sluice.rows"
"""The metrics in which the rows of a result are counted."""
_ROWS = "rows"


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


def counted(query: Query, flow: RowFlow | None) -> Query:
    """The query, with the rows of its result counted on the way where a filter leaves nothing else to tell them.

    Args:
        query: The query, which no suite measures.
        flow: What its transform makes of a row.
    """
    if flow != "some":
        return query
    from pyspark.sql import functions

    return replace(query, frame=query.frame.observe(COUNTED, functions.count("*").alias(_ROWS)))


def counted_rows(observed: Mapping[str, Mapping[str, Any]]) -> int | None:
    """How many rows of a result were counted on the way; None where none were.

    Args:
        observed: The metrics of Spark's report of a batch.
    """
    rows = observed.get(COUNTED, {}).get(_ROWS)
    return rows if isinstance(rows, int) else None


def _flow(node: Node) -> RowFlow | None:
    if not node.children:
        return "each" if node.kind.startswith("Streaming") else None
    below = [_flow(child) for child in node.children]
    if None in below or node.kind not in _EACH | _SOME or (node.kind == "RepartitionByExpression" and _by_range(node)):
        return None
    return "some" if node.kind in _SOME or "some" in below else "each"


def _by_range(node: Node) -> bool:
    return _BY_RANGE.search(node.rest) is not None
