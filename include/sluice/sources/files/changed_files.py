"""Files that were read and have changed since: renamed, packed, grown, or replaced by others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sluice.checkpoint.source_log import LogEntry
from sluice.errors import Problem
from sluice.locations import is_local
from sluice.sources.files.listing import ListedFile
from sluice.sources.files.taken_files import Away, TakenFiles

_PACKING = re.compile(r"\.(?:gz|bz2|zst|lz4|snappy|deflate)$")
_NUMBER = re.compile(r"(?:[.-]\d+)+$")
"""What is appended to the name of a log that is rotated: a number, or a date."""
_MOST_REGARDED = 100
"""Of how many of the newest files that were taken it is looked up whether they have changed, at each plan."""
_MOST_LOOKS = 1000
"""How many files of one time and name are looked up."""


@dataclass
class Renamed:
    """The files that wait, told from those that were read under another name."""

    kept: list[ListedFile] = field(default_factory=list)
    set_aside: list[ListedFile] = field(default_factory=list)
    """What is set aside: its rows would be read a second time."""
    problems: list[Problem] = field(default_factory=list)
    old: list[LogEntry] = field(default_factory=list)
    """What was read under another name, and has gone from there."""
    names: dict[str, str] = field(default_factory=dict)
    """Under which name a file that is set aside was probably read."""


def find_renamed(waiting: Sequence[ListedFile], taken: TakenFiles) -> Renamed:
    """Hold back the files that were taken under another name: same time, same size, and the old one has gone.

    So are those that were packed (or unpacked) since: `gzip` keeps the time, and takes the old file away. In the place
    of the old one may be another file, as where logs are rotated.

    Where the size of what was taken is not known, the time alone sets nothing aside, and is a warning.
    """
    found = Renamed()
    of_times = taken.of_times({file.mtime_ms for file in waiting})
    if not of_times:
        return Renamed(kept=list(waiting))
    by_name: dict[tuple[str, int], list[LogEntry]] = {}
    for time_ms, entries in of_times.items():
        for entry in entries:
            by_name.setdefault((_plain_name(entry.path), time_ms), []).append(entry)
    gone: dict[tuple[int, int], Away] = {}
    for file in waiting:
        key = file.mtime_ms, file.size_bytes
        if key not in gone:
            gone[key] = taken.away(taken.alike(*key))
        old, same = next(iter(gone[key].entries), None), "time and the size"
        if gone[key].is_unknown:
            found.problems.append(_undecided(file.path, len(of_times[file.mtime_ms])))
            found.set_aside.append(file)
            continue
        is_set_aside = old is not None and taken.size(old) is not None
        packed = None if is_set_aside else _find_packed(file, by_name, taken)
        if packed is not None:
            old, is_set_aside, same = packed, True, "time and, but for its packing, the name"
        if old is not None and is_set_aside:
            found.names[file.path] = old.path
        if old is not None:
            same = same if is_set_aside else "time"
            is_replaced = taken.there(old) is not None
            problem = _renamed(file.path, old.path, same, is_set_aside=is_set_aside, is_replaced=is_replaced)
            found.problems.append(problem)
            found.old += gone[key].entries if packed is None else [packed]
        (found.set_aside if is_set_aside else found.kept).append(file)
    found.problems.sort(key=lambda problem: problem.file)
    return found


def _find_packed(
    file: ListedFile, by_name: dict[tuple[str, int], list[LogEntry]], taken: TakenFiles
) -> LogEntry | None:
    """What a file was before it was packed, or unpacked; it may have been rotated, too."""
    named = by_name.get((_plain_name(file.path), file.mtime_ms), ())
    others = (entry for entry in named[:_MOST_LOOKS] if _packing(entry.path) != _packing(file.path))
    read = (entry for entry in others if entry.path not in taken.unread)
    return next((entry for entry in read if taken.has_gone(entry, taken.there(entry))), None)


def _packing(path: str) -> str:
    """The ending of a codec that Spark reads; nothing where there is none."""
    found = _PACKING.search(path)
    return found[0] if found else ""


def _plain_name(path: str) -> str:
    """A file's name without what packing and rotating append."""
    return _NUMBER.sub("", _PACKING.sub("", path.rpartition("/")[2]))


class Changed(NamedTuple):
    """The taken names under which another file seems to be."""

    problems: Sequence[Problem]
    places: Sequence[Place]


class Place(NamedTuple):
    """The place of a file that was taken, and how the other one there looks."""

    entry: LogEntry
    stamp: tuple[int, int]


