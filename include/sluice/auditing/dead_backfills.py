"""What backfills that died have left in the quarantine, settled: no row of it stands for one that is elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.auditing.quarantine import RUN, remove_others
from sluice.errors import Problem, RefusedError
from sluice.home import StreamHome
from sluice.interval import Interval
from sluice.locations import spark_location
from sluice.runs.backfill_names import application_of, run_of, settled_application
from sluice.runs.record import RunRecord, RunRecords
from sluice.sinks.contract import ReplaceableSink, Replaced, Replacement, StagingSink
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settle_dead_backfills(stream: Stream, table: StagingSink, home: StreamHome, session: SparkSession) -> None:
    """Settle a quarantine after backfills that began to write, and are not done; none is at work.

    One that has replaced nothing leaves copies of what the live stream put there; one that has replaced rows may have
    left what it computed anew.

    Raises:
        RefusedError: One has left rows of the sink there twice, or none of them; or a record is damaged.
        StorageError: A table can't be read.
    """
    sink = stream.sink
    if not isinstance(sink, ReplaceableSink):
        return
    records = RunRecords(home)
    begun = [record for record in map(records.read, records.run_ids()) if record is not None and record.backfill]
    for record in begun:
        made, interval = record.backfill, record.interval
        if made is None or interval is None or any(_stands_for(other, record) for other in begun):
            continue
        application = application_of(record.run_id)
        found = sink.find_replacement(application, made.version, storage=home.storage)
        if found is None:
            _remove_copies(table, session, record)
        elif found.conflict is not None:
            raise RefusedError(_damaged(record, found, sink))
        elif not table.state(settled_application(application), storage=home.storage).holds(found.attempt):
            column = stream.interval_column or ""
            replaced = Interval(interval.start, interval.end)
            wanted = Replacement(column, replaced, made.version, application, found.attempt)
            run_ids = (record.run_id, *map(run_of, found.later))
            remove_others(table, session, wanted, run_ids, made.batch_id or 0, storage=home.storage)


def _stands_for(done: RunRecord, record: RunRecord) -> bool:
    """Whether a backfill, the record's own or a later one of all of its interval, has settled what it left."""
    made, begun, own, whole = done.backfill, record.backfill, record.interval, done.interval
    if done.status != "succeeded" or made is None or begun is None or own is None or whole is None:
        return False
    is_later = (made.sink_version or 0) > (begun.sink_version or begun.version)
    covers = whole.start <= own.start and own.end <= whole.end
    return done.run_id == record.run_id or (covers and is_later)


def _remove_copies(table: StagingSink, session: SparkSession, record: RunRecord) -> None:
    from delta.tables import DeltaTable

    DeltaTable.forPath(session, spark_location(table.location or "")).delete(f"{RUN} = '{record.run_id}'")


def _damaged(record: RunRecord, found: Replaced, sink: ReplaceableSink) -> Problem:
    return Problem(
        code="BACKFILL_UNFINISHED",
        file=record.run_id,
        cause=f"a backfill has replaced rows of {sink.location} in version {found.version}, beside {found.conflict}",
        consequence="rows of its interval may be there twice, or missing: rows that are sent would add to that",
        remedy="backfill the interval again, then release the rows",
    )
