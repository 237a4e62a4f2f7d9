"""Runs batches that Spark decides: all that there are, or what comes while its query is kept at work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from sluice.checkpoint.reader import read_checkpoint
from sluice.checkpoint.writer import clear_unfinished
from sluice.errors import BatchFailedError, LeaseLostError, SluiceError
from sluice.home import log_keys
from sluice.running.batches import BatchRunner, logged
from sluice.running.drained_files import DrainedFiles
from sluice.running.live_time import LiveTime
from sluice.runs.record import BatchRecord
from sluice.spark.progress import Report
from sluice.trigger import LiveTrigger

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS = 1.0
_MOST_BEHIND = 10
"""How many batches may be reported before one that was not is taken for one whose report is lost."""


class SparkBatches(BatchRunner):
    """Runs batches on one generation, planned ones and those that Spark decides."""

    def drain(self) -> Iterator[BatchRecord]:
        """One AvailableNow start: Spark decides the batches, and each is recorded as it is committed.

        The lease is looked at all the while: Spark goes on to its next batch without a word.

        Raises:
            SluiceError: Spark failed, or has committed a batch without rows of its files, or with some twice.
        """
        yield from self._decided_by_spark(None)

    def live(self, time: LiveTime) -> Iterator[BatchRecord]:
        """One start that goes on until its time is over, or somebody asks the run to stop; then between two batches.

        Args:
            time: How long it goes on; is told what Spark says of the query meanwhile.

        Raises:
            SluiceError: As of `drain`; or the query has ended before its time.
        """
        yield from self._decided_by_spark(time)

    def _decided_by_spark(self, time: LiveTime | None) -> Iterator[BatchRecord]:
        self._lease.check()
        passes_rows = time is not None and time.trigger.kind != "processing-time"
        written = replace(self._written(None), passes_rows=passes_rows)
        # Nobody need look at which files Spark has found where a function writes them, or none is read.
        is_guarded = passes_rows or (self._query.knows_files and written.function_of_batches() is not None)
        files = DrainedFiles(self._files, self._logged, is_guarded)
        files.begin(self._plan.batches)
        first = 0 if self._state.planned_id is None else self._state.planned_id + 1
        if first == 0:
            clear_unfinished(self._state.location, storage=self._storage)
        planned = self._state.planned
        if planned is not None and planned.version == 1 and self._watermarks.is_overruled(self._state):
            # Spark goes on by its own log, which has what it read again: a batch without rows puts it right.
            yield from self.run(self._no_data(planned, planned.timestamp_ms))
            first = planned.batch_id + 2
        self._next_id = self._unkept = first
        guarded = self._guarded(written, self._logged.must_be_read_once)
        query = self._starts.start(guarded, trigger="available-now" if time is None else time.trigger)
        ended_with: SluiceError | None = None
        try:
            yield from self._follow(query, files, time)
            self._starts.end(query)
            self._starts.check_exception(query)
        except LeaseLostError:
            raise
        except SluiceError as exc:
            ended_with = exc
        finally:
            self._starts.end(query)
        files.note_found(query)
        left = range(self._next_id, self._logs.newest_commit() + 1)
        reports = self._progress.reports(query, left)
        if ended_with is None:
            self._keep_decided(query, reports, left.stop - 1)
            state, keys = self._state, log_keys(self._generation)
            self._state = read_checkpoint(state.location, storage=self._storage, log_keys=keys)
            self._catch_up()
        for batch_id in left:
            yield from self._decided(batch_id, reports.get(batch_id, {}), files, time)
        self._check_cut_off(files)
        if (failure := files.failure(ended_with)) is not None:
            raise failure from ended_with

    def _follow(self, query: StreamingQuery, files: DrainedFiles, time: LiveTime | None) -> Iterator[BatchRecord]:
        """Record what a query commits, until it ends, or is to end."""
        while not (files.failures or self._stop.is_set() or (time is not None and time.is_over())):
            seconds = _LOOK_SECONDS if time is None else min(_LOOK_SECONDS, time.left_seconds)
            if self._starts.has_ended(query, seconds):
                if time is not None:
                    self._starts.check_exception(query)
                    raise self._ended_early(time.trigger)
                return
            files.note_found(query)
            for record in self._committed_meanwhile(query, files, time):
                yield record
                if time is not None:
                    time.note_commit()
            if time is not None:
                time.note_doing(query.status["message"])
        if time is not None and not files.failures:
            self._starts.end_between_batches(self._session, query, time.trigger)

    def _committed_meanwhile(
        self, query: StreamingQuery, files: DrainedFiles, time: LiveTime | None
    ) -> Iterator[BatchRecord]:
        known = {} if _is_silent(time) else self._progress.latest(query)
        while self._is_done(known, time):
            self._keep_decided(query, known, self._next_id)
            yield from self._decided(self._next_id, known.get(self._next_id, {}), files, time)
            self._next_id += 1
        self._progress.forget(query, below=self._unkept)

    def _is_done(self, known: Mapping[int, Report], time: LiveTime | None) -> bool:
        """Whether the next batch is committed, and all is known of it that will be."""
        if _is_silent(time):
            return self._next_id <= self._logs.newest_commit()
        # A query that goes on has no end to wait for with a report that does not come.
        is_lost = time is not None and max(known, default=-1) - self._next_id > _MOST_BEHIND
        return (self._next_id in known or is_lost) and self._logs.committed(self._next_id) is not None

    def _keep_decided(self, query: StreamingQuery, reports: Mapping[int, Report], batch_id: int) -> None:
        """Count the batches of one start in, as far as it tells."""
        if self._watermarks.known is not None and batch_id >= self._unkept:
            event_times = self._query.event_times(query, reports, range(self._unkept, batch_id + 1))
            if event_times is None:
                return
            self._watermarks.keep(batch_id, event_times)
        self._unkept = max(self._unkept, batch_id + 1)

    def _decided(
        self, batch_id: int, report: Report, files: DrainedFiles, time: LiveTime | None
    ) -> Iterator[BatchRecord]:
        """What became of a batch that Spark took by itself: the plan has nothing of what came after it.

        Of epochs, one that took nothing has nothing to tell: a continuous query commits one with every interval.

        Raises:
            BatchFailedError: It is not committed.
        """
        committed = self._logs.committed(batch_id)
        if _is_silent(time) and (committed is None or not self._logs.has_moved(batch_id)):
            # Of a hundred epochs a second, Spark may have deleted some before anybody looks.
            return
        if committed is None:
            raise self._logs.differs(batch_id, "it was reported and is not committed")
        wrong = files.check(batch_id)
        read_otherwise, failure = self._inputs.told(batch_id, report)
        if failure is not None:
            files.failures.append(failure)
        else:
            read_otherwise += self._inputs.note_decided(batch_id)
        self._logged.keep_sizes(batch_id, files.doubtful)
        kind = "data" if report.get("numInputRows") or not report else "no_data"
        record = self._record(batch_id, kind, committed, report, was_in_sink=False, is_read=True)
        yield msgspec.structs.replace(
            record,
            unread_files=self._logged.without_rows(batch_id, report),
            warnings=(*record.warnings, *logged([*wrong, *read_otherwise])),
        )

    def _ended_early(self, trigger: LiveTrigger) -> BatchFailedError:
        return BatchFailedError(
            f"the query, with the trigger {trigger}, has ended before its time, and without an error: somebody has"
            " stopped it",
            where=self._state.location,
            remedy="a retry goes on for the rest of the time; find out who stops queries in this session of Spark",
        )

    def _check_cut_off(self, files: DrainedFiles) -> None:
        """Look at a batch that was stopped between the sink's commit and Spark's: the next run does not read it."""
        batch_id = self._logs.newest_planned()
        if batch_id > self._logs.newest_commit() and self._sink_holds(batch_id):
            files.check(batch_id)
            self._logged.keep_sizes(batch_id, files.doubtful)


def _is_silent(time: LiveTime | None) -> bool:
    """Whether Spark reports nothing of what it does: it says which epochs are committed, and no more."""
    return time is not None and time.trigger.kind == "continuous"
