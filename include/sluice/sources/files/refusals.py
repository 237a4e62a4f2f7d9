"""What is said of files that are gone, or too old to be read."""

from __future__ import annotations

from sluice.errors import Problem


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
