"""A table that somebody has taken back to an earlier version by Delta's `RESTORE`.

It still says that it has batches of which the rows are gone.
"""

from __future__ import annotations

from sluice.delta_restore import read_restore
from sluice.delta_table import commit_file, open_log
from sluice.errors import Problem
from sluice.storage import Storage

_MOST_COMMITS = 100
"""How many of a table's newest commits are read for what counts already: others may write into it all the time."""


def taken_back_since(location: str, version: int, *, is_pending: bool, storage: Storage) -> Problem | None:
    """What is to be said of a table that shows an earlier version than one that it has had; None where it does not.

    Blocking while the batch of the version is pending: it would be passed over as done. But not once others have
    written: to take the table forward again would take their rows, and the stream is not to stand for good.

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
    at, restored = version, version
    first = version if is_pending else max(version, log.latest - _MOST_COMMITS)
    for number in range(first + 1, log.latest + 1):
        restore = read_restore(location, number, storage=storage)
        if restore is not None:
            to, restored = restore.version, number
            # A restore may undo another one. To when one went that names a time is not known.
            at = -1 if to is None else shown.get(to, min(to, version))
        shown[number] = at
    if at >= version:
        return None
    is_newest = restored == log.latest
    return Problem(
        code="SINK_RESTORED",
        file=commit_file(location, restored),
        cause=f"version {restored} has taken the table back"
        + (f" to version {at}" if at >= 0 else " to a time before")
        + f", and the stream has written version {version}",
        consequence="rows of batches that the stream has written are not in it, and it does not write them again",
        remedy="if that was not meant, "
        + (
            f"take the table forward again by `RESTORE` to the version before ({restored - 1})"
            if is_newest
            else "append the rows again that version"
            f" {version} has (`VERSION AS OF {version}`): others have written since, whose rows a `RESTORE` would take"
        )
        + "; or recompute the rows of the intervals by a backfill",
        is_blocking=is_pending and is_newest,
    )
