"""What backfills have left in the quarantine, tidied: no row of it stands for one that is elsewhere.

The quarantine of a backfill is the one that was declared when it began, whatever is declared by now; whether it is
tidied is told by that table's own log, and not by the record of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from sluice.auditing.quarantine import RUN, first_batch, is_quarantine, remove_others
from sluice.errors import Problem, RefusedError
from sluice.home import StreamHome
from sluice.interval import Interval
from sluice.locations import same_for_every_name
from sluice.project import Project
from sluice.runs.backfill_names import application_of, run_of, tidied_application
from sluice.runs.kept_table import Table
from sluice.runs.record import BackfillRecord, RunRecord, RunRecords
from sluice.runs.summary import RecordedInterval
from sluice.sinks.contract import Sink
from sluice.sinks.replaceable import ReplaceableSink, Replaced, Replacement, number_of, removed_number, sealed_number
from sluice.sinks.splitting import SplittingSink
from sluice.storage import Storage
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def quarantine_left(
    record: RunRecord, found: Replaced, project: Project, stream: Stream, *, storage: Storage
) -> SplittingSink | None:
    """The quarantine, if it may still have rows of the interval that a replacement has put elsewhere.

    Raises:
        StorageError: The table can't be read.
    """
    kept = record.backfill.quarantine if record.backfill is not None else None
    table = stream.quarantine_table if kept is not None and stream.quality is not None else None
    if isinstance(kept, Table) and is_quarantine(kept.sink(project), storage=storage):
        table = kept.sink(project)
    if table is None or not is_quarantine(table, storage=storage):
        return None
    return None if _is_tidy(record, found.attempt, table, storage) else table


def are_aside_gone(
    record: RunRecord, attempt: int, declared: SplittingSink | None, project: Project, *, storage: Storage
) -> bool:
    """Whether a quarantine has no more what a backfill has put there, or has again what it has taken out of it.

    Somebody has restored it to before, has put an older copy in its place, or has deleted it.

    Args:
        record: The backfill's.
        attempt: Its attempt that has replaced rows.
        declared: The quarantine of today.
        project: The project.
        storage: Where the quarantine is.

    Raises:
        StorageError: The table can't be read.
    """
    table = _quarantine_of(record, declared, project, storage)
    if table is None:
        return False
    application, number = application_of(record.run_id), number_of(attempt)
    has_put = record.quality is not None and record.quality.quarantined > 0
    if not is_quarantine(table, storage=storage):
        return has_put
    if has_put and not table.state(application, storage=storage).holds(number):
        return True
    if _is_taken_back(table, application, number, storage):
        return True
    return _is_untidied(record, attempt, table, storage)


def is_undone(
    record: RunRecord, sink: ReplaceableSink, declared: SplittingSink | None, project: Project, *, storage: Storage
) -> bool:
    """Whether somebody has restored the sink, or the quarantine, to before a backfill that is done.

    Args:
        record: The backfill's.
        sink: The sink.
        declared: The quarantine of today.
        project: The project.
        storage: Where they are.

    Raises:
        StorageError: A table can't be read.
    """
    made = record.backfill
    if made is None or not isinstance(sink, SplittingSink):
        return False
    own = application_of(record.run_id), number_of(made.attempt)
    if sink.is_restored(storage=storage) and _is_taken_back(sink, *own, storage):
        return True
    table = _quarantine_of(record, declared, project, storage)
    if table is None or not table.is_restored(storage=storage):
        return False
    return _is_taken_back(table, *own, storage) or _is_untidied(record, made.attempt, table, storage)


def is_later_gone(
    record: RunRecord, found: Replaced, sink: ReplaceableSink, records: Iterable[RunRecord], *, storage: Storage
) -> bool:
    """Whether somebody has restored the sink to before a later backfill of some of the same days, which was done.

    What the one that was killed had put into the quarantine, that one has taken out of it.

    Raises:
        StorageError: The sink can't be read.
    """
    if not isinstance(sink, SplittingSink) or not sink.is_restored(storage=storage):
        # Nobody has to read all records.
        return False
    own = record.interval
    return any(
        other.interval is not None
        and own is not None
        and other.interval.start < own.end
        and own.start < other.interval.end
        and (other.backfill.sink_version or 0) > found.version
        and _is_taken_back(sink, application_of(other.run_id), number_of(other.backfill.attempt), storage)
        for other in records
        if other.status == "succeeded" and other.backfill is not None and other.run_id != record.run_id
    )


def tidy_quarantine(
    record: RunRecord,
    found: Replaced,
    table: SplittingSink,
    stream: Stream,
    session: SparkSession,
    *,
    check: Callable[[], None],
    storage: Storage,
) -> None:
    """Take out of a quarantine what a backfill has replaced, and its log says so from then on.

    Args:
        record: The backfill's.
        found: What it has replaced.
        table: The quarantine.
        stream: The declaration of today, for what old records do not tell.
        session: Spark.
        check: Makes sure that the lease holds.
        storage: Where the quarantine is.

    Raises:
        LeaseLostError: It does not.
    """
    made, interval = record.backfill, record.interval
    if made is None or interval is None:  # pragma: no cover - it has replaced rows
        return
    wanted = Replacement(
        column=made.interval_column or stream.interval_column or "",
        interval=Interval(interval.start, interval.end),
        version=made.version,
        application=application_of(record.run_id),
        attempt=found.attempt,
    )
    run_ids = (record.run_id, *map(run_of, found.later))
    remove_others(table, session, wanted, run_ids, made.batch_id or 0, check=check, storage=storage)


def tidy_after_backfills(
    project: Project,
    stream: Stream,
    table: SplittingSink,
    home: StreamHome,
    session: SparkSession,
    *,
    check: Callable[[], None],
) -> None:
    """Tidy a quarantine after backfills that began to write; none is at work.

    One that has replaced nothing leaves copies of what the live stream put there; one that has replaced rows may have
    left what it computed anew.

    Raises:
        RefusedError: One has left rows of the sink there twice, or none of them; or a record is damaged.
        StorageError: A table can't be read.
    """
    sink, records, storage = stream.sink, RunRecords(home), home.storage
    if not isinstance(sink, ReplaceableSink):
        return
    begun = [record for record in map(records.read, records.run_ids()) if record is not None and record.backfill]
    first = first_batch(table, session) if begun and is_quarantine(table, storage=storage) else None
    is_whole = partial(_is_whole, sink=sink, table=table, project=project, storage=storage)
    is_restored = any(part.is_restored(storage=storage) for part in (sink, table) if isinstance(part, SplittingSink))
    for record in begun:
        made, is_done = record.backfill, record.status == "succeeded"
        if made is None:  # pragma: no cover - those are left out above
            continue
        is_about = (first is not None or is_restored) and _is_about(record, table, project, storage)
        may_have_left = is_about and first is not None and first <= (made.batch_id or 0)
        may_be_undone = is_done and is_restored and is_about
        if may_be_undone and (why := _why_undone(record, made, sink, table, storage=storage)) is not None:
            _check_stood_for(record, made.sink_version or 0, filter(is_whole, begun), why)
            continue
        if is_done and (not may_have_left or _is_tidy(record, made.attempt, table, storage)):
            continue
        found = sink.find_replacement(application_of(record.run_id), made.since, storage=storage)
        why = None
        if not is_done:
            why = _why_unfinished(record, found, sink, table, project, may_have_left=may_have_left, storage=storage)
        if why is not None:
            _check_stood_for(record, made.version if found is None else found.version, filter(is_whole, begun), why)
        elif may_have_left and found is not None and not _is_tidy(record, found.attempt, table, storage):
            tidy_quarantine(record, found, table, stream, session, check=check, storage=storage)
        elif may_have_left and found is None and not is_done:
            _remove_copies(table, session, record, made.attempt, storage)


def _why_undone(
    record: RunRecord, made: BackfillRecord, sink: ReplaceableSink, table: SplittingSink, *, storage: Storage
) -> Problem | None:
    """Why one of the two tables has not what a backfill that is done has left in it; None where both have."""
    application = application_of(record.run_id)
    own = (application, number_of(made.attempt)), (tidied_application(application), made.attempt)
    written = [(transaction, table.outcome(*transaction, storage=storage)) for transaction in own]
    moved = [transaction for transaction, found in written if found is not None and found.has_changes]
    gone = [transaction for transaction in moved if _is_taken_back(table, *transaction, storage)]
    is_gone = _is_taken_back(sink, *own[0], storage)
    # Where it has moved no row, or all of it was taken back, no row of the quarantine stands for one of the sink.
    is_as_before = is_gone and gone == moved and not _shows_earlier_try(made, application, table, storage)
    if not moved or is_as_before or not (is_gone or gone):
        return None
    return _aside_gone(record, sink) if gone else _rows_gone(record, sink)


def _shows_earlier_try(made: BackfillRecord, application: str, table: SplittingSink, storage: Storage) -> bool:
    """Whether a quarantine has copies of the sink's rows, put there by a try that died before it replaced them."""
    for number in map(number_of, range(made.attempt)):
        put = table.outcome(application, number, storage=storage)
        if put is not None and put.has_changes and not _is_taken_back(table, application, number, storage):
            return True
    return False


