"""What a run leaves in a Spark that goes on, and how it is forgotten, as it is by a process that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sluice.spark.delta_extension import has_delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def forget_tables(session: SparkSession) -> None:
    """Let Spark forget what it has read of tables' logs, which it keeps for an hour, as a process does that ends."""
    if has_delta(session):
        jvm: Any = session._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def forget_state(session: SparkSession) -> None:
    """Let Spark forget the state that its tasks have loaded, as a process does that ends."""
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
