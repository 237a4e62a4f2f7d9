"""The files that a planned batch, or a backfill, reads: whether each is there, and the one that was taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sluice.checkpoint.source_log import LogEntry
from sluice.errors import Problem
from sluice.sources.files.changed_files import find_renamed
from sluice.sources.files.listing import ListedFile, file_name, glob_pattern
from sluice.sources.files.refusals import (
    input_gone,
    input_is_pattern,
    input_left_out,
    input_read_before,
    input_replaced,
)
from sluice.sources.files.taken_files import TakenFiles, file_location


@dataclass(frozen=True)
class Inputs:
    """Looks at files of a source's log."""

    taken: TakenFiles
    listed: Callable[[], Sequence[ListedFile]]
    """Lists the files that the source has not taken; asked where something is in another's place."""
    pattern: Callable[[Sequence[LogEntry]], str | None]
    """Finds the file of a batch whose name lets Spark read others twice."""
    name_glob: str | None = None
    """What the names of files must match that Spark reads, also those of a batch that was planned."""

    def problems(self, entries: Sequence[LogEntry]) -> Iterator[Problem]:
        """Why a batch that reads these would read something else than it was planned to."""
        for entry in entries:
            if self.taken.there(entry) is None:
                yield input_gone(entry.path)
        if self.name_glob is not None and (left_out := find_left_out(entries, self.name_glob)) is not None:
            yield input_left_out(left_out.path, self.name_glob)
        if (pattern := self.pattern(entries)) is not None:
            yield input_is_pattern(pattern, len(entries) - 1)
        for path, now in self._replaced(entries).items():
            yield input_replaced(path, now)
        for path, old in self.read_before(entries).items():
            yield input_read_before(path, old)

    def read_before(self, entries: Sequence[LogEntry]) -> dict[str, str]:
        """The files of a batch that were read before, and the name that they had then.

        Asked of batches that Spark planned itself: of all others, it was looked at before. Of the same name is what a
        Spark has forgotten (`maxFileAge`) and that has another time now.
        """
        files = [
            ListedFile(entry.path, entry.timestamp_ms, there.size_bytes)
            for entry in entries
            if not self.taken.is_noted(entry)
            and (there := self.taken.there(entry)) is not None
            and there.mtime_ms == entry.timestamp_ms
        ]
        first = min((entry.batch_id for entry in entries), default=0)
        before = {entry.path for entry in self.taken.log.entries if entry.batch_id < first} if files else set()
        again = {file.path: file.path for file in files if file.path in before}
        return find_renamed([file for file in files if file.path not in again], self.taken).names | again

    def really_read(self, entries: Sequence[LogEntry]) -> list[LogEntry]:
        """Those of some entries that a batch has really read."""
        return [entry for entry in entries if entry.path not in self.taken.unread]

    def lost(self, entries: Sequence[LogEntry]) -> tuple[LogEntry, str] | None:
        """The first of some files that was read and can't be read again, and what is known of it; None for none."""
        stamps = {entry.path: self._stamp(entry) for entry in entries}
        needed = Counter(key for entry in entries if (key := self._key(entry)) is not None)
        there = Counter(stamp for stamp in stamps.values() if stamp is not None)
        replaced = self._replaced(entries)
        for entry in entries:
            stamp, key = stamps[entry.path], self._key(entry)
            if key is not None and (stamp == key or there[key] >= needed[key]):
                continue
            if stamp is None:
                return entry, "it is gone"
            if entry.path in replaced:
                return entry, f"another one is in its place; it is probably {replaced[entry.path]} now"
            if stamp in needed and stamp[0] != self.taken.time(entry):
                return entry, "another one, which was read too, is in its place"
            if key is None or stamp[1] >= key[1]:
                continue
            is_twice = needed[key] > 1 and there[key] > 0
            if stamp[1] or not is_twice:
                return entry, "it is shorter now"
        return None

    def _key(self, entry: LogEntry) -> tuple[int, int] | None:
        size = self.taken.size(entry)
        return None if size is None else (self.taken.time(entry), size)

    def _stamp(self, entry: LogEntry) -> tuple[int, int] | None:
        there = self.taken.there(entry)
        return None if there is None else (there.mtime_ms, there.size_bytes)

    def _replaced(self, entries: Sequence[LogEntry]) -> dict[str, str]:
        """The files that have another one in their place, and under which name they are to be found."""
        others = [
            (entry, key)
            for entry in entries
            if (there := self.taken.there(entry)) is not None
            and self.taken.has_gone(entry, there)
            and (key := self._key(entry)) is not None
        ]
        if not others:
            return {}
        listed = {(file.mtime_ms, file.size_bytes): file.path for file in self.listed()}
        found = {entry.path: listed[key] for entry, key in others if key in listed}
        return found | {entry.path: old for entry, _ in others if (old := self._swapped(entry, entries)) is not None}

    def _swapped(self, entry: LogEntry, entries: Sequence[LogEntry]) -> str | None:
        """The place of a file that was read, and not with these, and is in the place of this one."""
        there, together = self.taken.there(entry), {other.path for other in entries}
        alike = self.taken.alike(there.mtime_ms, there.size_bytes) if there is not None else []
        others = [old for old in alike if old.path not in together and self.taken.size(old) is not None]
        return next((old.path for old in self.taken.away(others).entries), None)


def find_left_out(entries: Sequence[LogEntry], name_glob: str) -> LogEntry | None:
    """The first of some files that a stream of Spark would pass over for its name; None for none."""
    pattern = glob_pattern(name_glob)
    return next((entry for entry in entries if not pattern.fullmatch(file_name(file_location(entry.path)))), None)
