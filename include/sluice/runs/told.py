"""Which runs of a stream the events of a scheduler have told of.

<home>/<stream>/told.json

A run's own record can't say so: its driver ends before whoever follows it tells, and may tell of nothing. A record that
was written since it was told of, by a retry say, is to be told of again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from sluice.documents import Document, encode_document, read_document
from sluice.errors import StorageError
from sluice.home import StreamHome
from sluice.runs.summary import RUN_ID

MOST_RUNS = 1000
"""Of how many runs it is kept, the newest: those before them count as told."""
_TRIES = 20


class RecordMark(msgspec.Struct, frozen=True, array_like=True):
    """A record's file, as it was when its run was told of."""

    size_bytes: int
    mtime_ms: int


class Told(Document, frozen=True, kw_only=True):
    """What was told of."""

    if_lost = "delete it: the runs up to the newest one that succeeded count as told then"
    up_to: str = ""
    """The id of a run: it counts as told, and so does every one with a smaller id."""
    runs: dict[str, RecordMark] = msgspec.field(default_factory=dict)
    """By id, the records of the runs behind it that were told of."""

    def has(self, run_id: str, mark: RecordMark) -> bool:
        """Whether a run was told of as its record is now."""
        return run_id <= self.up_to or self.runs.get(run_id) == mark


def read_told(home: StreamHome) -> Told | None:
    """What was told of; None where nobody has begun to keep it.

    Raises:
        RefusedError: The file is damaged.
        StorageError: It can't be read.
    """
    return read_document(home.storage, home.told_file(), Told)


def begin_told(home: StreamHome, told: Told) -> None:
    """Begin to keep it; where somebody has begun, nothing happens.

    Raises:
        StorageError: It can't be written.
    """
    home.storage.put_if_absent(home.told_file(), encode_document(told))


def keep_told(home: StreamHome, runs: Mapping[str, RecordMark], begin: Told) -> None:
    """Keep that runs were told of, whoever else does so at the same time.

    Args:
        home: The stream's folder in the home.
        runs: By id, their records as they were told of.
        begin: What is known where nobody has begun to keep it.

    Raises:
        RefusedError: The file is damaged.
        StorageError: It can't be written.
    """
    file = home.told_file()
    for _ in range(_TRIES):
        content = home.storage.read(file)
        before = begin if content is None else (read_told(home) or begin)
        if home.storage.replace_if(file, encode_document(_with(before, runs)), partial(_is, content)):
            return
    raise StorageError("others write it all the time", where=file, remedy="what was told is told once more")


def record_marks(home: StreamHome) -> dict[str, RecordMark]:
    """The newest records of a stream by the ids of their runs, newest first, as their files are now.

    Raises:
        StorageError: The folder of the records can't be listed.
    """
    folder = home.storage.list_folder(home.runs_folder())
    names = folder.files if folder is not None else []
    run_ids = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    found = {}
    for run_id in sorted(filter(RUN_ID.fullmatch, run_ids), reverse=True)[:MOST_RUNS]:
        stat = folder.stat(f"{run_id}.json") if folder is not None else None
        if stat is not None:
            found[run_id] = RecordMark(stat.size_bytes, stat.mtime_ms)
    return found


def _is(expected: bytes | None, found: bytes | None) -> bool:
    return found == expected


def _with(told: Told, runs: Mapping[str, RecordMark]) -> Told:
    kept = sorted({**told.runs, **runs}.items(), reverse=True)
    up_to = kept[MOST_RUNS][0] if len(kept) > MOST_RUNS else ""
    return Told(up_to=max(told.up_to, up_to), runs=dict(kept[:MOST_RUNS]))
