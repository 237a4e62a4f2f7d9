"""Which runs a warm Spark can do just as one of their own. Of the others, a Spark of their own is started.

Over Spark Connect, some things are done in another way (docs/connect.md). A run that asked for the Spark of
`sluice serve` must not depend on whether that is there: so it takes it only where both do the same.
"""

from __future__ import annotations

from sluice.home import StreamHome
from sluice.plan import Plan
from sluice.planning.survey import Survey
from sluice.planning.verdict import decided_before
from sluice.sinks.contract import Sink, only_by_function
from sluice.spark.kept_state import keeps_state
from sluice.spark.plan_tree import parse_plan
from sluice.spark.query import Query, plan_reader

_KEEPS_STATE = "the query keeps state"
"""What its state means is told by Spark's plan, which a server spells in other words: an edit would go unseen."""


def why_own_sink(sink: Sink) -> str | None:
    """Why a sink wants a Spark of this process; None when Spark's own writer writes it, wherever it runs."""
    if sink.needs_own_spark or sink.function is not None or sink.is_shown:
        return f"{sink.named} is written by the run's own process"
    if only_by_function(sink):
        return f"{sink.named} is written by a function"
    return None


def why_own_spark(plan: Plan, seen: Survey, home: StreamHome) -> str | None:
    """Why a run wants a Spark of its own, by what is planned; None when a warm one does the same."""
    if plan.strategy != "exact":
        return "Spark decides the batches"
    if plan.quality is not None and plan.quality.where != "write":
        return "its rows are judged before they are written"
    pending = seen.checkpoint.planned_id
    if plan.verdict == "resume" and (
        pending is None
        or seen.sink.holds(pending)
        or plan.quality is not None
        or decided_before(plan, home) is not None
    ):
        return "a batch is finished that another run has begun to publish"
    if seen.known is not None and seen.known.state is not None and seen.known.state.operators:
        return _KEEPS_STATE
    lines = () if seen.known is None else seen.known.lines
    if len({line.source for line in lines}) < len(lines):
        return "a source is read twice"
    return why_own_sink(seen.stream.sink)


def why_own_query(query: Query) -> str | None:
    """Why a query wants a Spark of its own, now that a server has analysed it; None when it need not."""
    if len({line.source for line in query.lines}) < len(query.lines):
        return "a source is read twice"
    if keeps_state(parse_plan(plan_reader(query.frame.sparkSession).analysed_text(query.frame))):
        return _KEEPS_STATE
    return None
