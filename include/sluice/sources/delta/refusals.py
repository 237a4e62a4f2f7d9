"""What is said of a Delta table that can't be read as a checkpoint has begun to read it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from sluice.declaration_checks import snake_case
from sluice.delta_log.table import (
    Commit,
    DeltaLog,
    commit_file,
)
from sluice.errors import DeclarationError, Problem
from sluice.sources.files.observed_reading import passing_over

_MOST_NAMES = 20
"""How many files a message names."""


def check_reads_all(conf: Mapping[str, str], *, place: str) -> None:
    """Refuse settings that let Spark pass over a table's files: Delta takes no option against them, and counts none.

    Raises:
        DeclarationError: One is set.
    """
    for option, value in passing_over(conf).items():
        if value == "true":
            raise DeclarationError(
                f"`spark.sql.files.{option}` is set: of a Delta table, Spark would pass over files that are gone or"
                " broken without a word",
                where=place,
                remedy=f"take it out; a source of files takes it as an option, `{snake_case(option)}`",
            )


def table_gone(path: str) -> Problem:
    """The table is away."""
    return Problem(
        code="INPUT_GONE",
        file=path,
        cause="a planned batch reads this Delta table, and it is gone",
        consequence="Spark fails at the next start",
        remedy="restore the table",
    )


def version_gone(log: DeltaLog, version: int) -> Problem:
    """A version that a planned batch reads is away."""
    return Problem(
        code="INPUT_GONE",
        file=commit_file(log.location, version),
        cause=f"version {version} of the table is needed, and its commit file is gone (log clean-up)",
        consequence="its rows can't be read any more as changes; Spark fails, or passes over them",
        remedy="restore the commit file, or declare a new stream with a sink of its own",
    )


def replaced_within(log: DeltaLog, version: int, was: str, since: int) -> Problem:
    """A version that is read is of another table than the one that is there now.

    Args:
        log: The table's log.
        version: That version.
        was: The id that the table had then.
        since: The version that has made the table what it is now.
    """
    return Problem(
        code="SOURCE_TABLE_REPLACED",
        file=commit_file(log.location, since),
        cause=f"version {version}, which is to be read, is of table {was}; version {since} has replaced it by table"
        f" {log.table_id}",
        consequence="Spark fails with DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE, at every start",
        remedy="a stream that has read nothing yet goes on without `starting` and `starting_version`, with the table as"
        f" it is, or with a start behind version {since}. One that has read the table can't get past this version:"
        " declare a new stream with a sink of its own",
    )


def start_gone(log: DeltaLog, oldest: int, starting: datetime) -> Problem:
    """The log does not reach back to the time that a stream is declared to start at."""
    return Problem(
        code="START_GONE",
        file=commit_file(log.location, oldest - 1),
        cause=f"the stream starts at {starting.isoformat()}, and the table's log begins with version {oldest}: older"
        " ones are cleaned up, and nobody knows when they came",
        consequence=f"the stream begins with version {oldest}, without what older ones brought since that time",
        remedy="to have every row of the table, leave out `starting`; else go on",
        is_blocking=False,
    )


def snapshot_gone(log: DeltaLog, version: int) -> Problem:
    """The version that a first run has begun to read as a whole is away."""
    return Problem(
        code="INPUT_GONE",
        file=commit_file(log.location, version),
        cause=f"the stream has begun to read version {version} of the table as a whole, and what that version is made"
        " of is gone (log clean-up)",
        consequence="the rest of its rows can't be told from those that were read",
        remedy="restore the commit files, or declare a new stream with a sink of its own",
    )


def files_gone(file: str, gone: int, planned: int) -> Problem:
    """Data files that a planned batch reads are away."""
    return Problem(
        code="INPUT_GONE",
        file=file,
        cause=f"a planned batch reads {planned} data files of the table, and {gone} of them are gone (VACUUM)",
        consequence="Spark fails at every start",
        remedy="bring the files back, or declare a new stream with a sink of its own",
    )


def version_vacuumed(path: str, version: int, reason: str) -> Problem:
    """Files of a version that a backfill reads are away."""
    return Problem(
        code="BACKFILL_INPUT_GONE",
        file=path,
        cause=f"the live stream has read the table up to version {version}, which can't be read any more: {reason}",
        consequence="the backfill would replace its rows by nothing",
        remedy="run the live stream on to a version that is still whole, then backfill",
    )


def excluded_rewritten(log: DeltaLog, rewrite: str) -> Problem:
    """Rows that a stream passes over by the name of their file are in files of other names by now."""
    return Problem(
        code="BACKFILL_EXCLUDED_ROWS",
        file=log.location,
        cause=f"`exclude_regex` leaves out files of this table, and {rewrite}",
        consequence="the backfill would bring in rows that the live stream has passed over",
        remedy="leave the interval as it is; or take `exclude_regex` out, if these rows are to be read",
    )


def behind(log: DeltaLog, commit: Commit) -> Problem:
    """The live stream stands before a commit that replaced what a backfill would read."""
    return Problem(
        code="BACKFILL_BEHIND_SOURCE",
        file=log.location,
        cause=f"version {commit.version} ({commit.operation}) replaced rows that the live stream has yet to read",
        consequence="the backfill would recompute from rows that are replaced by now",
        remedy="run the live stream, which passes over that version, then backfill again",
    )


def not_append(log: DeltaLog, commit: Commit) -> Problem:
    """A commit changed rows that were there, which Spark's stream refuses."""
    return Problem(
        code="SOURCE_NOT_APPEND_ONLY",
        file=commit_file(log.location, commit.version),
        cause=f"version {commit.version} ({commit.operation}) deletes or rewrites rows that were read before",
        consequence="Spark fails with DELTA_SOURCE_TABLE_IGNORE_CHANGES",
        remedy="declare `skip_change_commits=True` to pass over such versions, or declare a new stream with a"
        " sink of its own",
    )


def restored(log: DeltaLog, commit: Commit, paths: Sequence[str]) -> Problem:
    """A `RESTORE` adds files again that were deleted: to Spark's stream they are new ones."""
    names = list(dict.fromkeys(re.escape(path.rpartition("/")[2]) for path in paths))
    told = "|".join(names) if len(names) <= _MOST_NAMES else f"the names of its {len(paths)} files, with `|` between"
    return Problem(
        code="SOURCE_RESTORED",
        file=commit_file(log.location, commit.version),
        cause=f"version {commit.version} (RESTORE) adds {len(paths)} files again that were deleted before",
        consequence="Spark reads them as new ones: rows that the stream has read before would be there twice",
        remedy=f"if it has read them, run it up to the version before (`--to-version {commit.version - 1}`), then once"
        f" with `exclude_regex`: {told}; and take that out again. Else declare a new stream with a sink of its own",
    )
