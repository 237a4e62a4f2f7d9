"""Processing-time timers and time-outs of a query: which operators have them, and when the next one is due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sluice.checkpoint.places import state_folder
from sluice.checkpoint.state_store import read_state_layout
from sluice.spark.plan_tree import Node
from sluice.spark.state_rows import open_state
from sluice.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MODES: Mapping[str, str] = {
    "FlatMapGroupsInPandasWithState": "ProcessingTimeTimeout",
    "FlatMapGroupsWithState": "ProcessingTimeTimeout",
    "TransformWithStateInPySpark": "ProcessingTime",
    "TransformWithState": "ProcessingTime",
}
"""By the operator, the word in its line of the analysed plan which says that it goes by the clock of the batches."""
_TIMEOUT, _NEVER = "timeoutTimestamp", -1
"""Spark's `timeoutTimestamp` of a key that has none."""
_DUE = "due_ms"


def has_timers(plan: Node) -> bool:
    """Whether an operator of an analysed plan has time-outs or timers in processing time."""
    return any(_MODES.get(node.kind) in node.rest.split(", ") for node in plan.walk() if node.kind in _MODES)


def next_timer_ms(session: SparkSession, checkpoint: str, *, storage: Storage) -> int | None:
    """When the next time-out or timer is due, by the state that the newest committed batch has left.

    Args:
        session: Spark.
        checkpoint: Of a query that has timers in processing time.
        storage: Where it is.

    Returns:
        Milliseconds since the epoch; None where none waits. Spark fires it in the first batch whose clock is later.

    Raises:
        pyspark.errors.PySparkException: Spark does not read the state.
    """
    frames = list(_waiting(session, checkpoint, storage))
    due = [row[0] for frame in frames for row in frame.groupBy().min(_DUE).collect() if row[0] is not None]
    return min(due, default=None)


def _waiting(session: SparkSession, checkpoint: str, storage: Storage) -> Iterator[DataFrame]:
    """The time-outs and timers of each operator that has any."""
    for operator in read_state_layout(state_folder(checkpoint), None, storage=storage).operators:
        name = operator.name or ""
        if name.startswith("transformWithState") and operator.time_mode == "ProcessingTime":
            timers = open_state(session, checkpoint, operator, {"readRegisteredTimers": "true"})
            yield timers.selectExpr(f"expiration_timestamp_ms AS {_DUE}")
        elif name in {"applyInPandasWithState", "flatMapGroupsWithState"}:
            keys: Any = open_state(session, checkpoint, operator, {})
            # One without time-outs keeps none.
            if _TIMEOUT in keys.schema["value"].dataType.names:
                yield keys.selectExpr(f"value.{_TIMEOUT} AS {_DUE}").where(f"{_DUE} <> {_NEVER}")
