"""What is known of each return of quarantined rows, and what it asks of a backfill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal

import msgspec

from sluice.documents import Document, encode_document, read_document
from sluice.errors import Problem
from sluice.home import StreamHome
from sluice.interval import Interval
from sluice.locations import join
from sluice.runs.kept_table import Table
from sluice.stream import Stream

_DAY = timedelta(days=1)


class Moved(msgspec.Struct, frozen=True):
    """Rows whose interval column somebody has edited in the quarantine; both are days, UTC, null for no value."""

    was: date | None
    now: date | None


class RowReturn(Document, frozen=True, kw_only=True, rename={"return_id": "release_id", "returned_by": "released_by"}):
    """One return of rows."""

    if_lost = (
        'write {"release_id": "<the file\'s name, without .json>", "state": "begun", "released_by": "", "began_at": ""}'
        " into it, and release rows again: what it has not finished is finished, once"
    )
    return_id: str
    state: Literal["begun", "claimed", "done", "refused"]
    returned_by: str
    began_at: str
    sink: Table | None = None
    """Where the rows go, as it was declared when the return began; None in documents from before that was kept."""
    quarantine: Table | None = None
    """Where they come from, likewise."""
    where: str | None = None
    """The condition that somebody gave, in Spark SQL; None for every row that passes."""
    rows: int = 0
    """How many rows went back into the sink; 0 until they are claimed, and where the sink refused them."""
    quarantine_version: int | None = None
    """The quarantine's version in which they are claimed; None until then, and in older documents."""
    quarantine_identity: str | None = None
    """Which table that is the version of, likewise."""
    quarantine_digest: str | None = None
    """What tells that version from another one of its number, likewise."""
    left: int = 0
    """How many rows that were asked for stay: they still fail, or the batch that they are of is not finished."""
    moved: tuple[Moved, ...] = ()
    """The days of rows that the sources have elsewhere."""
    interval_columns: tuple[str | None, ...] | msgspec.UnsetType = msgspec.UNSET
    """What was declared as `interval_column` when the rows went to the quarantine, and when they were returned: `moved`
    is told of these alone. Unset in documents from before that was kept."""
    reason: str = ""
    """Why its rows, or those that were not sent yet, are in the quarantine as before: the sink refused them, say."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to be done."""
        return self.state in {"done", "refused"}


def keep_return(home: StreamHome, returning: RowReturn) -> None:
    """Write what is known of a return, durably.

    Raises:
        StorageError: It could not be written.
    """
    home.storage.replace(home.return_file(returning.return_id), encode_document(returning))


def forget_return(home: StreamHome, returning: RowReturn) -> None:
    """Delete the document of a return that has claimed nothing.

    Raises:
        StorageError: It could not be deleted.
    """
    home.storage.delete(home.return_file(returning.return_id))


def read_return(home: StreamHome, return_id: str) -> RowReturn | None:
    """What is known of a return; None when nothing is.

    Raises:
        RefusedError: Its document is damaged.
        StorageError: It can't be read.
    """
    return read_document(home.storage, home.return_file(return_id), RowReturn)


def read_returns(home: StreamHome) -> list[RowReturn]:
    """Every return of rows of a stream, oldest first.

    Raises:
        RefusedError: A document is damaged.
        StorageError: The home can't be read.
    """
    listed = home.storage.list_folder(home.returns_folder())
    names = sorted(name for name in (listed.files if listed else []) if name.endswith(".json"))
    found = [read_document(home.storage, join(home.returns_folder(), name), RowReturn) for name in names]
    return [returning for returning in found if returning is not None]


def check_returns(home: StreamHome, returns: Iterable[RowReturn], stream: Stream, interval: Interval) -> Problem | None:
    """Why the rows of an interval can't be recomputed beside what was returned; None when they can."""
    for returning in returns:
        file = home.return_file(returning.return_id)
        if not returning.is_over:
            return Problem(
                code="RELEASE_UNFINISHED",
                file=file,
                cause=f"release {returning.return_id}, which {returning.returned_by} has asked for, is not finished",
                consequence="a row that it sends, and that the backfill computes anew, would be there twice",
                remedy=f"finish it with `sluice quality release {stream.name} --rows`, then backfill again",
            )
        if others := _other_columns(returning, stream):
            return _by_another_column(returning, others, stream, file)
        for moved in returning.moved:
            # Recomputed together, the row is where its source has it, and nowhere else.
            is_whole = _covers(interval, moved.was) and _covers(interval, moved.now)
            if not is_whole and (_touches(interval, moved.was) or _touches(interval, moved.now)):
                return _moved_rows(returning, moved, file)
    return None


