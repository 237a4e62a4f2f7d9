"""Which query a batch belongs to, for whoever writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"


def query_of(frame: DataFrame) -> str | None:
    """The id of the query whose batch it is; None outside of a batch, and on a server, which does not tell."""
    from pyspark.sql import SparkSession

    session = frame.sparkSession
    told = session.sparkContext.getLocalProperty(_QUERY_ID) if isinstance(session, SparkSession) else None
    return None if told is None else str(told)
