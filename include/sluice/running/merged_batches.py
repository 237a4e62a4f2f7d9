"""Batches that are merged into a table by keys: computed once, and then looked at and merged as often as that takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.project import Project
from sluice.runs.lease import Lease
from sluice.sinks.contract import OutputMode, SinkBatch
from sluice.sinks.keyed import KeyedSink
from sluice.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class MergedBatches:
    """Writes the batches of one run."""

    project: Project
    output_mode: OutputMode
    sink: KeyedSink
    query_id: str
    lease: Lease
    storage: Storage

    def is_possible(self) -> bool:
        """Whether the table takes the next batch so: Spark has no other way."""
        return True

    def write(self, note: Callable[[int], None], frame: DataFrame, batch_id: int) -> None:
        """Write a batch.

        Args:
            note: Called with the batch's id once its rows are computed, and before they count.
            frame: The batch.
            batch_id: Its id.
        """
        batch = SinkBatch(self.query_id, batch_id, self.output_mode, self.lease.token)
        # A merge reads it more than once. Spark does not find the columns of a batch that is sorted and persisted.
        rows = frame.localCheckpoint()
        note(batch_id)
        self.lease.check()
        self.sink.write_batch(rows, batch, load_function=self.project.load_function, storage=self.storage)
