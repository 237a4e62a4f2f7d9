"""The files of the batches that Spark plans itself: whether it has read them, and once.

AvailableNow lists a folder once, and takes a file that is gone when its batch comes for empty. A function that writes
batches is kept from that before the batch counts. What the writers of Spark's own sinks have read shows only while it
is the newest batch, and never over Connect: where nobody saw it, a file that is gone is one that was not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.errors import BatchFailedError
from sluice.running.logged_files import LoggedFiles
from sluice.running.planned_files import PlannedFiles

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class DrainedFiles:
    """The files of one AvailableNow start."""

    files: PlannedFiles
    logged: LoggedFiles
    is_guarded: bool
    """Whether a function writes the batches, and is not called with less than Spark has logged."""
    _seen: dict[int, frozenset[str]] = field(default_factory=dict)

    def look(self, started: StreamingQuery) -> None:
        """Remember which files Spark has found for the batch that is the newest now."""
        if self.is_guarded or not self.files.query.knows_files:
            return
        newest = self.files.query.newest_batch(started)
        if newest is not None:
            self._seen[newest[0]] = newest[1]

    def failure(self, batch_id: int) -> BatchFailedError | None:
        """What to raise of a batch that is committed, and has too few rows or too many; None where nothing is wrong."""
        return self._shortfall(batch_id) or self._surplus(batch_id)

    def _shortfall(self, batch_id: int) -> BatchFailedError | None:
        if self.is_guarded:
            return None
        taken = self.logged.must_be_there(batch_id)
        if (seen := self._seen.get(batch_id)) is not None:
            return self.files.committed_without(batch_id, [path for path in taken if path not in seen])
        gone = [path for path in taken if self.logged.home.storage.stat(path) is None]
        if not gone:
            return None
        return BatchFailedError(
            f"{len(gone)} input files are gone right after batch {batch_id}, which Spark planned and has committed: if"
            " they vanished before it read them, their rows are missing",
            where=gone[0],
            remedy="look for their rows in the sink; where they are missing, copy the files back under new names, and"
            " the next run reads them",
        )

    def _surplus(self, batch_id: int) -> BatchFailedError | None:
        for found in self.logged.taken(batch_id):
            if (pattern := found.source.read_twice(found.entries)) is not None:
                return BatchFailedError(
                    f"batch {batch_id} is committed with rows that are there twice: Spark took a file's name for a"
                    " pattern",
                    where=pattern,
                    remedy=f"delete the second rows of the other {len(found.entries) - 1} files of the batch, and"
                    " rename the file",
                )
        return None