def _why_unfinished(
    record: RunRecord,
    found: Replaced | None,
    sink: ReplaceableSink,
    table: SplittingSink,
    project: Project,
    *,
    may_have_left: bool,
    storage: Storage,
) -> Problem | None:
    """Why a backfill that was killed can't be tidied after; None where it can."""
    made = record.backfill
    if found is None:
        if _is_tidy(record, 0, table, storage):
            return _rows_gone(record, sink)
        if made is not None and _is_taken_back(
            table, application_of(record.run_id), removed_number(made.attempt), storage
        ):
            return _copies_again(record, sink)
        is_told = made is None or not may_have_left or sink.tells_since(made.since, storage=storage)
        return None if is_told else _not_told(record, sink)
    if found.conflict is not None:
        return _damaged(record, found, sink)
    if made is not None and found.attempt < made.attempt:
        return _begun_again(record, sink)
    return _aside_gone(record, sink) if are_aside_gone(record, found.attempt, table, project, storage=storage) else None


def seal_backfills(
    run_ids: Iterable[str], project: Project, stream: Stream, home: StreamHome, session: Callable[[], SparkSession]
) -> None:
    """Let nothing count that backfills may write yet which stand still, past their lease.

    Raises:
        RefusedError: A record is damaged.
        StorageError: A table can't be read or written.
    """
    records, storage = RunRecords(home), home.storage
    for run_id in dict.fromkeys(run_ids):
        record = records.read(run_id)
        if record is None or (made := record.backfill) is None:
            continue
        kept = made.quarantine.sink(project) if isinstance(made.quarantine, Table) else stream.quarantine_table
        for table in (stream.sink, kept):
            if isinstance(table, SplittingSink):
                _seal(table, application_of(run_id), sealed_number(made.attempt), session, storage)


