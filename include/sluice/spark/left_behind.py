"""What a run leaves in a Spark that goes on, and how it is forgotten, as it is by a process that ends."""

from __future__ import annotations

import gc
import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from sluice.spark.delta_extension import has_delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_SERVERS = "pyspark.sql.connect"


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


def forget_servers_modules() -> None:
    """Let modules be imported anew that hold what is a server's: functions of columns, columns, windows.

    A module that is imported while a session on a server is open makes such; to a Spark of this process they are of no
    type that it knows. So are those forgotten that hold one of these modules.
    """
    if _OF_SERVERS not in sys.modules:
        return
    known = {
        name: module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and name != "__main__" and not name.startswith("pyspark.")
    }
    gone = {name for name, module in known.items() if any(map(_is_servers, list(vars(module).values())))}
    newest = gone
    while newest:
        objects = {id(known[name]) for name in newest}
        # A package has the modules in it, and gets those anew.
        newest = {
            name
            for name, module in known.items()
            if name not in gone
            and any(
                id(value) in objects and not str(value.__name__).startswith(f"{name}.")
                for value in list(vars(module).values())
            )
        }
        gone |= newest
    for name in gone:
        sys.modules.pop(name, None)
        package, _, own = name.rpartition(".")
        if package in known and vars(known[package]).get(own) is known[name]:
            # Else `from package import module` would find the one that is forgotten.
            delattr(known[package], own)


def _is_servers(value: object) -> bool:
    made_by = value.__globals__.get("__name__") if type(value) is FunctionType else type(value).__module__
    return isinstance(made_by, str) and made_by.startswith(f"{_OF_SERVERS}.")


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
