"""The names of tables, as a pipeline's flow finds them: in the pipeline's database, and in whatever catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluice.locations import spark_location
from sluice.pipelines.flows import Flow
from sluice.spark.connect_session import is_connected
from sluice.sql_text import identifier, string_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "spark.sql.catalogImplementation"


@contextmanager
def pipeline_tables(session: SparkSession, flow: Flow) -> Iterator[None]:
    """Let a session find the tables that a flow reads whole, beside its streams.

    A catalog that lasts has them from `spark-pipelines`; one in Spark's memory is told where they are.
    """
    if session.conf.get(_CATALOG, "in-memory") == "in-memory":
        for (_, database, table), (location, kind) in flow.tables.items():
            place = string_literal(spark_location(location))
            session.sql(f"CREATE DATABASE IF NOT EXISTS {identifier(database)}")
            session.sql(f"CREATE TABLE IF NOT EXISTS {identifier(database, table)} USING {kind} LOCATION {place}")
    before = session.catalog.currentDatabase()
    if session.catalog.databaseExists(flow.database):
        session.catalog.setCurrentDatabase(flow.database)
    try:
        yield
    finally:
        # A server looks for the names each time that it analyses the query.
        if not is_connected(session):
            session.catalog.setCurrentDatabase(before)