def _seal(
    table: SplittingSink, application: str, number: int, session: Callable[[], SparkSession], storage: Storage
) -> None:
    is_sealed = False
    while not is_sealed:
        last = table.state(application, storage=storage).last_batch
        is_sealed = table.seal(application, number, session, after=last, storage=storage)


def _remove_copies(
    table: SplittingSink, session: SparkSession, record: RunRecord, attempt: int, storage: Storage
) -> None:
    """Take out of a quarantine what a backfill has put there that has replaced nothing; not what a retry of it puts."""
    nothing = table.read_versions(session, [], storage=storage)
    number = removed_number(attempt)
    table.replace_where(
        nothing, f"{RUN} = '{record.run_id}'", application=application_of(record.run_id), version=number
    )


def _is_whole(
    record: RunRecord, *, sink: ReplaceableSink, table: SplittingSink, project: Project, storage: Storage
) -> bool:
    """Whether a backfill is done, was about the quarantine, and nobody has taken a table back to before that."""
    made = record.backfill if record.status == "succeeded" else None
    own = application_of(record.run_id), 0 if made is None else number_of(made.attempt)
    return (
        made is not None
        and _is_about(record, table, project, storage)
        and sink.state(own[0], storage=storage).holds(own[1])
        and not _is_taken_back(sink, *own, storage)
        and not _is_untidied(record, made.attempt, table, storage)
    )


def _check_stood_for(record: RunRecord, version: int, whole: Iterable[RunRecord], problem: Problem) -> None:
    """Refuse unless later backfills have replaced all that another one may have left since a version."""
    own = record.interval
    later = (done.interval for done in whole if done.backfill and (done.backfill.sink_version or 0) > version)
    if own is None or not _cover(own, filter(None, later)):
        raise RefusedError(problem)


def _cover(whole: RecordedInterval, parts: Iterable[RecordedInterval]) -> bool:
    """Whether intervals leave nothing of another one out."""
    end = whole.start
    for part in sorted(parts, key=lambda part: part.start):
        if part.start <= end:
            end = max(end, part.end)
    return whole.end <= end


