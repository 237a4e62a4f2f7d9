"""The state of a stream's operators, row by row, as Spark's own reader of state tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.checkpoint.reader import CheckpointState
from sluice.checkpoint.state_store import Operator
from sluice.errors import DeclarationError
from sluice.locations import spark_location
from sluice.spark.shown_error import spark_message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOIN = "symmetricHashJoin"
"""Spark's name of a join of two streams."""
_FORMAT = "statestore"
"""Spark's reader of state."""
_PARTITION = "partition_id"


@dataclass(frozen=True)
class StateView:
    """What of an operator's state is looked at."""

    operator: int = 0
    batch: int | None = None
    """The state that this batch has left; None for the newest."""
    changes_since: int | None = None
    """The changes that the batches from this one on have made, in the place of the state itself."""
    side: str | None = None
    """Of a join: `left` or `right`."""
    variable: str | None = None
    """Of a processor of `transformWithState`: one of its variables."""
    timers: bool = False
    """Of such a processor: its timers."""

    @property
    def options(self) -> Mapping[str, str]:
        """As Spark's reader of state takes them."""
        found: dict[str, object] = {"joinSide": self.side, "stateVarName": self.variable}
        if self.timers:
            found["readRegisteredTimers"] = "true"
        if self.changes_since is None:
            found["batchId"] = self.batch
        else:
            found |= {
                "readChangeFeed": "true",
                "changeStartBatchId": self.changes_since,
                "changeEndBatchId": self.batch,
            }
        return {name: str(value) for name, value in found.items() if value is not None}


def find_operator(checkpoint: CheckpointState, number: int, *, where: str) -> Operator:
    """An operator that keeps state, by its number.

    Raises:
        DeclarationError: There is none.
    """
    known = {found.operator_id: found for found in checkpoint.operators}
    if number not in known:
        told = ", ".join(f"{found.operator_id} ({found.name})" for found in known.values())
        raise DeclarationError(f"there is no operator {number}", where=where, remedy=f"with a state are: {told}")
    return known[number]


def read_state(
    checkpoint: CheckpointState, session: SparkSession, operator: Operator, options: Mapping[str, str], *, where: str
) -> DataFrame:
    """The rows of an operator's state, key and value side by side.

    Args:
        checkpoint: The stream's.
        session: Spark.
        operator: One of its operators.
        options: Of Spark's reader of state.
        where: Who asks, for messages.

    Raises:
        DeclarationError: Spark wants to be told more, or does not have what is asked for.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return _side_by_side(open_state(session, checkpoint.location, operator, options))
    except (PySparkException, Py4JError) as exc:
        raise state_unreadable(operator, exc, options, where=where) from exc


def open_state(session: SparkSession, checkpoint: str, operator: Operator, options: Mapping[str, str]) -> DataFrame:
    """The rows of an operator's state as Spark's reader gives them.

    Raises:
        pyspark.errors.PySparkException: Spark does not read it so.
    """
    # In a Spark that has run no stream yet, nobody would know where states are.
    _ = session.streams
    reader = session.read.format(_FORMAT).option("operatorId", operator.operator_id).options(**options)
    return reader.load(spark_location(checkpoint))


def state_unreadable(
    operator: Operator, exc: BaseException, options: Mapping[str, str], *, where: str
) -> DeclarationError:
    """What to raise where Spark does not read a state."""
    remedy = "look at the operators and their batches with `sluice inspect`"
    if operator.name == JOIN and not {"joinSide", "storeName"} & options.keys():
        remedy = "a join has sides: say which (`left` or `right`)"
    elif operator.variables and not {"stateVarName", "readRegisteredTimers"} & options.keys():
        remedy = f"a processor has variables, and timers: say which ({', '.join(operator.variables)})"
    return DeclarationError(
        f"Spark does not read the state of operator {operator.operator_id} so: {spark_message(exc)}",
        where=where,
        remedy=remedy,
    )


def _side_by_side(frame: DataFrame) -> DataFrame:
    """Columns of keys and of values, without the structs around them; where two are called alike, with these."""
    structs = {field.name: field.dataType for field in frame.schema if hasattr(field.dataType, "fields")}
    names = [found.name for kind in structs.values() for found in kind.fields]
    others = [name for name in frame.columns if name not in structs and name != _PARTITION]
    if len({*names, *others}) < len(names) + len(others):
        return frame.drop(_PARTITION)
    return frame.select(*(f"`{name}`.*" for name in structs), *(f"`{name}`" for name in others))
