"""What is said of files that are gone, or too old to be read."""

from __future__ import annotations

from sluice.errors import DeclarationError, Problem
from sluice.locations import join
from sluice.storage import Storage
from sluice.times import iso_millis


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


def input_changed(path: str, time_ms: int, count: int) -> Problem:
    """A file of a batch that has changed since the rows which count were read of it."""
    others = f", with {count - 1} more" if count > 1 else ""
    return Problem(
        code="INPUT_CHANGED",
        file=path,
        cause=f"a batch has read this file as it was at {iso_millis(time_ms)}{others}, its rows are written or decided,"
        " and the file has changed since",
        consequence="what the state and the watermark would make of the file now is not what the rows are",
        remedy="bring it back as it was, with that time (`touch -d`), run the stream once, and let what is new arrive"
        " under a name of its own; where that can't be, declare a new stream with a sink of its own",
    )


def input_left_out(path: str, name_glob: str) -> Problem:
    """A file that a planned batch reads does not match what is declared by now."""
    return Problem(
        code="INPUT_LEFT_OUT",
        file=path,
        cause=f"a planned batch reads this file, and `path_glob_filter` is {name_glob!r} now, which leaves it out",
        consequence="Spark would pass over it and commit the batch without its rows",
        remedy="declare `path_glob_filter` as it was, run the stream once, and change it then",
    )


def input_is_pattern(path: str, others: int) -> Problem:
    """A file that a planned batch reads together with others, and whose name Spark takes for a pattern by now."""
    return Problem(
        code="INPUT_IS_PATTERN",
        file=path,
        cause=f"a planned batch reads this file and {others} more, and without `recursive_file_lookup` Spark takes its"
        " name for a pattern",
        consequence="Spark would read files of the batch twice",
        remedy="declare `recursive_file_lookup=True`, run the stream once, and change it then",
    )


def read_again_remedy(path: str, old: str) -> str:
    """What to do with a file that was read before, so that the batch of it may be repeated."""
    back = "" if path == old else "give it its old name back, and "
    return f"{back}put an empty file in its place; or touch it, if it is another file"


def read_as(path: str, old: str) -> str:
    """A file that was read before, and as what."""
    return f"{path} under this name" if path == old else f"{path} was {old}"


def input_before_start(path: str, count: int) -> Problem:
    """A batch of Spark's own planning reads files from before where the stream begins."""
    return Problem(
        code="INPUT_BEFORE_START",
        file=path,
        cause=f"a planned batch reads {count:,} files from before `starting`: Spark has planned it itself, which heeds"
        " no `starting`, when a driver that had stood still went on behind another one's batch",
        consequence="rows that the stream is not to have would come into the sink",
        remedy="move the file away, and put an empty one of the same name in its place",
    )


def input_read_before(path: str, old: str, *, is_in_sink: bool = False) -> Problem:
    """A file of a batch that Spark planned itself was read before."""
    known = f"it has the time and the size of {old}, which was read and is not there any more: it was probably renamed"
    if path == old:
        known = "it was read before, which Spark had forgotten (`max_file_age`), and has another time now"
    return Problem(
        code="INPUT_RENAMED",
        file=path,
        cause=f"a batch that Spark planned reads this file; {known}",
        consequence="its rows are in the sink twice" if is_in_sink else "its rows would be read a second time",
        remedy="delete the second rows; and put an empty file in the place of the old one, for backfills"
        if is_in_sink
        else read_again_remedy(path, old),
        is_blocking=not is_in_sink,
    )


def input_replaced(path: str, now: str) -> Problem:
    """Another file is in the place of one that a planned batch reads."""
    return Problem(
        code="INPUT_GONE",
        file=path,
        cause=f"a planned batch reads this file, and another one is in its place; it is probably {now} now",
        consequence="Spark would read the other one",
        remedy="bring the file back under the same name, and the other one under a name of its own; or move"
        f" {now} away, if the other one was put there in its place",
    )


def read_and_lost(path: str, what: str) -> Problem:
    """A file that the live stream has read, and a backfill would read, is away, or another one is in its place."""
    return Problem(
        code="BACKFILL_INPUT_GONE",
        file=path,
        cause=f"the live stream has read this file, and {what}",
        consequence="the backfill would replace its rows by others, or by nothing",
        remedy="bring the file back under the same name; or declare `lateness`, if no row of it is in the interval",
    )


def folder_is_no_column(path: str, folder: str, remedy: str) -> Problem:
    """A folder that has a column's name and a value, which Spark does not read as one."""
    return Problem(
        code="FOLDER_IS_NO_COLUMN",
        file=path,
        cause=f"`{folder.partition('=')[0]}` is a column, and files lie in the folder `{folder}`, of which Spark takes"
        " none here",
        consequence="the column is null, unless the files have it themselves",
        remedy=f"{remedy}, if they don't",
        is_blocking=False,
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