def _quarantine_of(
    record: RunRecord, declared: SplittingSink | None, project: Project, storage: Storage
) -> SplittingSink | None:
    """The quarantine that a backfill has begun with, where it is by now; None where there was none, or nobody knows."""
    kept = record.backfill.quarantine if record.backfill is not None else None
    if not isinstance(kept, Table):
        return None
    is_declared = declared is not None and _is_about(record, declared, project, storage)
    return declared if is_declared else kept.sink(project)


def _is_about(record: RunRecord, table: SplittingSink, project: Project, storage: Storage) -> bool:
    """Whether a table is the quarantine that a backfill has begun with, as far as its record tells.

    Where none is at the place of then, somebody has moved the table itself; or this is a copy of what is there.
    """
    kept = record.backfill.quarantine if record.backfill is not None else None
    if not isinstance(kept, Table):
        return kept is not None
    then = kept.sink(project)
    is_here = same_for_every_name(then.location or "") == same_for_every_name(table.location or "")
    if is_here or not is_quarantine(then, storage=storage):
        return True
    return then.state(None, storage=storage).identity == table.state(None, storage=storage).identity


def _is_tidy(record: RunRecord, attempt: int, table: SplittingSink, storage: Storage) -> bool:
    application = tidied_application(application_of(record.run_id))
    return table.state(application, storage=storage).holds(attempt)


def _is_untidied(record: RunRecord, attempt: int, table: SplittingSink, storage: Storage) -> bool:
    """Whether somebody has restored a quarantine to before a backfill had tidied it, of which its log tells no more."""
    return _is_taken_back(table, tidied_application(application_of(record.run_id)), attempt, storage)


def _is_taken_back(table: Sink, application: str, number: int, storage: Storage) -> bool:
    """Whether somebody has restored a table to before a transaction that its log knows."""
    made = table.outcome(application, number, storage=storage)
    version = None if made is None else made.version
    return version is not None and table.taken_back_since(version, is_pending=True, storage=storage) is not None


def _unfinished(record: RunRecord, *, cause: str, consequence: str) -> Problem:
    return Problem(
        code="BACKFILL_UNFINISHED",
        file=record.run_id,
        cause=cause,
        consequence=consequence,
        remedy="backfill the interval again, then release the rows",
    )


def _not_told(record: RunRecord, sink: ReplaceableSink) -> Problem:
    return _unfinished(
        record,
        cause=f"a backfill of {sink.location} was killed, and the table's log does not tell any more whether it has"
        " replaced rows: its commits since then are gone",
        consequence="what it left in the quarantine stands for rows that are in the sink, or for rows that are in none",
    )


def _aside_gone(record: RunRecord, sink: ReplaceableSink) -> Problem:
    return _unfinished(
        record,
        cause=f"a backfill has replaced rows of {sink.location}, and the quarantine was restored to before what it has"
        " put there, or taken out",
        consequence="rows that the backfill has quarantined are in no table, or rows of the table are in the quarantine"
        " as well",
    )


def _rows_gone(record: RunRecord, sink: ReplaceableSink) -> Problem:
    return _unfinished(
        record,
        cause=f"a backfill had replaced rows of {sink.location} and put rows into the quarantine, or taken some out,"
        " and the table was restored to before",
        consequence="rows that the backfill has moved are in no table, or in both",
    )


def _copies_again(record: RunRecord, sink: ReplaceableSink) -> Problem:
    return _unfinished(
        record,
        cause=f"a backfill of {sink.location} was killed before it replaced rows, what it had put into the quarantine"
        " was taken out of it, and the quarantine was restored to before that",
        consequence="rows of the table are in the quarantine as well",
    )


def _begun_again(record: RunRecord, sink: ReplaceableSink) -> Problem:
    return _unfinished(
        record,
        cause=f"a backfill that had replaced rows of {sink.location} was begun again, for one of the two tables was not"
        " as it had left it, and has not come to its end",
        consequence="rows that it has moved may be in no table, or in both",
    )


def _damaged(record: RunRecord, found: Replaced, sink: ReplaceableSink) -> Problem:
    return _unfinished(
        record,
        cause=f"a backfill has replaced rows of {sink.location} in version {found.version}, beside {found.conflict}",
        consequence="rows of its interval may be there twice, or missing: rows that are sent would add to that",
    )
