"""The files of the batches that Spark plans itself: which these are, and whether Spark has read them, and once.

AvailableNow lists a folder once, and takes a file that is gone when its batch comes for empty. A function that writes
batches is kept from that before the batch counts. What the writers of Spark's own sinks have read shows only while it
is the newest batch, and never over Connect: where nobody saw it, a file that is gone is one that was not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import logged_offset, read_offset_file
from sluice.checkpoint.source_log import LogEntry, read_entries
from sluice.errors import BatchFailedError
from sluice.home import Generation, StreamHome
from sluice.locations import join
from sluice.running.planned_files import PlannedFiles
from sluice.sources.files.source import FilesSource

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class _Taken:
    """What one source of files has taken."""

    source: FilesSource
    log: str
    """The folder of the source's own log, below `sources/`."""
    entries: Sequence[LogEntry]


@dataclass
class DrainedFiles:
    """The files of one AvailableNow start."""

    files: PlannedFiles
    generation: Generation
    home: StreamHome
    is_guarded: bool
    """Whether a function writes the batches, and is not called with less than Spark has logged."""
    _seen: dict[int, frozenset[str]] = field(default_factory=dict)

    def must_be_there(self, batch_id: int) -> list[str]:
        """The files that a batch must read; it may be under way."""
        taken = (found for found in self._taken(batch_id) if not found.source.ignores_missing)
        return [entry.path for found in taken for entry in found.entries]

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

    def keep_sizes(self, batch_id: int) -> None:
        """Note the bytes of what a batch has taken, as those of planned ones are: a renamed file is known by them.

        Of a file that is gone or another one by now, nobody knows.
        """
        for found in self._taken(batch_id):
            for log_id, entries in groupby(found.entries, lambda entry: entry.batch_id):
                sizes = tuple(map(self._size, entries))
                self.home.keep_sizes(self.generation.generation, found.log, log_id, sizes)

    def _shortfall(self, batch_id: int) -> BatchFailedError | None:
        if self.is_guarded:
            return None
        taken = self.must_be_there(batch_id)
        if (seen := self._seen.get(batch_id)) is not None:
            return self.files.committed_without(batch_id, [path for path in taken if path not in seen])
        gone = [path for path in taken if self.home.storage.stat(path) is None]
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
        for found in self._taken(batch_id):
            if (pattern := found.source.read_twice(found.entries)) is not None:
                return BatchFailedError(
                    f"batch {batch_id} is committed with rows that are there twice: Spark took a file's name for a"
                    " pattern",
                    where=pattern,
                    remedy=f"delete the second rows of the other {len(found.entries) - 1} files of the batch, and"
                    " rename the file",
                )
        return None

    def _size(self, entry: LogEntry) -> int | None:
        there = self.home.storage.stat(entry.path)
        return there.size_bytes if there is not None and there.mtime_ms == entry.timestamp_ms else None

    def _taken(self, batch_id: int) -> Iterator[_Taken]:
        starts, ends = self._offsets(batch_id - 1), self._offsets(batch_id)
        lines = self.generation.lines
        for index, line in {line.log: (index, line) for index, line in enumerate(lines)}.values():
            source = self.files.query.stream.sources[line.source]
            first, last = _log_id(starts, index), _log_id(ends, index)
            if not isinstance(source, FilesSource) or last is None:
                continue
            folder = list_log(join(self._checkpoint, "sources", line.log), storage=self.home.storage)
            if folder is not None:
                entries = read_entries(folder, -1 if first is None else first, last, storage=self.home.storage)
                yield _Taken(source, line.log, entries)

    def _offsets(self, batch_id: int) -> Sequence[str | None]:
        if batch_id < 0:
            return ()
        location = join(self._checkpoint, "offsets", str(batch_id))
        found = read_offset_file(location, batch_id, storage=self.home.storage)
        return () if found is None else tuple(found.offsets.values())

    @property
    def _checkpoint(self) -> str:
        return self.home.checkpoint_location(self.generation.generation)


def _log_id(offsets: Sequence[str | None], index: int) -> int | None:
    offset = offsets[index] if index < len(offsets) else None
    return None if offset is None else logged_offset(offset)
