"""What does not go with a query that Spark is to keep at work, or to drain, told before anything is written."""

from __future__ import annotations

from sluice.errors import DeclarationError, QueryRefusedError
from sluice.planning.timers import NEVER_ENDS
from sluice.spark.plan_tree import Node, parse_plan
from sluice.spark.query import Query, plan_reader
from sluice.spark.shown_error import spark_message
from sluice.trigger import LiveTrigger

_STATEFUL = ("Aggregate", "Deduplicate", "Distinct", "FlatMapGroups", "TransformWithState", "GlobalLimit", "LocalLimit")
_SHUFFLES = ("Repartition", "RebalancePartitions", "Sort")


def check_live(query: Query, trigger: LiveTrigger) -> None:
    """Make sure that Spark runs a query with a trigger.

    Raises:
        QueryRefusedError: It does not.
    """
    plans, output_mode = plan_reader(query.frame.sparkSession), query.stream.output_mode
    try:
        plans.check_live(query.frame, output_mode, trigger.kind)
    except Exception as exc:
        raise _refused(query, trigger, spark_message(exc)) from exc
    if trigger.kind == "real-time":
        # Spark finds out in the first batch, once it has begun the checkpoint.
        analysed = parse_plan(plans.analysed_text(query.frame))
        found = next((node.kind for node in analysed.walk() if _needs_whole_batch(node)), None)
        if found is not None:
            raise _refused(query, trigger, f"Streaming real-time mode does not support {found} operations")


def check_drained(query: Query) -> None:
    """Make sure that Spark comes to an end with a query that it drains.

    Raises:
        DeclarationError: It does not.
    """
    if query.has_timers:
        raise DeclarationError(
            f"the run can't be drained: {NEVER_ENDS}",
            where=query.stream.place,
            remedy="leave out the strategy; where a source is read by Spark alone, run it for a time:"
            " `--trigger processing-time=10s --for 5m`",
        )


def _needs_whole_batch(node: Node) -> bool:
    if not node.is_streaming:
        return False
    if node.kind == "Join":
        return sum(below.is_streaming for below in node.children) > 1
    return node.kind.startswith(_STATEFUL + _SHUFFLES)


def _refused(query: Query, trigger: LiveTrigger, why: str) -> QueryRefusedError:
    return QueryRefusedError(
        f"Spark does not run this query with the trigger `{trigger.kind}`: {why}",
        where=query.stream.place,
        remedy="run it with `processing-time`, or without a trigger; or change the transform",
    )
