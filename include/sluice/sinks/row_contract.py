"""The sinks that a function writes batch by batch, and Spark row by row where there are no batches."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.sinks.contract import BatchSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class RowSink(BatchSink):
    """Base of the sinks that take rows as they come: of a continuous query, or in Spark's real-time mode."""

    @abstractmethod
    def row_writer(self, frame: DataFrame) -> DataStreamWriter:
        """Spark's own stream writer for `frame`, which calls nothing of ours."""
