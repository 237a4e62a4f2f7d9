"""What a stream of a bench has written, as rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.sinks.bench import ReadBackSink
from sluice.sinks.contract import Sink
from sluice.testing.rows import as_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

ResultSchema = Callable[[], "StructType"]
"""Gives the columns of the query's result."""


def read_rows(
    sink: Sink, session: SparkSession, result: ResultSchema, *, only_newest: bool = False
) -> tuple[StructType | None, list[dict[str, Any]]]:
    """The columns and the rows of a sink; no columns where there is nothing yet.

    Args:
        sink: One of the bench's.
        session: Spark.
        result: The columns that the query gives it.
        only_newest: Whether each batch takes the place of those before.

    Raises:
        DeclarationError: The sink keeps no rows, or not where they can be read.
    """
    if not isinstance(sink, ReadBackSink):
        raise DeclarationError(
            f"a sink of {sink.kind} keeps no rows that a bench could read",
            where="bench.check_rows()",
            remedy="open the stream with another: bench.open(..., sink=sinks.memory())",
        )
    schema, rows = sink.kept_rows(session, result, only_newest=only_newest)
    if schema is None:
        return None, []
    return schema, [{found.name: as_value(row[found.name], found.dataType) for found in schema} for row in rows]
