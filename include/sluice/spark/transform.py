"""The transform of a stream, to be called with its sources: a function of the project, or its SQL."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.pipelines.flows import Flow
from sluice.planning.declared_sql import DeclaredSql, declared_sql
from sluice.project import Project
from sluice.spark.connect_session import is_connected
from sluice.spark.flow_transform import FlowTransform
from sluice.spark.pipeline_tables import pipeline_tables
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LINE = re.compile(r"\bline (\d+),? pos \d+")


@dataclass(frozen=True)
class SqlTransform:
    """A query that reads its sources as temporary views of their names."""

    sql: DeclaredSql
    flow: Flow | None = None
    """The pipeline's flow that it is the query of."""

    def __call__(self, **frames: DataFrame) -> DataFrame:
        """Its result; what it reads by `stream(...)` are tables where the sources are read as such."""
        session = next(iter(frames.values())).sparkSession
        is_stream = all(frame.isStreaming for frame in frames.values())
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        names = nullcontext() if self.flow is None else pipeline_tables(session, self.flow)
        try:
            with names:
                return session.sql(self.sql.text if is_stream else self.sql.for_batch)
        finally:
            # A server looks the views up each time that it analyses the query.
            for name in () if is_connected(session) else frames:
                session.catalog.dropTempView(name)

    def line_of(self, exc: BaseException) -> str:
        """Where in the SQL Spark has found something wrong."""
        found = _LINE.search(str(exc))
        return self.sql.place if found is None or not self.sql.is_file else f"{self.sql.place}:{found[1]}"


def load_transform(project: Project, stream: Stream) -> Any:
    """The transform, as it is now.

    Raises:
        DeclarationError: Its module does not import or has no such function; its SQL can't be read or is no query.
    """
    flow = None if project.spec is None else project.flow(stream.name)
    if (sql := declared_sql(project, stream)) is None:
        return project.load_function(stream.transform_name) if flow is None else FlowTransform(project, flow)
    sql.check(stream)
    return SqlTransform(sql, flow)
