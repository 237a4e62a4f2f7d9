"""What lists tell of a stream's newest runs, kept in the home so that a list of streams reads one file for each.

<home>/<stream>/summary.json

The records are the truth. A line of the summary counts only while the file of its record has the size and the time
(in milliseconds) that the line notes; every other record among the newest is read. So a summary that is missing,
damaged, of a newer Sluice, behind the records or ahead of them costs reading, and never tells anything else than they.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sluice.documents import Document, encode_document, read_document
from sluice.errors import SluiceError
from sluice.home import StreamHome
from sluice.local_disk import FileStat
from sluice.locations import join
from sluice.runs.balance import is_backfill_broken, is_broken

if TYPE_CHECKING:
    from sluice.runs.record import RunRecord

logger = logging.getLogger(__name__)

Status = Literal["planned", "running", "skipped", "succeeded", "failed", "stopped", "refused"]
RUN_ID = re.compile(r"\d{8}T\d{9}Z-[0-9a-f]{8}")
"""What a run is called."""
RECORD_LOST = "delete it, if the run is over: the stream goes on, and a retry of that run begins as a new one"
"""What to do with a record that is damaged."""
RUNS = 20
"""How many runs a summary has."""


class RecordedInterval(msgspec.Struct, frozen=True):
    """The rows that a backfill recomputes: those whose interval column lies in `[start, end)`."""

    start: datetime
    end: datetime


class RunLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run, as lists show it."""

    run_id: str
    size_bytes: int = 0
    """Of the record's file."""
    mtime_ms: int = 0
    """When the record's file was written, in milliseconds since the epoch."""
    error: str = ""
    """Why the record can't be read; then nothing below is known."""
    status: Status = "planned"
    run_key: str | None = None
    planned_at: datetime | None = None
    started_at: str | None = None
    ended_at: str | None = None
    planned_batches: int = 0
    batches: int = 0
    """How many are done."""
    rows: int | None = None
    """How many it read; of a backfill, how many it wrote. None where that is not known."""
    verdict: str = ""
    """What quality said; empty for runs that were not judged."""
    is_unbalanced: bool = False
    """Whether rows that it read are nowhere, or there twice: `ROWS_NOT_IN_BALANCE`."""
    interval: RecordedInterval | None = None
    """The rows that a backfill recomputes; None for a run of the live stream."""


class _Summary(Document, frozen=True, kw_only=True):
    if_lost = "delete it: the records are the truth"
    lines: tuple[RunLine, ...]
    """The newest, newest first. They were called `runs` before they told of the balance: those are not taken."""


class _Batch(msgspec.Struct):
    input_rows: int | None = None
    output_rows: int | None = None
    result_rows: int | None = None
    quarantined_rows: int = 0
    dropped_rows: int = 0
    unmatched_rows: int | None = None


class _Plan(msgspec.Struct, frozen=True):
    batches: tuple[Any, ...] = ()


class _Quality(msgspec.Struct):
    verdict: str
    rows: int | None = None
    quarantined: int = 0
    dropped: int = 0


class _Backfill(msgspec.Struct):
    rows_written: int | None = None


class _Record(Document, frozen=True, kw_only=True):
    """As much of a run record as a line needs: most of its bytes are passed over."""

    if_lost = RECORD_LOST
    status: Status
    planned_at: datetime
    run_key: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    batches: tuple[_Batch, ...] = ()
    plan: _Plan = _Plan()
    quality: _Quality | None = None
    interval: RecordedInterval | None = None
    backfill: _Backfill | None = None


def read_lines(home: StreamHome, known: Iterable[RunLine] | None = None) -> tuple[RunLine, ...]:
    """The newest runs of a stream, newest first, as their records are now.

    Args:
        home: The stream's folder in the home.
        known: What was read before; when not given, what the summary has. Each line is taken only if its record's file
            is as the line notes it.

    Raises:
        StorageError: The folder of the records can't be listed.
    """
    folder = home.storage.list_folder(home.runs_folder())
    if folder is None:
        return ()
    newest = sorted(filter(RUN_ID.fullmatch, map(_run_id, folder.files)), reverse=True)[:RUNS]
    lines = {line.run_id: line for line in (_kept(home) if known is None else known)}
    found = [_line(home, folder.stat, run_id, lines.get(run_id)) for run_id in newest]
    return tuple(line for line in found if line is not None)


def compare_lines(home: StreamHome, known: Iterable[RunLine]) -> tuple[RunLine, ...]:
    """The same runs as their records are now; for whoever knows that none was added or deleted since."""

    def stat(name: str) -> FileStat | None:
        return home.storage.stat(join(home.runs_folder(), name))

    found = [_line(home, stat, line.run_id, line) for line in known]
    return tuple(line for line in found if line is not None)


def keep_summary(home: StreamHome) -> None:
    """Bring the summary up to date with the records; it is an aid, and no run fails for it."""
    try:
        lines = read_lines(home)
        home.storage.replace_aid(home.summary_file(), encode_document(_Summary(lines=lines)))
    except SluiceError as exc:
        logger.warning("the summary of the runs could not be kept; lists read the records instead: %s", exc)


def _kept(home: StreamHome) -> tuple[RunLine, ...]:
    try:
        kept = read_document(home.storage, home.summary_file(), _Summary)
    except SluiceError as exc:
        logger.info("the summary of the runs is of no use, and the records are read instead: %s", exc)
        return ()
    return kept.lines if kept is not None else ()


def _run_id(name: str) -> str:
    return name.removesuffix(".json") if name.endswith(".json") else ""


def _line(
    home: StreamHome, stat_of: Callable[[str], FileStat | None], run_id: str, known: RunLine | None
) -> RunLine | None:
    """The line of one record; None when it is gone by now."""
    try:
        # Taken before the file is read: a record that is written meanwhile is read again next time.
        stat = stat_of(f"{run_id}.json")
        if stat is None:
            return None
        if known is not None and (known.size_bytes, known.mtime_ms) == (stat.size_bytes, stat.mtime_ms):
            return known
        record = read_document(home.storage, join(home.runs_folder(), f"{run_id}.json"), _Record)
    except SluiceError as exc:
        return RunLine(run_id=run_id, error=str(exc))
    if record is None:
        return None
    return msgspec.structs.replace(line_of(run_id, record), size_bytes=stat.size_bytes, mtime_ms=stat.mtime_ms)


def line_of(run_id: str, record: _Record | RunRecord) -> RunLine:
    """What lists show of a run, from its record; of the record's file, nothing."""
    return RunLine(
        run_id=run_id,
        status=record.status,
        run_key=record.run_key,
        planned_at=record.planned_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        planned_batches=len(record.plan.batches),
        batches=len(record.batches),
        rows=_rows(record),
        verdict=record.quality.verdict if record.quality is not None else "",
        is_unbalanced=_is_unbalanced(record),
        interval=record.interval,
    )


def _is_unbalanced(record: _Record | RunRecord) -> bool:
    if record.interval is not None:
        return is_backfill_broken(record.quality, record.backfill.rows_written if record.backfill else None)
    return any(map(is_broken, record.batches))


def _rows(record: _Record | RunRecord) -> int | None:
    if record.interval is not None:
        return record.backfill.rows_written if record.backfill else None
    known = [batch.input_rows for batch in record.batches if batch.input_rows is not None]
    return sum(known) if known else None
