"""A table that somebody has taken back to an earlier version by Delta's `RESTORE`.

It still says that it has batches of which the rows are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from sluice.delta_log.restore import RESTORE, Restore, read_restore
from sluice.delta_log.table import DeltaLog, commit_file, commit_lines, open_log, read_commit
from sluice.errors import Problem
from sluice.storage import Storage

_MOST_COMMITS = 100
"""How many of a table's newest commits are read for what counts already: others may write into it all the time."""


class _File(msgspec.Struct, rename="camel"):
    path: str
    data_change: bool = True
    deletion_vector: dict[str, Any] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What tells the file, with what is deleted of it."""
        vector = self.deletion_vector or {}
        return self.path, " ".join(str(vector.get(name)) for name in ("storageType", "pathOrInlineDv", "offset"))


class _Action(msgspec.Struct):
    add: _File | None = None
    remove: _File | None = None


_ACTION = msgspec.json.Decoder(_Action)


def taken_back_since(
    location: str, version: int, *, is_pending: bool, can_backfill: bool = False, storage: Storage
) -> Problem | None:
    """What is to be said of a table that shows an earlier version than one that it has had; None where it does not.

    Blocking while the batch of the version is pending: it would be passed over as done. But not once others have
    written rows: to take the table forward again would take them, and the stream is not to stand for good.

    Args:
        location: Where the table is.
        version: The version.
        is_pending: Whether Spark has not committed the batch of that version.
        can_backfill: Whether rows of the table can be recomputed.
        storage: Where to look.

    Raises:
        StorageError: The log can't be read right now.
    """
    log = open_log(location, storage=storage)
    if log is None:
        return None
    shown: dict[int, int] = {}
    at, restored, whole = version, version, version
    first = version if is_pending else max(version, log.latest - _MOST_COMMITS)
    for number in range(first + 1, log.latest + 1):
        restore = read_restore(location, number, storage=storage)
        if restore is not None:
            restored = number
            at = _shown(log, number, restore, version, shown, storage=storage)
        shown[number] = at
        whole = number if at >= version else whole
    if at >= version:
        return None
    others = any(_has_rows(log, number, storage=storage) for number in range(whole + 1, log.latest + 1))
    return Problem(
        code="SINK_RESTORED",
        file=commit_file(location, restored),
        cause=f"version {restored} has taken the table back"
        + (f" to version {at}" if at >= 0 else " to a time before")
        + f", and the stream has written version {version}",
        consequence="rows of batches that the stream has written are not in it, and it does not write them again",
        remedy="if that was not meant, "
        + (
            f"append the rows again that version {version} has (`VERSION AS OF {version}`) and the one before it has"
            " not (`EXCEPT ALL`): others have written since, whose rows a `RESTORE` would take"
            if others
            else f"take the table forward again by `RESTORE` to the version before ({whole})"
        )
        + ("; or recompute the rows of the intervals by a backfill" if can_backfill else ""),
        is_blocking=is_pending and not others,
    )


def is_restored(location: str, *, storage: Storage) -> bool:
    """Whether a table has a version that `RESTORE` has made, as far as its log tells.

    Raises:
        StorageError: The log can't be read right now.
    """
    log = open_log(location, storage=storage)
    versions = log.versions if log is not None else ()
    return any(read_restore(location, version, storage=storage) is not None for version in reversed(versions))


def _shown(
    log: DeltaLog, number: int, restore: Restore, version: int, shown: Mapping[int, int], *, storage: Storage
) -> int:
    """The version, of those up to `version`, whose rows a restore shows; -1 where nobody knows.

    Which version one goes to that names a time is not in the log: it is the one from which on nothing has come and
    nothing has gone, file by file, with what is deleted of each.
    """
    if restore.version is not None:
        # A restore may undo another one.
        return shown.get(restore.version, min(restore.version, version))
    changed: Counter[tuple[str, str]] = Counter()
    for later in range(number, version, -1):
        lines = commit_lines(log.location, later, storage=storage)
        if lines is None:
            return -1
        actions = [_read(line) for line in lines]
        removed = [action.remove.key for action in actions if action.remove is not None]
        added = [action.add for action in actions if action.add is not None]
        # What is added with nothing new in it, and takes no other's place, was there: something of it is noted anew.
        changed.update(file.key for file in added if file.data_change or removed)
        changed.subtract(removed)
        if not any(changed.values()):
            return shown.get(later - 1, min(later - 1, version))
    return -1


def _read(line: bytes) -> _Action:
    try:
        return _ACTION.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Whoever reads the commit says so.
        return _Action()


def _has_rows(log: DeltaLog, number: int, *, storage: Storage) -> bool:
    """Whether a commit that is no restore has changed rows: maintenance, and settings, change none."""
    commit = read_commit(log, number, storage=storage)
    return commit is not None and commit.operation != RESTORE and bool(commit.files or commit.removes_data)
