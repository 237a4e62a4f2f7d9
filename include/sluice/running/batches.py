"""Runs batches: writes each planned one into the offset log, lets Spark run exactly that, and checks that it did."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sluice.auditing.audit import Audit
from sluice.auditing.staged_batch import Followed
from sluice.checkpoint.offsets import CommitFile, OffsetFile
from sluice.checkpoint.purge import purge_logs
from sluice.checkpoint.reader import CheckpointState
from sluice.checkpoint.source_log import SourceLog
from sluice.checkpoint.state_store import clear_state_of, has_state, lacks_state_of
from sluice.checkpoint.writer import write_planned_batch
from sluice.errors import BatchFailedError, LeaseLostError, Problem, RefusedError, StorageError
from sluice.gate.decided_batch import is_decided
from sluice.home import SourceLine
from sluice.plan import Plan, PlannedBatch, SourceRange
from sluice.planning.next_watermark import is_no_data_due, next_watermark_ms
from sluice.planning.pending_inputs import pending_problems
from sluice.running.batch_at_work import BatchAtWork
from sluice.running.batch_logs import BatchLogs
from sluice.running.divided_batches import DividedBatches
from sluice.running.due_timers import DueTimers
from sluice.running.known_generation import KnownGeneration
from sluice.running.logged_files import LoggedFiles
from sluice.running.merged_batches import MergedBatches
from sluice.running.planned_files import PlannedFiles, changed_at_work, check_unchanged, passed_over
from sluice.running.published_batches import PublishedBatches
from sluice.running.query_starts import QueryStarts
from sluice.running.read_inputs import ReadInputs
from sluice.running.repeated_batch import check_uncommitted, committed_meanwhile, written_meanwhile
from sluice.running.woken_drivers import begin_beside, check_own_state
from sluice.runs.lease import Lease, LeaseFile
from sluice.runs.record import BatchRecord
from sluice.sinks.contract import BatchSink
from sluice.sources.contract import SOURCE_METRICS, ExpiringSource, LoggingSource, Position
from sluice.spark.progress import ProgressLog, Report, kept_state, late_rows, progress_of, source_metric
from sluice.spark.query import RAN_ANOTHER_BATCH, Query, run_through
from sluice.spark.row_flow import COUNTED, counted_rows
from sluice.spark.session import pinned_conf
from sluice.spark.watermark_log import WatermarkLog, came_out_otherwise, not_kept
from sluice.times import Clock, iso_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

_KEPT = "spark.sql.streaming.minBatchesToRetain"


class BatchRunner:
    """Runs batches on one generation, while it is `begun`.

    Args:
        query: The analysed query.
        known: What is known of the generation.
        lease: The right to write to it; checked before every batch.
        stop: Once set, no further batch is started.
        state: What the checkpoint says now.
        watermarks: How far each `withWatermark` of the query has come.
        clock: Tells the time.
        audit: Measures and judges the batches; None for streams without a suite.
        followed: A batch that another driver has decided, of a stream that has no suite any more.
        published: Writes the batches that the audit leaves to the sink; None where its own stream writer does.
        standing: The leases of drivers that may go on with a batch that is done again; none unless there are some.
    """

    def __init__(  # noqa: PLR0917 - everything that a batch needs
        self,
        query: Query,
        known: KnownGeneration,
        lease: Lease,
        stop: threading.Event,
        state: CheckpointState,
        watermarks: WatermarkLog,
        clock: Clock,
        audit: Audit | None = None,
        followed: Followed | None = None,
        published: PublishedBatches | MergedBatches | DividedBatches | None = None,
        standing: Mapping[int, LeaseFile] | None = None,
    ) -> None:
        generation, home = known.generation, known.home
        self._query, self._generation, self._home, self._lease = query, generation, home, lease
        self._known, self._standing = known, standing or {}
        self._storage = home.storage
        self._stop, self._state, self._watermarks, self._audit = stop, state, watermarks, audit
        self._followed, self._published, self._clock = followed, published, clock
        self._session = query.frame.sparkSession
        self._logs = BatchLogs(state.location, generation.lines, home.storage)
        self._starts = QueryStarts(query.stream, query.place, lease, self._logs, audit, known)
        self._files = PlannedFiles(query, generation, home.storage)
        self._logged = LoggedFiles(query.stream, generation, home)
        self._inputs = ReadInputs(query.stream, known, self._logs, self._position)
        self._progress: ProgressLog
        self._plan: Plan

    @contextmanager
    def begun(self, plan: Plan) -> Iterator[None]:
        """Watch what Spark reports, and count in what a driver before did not live to; for as long as batches run.

        Afterwards, what no start needs any more is taken out of the logs.
        """
        with progress_of(self._session, self._query.stream, drains=plan.strategy != "exact") as self._progress:
            keep = int(str(self._session.conf.get(_KEPT)))
            self._catch_up()
            self._plan = plan
            try:
                yield
            except (BatchFailedError, RefusedError):
                # Who stood still for long finds traces of the run that took over: that is what to tell.
                with suppress(StorageError):
                    self._lease.check()
                raise
        self._purge(keep)

    def _purge(self, keep: int) -> None:
        """Let the logs keep as many batches as Spark keeps of those that it decides itself."""
        if (self._state.planned_id or 0) <= keep:
            # No log has more entries than there were batches: nothing is listed for nothing.
            return
        try:
            purge_logs(self._state.location, self._state.source_logs, keep, storage=self._storage)
        except (StorageError, LeaseLostError):
            # All rows are where they belong, and the next run tries again.
            logger.warning("old entries of the checkpoint's logs could not be deleted", exc_info=True)

    def run_no_data(self) -> Generator[BatchRecord, None, bool]:
        """Spark's own rule: run no-data batches as long as the watermark, or a time-out, makes state due.

        Returns:
            Whether none is due any more; False when the run was stopped before.
        """
        timers = DueTimers(self._query, self._known, self._clock)
        while (clock_ms := self._no_data_clock(timers)) is not None:
            planned = self._state.planned
            if self._stop.is_set():
                return False
            if planned is None:
                return True
            yield from self.run(self._no_data(planned, clock_ms))
        return True

    def _no_data_clock(self, timers: DueTimers) -> int | None:
        """The clock of the next batch without data, in milliseconds since the epoch; None when none is due."""
        planned = self._state.planned
        # Only Spark writes the second format of its log.
        if planned is None or planned.version != 1:
            return None
        if self._is_no_data_due():
            return max([planned.timestamp_ms, *(batch.timestamp_ms for batch in self._plan.batches)])
        return timers.take(self._state)

    def _no_data(self, newest: OffsetFile, clock_ms: int) -> PlannedBatch:
        """A batch without rows, behind the newest one."""
        at = dict(zip((line.source for line in self._generation.lines), newest.offsets.values(), strict=True))
        ranges = {name: SourceRange(offset, offset) for name, offset in at.items()}
        return PlannedBatch(newest.batch_id + 1, "no_data", clock_ms, ranges)

    def _is_no_data_due(self) -> bool:
        # A listing after every batch is dear, where no watermark has moved for nothing.
        mode = self._query.stream.output_mode
        return is_no_data_due(self._state, self._watermarks.known, mode, has_state=True) and self._has_state()

    def _has_state(self) -> bool:
        return has_state(self._state.location, storage=self._storage)

    def _is_read(self, *, was_in_sink: bool, was_decided: bool) -> bool:
        """Whether anything needs the rows of a batch: a state does always, a suite unless it has measured them."""
        is_needed = not was_decided and (not was_in_sink or self._query.stream.quality is not None)
        return is_needed or self._has_state()

    def run(self, batch: PlannedBatch) -> Iterator[BatchRecord]:
        """Run a planned batch; yields it once it is committed, also where rows of it turn out to be missing.

        Raises:
            BatchFailedError: Spark failed it, or did something else than was planned.
            LeaseLostError: Another run took over.
            RefusedError: Somebody else writes this checkpoint.
        """
        self._lease.check()
        warnings: list[str] = []
        work = self._begin(batch, warnings)
        query = self._run_through(work)
        committed = self._logs.check_committed(batch.batch_id)
        if batch.kind == "uncommitted":
            check_own_state(batch.batch_id, self._known, self._lease, self._standing)
        self._query = replace(self._query, fits_state=True)
        reports = self._progress.reports(query, range(batch.batch_id, batch.batch_id + 1))
        report = reports.get(batch.batch_id, {})
        self._state = replace(self._state, previous=self._state.planned, planned=work.planned, committed=committed)
        warnings += self._keep_watermarks(query, work, reports)
        failure = self._look_back(work, query, report, warnings)
        if (known := self._watermarks.known) is not None and known.times_of(batch.batch_id) is not None:
            committed = replace(committed, next_watermark_ms=next_watermark_ms(self._state, known))
        told = {"was_in_sink": work.was_in_sink, "is_read": work.is_read}
        record = self._record(batch.batch_id, batch.kind, committed, report, **told)
        yield msgspec.structs.replace(
            record,
            unread_files=self._logged.without_rows(batch.batch_id, report),
            warnings=(*record.warnings, *logged(warnings)),
        )
        if failure is not None:
            raise failure

    def _begin(self, batch: PlannedBatch, warnings: list[str]) -> BatchAtWork:
        """See to it that a batch is logged as it was planned, and that what it must read is there."""
        was_in_sink = self._sink_holds(batch.batch_id)
        was_decided = is_decided(self._home, self._generation.generation, batch.batch_id)
        if batch.kind == "uncommitted":
            check_uncommitted(self._state, storage=self._storage)
            if (was_in_sink or was_decided) and self._known.is_anothers(batch.batch_id):
                raise written_meanwhile(batch.batch_id, self._state.location)
            begin_beside(batch.batch_id, self._known, self._standing)
            warnings += self._check_inputs(batch, is_in_sink=was_in_sink, was_decided=was_decided)
        else:
            warnings += self._write(batch)
        if not (is_counted := was_in_sink or was_decided):
            self._watermarks.forget_published(batch.batch_id)
            if batch.kind == "uncommitted" and self._standing:
                # Since this run has done so, one of them may have written some.
                clear_state_of(batch.batch_id, self._state.location, storage=self._storage)
        planned = self._logs.check_planned(batch)
        is_read = self._is_read(was_in_sink=was_in_sink, was_decided=was_decided)
        is_logged = batch.kind == "uncommitted" or any(source.added.is_there for source in batch.sources.values())
        return BatchAtWork(
            batch=batch,
            planned=planned,
            was_in_sink=was_in_sink,
            was_decided=was_decided,
            is_read=is_read,
            is_logged=is_logged,
            taken=self._files.taken(batch, self._state.source_logs) if is_read else (),
            looks=self._logged.note_stats(batch.batch_id) if is_logged and not is_counted else {},
        )

    def _look_back(
        self, work: BatchAtWork, query: StreamingQuery, report: Report, warnings: list[str]
    ) -> BatchFailedError | None:
        """Compare what Spark did with what was planned, once the batch is committed; gives what it lacks."""
        batch, batch_id = work.batch, work.batch.batch_id
        if work.is_logged:
            # Spark may have planned it.
            doubtful = () if work.is_read or work.was_decided else self._logged.may_be_unread(batch_id)
            self._logged.keep_sizes(batch_id, doubtful)
            warnings += passed_over(batch_id, doubtful)
            warnings += changed_at_work(batch_id, self._logged.note_changed(batch_id, work.looks))
        missing = self._files.missing(work.taken, query)
        self._logged.note_unread(batch_id, missing)
        failure = self._logs.difference(batch, work.planned, report) or self._files.committed_without(batch_id, missing)
        if work.is_read and failure is None:
            read_otherwise, failure = self._inputs.told(batch_id, report)
            warnings += read_otherwise
        warnings += self._files.doubts(batch, work.taken)
        if not work.was_in_sink:
            warnings += self._logs.surplus(batch, report)
        return failure

    def _run_through(self, work: BatchAtWork) -> StreamingQuery:
        """One start of Spark, which runs the batch that is logged.

        Raises:
            BatchFailedError: It failed; or somebody else has done that batch just now.
            LeaseLostError: Another run goes on with the checkpoint.
        """
        batch_id = work.batch.batch_id
        written = self._guarded(
            self._written(batch_id, is_in_sink=work.was_in_sink), partial(self._due_files, work.batch, work.taken)
        )
        query = self._starts.start(replace(written, only_at_ms=work.planned.timestamp_ms), trigger="once")
        try:
            self._starts.wait(query)
        except BatchFailedError as exc:
            if RAN_ANOTHER_BATCH in str(exc.__cause__):
                raise committed_meanwhile(batch_id, self._state.location) from exc
            raise
        newest = self._query.newest_batch(query) if self._query.knows_files else (batch_id, frozenset())
        if newest is None or newest[0] != batch_id:
            raise committed_meanwhile(batch_id, self._state.location)
        return query

    def _due_files(self, batch: PlannedBatch, taken: Sequence[str], batch_id: int) -> Sequence[str]:
        """What a batch must read that Spark has begun; where the one that was to run is done, it plans another."""
        if batch_id != batch.batch_id:
            raise committed_meanwhile(batch.batch_id, self._state.location)
        return self._files.as_planned(batch, taken)

    def _keep_watermarks(
        self, query: StreamingQuery, work: BatchAtWork, reports: Mapping[int, Report]
    ) -> Sequence[str]:
        """Count a committed batch in, before it counts for anything else; tells what is odd about it."""
        known, batch = self._watermarks.known, work.batch
        if known is None:
            return ()
        # A sink that holds a batch does not read it again, and Spark has then seen none of its events.
        has_input = any(not source.is_empty for source in batch.sources.values())
        has_read = bool(reports.get(batch.batch_id, {}).get("numInputRows"))
        is_passed_over = work.was_in_sink or (batch.kind == "uncommitted" and has_input and not has_read)
        published = known.times_of(batch.batch_id) if work.is_counted else None
        if published is not None:
            self._watermarks.keep_published(batch.batch_id)
            now = self._query.event_times(query, reports, [batch.batch_id]) if has_read else None
            return tuple(came_out_otherwise(published, now))
        event_times = None if is_passed_over else self._query.event_times(query, reports, [batch.batch_id])
        if event_times is None:
            self._catch_up()
        else:
            self._watermarks.keep(batch.batch_id, event_times)
        return (not_kept(batch.batch_id),) if work.is_counted and has_input else ()

    def _catch_up(self) -> None:
        self._watermarks.catch_up(self._state, self._progress, check=self._lease.check, position=self._position)

    def _write(self, batch: PlannedBatch) -> list[str]:
        """Write a batch for Spark to run; tells what it lacks that may be missing."""
        state = self._state
        latest = -1 if state.planned_id is None else state.planned_id
        if batch.batch_id != latest + 1 or state.is_pending:
            raise self._logs.differs(batch.batch_id, f"the checkpoint stands at batch {latest}")
        check_unchanged(batch, self._storage)
        warnings = self._check_inputs(batch, only_logged=True)
        lines = self._generation.lines
        entries = {
            line.log: (added.entries[0].batch_id, added.entries)
            for line in lines
            if (added := batch.sources[line.source].added) and not added.is_there
        }
        for line in lines:
            if line.log in entries:
                sizes = batch.sources[line.source].added.sizes
                self._home.taken(self._generation.generation, line.log).keep_sizes(entries[line.log][0], sizes)
        planned = OffsetFile(
            batch_id=batch.batch_id,
            version=1,
            watermark_ms=next_watermark_ms(state, self._watermarks.known),
            timestamp_ms=batch.timestamp_ms,
            conf=state.planned.conf if state.planned else pinned_conf(self._session),
            offsets={str(index): batch.sources[line.source].end for index, line in enumerate(lines)},
        )
        found = {line.log: batch.sources[line.source].added.start for line in lines}
        starts = {key: start for key, start in found.items() if start is not None}
        write_planned_batch(state.location, planned, entries, state.source_logs, starts, storage=self._storage)
        logs = {**state.source_logs}
        for key, (log_id, taken) in entries.items():
            logs[key] = logs.get(key, SourceLog()).extended(log_id, taken)
        logs |= {key: SourceLog(start=start) for key, start in starts.items()}
        self._state = replace(state, source_logs=logs)
        return warnings

    def _check_inputs(
        self, batch: PlannedBatch, *, is_in_sink: bool = False, was_decided: bool = False, only_logged: bool = False
    ) -> list[str]:
        """What a log of the checkpoint has promised to read must be there: nobody can plan the batch without it.

        Args:
            batch: The batch.
            is_in_sink: Whether the sink holds it.
            was_decided: Whether a try before has decided where its rows go.
            only_logged: Look at the sources alone whose own log has the files of the batch already.

        Returns:
            What is gone and is not needed any more; of files, `passed_over` tells once the batch is committed.

        Raises:
            RefusedError: Something is gone.
        """
        is_kept = (is_in_sink or was_decided) and self._has_state()
        problems: list[Problem] = []
        unneeded: list[Problem] = []
        for line in self._generation.lines:
            source = batch.sources[line.source]
            declared = self._query.stream.sources[line.source]
            is_looked_at = source.added.is_there or isinstance(declared, ExpiringSource) or not only_logged
            if source.end is None or source.is_empty or not is_looked_at:
                continue
            position = self._position(line, source.start)
            found = pending_problems(
                self._query.stream,
                declared,
                position,
                source.end,
                is_in_sink=is_in_sink,
                is_decided=was_decided,
                has_state=is_kept,
                changed=declared.read_otherwise(position, source.end, self._storage) if is_kept else (),
                storage=self._storage,
            )
            problems += found
            if was_decided or not isinstance(declared, LoggingSource) or declared.ignores_missing:
                unneeded += found
        if needed := [problem for problem in problems if problem.is_blocking]:
            raise RefusedError(needed[0])
        return [f"{problem.cause} [{problem.file}]; {problem.consequence}" for problem in unneeded[:1]]

    def _position(self, line: SourceLine, offset: str | None) -> Position:
        """Where a source is at an offset."""
        return replace(
            self._logged.position(line.log, self._state.source_logs, offset),
            started_at=self._generation.sources.get(line.source, {}),
            mark=self._known.generation.marks.get(line.source),
        )

    def _note_computed(self, batch_id: int) -> None:
        """See to a batch whose rows are computed, before they count."""
        self._inputs.check(batch_id)
        self._watermarks.note_published(batch_id)

    def _sink_holds(self, batch_id: int) -> bool:
        sink = self._query.stream.sink
        if not sink.is_idempotent:
            return False
        return sink.state(self._generation.query_id, storage=self._storage).holds(batch_id)

    def _record(
        self, batch_id: int, kind: str, committed: CommitFile, report: Report, *, was_in_sink: bool, is_read: bool
    ) -> BatchRecord:
        outcome = self._query.stream.sink.outcome(self._generation.query_id, batch_id, storage=self._storage)
        reported_rows = report.get("sink", {}).get("numOutputRows", -1)
        is_told = is_read and not was_in_sink
        observed = report.get("observedMetrics", {}) if is_told else {}
        output_rows = outcome.output_rows if outcome else (reported_rows if reported_rows >= 0 else None)
        record = BatchRecord(
            batch_id=batch_id,
            kind=kind,
            input_rows=report.get("numInputRows") if is_told else None,
            output_rows=output_rows,
            watermark=iso_millis(committed.next_watermark_ms) if committed.next_watermark_ms else None,
            duration_ms={name: int(value) for name, value in report.get("durationMs", {}).items()},
            result_rows=counted_rows(observed),
            observed={
                name: found for name, found in observed.items() if not name.startswith((SOURCE_METRICS, COUNTED))
            },
            malformed_rows=source_metric(observed, "malformed_rows"),
            late_rows=late_rows(report) if is_told else None,
            state=kept_state(report),
            sink_version=outcome.version if outcome else None,
            was_in_sink=was_in_sink,
            **self._watermarks.shown(self._state.planned),
        )
        record = self._published.told(record) if isinstance(self._published, DividedBatches) else record
        return record if self._audit is None else self._audit.note(record)

    def _written(self, batch_id: int | None, *, is_in_sink: bool = False) -> Query:
        """The query with whatever writes its next batch; `batch_id` is None when Spark decides which that is."""
        query = self._query
        if self._audit is not None:
            query = self._audit.watching(query, self._note_computed, batch_id, is_in_sink=is_in_sink)
        elif self._followed is not None and self._followed.decision.batch_id == batch_id:
            query = replace(query, write=self._followed.write)
        write = query.write
        if write is None and is_in_sink and isinstance(query.stream.sink, BatchSink) and query.knows_files:
            # The sink's own writer may have forgotten the batch, where the table lets transactions expire.
            write = self._pass_over
        elif write is None and self._published is not None and self._published.is_possible():
            write = partial(self._published.write, self._note_computed)
        elif write is None and query.knows_files and query.stream.sink.function is not None:
            # A function of the user's, where the sink calls one with whole batches.
            function = query.function_of_batches()
            write = None if function is None else partial(self._with_state, function)
        return query if write is None else replace(query, write=self._starts.keeping_failure(write))

    def _guarded(self, query: Query, taken: Callable[[int], Sequence[str]]) -> Query:
        """The query such that a function that writes a batch is not called with less than it must read."""
        write = query.function_of_batches()
        if write is None or not query.knows_files:
            return query
        return replace(query, write=self._starts.keeping_failure(self._files.guarded(write, taken)))

    def _with_state(self, function: Callable[[DataFrame, int], object], frame: DataFrame, batch_id: int) -> None:
        """Call a function of the user's with a batch. Where it does not compute all rows, the state lacks its batch.

        Spark commits such a batch all the same, and never finds its state. A write that Delta passes over, for the
        table has it by its `txnVersion`, computes nothing.
        """
        function(frame, batch_id)
        if self._has_state() and lacks_state_of(batch_id, self._state.location, storage=self._storage):
            run_through(frame)

    def _pass_over(self, frame: DataFrame, _batch_id: int) -> None:
        """Write nothing of a batch that the sink holds; its state has yet to go on."""
        if self._has_state():
            run_through(frame)


def logged(warnings: Sequence[str]) -> Sequence[str]:
    """The same warnings, which the log has now, too."""
    for warning in warnings:
        logger.warning("%s", warning)
    return warnings
