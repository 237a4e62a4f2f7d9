"""Files that were read and have changed since: renamed, packed, or grown."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from itertools import islice
from typing import NamedTuple
from urllib.parse import unquote

from sluice.checkpoint.source_log import LogEntry, SourceLog
from sluice.errors import Problem
from sluice.local_disk import FileStat
from sluice.locations import is_local, local_path
from sluice.sources.files.listing import ListedFile
from sluice.storage import Storage

_PACKING = re.compile(r"\.(?:gz|bz2|zst|lz4|snappy|deflate)$")
_MOST_REGARDED = 100
"""Of how many of the newest files that were taken it is looked up whether they have changed, at each plan."""
_MOST_LOOKS = 1000
"""How many files of one time and size are looked up one by one, and else how many folders of theirs, at each plan."""


def without_renamed(
    waiting: list[ListedFile], log: SourceLog, sizes: Callable[[int], Sequence[int | None]], storage: Storage
) -> tuple[list[ListedFile], list[Problem]]:
    """Hold back the files that were taken under another name: same time, same size, and the old path is gone.

    So are those that were packed (or unpacked) since: `gzip` keeps the time, and takes the old file away.

    Where the size of what was taken is not known, the time alone holds nothing back, and is a warning.
    """
    times = {file.mtime_ms for file in waiting}
    found: dict[int, list[LogEntry]] = {}
    for entry in log.entries if times else ():
        if entry.timestamp_ms in times:
            found.setdefault(entry.timestamp_ms, []).append(entry)
    if not found:
        return waiting, []
    known = _Sizes(log, {entry.batch_id for entries in found.values() for entry in entries}, sizes)
    by_name = {_unpacked(entry.path): entry for entries in found.values() for entry in entries}
    gone: dict[tuple[int, int], _Found] = {}
    kept, problems = [], []
    for file in waiting:
        key = file.mtime_ms, file.size_bytes
        if key not in gone:
            alike = [entry for entry in found.get(file.mtime_ms, ()) if known.of(entry) in {None, file.size_bytes}]
            gone[key] = _find_away(alike, known, storage)
        old, is_unknown = gone[key]
        if is_unknown:
            problems.append(_undecided(file.path, len(found[file.mtime_ms])))
            continue
        is_held, same = old is not None and known.of(old) is not None, "time and the size"
        plain = by_name.get(_unpacked(file.path))
        if not is_held and plain is not None and _is_packed(file, plain, storage):
            old, is_held, same = plain, True, "time and, but for its packing, the name"
        if old is not None:
            problems.append(_renamed(file.path, old.path, same if is_held else "time", is_held=is_held))
        if not is_held:
            kept.append(file)
    return kept, problems


def _is_packed(file: ListedFile, old: LogEntry, storage: Storage) -> bool:
    is_like = old.path != file.path and old.timestamp_ms == file.mtime_ms
    return is_like and storage.stat(old.path) is None


def _unpacked(path: str) -> str:
    """A path without the ending of a codec that Spark reads."""
    return _PACKING.sub("", path)


class _Found(NamedTuple):
    """Which of some files that were taken is away; None where all are there."""

    away: LogEntry | None = None
    is_unknown: bool = False
    """Whether they are too many to know."""


def _find_away(alike: Sequence[LogEntry], known: _Sizes, storage: Storage) -> _Found:
    """The first of some files that is not at its path any more; of many, by listings of the folders where they were."""
    if len(alike) <= _MOST_LOOKS:
        away = (entry for entry in alike if _is_away(entry, storage.stat(entry.path), known.of(entry)))
        return _Found(next(away, None))
    by_folder: dict[str, list[LogEntry]] = {}
    for entry in alike:
        by_folder.setdefault(entry.path.rpartition("/")[0], []).append(entry)
    for parent, entries in islice(by_folder.items(), _MOST_LOOKS):
        folder = storage.list_folder(_location(parent))
        there = set(folder.files) if folder is not None else set()
        for entry in entries:
            name = _location(entry.path).rpartition("/")[2]
            stat = folder.stat(name) if folder is not None and name in there else None
            if _is_away(entry, stat, known.of(entry)):
                return _Found(entry)
    return _Found(is_unknown=len(by_folder) > _MOST_LOOKS)


def _location(uri: str) -> str:
    return local_path(uri) if is_local(uri) else unquote(uri)


def _is_away(entry: LogEntry, there: FileStat | None, size_bytes: int | None) -> bool:
    """Whether a file that was taken is not at its path any more; another one may be, as where logs are rotated."""
    return there is None or (
        there.mtime_ms != entry.timestamp_ms and size_bytes is not None and there.size_bytes != size_bytes
    )


def changed(log: SourceLog, sizes: Callable[[int], Sequence[int | None]], storage: Storage) -> list[Problem]:
    """A warning where a file that was taken lately has another size now: what is new in it is never read.

    Nobody looks at older ones: a file that was taken costs a plan nothing.
    """
    newest = [entry for entry in log.entries[-_MOST_REGARDED:] if is_local(entry.path)]
    stats = {entry: storage.stat(entry.path) for entry in newest}
    touched = {entry: stat for entry, stat in stats.items() if stat and stat.mtime_ms != entry.timestamp_ms}
    known = _Sizes(log, {entry.batch_id for entry in touched}, sizes)
    changed = [entry.path for entry, stat in touched.items() if known.of(entry) not in {None, stat.size_bytes}]
    if not changed:
        return []
    return [
        Problem(
            code="FILE_CHANGED",
            file=changed[-1],
            cause=f"{len(changed)} of the newest files that were read have another size now",
            consequence="what was added, or has replaced them, is never read: a name is read once",
            remedy="let it arrive in a file with a name of its own",
            is_blocking=False,
        )
    ]


class _Sizes:
    """The sizes of the files that some log ids took, read once per id."""

    def __init__(self, log: SourceLog, log_ids: Container[int], sizes: Callable[[int], Sequence[int | None]]) -> None:
        self._read = sizes
        self._taken: dict[int, list[LogEntry]] = {}
        for entry in log.entries:
            if entry.batch_id in log_ids:
                self._taken.setdefault(entry.batch_id, []).append(entry)
        self._known: dict[int, dict[str, int | None]] = {}

    def of(self, entry: LogEntry) -> int | None:
        """The bytes of a file when it was taken; None when nobody knows."""
        log_id = entry.batch_id
        if log_id not in self._known:
            taken, sizes = self._taken[log_id], self._read(log_id)
            is_whole = len(taken) == len(sizes)
            self._known[log_id] = {old.path: size for old, size in zip(taken, sizes, strict=True)} if is_whole else {}
        return self._known[log_id].get(entry.path)


def _undecided(path: str, count: int) -> Problem:
    return Problem(
        code="FILE_RENAMED",
        file=path,
        cause=f"{count:,} files of its time were read, in too many folders to know whether one of them is gone, and was"
        " renamed to this one",
        consequence="it is held back: its rows would be read a second time",
        remedy="touch it, if it is another file",
        is_blocking=False,
    )


def _renamed(path: str, old: str, same: str, *, is_held: bool) -> Problem:
    return Problem(
        code="FILE_RENAMED",
        file=path,
        cause=f"the file has the {same} of {old}, which was read and is gone: it was probably renamed",
        consequence="it is held back: its rows would be read a second time" if is_held else "its rows are read again",
        remedy="give it its old name back; or touch it, if it is another file",
        is_blocking=False,
    )
