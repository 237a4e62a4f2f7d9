"""Batches of a Delta table: written aside by Spark, then published by one commit of metadata.

Delta's own stream writer reads the table's whole log anew for every batch, in three jobs of Spark, to learn whether it
holds the batch; that is more than half of what a small batch costs. The log tells the same without Spark. And what was
read is compared with what was planned before anything counts, while Delta's writer commits before anybody can look.

A table with rules that only Delta's own writer heeds is left to it, batch by batch, and so is every batch of a session
whose settings tell that writer how to write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.project import Project
from sluice.running.divided_batches import DividedBatches
from sluice.running.known_generation import KnownGeneration
from sluice.running.merged_batches import MergedBatches
from sluice.runs.lease import Lease
from sluice.several_sinks import SeveralSinks
from sluice.sinks.contract import SinkBatch, StagingSink
from sluice.sinks.keyed import KeyedSink
from sluice.spark.query import Query
from sluice.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class PublishedBatches:
    """Writes the batches of one run."""

    project: Project
    query: Query
    sink: StagingSink
    query_id: str
    lease: Lease
    storage: Storage

    def is_possible(self) -> bool:
        """Whether the table takes the next batch so.

        Raises:
            StorageError: The table can't be read right now.
        """
        output_mode = self.query.stream.output_mode
        return self.sink.aside_obstacle(output_mode, self.query.frame, storage=self.storage) is None

    def write(self, note: Callable[[int], None], frame: DataFrame, batch_id: int) -> None:
        """Write a batch, in the place of the sink's own stream writer.

        Args:
            note: Called with the batch's id once its rows are computed, and before they count.
            frame: The batch.
            batch_id: Its id.
        """
        batch = SinkBatch(self.query_id, batch_id, self.query.stream.output_mode, self.lease.token)
        aside = self.sink.write_batch_aside(frame, batch, storage=self.storage)
        if aside is None:
            # Somebody has given the table a rule since, which Delta's own writer heeds.
            self.sink.write_batch(frame, batch, load_function=self.project.load_function, storage=self.storage)
            return
        note(batch_id)
        self.lease.check()
        self.sink.publish_batch(batch, aside, storage=self.storage)


def published_batches(
    query: Query, known: KnownGeneration, lease: Lease, run_id: str
) -> PublishedBatches | MergedBatches | DividedBatches | None:
    """What writes the batches of a stream; None where the sink's own stream writer must write them."""
    sink, project = query.stream.sink, query.project
    query_id, storage = known.generation.query_id, known.home.storage
    if isinstance(sink, SeveralSinks):
        return DividedBatches(query, sink, known, lease, run_id)
    if isinstance(sink, KeyedSink):
        return MergedBatches(project, query.stream.output_mode, sink, query_id, lease, storage)
    if not isinstance(sink, StagingSink) or not sink.can_rename or not query.knows_files:
        return None
    return PublishedBatches(project, query, sink, query_id, lease, storage)
