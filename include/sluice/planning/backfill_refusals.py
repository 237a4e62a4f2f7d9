"""Why an interval can't be recomputed exactly beside what the live stream, and others, have done and will do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from sluice.checkpoint.offsets import OffsetFile
from sluice.errors import Problem
from sluice.interval import Interval
from sluice.planning.survey import Survey
from sluice.stream import Stream
from sluice.table_writers import other_writer, written_tables
from sluice.times import epoch_micros, iso_millis, iso_time

_DROPS_DUPLICATES = {"dedupe", "dedupeWithinWatermark"}
"""Stateful operators that keep no row back until the watermark passes."""
_BY_ROWS_ALONE = {*_DROPS_DUPLICATES, "stateStoreSave", "sessionWindowStateStoreSaveExec", "symmetricHashJoin"}
"""Stateful operators whose rows depend on all that came in, and not on how it was cut into batches."""


def holds_rows_back(seen: Survey) -> bool:
    """Whether a stateful operator keeps rows back until the watermark passes."""
    return any(operator.name not in _DROPS_DUPLICATES for operator in seen.checkpoint.operators)


def may_have_missed_late_rows(seen: Survey, interval: Interval, batch: OffsetFile) -> bool:
    """Whether the state has yet to drop duplicates of an interval, rows of which the stream may have dropped as late.

    Those are below the watermark; once it has passed the interval, every further row of it is late.
    """
    watermark_ms = batch.watermark_ms
    is_around = _millis(interval.start) <= watermark_ms < _millis(interval.end)
    return is_around and any(operator.name in _DROPS_DUPLICATES for operator in seen.checkpoint.operators)


def check_state(seen: Survey, interval: Interval, batch: OffsetFile, late_rows: int | None) -> Problem | None:
    """Compare what the live stream keeps in its state with what a backfill would put into the sink.

    Args:
        seen: The live stream.
        interval: What is to be recomputed.
        batch: The newest batch whose rows are all in the sink.
        late_rows: How many rows the live stream has dropped as late up to that batch; None when nobody knows.
    """
    names = [operator.name for operator in seen.checkpoint.operators]
    own = next((name for name in names if name is not None and name not in _BY_ROWS_ALONE), None)
    if own is not None or (seen.known is not None and seen.known.has_timers):
        what = f"the operator `{own}`" if own is not None else "processing-time timers"
        return Problem(
            code="BACKFILL_BATCH_BY_BATCH",
            file=seen.checkpoint.location,
            cause=f"the transform has {what}: its rows depend on how and when the batches ran",
            consequence="no recomputation gives the same rows",
            remedy="none for this stream; let a new one, with a table of its own, read everything anew",
        )
    reached = iso_millis(batch.watermark_ms) if batch.watermark_ms else "nothing yet"
    if holds_rows_back(seen) and _millis(interval.end) > batch.watermark_ms:
        return Problem(
            code="BACKFILL_BEYOND_WATERMARK",
            file=seen.checkpoint.location,
            cause=f"the interval ends at {iso_time(interval.end)}, the live watermark has passed {reached}",
            consequence="the live stream has yet to emit rows of the interval: they would be there twice",
            remedy="end the interval at or before the watermark, or wait until it has passed",
        )
    if late_rows != 0 and may_have_missed_late_rows(seen, interval, batch):
        return Problem(
            code="BACKFILL_LATE_ROWS",
            file=seen.checkpoint.location,
            cause=f"the live stream {_dropped(late_rows)}, and its watermark, {reached}, has not passed the interval",
            consequence="a backfill counts them in, the state that drops duplicates does not know them: a further row"
            " of the same key would be there twice",
            remedy="end the interval at or before the watermark, or begin it after that; or wait until it has passed",
        )
    return None


def duplicates_problem(
    stream: Stream, across: str | None, timeless: str | None, late_rows: Callable[[], int | None]
) -> Problem | None:
    """Why the duplicates that a transform drops can't be told from those of other intervals, or of late rows.

    Args:
        stream: The declaration.
        across: What drops them by keys that do not tell the interval column; None for nothing.
        timeless: What drops them by keys of which late ones may come again in time; None for nothing.
        late_rows: Gives how many rows the live stream has dropped as late; None when nobody knows. Asked where it
            matters.
    """
    if across is not None:
        return _drops_across(stream, across)
    dropped = late_rows() if timeless is not None else 0
    return _late_keys(stream, timeless, dropped) if timeless is not None and dropped != 0 else None


def undated_problem(stream: Stream, rows: int) -> Problem | None:
    """Why rows that are in no interval would be there twice.

    Args:
        stream: The declaration.
        rows: How many rows of the table have a null in the interval column, and are like rows of the interval else.
    """
    if rows == 0:
        return None
    column = stream.interval_column
    return Problem(
        code="BACKFILL_UNDATED_ROWS",
        file=stream.sink.location or "",
        cause=f"{rows:,} rows of the table have no `{column}`, and are else like rows that the interval is to have",
        consequence="they would be there twice: a backfill replaces rows of an interval, and they are in none",
        remedy=f"give each of them the `{column}` that it has now (`UPDATE`), then run the backfill again; or delete"
        " those, and only those, that the transform gives one now",
    )


def _late_keys(stream: Stream, operator: str, late_rows: int | None) -> Problem:
    """Keys of rows that were dropped as late, of which a further row may be in time, whatever the interval."""
    column = stream.interval_column
    return Problem(
        code="BACKFILL_LATE_ROWS",
        file=stream.transform_name,
        cause=f"the live stream {_dropped(late_rows)}, and neither the keys by which it drops duplicates nor `{column}`"
        f" tell the event time: {operator}",
        consequence="a backfill counts them in, the state that drops duplicates does not know them: a further row"
        " of the same key would be there twice",
        remedy=f"let the transform make `{column}` of the event time (`to_date(...)` of it, before the keys are"
        " compared), or let a new stream, with a table of its own, read everything anew",
    )


def _drops_across(stream: Stream, operator: str) -> Problem:
    """A transform that drops duplicates across intervals."""
    column = stream.interval_column
    return Problem(
        code="BACKFILL_DUPLICATES",
        file=stream.transform_name,
        cause=f"the transform drops duplicates by keys that do not tell `{column}`: {operator}",
        consequence="a row of the interval would go for one of another interval, which the live stream may have"
        " kept beside it",
        remedy="leave this stream as it is, for other keys do not fit its state; a new stream with a sink of"
        f" its own can be backfilled, with `{column}`, or the columns that it is made of, among the keys",
    )


def _dropped(late_rows: int | None) -> str:
    return f"has dropped {late_rows:,} late rows" if late_rows else "may have dropped late rows"


def shared_table(stream: Stream, streams: Mapping[str, Stream]) -> Problem | None:
    """Another stream of the project that writes a table which a backfill takes rows out of.

    Args:
        stream: The declaration, with absolute locations.
        streams: Every stream of the project.
    """
    for place in written_tables(stream).values():
        writer = other_writer(place, stream, streams)
        if writer is not None:
            return shared_by(place, f"stream `{writer.stream.name}`")
    return None


def shared_by(table: str, writer: str) -> Problem:
    """Somebody else who writes a table of the stream."""
    return Problem(
        code="BACKFILL_TABLE_SHARED",
        file=table,
        cause=f"{writer} writes this table, too",
        consequence="its rows of the interval would be replaced by nothing: nothing tells whose row is whose",
        remedy="give each stream a table of its own, and put them together in a view",
    )


def _millis(moment: datetime) -> int:
    return epoch_micros(moment) // 1000
