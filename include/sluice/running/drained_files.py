"""The files of the batches that Spark plans itself: whether it has read them, and once.

AvailableNow lists a folder once, and takes a file that is gone when its batch comes for empty. A function that writes
batches is kept from that before the batch counts. What the writers of Spark's own sinks have read shows only while it
is the newest batch, and never over Connect: where nobody saw it, a file that is gone is one that was not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.errors import BatchFailedError, SluiceError
from sluice.plan import PlannedBatch
from sluice.running.logged_files import LoggedFiles
from sluice.running.planned_files import PlannedFiles, told
from sluice.sources.files.refusals import read_as

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class DrainedFiles:
    """The files of one start in which Spark decides the batches."""

    files: PlannedFiles
    logged: LoggedFiles
    is_guarded: bool
    """Whether a function writes the batches, and is not called with other than Spark has to read."""
    failures: list[BatchFailedError] = field(default_factory=list)
    """What is wrong with batches that are committed."""
    doubtful: set[str] = field(default_factory=set)
    """The files of which nobody knows whether they were read."""
    _seen: dict[int, frozenset[str]] = field(default_factory=dict)
    _checked: int = -1
    """The newest batch that was looked at: what was found for it is not needed any more."""
    _changed_at: dict[str, int | None] = field(default_factory=dict)
    """When a file, or its name, was changed last, before Spark began."""

    def begin(self, batches: Sequence[PlannedBatch]) -> None:
        """Look at the files that wait: one that is away for a moment has another time of change afterwards."""
        if self.is_guarded:
            return
        ranges = [source for batch in batches for source in batch.sources.values()]
        for entry in (entry for found in ranges for entry in found.added.entries):
            self._changed_at[entry.path] = self._time_of_change(entry.path)

    def note_found(self, started: StreamingQuery) -> None:
        """Remember which files Spark has found for the batch that is the newest now."""
        if self.is_guarded or not self.files.query.knows_files:
            return
        newest = self.files.query.newest_batch(started)
        if newest is not None and newest[0] > self._checked:
            self._seen[newest[0]] = newest[1]

    def check(self, batch_id: int) -> list[str]:
        """Note what is wrong with a batch that is committed: it has too few rows, or some twice. Tells it, too."""
        found = [*self._shortfall(batch_id), *self._surplus(batch_id), *self._read_again(batch_id)]
        self._checked = batch_id
        self.failures += found
        return [
            *(f"{failure.problem} [{failure.where}]; {failure.remedy}" for failure in found),
            *self._added_again(batch_id),
        ]

    def failure(self, ended_with: SluiceError | None = None) -> SluiceError | None:
        """What to raise at the end, with everything that was found; None where nothing is wrong.

        Args:
            ended_with: What ended the run before that.
        """
        found = [*([ended_with] if ended_with is not None else []), *self.failures]
        if len(found) < 2 or not isinstance(found[0], BatchFailedError):
            return found[0] if found else None
        remedies = dict.fromkeys(failure.remedy for failure in found if failure.remedy is not None)
        return BatchFailedError(
            "; ".join(failure.problem for failure in found), where=found[0].where, remedy="; ".join(remedies)
        )

    def _shortfall(self, batch_id: int) -> Iterator[BatchFailedError]:
        if self.is_guarded:
            return
        taken = self.logged.must_be_there(batch_id)
        if (seen := self._seen.pop(batch_id, None)) is not None:
            missing = [path for path in taken if path not in seen]
            self.logged.note_unread(batch_id, missing)
            if (failure := self.files.committed_without(batch_id, missing)) is not None:
                yield failure
        elif gone := [path for path in taken if self._may_have_been_away(path)]:
            self.doubtful.update(gone)
            yield BatchFailedError(
                f"{len(gone)} input files are gone, or were moved or touched meanwhile, right after batch {batch_id},"
                " which Spark planned and has committed: if they were away when it read them, their rows are"
                f" missing{told(gone)}",
                where=gone[0],
                remedy="look for the rows of each in the sink; where they are missing, bring the file back under a new"
                " name, and the next run reads it",
            )

    def _may_have_been_away(self, path: str) -> bool:
        there = self.logged.home.storage.stat(path)
        return there is None or self._changed_at.get(path, there.changed_ns) != there.changed_ns

    def _time_of_change(self, path: str) -> int | None:
        there = self.logged.home.storage.stat(path)
        return None if there is None else there.changed_ns

    def _surplus(self, batch_id: int) -> Iterator[BatchFailedError]:
        for found in self.logged.taken(batch_id):
            if (pattern := found.source.read_twice(found.entries)) is not None:
                yield BatchFailedError(
                    f"batch {batch_id} is committed with rows that are there twice: Spark took a file's name for a"
                    " pattern",
                    where=pattern,
                    remedy=f"delete the second rows of the other {len(found.entries) - 1} files of the batch, and"
                    " rename the file",
                )

    def _added_again(self, batch_id: int) -> Iterator[str]:
        """Nobody knows whether the stream had read what is back in a table: that is told, and fails no run."""
        for problem in self.logged.added_again(batch_id):
            yield (
                f"{problem.cause}, and batch {batch_id}, which Spark planned, has read them: rows may be there twice"
                f" [{problem.file}]; delete the second rows in the sink, if the stream had read those files before"
            )

    def _read_again(self, batch_id: int) -> Iterator[BatchFailedError]:
        again = {} if self.is_guarded else self.logged.read_again(batch_id)
        if again:
            yield BatchFailedError(
                f"batch {batch_id} is committed with rows that are there twice: {len(again)} of its files were read"
                f" before, under another name or this one{told([read_as(*names) for names in again.items()])}",
                where=next(iter(again)),
                remedy="delete the second rows of each; and put an empty file in the place of the old one, which a"
                " backfill would miss",
            )
