"""What no event has told of: what runs have written whose tasks did not succeed, or were not there to tell.

A run that fails emits no event, and what it had committed is in the table all the same. So it is where the run succeeds
and Airflow has ended its task, or lost it. The next run goes on behind it. So the event of a run tells of those before
it, too, of which none has told. Which have, is kept in the home: once Airflow has the event, and not before.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from sluice.errors import SluiceError
from sluice.runs.backfill_names import application_of
from sluice.runs.record import RunRecord, RunRecords
from sluice.runs.told import RecordMark, Told, begin_told, keep_told, read_told, record_marks
from sluice.sinks.contract import BatchOutcome
from sluice.sinks.replaceable import ReplaceableSink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Asset

    from sluice.home import StreamHome
    from sluice.stream import Stream

logger = logging.getLogger(__name__)

_OPEN = {"planned", "running"}
_NEWEST_EVENTS = 50
"""Among how many of an asset's newest events that of a task is looked for which has just succeeded."""


@dataclass(frozen=True)
class Untold:
    """What the event of a run has to tell of beside it."""

    runs: list[RunRecord]
    """Oldest first; none for a backfill, which tells of itself alone."""
    marks: dict[str, RecordMark]
    """The records of these runs, and of the run itself, as they are told of."""
    begin: Told
    """What counts as told where nobody has begun to keep it."""


@dataclass(frozen=True)
class Telling:
    """The events of a task that is about to succeed."""

    stream: Stream
    home: StreamHome
    assets: Sequence[Asset]
    """Whose they are; none where nothing was written into any of several sinks that the task tells of."""
    record: RunRecord
    untold: Untold

    def has_more(self) -> bool:
        """Whether another run than its own has written something that it tells of; yes where that can't be known."""
        if self.stream.outputs:
            return bool(self.assets)
        others = self.untold.runs
        if not others or any(run.batches for run in others):
            return bool(others)
        try:
            return bool(written_versions(self.stream, self.home, [*others, self.record]))
        except SluiceError:
            logger.warning("it is not known what the runs before %s have written", self.record.run_id, exc_info=True)
            return True

    def keep(self) -> None:
        """Keep what was told of, if Airflow has the events; else later ones tell of it.

        Airflow takes no event of a task that a person has marked meanwhile, and lets its worker end all the same. It
        takes all of a task's, or none.

        Raises:
            SluiceError: The home can't be read or written.
        """
        if not self.assets or any(self._is_known_of(asset) for asset in self.assets):
            keep_told(self.home, self.untold.marks, self.untold.begin)
        else:
            logger.warning("Airflow has no event of run %s: that of a later run tells of it", self.record.run_id)

    def _is_known_of(self, asset: Asset) -> bool:
        from airflow.sdk.execution_time.context import InletEventsAccessor

        events = InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri)
        newest = events.ascending(False).limit(_NEWEST_EVENTS)  # noqa: FBT003 - Airflow's own signature
        return any((event.extra or {}).get("run_id") == self.record.run_id for event in newest)


def begin_telling(home: StreamHome) -> None:
    """Begin to keep what was told of, before a run begins whose event may never be sent; no run fails for it."""
    try:
        if read_told(home) is None:
            begin_told(home, _told_before(home, home.current_generation(), record_marks(home)))
    except SluiceError:
        logger.warning("what the events of %s tell of is not known", home.location, exc_info=True)


def untold_runs(home: StreamHome, record: RunRecord) -> Untold:
    """The runs of which no event has told, for that of a run that succeeded.

    Args:
        home: The stream's folder in the home.
        record: The run that succeeded.

    Raises:
        SluiceError: The home can't be read.
    """
    marks, told = record_marks(home), read_told(home)
    if told is None:
        older = {run_id: mark for run_id, mark in marks.items() if run_id < record.run_id}
        told = _told_before(home, record.generation, older)
    found: list[RunRecord] = []
    own = {run_id: mark for run_id, mark in marks.items() if run_id == record.run_id}
    if record.interval is not None:
        return Untold(found, own, told)
    others = {run_id: mark for run_id, mark in marks.items() if run_id not in own and not told.has(run_id, mark)}
    for earlier in _read(home, others, record.generation):
        if _may_have_written(earlier, record):
            found.append(earlier)
            own[earlier.run_id] = marks[earlier.run_id]
    return Untold(found[::-1], own, told)


def is_untold(home: StreamHome, record: RunRecord) -> bool:
    """Whether it is known of a run that no event has told of it.

    Raises:
        SluiceError: The home can't be read.
    """
    told, mark = read_told(home), record_marks(home).get(record.run_id)
    return told is not None and mark is not None and not told.has(record.run_id, mark)