def quarantine_gone(returning: RowReturn, location: str) -> Problem:
    """That the quarantine is gone, from which rows of an unfinished return come."""
    return Problem(
        code="RELEASE_QUARANTINE_GONE",
        file=location,
        cause=f"release {returning.return_id}, which {returning.returned_by} has asked for, was killed before its rows"
        " were in the sink, and the quarantine that they come from is gone",
        consequence="its rows would be in neither table, and nobody would be told",
        remedy="restore the table, and release rows again; if the rows are given up, delete the file"
        f" releases/{returning.return_id}.json in the stream's home",
    )


def marks_gone(returning: RowReturn, file: str) -> Problem:
    """That the quarantine was restored to before the rows of a return were marked in it, which are in the sink."""
    # Of rows that somebody has moved to another day, the document tells a backfill.
    given_up = (
        "; where that version is gone, take out of the quarantine what the sink has of this release, and delete the"
        f" file releases/{returning.return_id}.json in the stream's home"
    )
    return Problem(
        code="RELEASE_MARKS_GONE",
        file=file,
        cause=f"release {returning.return_id}, which {returning.returned_by} has asked for, has sent its"
        f" {returning.rows} rows into the sink, and the quarantine was restored to before they were marked",
        consequence="they would be sent once more, and be in the sink twice",
        remedy=f"take the quarantine forward again, by `RESTORE` to version {returning.quarantine_version}, append what"
        " others have written since, and release rows again: those that are marked leave it"
        + ("" if returning.moved else given_up),
    )


def shown_again(returning: RowReturn, location: str) -> Problem:
    """That the sink shows rows of a return again, which the quarantine had got back when it did not."""
    return Problem(
        code="RELEASE_MARKS_GONE",
        file=location,
        cause=f"release {returning.return_id}, which {returning.returned_by} has asked for, had sent rows into the"
        " sink; it was restored to before them, they were left in the quarantine, and it was taken forward again",
        consequence="they would be sent once more, and be in the sink twice",
        remedy="take the sink back to before them again, by `RESTORE`; or take out of the quarantine what the sink has,"
        f" and delete the file releases/{returning.return_id}.json in the stream's home; then release rows again",
    )


def sent_rows_gone(returning: RowReturn, gone: Problem) -> Problem:
    """That the sink was restored to before the rows of a return, which have left the quarantine."""
    return replace(
        gone,
        cause=f"release {returning.return_id}, which {returning.returned_by} has asked for, had moved its"
        f" {returning.rows} rows when it was killed, and {gone.cause}",
        consequence="they are in neither table",
        remedy=f"{gone.remedy.partition('; or recompute')[0]}, and release rows again; if the rows are given up, or"
        f" appended, delete the file releases/{returning.return_id}.json in the stream's home",
    )


def _other_columns(returning: RowReturn, stream: Stream) -> tuple[str | None, ...]:
    """By what rows of a return counted that an interval does not count by."""
    if returning.interval_columns is msgspec.UNSET or not returning.rows:
        return ()
    return tuple(column for column in returning.interval_columns if column != stream.interval_column)


def _by_another_column(returning: RowReturn, others: Iterable[str | None], stream: Stream, file: str) -> Problem:
    told = " and ".join(f"`{column}`" if column is not None else "no column" for column in others)
    return Problem(
        code="RELEASE_BY_ANOTHER_COLUMN",
        file=file,
        cause=f"release {returning.return_id} has sent rows whose intervals were those of {told} until then: whether"
        f" their `{stream.interval_column}` was edited, nobody knows",
        consequence="an edited row, recomputed from the sources, would be there again in another interval",
        remedy="if nobody has edited it, delete this file; else put the correction into the transform or the sources,"
        " then delete it",
    )


def _moved_rows(returning: RowReturn, moved: Moved, file: str) -> Problem:
    was, now = (found.isoformat() if found is not None else "none" for found in (moved.was, moved.now))
    return Problem(
        code="BACKFILL_MOVED_ROWS",
        file=file,
        cause=f"release {returning.return_id} has sent rows whose day somebody had corrected from {was} to {now}",
        consequence="recomputed from the sources, they would be missing from the one day, or there again in the other",
        remedy=("backfill an interval that has both days; or put" if None not in {moved.was, moved.now} else "put")
        + " the correction into the transform or the sources, then delete this file",
    )


def _touches(interval: Interval, day: date | None) -> bool:
    return day is not None and interval.overlaps(_of_day(day))


def _covers(interval: Interval, day: date | None) -> bool:
    if day is None:
        return False
    whole = _of_day(day)
    return interval.start <= whole.start and whole.end <= interval.end


def _of_day(day: date) -> Interval:
    midnight = datetime.combine(day, time(), UTC)
    return Interval(midnight, midnight + _DAY)
