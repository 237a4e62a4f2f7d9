"""The files that a batch must read: whether Spark found them all, which takes those that are away for empty."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.checkpoint.offsets import logged_offset
from sluice.checkpoint.source_log import SourceLog
from sluice.errors import BatchFailedError
from sluice.home import Generation
from sluice.plan import PlannedBatch, SourceRange
from sluice.sources.contract import LoggingSource
from sluice.sources.files.taken_files import in_place_of
from sluice.spark.query import Query
from sluice.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

_MOST_NAMED = 100
"""How many files a message names."""


@dataclass(frozen=True)
class PlannedFiles:
    """Compares what Spark found with what was planned."""

    query: Query
    generation: Generation
    storage: Storage

    def taken(self, batch: PlannedBatch, logs: Mapping[str, SourceLog]) -> tuple[str, ...]:
        """The files that a batch must read, as the logs of its sources have them; not those that may be missing."""
        paths: dict[str, None] = {}
        for line in self.generation.lines:
            source, log = batch.sources[line.source], logs.get(line.log)
            declared = self.query.stream.sources[line.source]
            if log is None or source.end is None or not isinstance(declared, LoggingSource) or declared.ignores_missing:
                continue
            first = -1 if source.start is None else logged_offset(source.start)
            last = logged_offset(source.end)
            if first is not None and last is not None:
                paths.update(dict.fromkeys(entry.path for entry in log.taken(first + 1, last)))
        return tuple(paths)

    def as_planned(self, batch: PlannedBatch, taken: Sequence[str]) -> Sequence[str]:
        """The files that a batch must read, where none of them was replaced since it was planned.

        Raises:
            BatchFailedError: One was.
        """
        if replaced := self.replaced(batch):
            raise BatchFailedError(
                f"{len(replaced)} planned input files of batch {batch.batch_id} were replaced, or have changed, before"
                f" Spark read them{told(replaced)}",
                where=replaced[0],
                remedy="nothing was written; bring back what was there under the same names, and another file under a"
                " name of its own: the next run repeats the batch",
            )
        return taken

    def replaced(self, batch: PlannedBatch) -> list[str]:
        """The files of a batch of our own planning in whose place is another one, or that have changed."""
        planned = [found for found in batch.sources.values() if not found.added.is_there]
        return [path for found in planned for path in changed_files(found, self.storage, also_gone=False)]

    def guarded(
        self, write: Callable[[DataFrame, int], object], taken: Callable[[int], Sequence[str]]
    ) -> Callable[[DataFrame, int], None]:
        """A function that writes a batch, not called with less than was planned.

        That comes before Spark's commit, and the batch is repeated once the files are back.

        Args:
            write: The function.
            taken: By batch id, the files that it must read; whatever it raises is raised by what is given.

        Raises:
            BatchFailedError: By what is given, where a file is away.
        """

        def guarded(frame: DataFrame, batch_id: int) -> None:
            paths = taken(batch_id)
            streams = self.query.frame.sparkSession.streams.active if paths else ()
            active = next((one for one in streams if one.id == self.generation.query_id), None)
            if active is not None and (missing := self._missing(active, paths)):
                raise BatchFailedError(
                    f"{len(missing)} planned input files of batch {batch_id} vanished before Spark read them"
                    + told(missing),
                    where=missing[0],
                    remedy="bring them back under the same names; nothing was written, and the next run repeats it",
                )
            write(frame, batch_id)

        return guarded

    def missing(self, taken: Sequence[str], started: StreamingQuery) -> list[str]:
        """The files that Spark did not find for its newest batch; none where it does not tell."""
        return self._missing(started, taken) if taken and self.query.knows_files else []

    def committed_without(self, batch_id: int, missing: Sequence[str]) -> BatchFailedError | None:
        """What to raise of a committed batch for which Spark did not find some files; None where there are none."""
        if not missing:
            return None
        return BatchFailedError(
            f"{len(missing)} planned input files vanished just before Spark read them: batch {batch_id} is committed"
            f" without their rows{told(missing)}",
            where=missing[0],
            remedy="bring each back under a new name, and the next run reads it; under its old one it counts as read",
        )

    def doubts(self, batch: PlannedBatch, taken: Sequence[str]) -> Iterator[str]:
        """What looks odd once a batch is committed."""
        yield from changed_at_work(batch.batch_id, self.replaced(batch))
        gone = [path for path in taken if self.storage.stat(path) is None] if not self.query.knows_files else []
        if gone:
            yield (
                f"{len(gone)} input files were gone right after batch {batch.batch_id} was read: if they had vanished"
                f" before, their rows are missing{told(gone)}"
            )

    def _missing(self, started: StreamingQuery, taken: Sequence[str]) -> list[str]:
        """The files that Spark did not find when it began its newest batch: it takes those for empty."""
        found = self.query.files_of_batch(started)
        return [path for path in taken if path not in found]


def check_unchanged(batch: PlannedBatch, storage: Storage) -> None:
    """Make sure that the files of a batch that is not logged yet are as they were planned.

    Raises:
        BatchFailedError: Some are not.
    """
    planned = [found for found in batch.sources.values() if not found.added.is_there]
    if gone := [path for found in planned for path in changed_files(found, storage)]:
        raise BatchFailedError(
            f"{len(gone)} planned input files vanished, or have changed, before batch {batch.batch_id} was written"
            + told(gone),
            where=gone[0],
            remedy="nothing was written for this batch; the next try plans it anew",
        )


def changed_files(planned: SourceRange, storage: Storage, *, also_gone: bool = True) -> list[str]:
    """The files of a batch that are not as they were when it was planned: others by now, or gone."""
    paths = []
    for entry, size_bytes in zip(planned.added.entries, planned.added.sizes, strict=True):
        there = in_place_of(entry, storage.stat(entry.path))
        stamp = None if there is None else (there.mtime_ms, there.size_bytes)
        if stamp != (entry.timestamp_ms, size_bytes) and (also_gone or stamp is not None):
            paths.append(entry.path)
    return paths


def changed_at_work(batch_id: int, changed: Sequence[str]) -> Iterator[str]:
    """What to tell of a batch whose files were not as they had been once it was read."""
    if changed:
        yield (
            f"{len(changed)} input files were replaced, or have changed, while batch {batch_id} was at work:"
            f" which of the two it has read, nobody knows{told(changed)}"
        )


def passed_over(batch_id: int, doubtful: Sequence[str]) -> Iterator[str]:
    """What to tell of a batch that was in the sink, and was not read again."""
    if doubtful:
        yield (
            f"{len(doubtful)} input files of batch {batch_id}, which was in the sink before it was committed, are gone"
            " or have changed: if they were away when it was read, their rows are missing; look for them in the sink,"
            f" and bring what is missing back under a new name{told(doubtful)}"
        )


def told(paths: Sequence[str]) -> str:
    """The names of files, for the end of a sentence that counts them: whoever mends it needs every one."""
    if len(paths) > _MOST_NAMED:
        logger.warning("all of them: %s", " ".join(paths))
        return f": {', '.join(paths[:_MOST_NAMED])}, and {len(paths) - _MOST_NAMED:,} more, which the driver's log has"
    return f": {', '.join(paths)}"
