"""What a run leaves in a Spark that goes on, and how it is forgotten, as it is by a process that ends."""

from __future__ import annotations

import gc
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


def forget_workers(session: SparkSession) -> None:
    """End the Pythons that have run functions, with what they have imported, as they do with their Spark."""
    jvm: Any = session._jvm
    environment = jvm.org.apache.spark.SparkEnv.get()
    kept = environment.getClass().getDeclaredField("pythonWorkers")
    kept.setAccessible(True)
    factories = kept.get(environment)
    for factory in jvm.scala.jdk.javaapi.CollectionConverters.asJava(factories.values().toSeq()):
        factory.stop()
    factories.clear()


def forget_functions() -> None:
    """Let functions of columns and tables be made anew: each keeps the environment, and the JVM, of its first call.

    They live as long as their modules, which may be others than the project's.
    """
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.sql.udtf import UserDefinedTableFunction

    for found in gc.get_objects():
        # `isinstance` would ask objects of others what they are.
        if type(found) is UserDefinedFunction:
            found._judf_placeholder = None
        elif type(found) is UserDefinedTableFunction:
            found._judtf_placeholder = None
