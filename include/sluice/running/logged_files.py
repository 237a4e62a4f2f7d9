"""The files that a batch has taken, by the sources' own logs: also of a batch that Spark planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import logged_offset, read_offset_file
from sluice.checkpoint.source_log import LogEntry, read_entries
from sluice.home import Generation, StreamHome
from sluice.locations import join
from sluice.sources.files.source import FilesSource
from sluice.stream import Stream


@dataclass(frozen=True)
class Taken:
    """What one source of files has taken."""

    source: FilesSource
    log: str
    """The folder of the source's own log, below `sources/`."""
    entries: Sequence[LogEntry]


@dataclass(frozen=True)
class LoggedFiles:
    """Reads the logs of one generation."""

    stream: Stream
    generation: Generation
    home: StreamHome

    def taken(self, batch_id: int) -> Iterator[Taken]:
        """What a batch has taken of each source of files; it may be under way."""
        starts, ends = self._offsets(batch_id - 1), self._offsets(batch_id)
        lines = self.generation.lines
        for index, line in {line.log: (index, line) for index, line in enumerate(lines)}.values():
            source = self.stream.sources[line.source]
            first, last = _log_id(starts, index), _log_id(ends, index)
            if not isinstance(source, FilesSource) or last is None:
                continue
            folder = list_log(join(self._checkpoint, "sources", line.log), storage=self.home.storage)
            if folder is not None:
                entries = read_entries(folder, -1 if first is None else first, last, storage=self.home.storage)
                yield Taken(source, line.log, entries)

    def must_be_there(self, batch_id: int) -> list[str]:
        """The files that a batch must read; not those that may be missing."""
        taken = (found for found in self.taken(batch_id) if not found.source.ignores_missing)
        return [entry.path for found in taken for entry in found.entries]

    def keep_sizes(self, batch_id: int) -> None:
        """Note the bytes of what a batch has taken, where nobody has: a renamed file is known by them.

        Of a file that is gone or another one by now, nobody knows.
        """
        number = self.generation.generation
        for found in self.taken(batch_id):
            for log_id, entries in groupby(found.entries, lambda entry: entry.batch_id):
                if not self.home.taken_sizes(number, found.log, log_id):
                    self.home.keep_sizes(number, found.log, log_id, tuple(map(self._size, entries)))

    def _size(self, entry: LogEntry) -> int | None:
        there = self.home.storage.stat(entry.path)
        return there.size_bytes if there is not None and there.mtime_ms == entry.timestamp_ms else None

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