def written_versions(stream: Stream, home: StreamHome, runs: Sequence[RunRecord]) -> list[int]:
    """The versions of the sink that runs made.

    Args:
        stream: The stream, with absolute locations.
        home: Its folder in the home.
        runs: The runs: those that no event has told of, oldest first, and the one that tells.

    Raises:
        SluiceError: The home, or the sink, can't be read.
    """
    live = [run for run in runs if run.interval is None]
    versions = {batch.batch_id: batch.sink_version for run in live for batch in run.batches}
    # A driver that died may not have lived to record its last batch; the sink's own log has it.
    lost = _begun(home, [run for run in live if run is not runs[-1]], versions) - set(versions)
    known = stream.sink.outcomes(runs[-1].query_id or "", lost, storage=home.storage)
    versions |= {batch_id: known[batch_id].version for batch_id in sorted(known)}
    replaced = [_replaced_version(stream, home, run) for run in runs if run.interval is not None]
    return [version for version in (*versions.values(), *replaced) if version is not None]


def written_batches(stream: Stream, sink: str, home: StreamHome, runs: Sequence[RunRecord]) -> dict[int, BatchOutcome]:
    """What runs have written into one of several sinks: by batch, its rows, and the version that it made.

    Args:
        stream: The stream as it would be with that sink alone, which knows which batches it holds.
        sink: The name of the sink.
        home: The stream's folder in the home.
        runs: The runs, none of a backfill: those that no event has told of, oldest first, and the one that tells.

    Returns:
        Nothing of a batch that gave it no row. Versions that the table's log has no more are None.

    Raises:
        SluiceError: The home, or the sink, can't be read.
    """
    recorded = {batch.batch_id: batch.rows_by_sink for run in runs for batch in run.batches}
    counted = {batch_id: rows.get(sink, 0) for batch_id, rows in recorded.items() if rows}
    lost = _begun(home, runs[:-1], recorded) - set(recorded)
    # One that a driver did not live to record bears no rows by sink.
    asked = (recorded.keys() - counted.keys()) | lost | {batch_id for batch_id, rows in counted.items() if rows}
    known = stream.sink.outcomes(runs[-1].query_id or "", asked, storage=home.storage)
    found: dict[int, BatchOutcome] = {}
    for batch_id in sorted(asked):
        outcome = known.get(batch_id, BatchOutcome(counted.get(batch_id, 0)))
        rows = counted.get(batch_id, outcome.output_rows)
        # A commit without rows has made the table.
        if rows != 0:
            found[batch_id] = BatchOutcome(rows, outcome.version)
    return found


def _told_before(home: StreamHome, generation: int, marks: Mapping[str, RecordMark]) -> Told:
    """What counts as told in a home where it was not kept: all up to the newest run that succeeded, and backfills."""
    backfills: dict[str, RecordMark] = {}
    for record in _read(home, marks, generation):
        if record.status == "succeeded" and not record.passed_later:
            if record.interval is None:
                return Told(up_to=record.run_id, runs=backfills)
            backfills[record.run_id] = marks[record.run_id]
    return Told(runs=backfills)


def _read(home: StreamHome, marks: Mapping[str, RecordMark], generation: int) -> Iterator[RunRecord]:
    """The records of a generation, newest first; what can't be read of them is logged and left out."""
    records = RunRecords(home)
    for run_id in marks:
        try:
            record = records.read(run_id)
        except SluiceError:
            logger.warning("no event can tell what run %s wrote", run_id, exc_info=True)
            continue
        if record is not None and record.generation == generation:
            yield record


def _may_have_written(record: RunRecord, teller: RunRecord) -> bool:
    if record.interval is not None:
        return record.status not in _OPEN and record.backfill is not None
    if record.run_id > teller.run_id and record.status in _OPEN:
        # It may be at work.
        return False
    return record.status != "planned" or record.tries > 0


def _begun(home: StreamHome, untold: Sequence[RunRecord], known: Mapping[int, object]) -> set[int]:
    """The batches that runs may have written, by what was planned and by what is known of their generation."""
    planned = {batch.batch_id for run in untold for batch in run.plan.batches}
    generation = home.generation(untold[-1].generation) if untold else None
    newest = max((*planned, *known), default=-1)
    ranges = [] if generation is None else chain.from_iterable(generation.batches_of(run.run_id) for run in untold)
    return planned.union(*(range(begun.start, min(begun.stop, newest + 1)) for begun in ranges))


def _replaced_version(stream: Stream, home: StreamHome, run: RunRecord) -> int | None:
    """The version that a backfill made; of one whose driver died, the sink's log knows it."""
    if run.backfill is None or run.backfill.sink_version is not None or not isinstance(stream.sink, ReplaceableSink):
        return run.backfill.sink_version if run.backfill is not None else None
    found = stream.sink.find_replacement(application_of(run.run_id), run.backfill.since, storage=home.storage)
    return found.version if found is not None else None
