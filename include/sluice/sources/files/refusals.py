"""What is said of files that are gone, or too old to be read."""

from __future__ import annotations

from sluice.errors import DeclarationError, Problem
from sluice.locations import join
from sluice.storage import Storage


def check_no_table(path: str, storage: Storage) -> None:
    """Make sure that a folder of Parquet files is no Delta table: Spark would read what it has replaced, too.

    Raises:
        DeclarationError: It is one.
        StorageError: It can't be listed.
    """
    if storage.list_folder(join(path, "_delta_log")) is not None:
        raise DeclarationError(
            "the source's path is a Delta table, of which not every file counts",
            where=path,
            remedy="declare it as `sources.delta(PATH)`",
        )


def path_changed(path: str, newest: str) -> Problem:
    """The log of a source belongs to another path."""
    return Problem(
        code="SOURCE_PATH_CHANGED",
        file=path,
        cause=f"the checkpoint has read from elsewhere, last from {newest}",
        consequence="every file of the new path would be read, also those that were moved there after being read",
        remedy="put the old path back: a project that was moved or copied goes on where it was; or declare a new"
        " stream with a sink of its own for the new path",
    )


def input_gone(path: str) -> Problem:
    """A file that a planned batch reads is away."""
    return Problem(
        code="INPUT_GONE",
        file=path,
        cause="a planned batch reads this file, and it is gone",
        consequence="Spark would read it as empty and commit the batch without its rows",
        remedy="bring the file back under the same name",
    )


def read_and_gone(path: str) -> Problem:
    """A file that the live stream has read, and a backfill would read, is away."""
    return Problem(
        code="BACKFILL_INPUT_GONE",
        file=path,
        cause="the live stream has read this file, and it is gone",
        consequence="the backfill would replace its rows by nothing",
        remedy="bring the file back under the same name; or declare `lateness`, if no row of it is in the interval",
    )


def hidden_by_age(path: str, count: int, horizon_ms: float) -> Problem:
    """New files that `max_file_age` hides."""
    return Problem(
        code="FILES_TOO_OLD",
        file=path,
        cause=f"`max_file_age` hides {count} new files (modified before {horizon_ms} ms since the epoch)",
        consequence="they are never read",
        remedy="touch them, or raise or remove `max_file_age`",
        is_blocking=False,
    )
