"""The files that a batch has taken, by the sources' own logs: also of a batch that Spark planned."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import logged_offset, read_offset_file
from sluice.checkpoint.places import offset_file, source_log
from sluice.checkpoint.source_log import LogEntry, SourceLog, read_entries, read_source_log
from sluice.errors import BatchFailedError, Problem
from sluice.home import Generation, StreamHome, lines_by_log
from sluice.local_disk import FileStat
from sluice.planning.survey import own_logs
from sluice.running.planned_files import told
from sluice.sources.contract import LoggingSource, OwnLog, Position, VersionedSource
from sluice.sources.files.refusals import read_again_remedy, read_as
from sluice.spark.progress import Report, source_metric
from sluice.stream import Stream
from sluice.taken_file_notes import TakenNotes


@dataclass(frozen=True)
class Taken:
    """What one source of files has taken."""

    source: LoggingSource
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
        for index, line in lines_by_log(self.generation.lines).values():
            source = self.stream.sources[line.source]
            first, last = _log_id(starts, index), _log_id(ends, index)
            if not isinstance(source, LoggingSource) or last is None:
                continue
            folder = list_log(source_log(self._checkpoint, line.log), storage=self.home.storage)
            if folder is not None:
                entries = read_entries(folder, -1 if first is None else first, last, storage=self.home.storage)
                yield Taken(source, line.log, entries)

    def without_rows(self, batch_id: int, report: Report) -> dict[str, int]:
        """How many files of a batch gave no row, by source, where a source that may pass files over counts them."""
        read = source_metric(report.get("observedMetrics", {}), "read_files")
        if not read:
            return {}
        files = {found.log: len(found.entries) for found in self.taken(batch_id)}
        logs = {line.source: line.log for line in self.generation.lines}
        return {name: files[logs[name]] - count for name, count in read.items() if logs[name] in files}

    def must_be_there(self, batch_id: int) -> list[str]:
        """The files that a batch must read; not those that may be missing."""
        taken = (found for found in self.taken(batch_id) if not found.source.ignores_missing)
        return [entry.path for found in taken for entry in found.entries]

    def may_be_unread(self, batch_id: int) -> list[str]:
        """The files of which nobody knows whether a batch has read them that the sink holds: gone, or others by now."""
        taken = (found for found in self.taken(batch_id) if not found.source.ignores_missing)
        return [entry.path for found in taken for entry in found.entries if self._size(found, entry) is None]

    def read_again(self, batch_id: int) -> dict[str, str]:
        """The files of a batch that Spark planned itself and that were read under another name: which name that was.

        Of a batch that somebody of ours has planned, or looked at before it counted, nothing.
        """
        found: dict[str, str] = {}
        for taken in self.taken(batch_id):
            folder = list_log(source_log(self._checkpoint, taken.log), storage=self.home.storage)
            sizes = self._notes(taken).sizes
            if folder is not None and not all(sizes(entry.batch_id) for entry in taken.entries):
                log = read_source_log(folder, storage=self.home.storage)
                position = self.position(taken.log, {taken.log: log})
                found |= taken.source.read_again(taken.entries, position, self.home.storage)
        return found

    def added_again(self, batch_id: int) -> Iterator[Problem]:
        """Why a batch that Spark planned itself may have read rows of a table again."""
        starts, ends = self._offsets(batch_id - 1), self._offsets(batch_id)
        for line, start, end in zip(self.generation.lines, starts, ends, strict=False):
            source = self.stream.sources[line.source]
            if isinstance(source, VersionedSource) and start is not None and end is not None and start != end:
                problem = source.added_again(start, end, self.home.storage)
                if problem is not None:
                    yield problem

    def position(self, name: str, logs: Mapping[str, SourceLog], offset: str | None = None) -> Position:
        """A position in a source's own log, by its folder's name, with what is known of the files in it."""
        return Position(offset, own_logs(self.home, self.generation.generation, logs).get(name, OwnLog()))

    def must_be_read_once(self, batch_id: int) -> list[str]:
        """The files that a batch of Spark's own planning must read, once it is sure that none was read before.

        Raises:
            BatchFailedError: One was, under another name.
        """
        if again := self.read_again(batch_id):
            raise BatchFailedError(
                f"{len(again)} input files of batch {batch_id} were read before, under another name or this one"
                f"{told([read_as(*names) for names in again.items()])}",
                where=next(iter(again)),
                remedy=f"nothing was written; {read_again_remedy(*next(iter(again.items())))}, and the next run repeats"
                " the batch",
            )
        paths = self.must_be_there(batch_id)
        if all(self.home.storage.stat(path) is not None for path in paths):
            self.keep_sizes(batch_id)
        return paths

    def note_unread(self, batch_id: int, paths: Sequence[str]) -> None:
        """Note of which files of a committed batch Spark has read nothing: under other names they are new."""
        for found in self.taken(batch_id) if paths else ():
            self._notes(found).keep_unread({entry.path for entry in found.entries}.intersection(paths))

    def keep_sizes(self, batch_id: int, doubtful: Collection[str] = ()) -> None:
        """Note the bytes of what a batch has taken, where nobody has: a renamed file is known by them.

        Of a file that is gone or another one by now, nobody knows.

        Args:
            batch_id: The batch.
            doubtful: The files of which nobody knows whether they were read: under another name, none is set
                aside.
        """
        for found in self.taken(batch_id):
            notes = self._notes(found)
            for log_id, taken in groupby(found.entries, lambda entry: entry.batch_id):
                if not notes.sizes(log_id):
                    notes.keep_sizes(
                        log_id, [None if entry.path in doubtful else self._size(found, entry) for entry in taken]
                    )

    def note_stats(self, batch_id: int) -> dict[str, FileStat]:
        """Note how the files of a batch look that is about to be read: some may have been mended since it took them.

        Before it is read, for whoever comes after a kill does not read it again.

        Returns:
            How those look that are there, by their paths.
        """
        looks: dict[str, FileStat] = {}
        for found in self.taken(batch_id):
            notes = self._notes(found)
            paths = (entry.path for entry in found.entries)
            there = {path: stat for path in paths if (stat := self.home.storage.stat(path)) is not None}
            looks |= there
            times = notes.times_ms()
            known = {entry.path: times.get(entry.path, entry.timestamp_ms) for entry in found.entries}
            if mended := {path: stat.mtime_ms for path, stat in there.items() if stat.mtime_ms != known[path]}:
                notes.keep_times(mended)
            self._note_sizes(found, {path: stat.size_bytes for path, stat in there.items()})
        return looks

    def note_changed(self, batch_id: int, looks: Mapping[str, FileStat]) -> list[str]:
        """Note of which files nobody knows what a batch has read of them: they changed while it was at work. Tells it.

        Args:
            batch_id: The batch.
            looks: How its files looked before.
        """
        changed = [path for path, before in looks.items() if self._has_changed(path, before)]
        for found in self.taken(batch_id) if changed else ():
            self._note_sizes(found, {entry.path: None for entry in found.entries if entry.path in changed})
        return changed

    def _note_sizes(self, found: Taken, sizes: Mapping[str, int | None]) -> None:
        notes = self._notes(found)
        for log_id, entries in groupby(found.entries, lambda entry: entry.batch_id):
            taken, noted = [entry.path for entry in entries], notes.sizes(log_id)
            known = dict(zip(taken, noted, strict=False)) | {path: sizes[path] for path in taken if path in sizes}
            if (now := tuple(map(known.get, taken))) != noted:
                notes.keep_sizes(log_id, now)

    def _has_changed(self, path: str, before: FileStat) -> bool:
        now = self.home.storage.stat(path)
        return now is not None and (now.mtime_ms, now.size_bytes) != (before.mtime_ms, before.size_bytes)

    def _notes(self, taken: Taken) -> TakenNotes:
        return self.home.taken(self.generation.generation, taken.log)

    def _size(self, found: Taken, entry: LogEntry) -> int | None:
        """The bytes of a file that is there as it was read; it may have been mended after it was taken."""
        there = self.home.storage.stat(entry.path)
        if there is None:
            return None
        read_ms = self._notes(found).times_ms().get(entry.path, entry.timestamp_ms)
        return there.size_bytes if there.mtime_ms == read_ms else None

    def _offsets(self, batch_id: int) -> Sequence[str | None]:
        if batch_id < 0:
            return ()
        location = offset_file(self._checkpoint, batch_id)
        found = read_offset_file(location, batch_id, storage=self.home.storage)
        return () if found is None else tuple(found.offsets.values())

    @property
    def _checkpoint(self) -> str:
        return self.home.checkpoint_location(self.generation.generation)


def _log_id(offsets: Sequence[str | None], index: int) -> int | None:
    offset = offsets[index] if index < len(offsets) else None
    return None if offset is None else logged_offset(offset)