def find_changed(taken: TakenFiles, renamed: Renamed, yet_to_read: Collection[str] = ()) -> Changed:
    """Warn where another file seems to be in the place of one that was taken: it is never read.

    Nobody looks at all of them: a file that was taken costs a plan nothing. Regarded are those that were taken lately,
    by their times alone; and the places of those that have another name now, and so on from there. Those that are yet
    to be read are mended, or brought back.
    """
    newest = [entry for entry in taken.log.entries[-_MOST_REGARDED:] if is_local(entry.path)]
    touched = [old for old in newest if (at := taken.there(old)) is not None and at.mtime_ms != taken.time(old)]
    places = _places([old for old in (*touched, *renamed.old) if old.path not in yet_to_read], taken)
    there = Counter((file.mtime_ms, file.size_bytes) for file in renamed.set_aside)
    there.update(stamp for _, stamp in places)
    found: dict[str, list[str]] = {"size": [], "time": []}
    for entry, stamp in sorted(places, key=lambda place: place[0].batch_id):
        size = taken.size(entry)
        alike = [old for old in taken.alike(*stamp) if taken.size(old) is not None]
        if len(taken.away(alike).entries) < there[stamp]:
            # Else it was read under another name.
            found["time" if size in {None, stamp[1]} else "size"].append(entry.path)
    back = [entry.path for entry in taken.log.entries if taken.unread and _is_back(entry, taken)]
    told = (("unread", back), *found.items())
    return Changed([_CHANGED[how](paths) for how, paths in told if paths], places)


def _is_back(entry: LogEntry, taken: TakenFiles) -> bool:
    return entry.path in taken.unread and taken.there(entry) is not None


def _places(regarded: Sequence[LogEntry], taken: TakenFiles) -> list[Place]:
    """The files that have another one in their place, and its time and size.

    If that one was read under another name, its own place is regarded, too.
    """
    found: dict[str, Place] = {}
    while regarded:
        stamps = [
            Place(entry, stamp) for entry in regarded if entry.path not in found and (stamp := _stamp(entry, taken))
        ]
        found |= {place.entry.path: place for place in stamps}
        taken.of_times({mtime_ms for _, (mtime_ms, _) in stamps})
        regarded = [old for _, stamp in stamps for old in taken.away(taken.alike(*stamp)).entries]
    return list(found.values())


def _stamp(entry: LogEntry, taken: TakenFiles) -> tuple[int, int] | None:
    """The time and the size of another file in a file's place; None where there is none that has anything to read."""
    there = taken.there(entry)
    is_another = there is not None and entry.path not in taken.unread and taken.has_gone(entry, there)
    if there is None or not there.size_bytes or not is_another:
        return None
    # A path may have been taken twice, by a Spark that had forgotten it (`maxFileAge`).
    again = (other.path for other in taken.alike(there.mtime_ms, there.size_bytes))
    return None if entry.path in again else (there.mtime_ms, there.size_bytes)


def _resized(paths: Sequence[str]) -> Problem:
    return _changed(
        paths[-1],
        f"{len(paths)} of the files that were read have another size now: something was added, or another file has"
        " taken the name",
        "let it arrive in a file with a name of its own",
    )


def _retimed(paths: Sequence[str]) -> Problem:
    return _changed(
        paths[-1],
        f"{len(paths)} of the files that were read have another time now: another file has taken the name, or it was"
        " only touched",
        "let another file arrive with a name of its own; of one that was only touched, nothing is missing",
    )


def _changed(path: str, cause: str, remedy: str) -> Problem:
    return Problem(
        code="FILE_CHANGED",
        file=path,
        cause=cause,
        consequence="what is new there is never read: a name is read once",
        remedy=remedy,
        is_blocking=False,
    )


def _unread(paths: Sequence[str]) -> Problem:
    return Problem(
        code="FILE_NOT_READ",
        file=paths[-1],
        cause=f"{len(paths)} files that were away when Spark read their batch are back under their old names",
        consequence="their rows are missing: a name counts as read",
        remedy="rename them: under new names they are read",
        is_blocking=False,
    )


_CHANGED = {"unread": _unread, "size": _resized, "time": _retimed}


def _undecided(path: str, count: int) -> Problem:
    return Problem(
        code="FILE_RENAMED",
        file=path,
        cause=f"{count:,} files of its time were read, in too many folders to know whether one of them is gone, and was"
        " renamed to this one",
        consequence="it is set aside: its rows would be read a second time",
        remedy="touch it, if it is another file",
        is_blocking=False,
    )


def _renamed(path: str, old: str, same: str, *, is_set_aside: bool, is_replaced: bool) -> Problem:
    rows = "its rows would be read a second time"
    now = "and another file has its name now" if is_replaced else "and is gone"
    return Problem(
        code="FILE_RENAMED",
        file=path,
        cause=f"the file has the {same} of {old}, which was read, {now}: it was probably renamed",
        consequence=f"it is set aside: {rows}" if is_set_aside else "its rows are read again",
        remedy="give it its old name back; or touch it, if it is another file",
        is_blocking=False,
    )
