"""A table that somebody has taken back to an earlier version by Delta's `RESTORE`.

It still says that it has batches of which the rows are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.delta_restore import RESTORE, Restore, read_restore
from sluice.delta_table import DeltaLog, commit_file, load_table, open_log, read_commit
from sluice.errors import Problem, StorageError
from sluice.storage import Storage
from sluice.storage_failures import library_call

_MOST_COMMITS = 100
"""How many of a table's newest commits are read for what counts already: others may write into it all the time."""
_MOST_COMPARED = 20
"""How many versions before a restore to a time are compared with what it has made."""


def taken_back_since(location: str, version: int, *, is_pending: bool, storage: Storage) -> Problem | None:
    """What is to be said of a table that shows an earlier version than one that it has had; None where it does not.

    Blocking while the batch of the version is pending: it would be passed over as done. But not once others have
    written rows: to take the table forward again would take them, and the stream is not to stand for good.

    Args:
        location: Where the table is.
        version: The version.
        is_pending: Whether Spark has not committed the batch of that version.
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
        + "; or recompute the rows of the intervals by a backfill",
        is_blocking=is_pending and not others,
    )


def _shown(
    log: DeltaLog, number: int, restore: Restore, version: int, shown: Mapping[int, int], *, storage: Storage
) -> int:
    """The version, of those up to `version`, whose rows a restore shows; -1 where nobody knows.

    Which version one goes to that names a time is not in the log: it is one with the files of `version` where it brings
    them back, or else the one before it that has the same files.
    """
    if restore.version is not None:
        # A restore may undo another one.
        return shown.get(restore.version, min(restore.version, version))
    written, brought = (read_commit(log, one, storage=storage) for one in (version, number))
    if written is None or brought is None:
        return -1
    if written.files and {file.path for file in written.files} <= {file.path for file in brought.files}:
        return version
    files = _files(log, number, storage=storage)
    for one in range(number - 1, max(version, number - _MOST_COMPARED) - 1, -1):
        if files is not None and _files(log, one, storage=storage) == files:
            return shown.get(one, min(one, version))
    return -1


def _files(log: DeltaLog, version: int, *, storage: Storage) -> frozenset[tuple[Any, ...]] | None:
    """The files of a version, each with what is deleted of it; None where the log does not tell them any more."""
    import pyarrow as pa

    try:
        table = load_table(log.location, storage=storage, version=version)
        with library_call("the files of the Delta table can't be read", log.location, passing=()):
            actions = pa.table(table.get_add_actions(flatten=True))
    except StorageError:
        return None
    columns = ["path", *(name for name in actions.column_names if name.startswith("deletion_vector"))]
    return frozenset(zip(*(actions.column(name).to_pylist() for name in columns), strict=True))


def _has_rows(log: DeltaLog, number: int, *, storage: Storage) -> bool:
    """Whether a commit that is no restore has changed rows: maintenance, and settings, change none."""
    commit = read_commit(log, number, storage=storage)
    return commit is not None and commit.operation != RESTORE and bool(commit.files or commit.removes_data)
