"""The state of a stream's operators, as Spark's own reader of state tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.checkpoint.reader import CheckpointState
from sluice.errors import DeclarationError
from sluice.locations import spark_location
from sluice.spark.first_batch import ROCKSDB, STATE_STORE
from sluice.spark.shown_error import spark_message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
STATE_STORES = {
    "hdfs": {STATE_STORE: _HDFS},
    "rocksdb": {STATE_STORE: ROCKSDB},
    "rocksdb-changelog": {STATE_STORE: ROCKSDB, _CHANGELOG: "true"},
}
"""By a short name, the settings of each kind of state store: `bench.open(..., state_store=NAME)`."""
_FORMAT = "statestore"
_PARTITION = "partition_id"


def read_state(
    checkpoint: CheckpointState, session: SparkSession, operator: int, options: dict[str, str]
) -> DataFrame | None:
    """The rows of an operator's state, key and value side by side; None where the query has no state yet.

    Args:
        checkpoint: The stream's.
        session: Spark.
        operator: Its number, from 0 on.
        options: Of Spark's reader of state.

    Raises:
        DeclarationError: There is no such operator, or Spark wants to be told more.
    """
    from pyspark.errors import PySparkException

    if checkpoint.committed_id is None or not checkpoint.operators:
        return None
    known = {found.operator_id: found for found in checkpoint.operators}
    if operator not in known:
        told = ", ".join(f"{found.operator_id} ({found.name})" for found in known.values())
        raise DeclarationError(
            f"there is no operator {operator}", where="bench.check_state()", remedy=f"with a state are: {told}"
        )
    reader = session.read.format(_FORMAT).option("operatorId", operator).options(**options)
    try:
        return _side_by_side(reader.load(spark_location(checkpoint.location)))
    except PySparkException as exc:
        raise DeclarationError(
            f"Spark does not read the state of operator {operator} so: {spark_message(exc)}",
            where="bench.check_state()",
            remedy="a join has sides (`join_side`), a processor has variables (`state_var_name`) and timers"
            " (`read_registered_timers`)",
        ) from exc


def _side_by_side(frame: DataFrame) -> DataFrame:
    """Columns of keys and of values, without the structs around them; where two are called alike, with these."""
    structs = {field.name: field.dataType for field in frame.schema if hasattr(field.dataType, "fields")}
    names = [found.name for kind in structs.values() for found in kind.fields]
    if len(set(names)) < len(names):
        return frame.drop(_PARTITION)
    others = [name for name in frame.columns if name not in structs and name != _PARTITION]
    return frame.select(*(f"`{name}`.*" for name in structs), *(f"`{name}`" for name in others))
