"""The files that a source has taken: how they looked then, and what is in their places now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple
from urllib.parse import unquote

from sluice.checkpoint.source_log import LogEntry
from sluice.local_disk import FileStat
from sluice.locations import is_local, local_path
from sluice.sources.contract import OwnLog
from sluice.storage import Storage

_MOST_LOOKED_UP = 1000
"""How many files of one time and size are looked up one by one, and else how many folders of theirs, at each plan."""


class Away(NamedTuple):
    """Which of some files that were taken are not in their places any more."""

    entries: Sequence[LogEntry] = ()
    is_unknown: bool = False
    """Whether they are too many to know."""


class TakenFiles:
    """Looks at the files of a source's log. What it has found out, it keeps: it is made for one plan.

    Args:
        log: The source's own log.
        storage: Where to look.
    """

    def __init__(self, log: OwnLog, storage: Storage) -> None:
        self.log = log.taken
        self._own, self._storage = log, storage
        self._by_id: dict[int, list[LogEntry]] = {}
        self._by_time: dict[int, list[LogEntry]] = {}
        self._sizes: dict[int, dict[str, int | None]] = {}
        self._stats: dict[str, FileStat | None] = {}

    def of_times(self, times: set[int]) -> dict[int, list[LogEntry]]:
        """The entries of some times; a time that none has is not there."""
        unknown = times - self._by_time.keys()
        if unknown:
            self._by_time |= {time: [] for time in unknown}
            for entry in self.log.entries:
                if (time := self.time(entry)) in unknown:
                    self._by_time[time].append(entry)
        return {time: found for time in times if (found := self._by_time[time])}

    def time(self, entry: LogEntry) -> int:
        """When a file was modified that was read, in milliseconds; it may have been mended after it was taken."""
        return self._times.get(entry.path, entry.timestamp_ms) if self._times else entry.timestamp_ms

    @cached_property
    def _times(self) -> Mapping[str, int]:
        return self._own.times_ms()

    def size(self, entry: LogEntry) -> int | None:
        """The bytes of a file when it was taken; None when nobody knows."""
        return self._noted(entry.batch_id).get(entry.path)

    def is_noted(self, entry: LogEntry) -> bool:
        """Whether somebody of ours has looked at the files of a log id, before its batch was committed or after."""
        return bool(self._noted(entry.batch_id))

    def _noted(self, log_id: int) -> dict[str, int | None]:
        if log_id not in self._sizes:
            if not self._by_id:
                for found in self.log.entries:
                    self._by_id.setdefault(found.batch_id, []).append(found)
            taken, sizes = self._by_id.get(log_id, []), self._own.sizes(log_id)
            is_whole = len(taken) == len(sizes)
            self._sizes[log_id] = {old.path: size for old, size in zip(taken, sizes, strict=True)} if is_whole else {}
        return self._sizes[log_id]

    @cached_property
    def unread(self) -> frozenset[str]:
        """The files of which Spark has read nothing, though they were taken."""
        return frozenset(self._own.unread())

    def there(self, entry: LogEntry) -> FileStat | None:
        """What is in the place of a file now; None for nothing."""
        if entry.path not in self._stats:
            self._stats[entry.path] = in_place_of(entry, self._storage.stat(entry.path))
        return self._stats[entry.path]

    def has_gone(self, entry: LogEntry, there: FileStat | None) -> bool:
        """Whether a file is not in its place any more; another one may be, as where logs are rotated.

        One of another time or size counts as another one: whether it was only touched, nobody can see.
        """
        if there is None or there.mtime_ms != self.time(entry):
            return True
        # A clock that has seconds only may give two files one time.
        return there.mtime_ms % 1000 == 0 and self.size(entry) not in {None, there.size_bytes}

    def alike(self, mtime_ms: int, size_bytes: int) -> list[LogEntry]:
        """The entries of files that looked so when they were read; those whose size nobody knows come last."""
        found = [entry for entry in self.of_times({mtime_ms}).get(mtime_ms, ()) if entry.path not in self.unread]
        known = [entry for entry in found if self.size(entry) == size_bytes]
        return known + [entry for entry in found if self.size(entry) is None]

    def away(self, entries: Sequence[LogEntry]) -> Away:
        """Which of some files have gone; of many, by listings of the folders where they were."""
        if len(entries) <= _MOST_LOOKED_UP:
            return Away([entry for entry in entries if self.has_gone(entry, self.there(entry))])
        by_folder: dict[str, list[LogEntry]] = {}
        for entry in entries:
            by_folder.setdefault(entry.path.rpartition("/")[0], []).append(entry)
        looked = islice(by_folder.items(), _MOST_LOOKED_UP)
        gone = [entry for parent, inside in looked for entry in self._away_from(parent, inside)]
        return Away(gone, is_unknown=not gone and len(by_folder) > _MOST_LOOKED_UP)

    def _away_from(self, parent: str, entries: Sequence[LogEntry]) -> Iterator[LogEntry]:
        folder = self._storage.list_folder(file_location(parent))
        there = set(folder.files) if folder is not None else set()
        for entry in entries:
            name = file_location(entry.path).rpartition("/")[2]
            found = folder.stat(name) if folder is not None and name in there else None
            self._stats[entry.path] = in_place_of(entry, found)
            if self.has_gone(entry, self._stats[entry.path]):
                yield entry


def in_place_of(entry: LogEntry, there: FileStat | None) -> FileStat | None:
    """What is in the place of a file that was taken, with the time that a listing would give it.

    Of one object, a store may tell seconds, and milliseconds where it lists.
    """
    if there is None or is_local(entry.path) or there.mtime_ms // 1000 != entry.timestamp_ms // 1000:
        return there
    return FileStat(there.size_bytes, entry.timestamp_ms)


def file_location(uri: str) -> str:
    """Where a file is that a log spells as a URI."""
    return local_path(uri) if is_local(uri) else unquote(uri)
