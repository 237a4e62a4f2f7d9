"""Runs batches: writes each planned one into the offset log, lets Spark run exactly that, and checks that it did."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from sluice.auditing.audit import Audit
from sluice.auditing.staged_batch import Followed
from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import (
    CommitFile,
    OffsetFile,
    logged_offset,
    read_commit_file,
    read_offset_file,
)
from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.checkpoint.source_log import LogEntry, SourceLog, log_file_name, read_entries
from sluice.checkpoint.writer import write_planned_batch
from sluice.errors import BatchFailedError, LeaseLostError, Problem, RefusedError, SluiceError, StorageError
from sluice.home import Generation, StreamHome, log_keys
from sluice.plan import Plan, PlannedBatch, SourceRange
from sluice.planning.next_watermark import is_no_data_due, next_watermark_ms
from sluice.running.published_batches import PublishedBatches
from sluice.runs.lease import Lease
from sluice.runs.record import BatchRecord
from sluice.sinks.contract import StagingSink
from sluice.sources.contract import SOURCE_METRICS, Position
from sluice.sources.files import FilesSource
from sluice.spark.connect_session import is_connected
from sluice.spark.progress import ProgressLog, Report
from sluice.spark.query import Query, run_through, spark_failed
from sluice.spark.session import pinned_conf
from sluice.spark.state_check import state_changed
from sluice.spark.watermark_log import WatermarkLog
from sluice.storage import join
from sluice.times import iso_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

_POLL_SECONDS = 1


class BatchRunner:
    """Runs the batches of one plan on one generation.

    Args:
        query: The analysed query.
        generation: What is known of the generation.
        home: The stream's folder in the home.
        lease: The right to write to it; checked before every batch.
        stop: Once set, no further batch is started.
        state: What the checkpoint says now.
        watermarks: How far each `withWatermark` of the query has come.
        audit: Measures and judges the batches; None for streams without a suite.
        followed: A batch that another driver has decided, of a stream that has no suite any more.
        published: Publishes the batches that the audit leaves to the sink; None where its own stream writer does.
    """

    def __init__(  # noqa: PLR0917 - everything that a batch needs
        self,
        query: Query,
        generation: Generation,
        home: StreamHome,
        lease: Lease,
        stop: threading.Event,
        state: CheckpointState,
        watermarks: WatermarkLog,
        audit: Audit | None = None,
        followed: Followed | None = None,
        published: PublishedBatches | None = None,
    ) -> None:
        self._query, self._generation, self._home, self._lease = query, generation, home, lease
        self._storage = home.storage
        self._stop, self._state, self._watermarks, self._audit = stop, state, watermarks, audit
        self._followed, self._published = followed, published
        self._session = query.frame.sparkSession
        self._failure: BaseException | None = None
        """What ended a batch in a function of ours that wrote it; Spark only tells that something did."""
        self._stopped_by: BatchFailedError | None = None
        """What ended a batch in a function that Spark called: Spark only tells that something did."""
        self.is_complete = False
        """Whether everything that was planned, and what became due by it, is done."""

    def run(self, plan: Plan) -> Iterator[BatchRecord]:
        """Run a plan; yields each batch once it is committed, also one of which rows turn out to be missing.

        Raises:
            BatchFailedError: Spark failed a batch, or did something else than was planned.
            LeaseLostError: Another run took over.
            RefusedError: Somebody else writes this checkpoint.
        """
        progress = ProgressLog()
        self._session.streams.addListener(progress)
        try:
            self._watermarks.catch_up(self._state, progress, check=self._lease.check)
            for batch in plan.batches if plan.strategy == "exact" else plan.batches[: int(self._state.is_pending)]:
                if self._stop.is_set():
                    return
                yield from self._run_one(batch, progress)
            if plan.strategy == "drain":
                # Spark would begin with the watermark that the last commit left.
                yield from self._run_no_data(plan, progress)
                if self._stop.is_set():
                    return
                yield from self._drain(progress)
                if self._stop.is_set():
                    return
            self.is_complete = yield from self._run_no_data(plan, progress)
        finally:
            progress.drain()
            try:
                self._session.streams.removeListener(progress)
            except Exception:
                # Spark is gone, and what it failed with is what matters.
                logger.warning("the listener could not be taken away", exc_info=True)

    def _run_no_data(self, plan: Plan, progress: ProgressLog) -> Generator[BatchRecord, None, bool]:
        """Spark's own rule: run no-data batches as long as the watermark makes state due.

        Returns:
            Whether none is due any more; False when the run was stopped before.
        """
        while self._is_no_data_due():
            if self._stop.is_set():
                return False
            planned = self._state.planned
            if planned is None:
                return True
            at = dict(zip((line.source for line in self._generation.lines), planned.offsets.values(), strict=True))
            ranges = {name: SourceRange(offset, offset) for name, offset in at.items()}
            clock = max([planned.timestamp_ms, *(batch.timestamp_ms for batch in plan.batches)])
            yield from self._run_one(PlannedBatch(planned.batch_id + 1, "no_data", clock, ranges), progress)
        return True

    def _is_no_data_due(self) -> bool:
        planned = self._state.planned
        # Only Spark writes the second format of its log.
        if planned is None or planned.version != 1:
            return False
        # A listing after every batch is dear, where no watermark has moved for nothing.
        mode = self._query.stream.output_mode
        return is_no_data_due(self._state, self._watermarks.known, mode, has_state=True) and self._has_state()

    def _has_state(self) -> bool:
        state = self._storage.list_folder(join(self._state.location, "state"))
        return state is not None and bool(state.folders)

    def _run_one(self, batch: PlannedBatch, progress: ProgressLog) -> Iterator[BatchRecord]:
        self._lease.check()
        if batch.kind == "uncommitted":
            self._check_inputs(batch)
        else:
            self._write(batch)
        planned = self._check_planned(batch)
        was_in_sink = self._sink_holds(batch.batch_id)
        taken = () if was_in_sink else self._taken(batch)
        written = self._written(batch.batch_id, is_in_sink=was_in_sink)
        query = self._start(self._guarded(written, batch.batch_id, taken), once=True)
        self._await(query)
        committed = self._check_committed(batch.batch_id)
        reports = progress.reports(query, range(batch.batch_id, batch.batch_id + 1))
        report = reports.get(batch.batch_id, {})
        self._state = replace(self._state, previous=self._state.planned, planned=planned, committed=committed)
        self._keep_watermarks(query, batch, reports, progress, was_in_sink=was_in_sink)
        failure = self._difference(batch, planned, report) or self._shortfall(batch.batch_id, taken, query)
        warnings = [*self._doubts(batch.batch_id, taken)] if not self._query.knows_files else []
        if not was_in_sink:
            warnings += self._surplus(batch, report)
        record = self._record(batch.batch_id, batch.kind, committed, report, was_in_sink=was_in_sink)
        yield msgspec.structs.replace(
            record, unread_files=_unread_files(batch, report), warnings=(*record.warnings, *_logged(warnings))
        )
        if failure is not None:
            raise failure

    def _keep_watermarks(
        self,
        query: StreamingQuery,
        batch: PlannedBatch,
        reports: Mapping[int, Report],
        progress: ProgressLog,
        *,
        was_in_sink: bool,
    ) -> None:
        """Count a committed batch in, before it counts for anything else."""
        if self._watermarks.known is None:
            return
        # A sink that holds a batch does not read it again, and Spark has then seen none of its events.
        has_input = any(not source.is_empty for source in batch.sources.values())
        has_read = bool(reports.get(batch.batch_id, {}).get("numInputRows"))
        is_passed_over = was_in_sink or (batch.kind == "uncommitted" and has_input and not has_read)
        event_times = None if is_passed_over else self._query.event_times(query, reports, [batch.batch_id])
        if event_times is None:
            self._watermarks.catch_up(self._state, progress, check=self._lease.check)
        else:
            self._watermarks.keep(batch.batch_id, event_times)

    def _drain(self, progress: ProgressLog) -> Iterator[BatchRecord]:
        """One AvailableNow start: Spark decides the batches, and each is recorded as it is committed.

        The lease is looked at all the while: Spark goes on to its next batch without a word.
        """
        self._lease.check()
        first = -1 if self._state.planned_id is None else self._state.planned_id
        next_id = first + 1
        query = self._start(self._written(None), once=False)
        while not self._has_ended(query):
            if self._stop.is_set():
                query.stop()
                break
            for batch_id, report in sorted(progress.latest(str(query.runId)).items()):
                if batch_id == next_id and self._committed(batch_id) is not None:
                    self._keep_drained(query, progress.latest(str(query.runId)), range(first + 1, next_id + 1))
                    yield from self._drained(batch_id, report)
                    next_id += 1
        self._check_exception(query)
        commits = list_log(join(self._state.location, "commits"), storage=self._storage)
        newest = -1 if commits is None or commits.latest is None else commits.latest
        reports = progress.reports(query, range(next_id, newest + 1))
        self._keep_drained(query, reports, range(first + 1, newest + 1))
        state, keys = self._state, log_keys(self._generation)
        self._state = read_checkpoint(state.location, storage=self._storage, log_keys=keys)
        self._watermarks.catch_up(self._state, progress, check=self._lease.check)
        for batch_id in range(next_id, newest + 1):
            yield from self._drained(batch_id, reports.get(batch_id, {}))

    def _keep_drained(self, query: StreamingQuery, reports: Mapping[int, Report], done: range) -> None:
        """Count the batches of one start in, as far as it tells."""
        if self._watermarks.known is None or not done:
            return
        event_times = self._query.event_times(query, reports, done)
        if event_times is not None:
            self._watermarks.keep(done[-1], event_times)

    def _drained(self, batch_id: int, report: Report) -> Iterator[BatchRecord]:
        """What became of a batch that Spark took by itself: the plan has nothing of what came after it.

        Raises:
            BatchFailedError: It is not committed, or Spark has read files twice.
        """
        committed = self._committed(batch_id)
        if committed is None:
            raise self._differs(batch_id, "it was reported and is not committed")
        kind = "data" if report.get("numInputRows") or not report else "no_data"
        record = self._record(batch_id, kind, committed, report, was_in_sink=False)
        taken = self._drained_files(batch_id)
        warnings = [doubt for files in taken.values() for doubt in self._doubts(batch_id, [e.path for e in files])]
        yield msgspec.structs.replace(record, warnings=(*record.warnings, *_logged(warnings)))
        for name, files in taken.items():
            declared = self._query.stream.sources[name]
            if isinstance(declared, FilesSource) and (pattern := declared.read_twice(files)) is not None:
                raise BatchFailedError(
                    f"batch {batch_id} is committed with rows that are there twice: Spark took a file's name for a"
                    " pattern",
                    where=pattern,
                    remedy=f"delete the second rows of the other {len(files) - 1} files of the batch, and rename the"
                    " file",
                )

    def _drained_files(self, batch_id: int) -> dict[str, list[LogEntry]]:
        """What a batch has taken of each source of files, by the source's log."""
        ends = self._offsets(batch_id)
        starts = self._offsets(batch_id - 1)
        lines = self._generation.lines
        found = {}
        for index, line in {line.log: (index, line) for index, line in enumerate(lines)}.values():
            first, last = _log_id(starts, index), _log_id(ends, index)
            if not isinstance(self._query.stream.sources[line.source], FilesSource) or last is None:
                continue
            folder = list_log(join(self._state.location, "sources", line.log), storage=self._storage)
            first = -1 if first is None else first
            found[line.source] = [] if folder is None else read_entries(folder, first, last, storage=self._storage)
        return found

    def _offsets(self, batch_id: int) -> Sequence[str | None]:
        location = join(self._state.location, "offsets", str(batch_id))
        found = read_offset_file(location, batch_id, storage=self._storage) if batch_id >= 0 else None
        return () if found is None else tuple(found.offsets.values())

    def _write(self, batch: PlannedBatch) -> None:
        state = self._state
        latest = -1 if state.planned_id is None else state.planned_id
        if batch.batch_id != latest + 1 or state.is_pending:
            raise self._differs(batch.batch_id, f"the checkpoint stands at batch {latest}")
        self._check_files(batch)
        self._check_inputs(batch, only_logged=True)
        lines = self._generation.lines
        entries = {
            line.log: (source.entries[0].batch_id, source.entries)
            for line in lines
            if (source := batch.sources[line.source]).entries and not source.is_logged
        }
        for line in lines:
            if line.log in entries:
                sizes = batch.sources[line.source].sizes
                self._home.keep_sizes(self._generation.generation, line.log, entries[line.log][0], sizes)
        planned = OffsetFile(
            batch_id=batch.batch_id,
            version=1,
            watermark_ms=next_watermark_ms(state, self._watermarks.known),
            timestamp_ms=batch.timestamp_ms,
            conf=state.planned.conf if state.planned else pinned_conf(self._session),
            offsets={str(index): batch.sources[line.source].end for index, line in enumerate(lines)},
        )
        write_planned_batch(state.location, planned, entries, state.source_logs, storage=self._storage)
        logs = {**state.source_logs}
        for key, (log_id, added) in entries.items():
            logs[key] = _extended(logs.get(key, SourceLog()), log_id, added)
        self._state = replace(state, source_logs=logs)

    def _check_files(self, batch: PlannedBatch) -> None:
        gone = [
            entry.path
            for source in batch.sources.values()
            for entry in source.entries
            if not source.is_logged and self._storage.stat(entry.path) is None
        ]
        if gone:
            raise BatchFailedError(
                f"{len(gone)} planned input files vanished before batch {batch.batch_id} was written",
                where=gone[0],
                remedy="nothing was written for this batch; the next try plans it without them",
            )

    def _check_inputs(self, batch: PlannedBatch, *, only_logged: bool = False) -> None:
        """What a log of the checkpoint has promised to read must be there: nobody can plan the batch without it.

        Args:
            batch: The batch.
            only_logged: Look at the sources alone whose own log has the files of the batch already.

        Raises:
            RefusedError: Something is gone.
        """
        for line in self._generation.lines:
            source = batch.sources[line.source]
            if source.end is None or source.is_empty or (only_logged and not source.is_logged):
                continue
            position = Position(source.start, self._state.source_logs.get(line.log))
            declared = self._query.stream.sources[line.source]
            if problems := declared.check_inputs(position, source.end, storage=self._storage):
                raise RefusedError(problems[0])

    def _taken(self, batch: PlannedBatch) -> tuple[str, ...]:
        """The files that a batch must read, as the logs of its sources have them; not those that may be missing."""
        paths: dict[str, None] = {}
        for line in self._generation.lines:
            source, log = batch.sources[line.source], self._state.source_logs.get(line.log)
            declared = self._query.stream.sources[line.source]
            if log is None or source.end is None or not isinstance(declared, FilesSource) or declared.ignores_missing:
                continue
            first = -1 if source.start is None else logged_offset(source.start)
            last = logged_offset(source.end)
            if first is not None and last is not None:
                paths.update(dict.fromkeys(entry.path for entry in log.taken(first + 1, last)))
        return tuple(paths)

    def _guarded(self, query: Query, batch_id: int, taken: Sequence[str]) -> Query:
        """The query such that a function that writes a batch is not called with less than was planned.

        Where a function writes, that comes before Spark's commit, and the batch is repeated once the files are back.
        """
        write = query.function_of_batches()
        if write is None or not taken or not query.knows_files:
            return query

        def guarded(frame: DataFrame, its_id: int) -> None:
            active = next((one for one in self._session.streams.active if one.id == self._generation.query_id), None)
            if active is not None and (missing := self._missing(query, active, taken)):
                self._stopped_by = BatchFailedError(
                    f"{len(missing)} planned input files of batch {batch_id} vanished before Spark read them",
                    where=missing[0],
                    remedy="bring them back under the same names; nothing was written, and the next run repeats it",
                )
                raise self._stopped_by
            write(frame, its_id)

        return replace(query, write=guarded)

    def _missing(self, query: Query, started: StreamingQuery, taken: Sequence[str]) -> list[str]:
        """The files that Spark did not find when it began its newest batch: it takes those for empty."""
        found = query.files_of_batch(started)
        return [path for path in taken if path not in found]

    def _shortfall(self, batch_id: int, taken: Sequence[str], started: StreamingQuery) -> BatchFailedError | None:
        """What to raise of a committed batch for which Spark did not find all that was planned."""
        missing = self._missing(self._query, started, taken) if taken and self._query.knows_files else []
        if not missing:
            return None
        return BatchFailedError(
            f"{len(missing)} planned input files vanished just before Spark read them: batch {batch_id} is committed"
            " without their rows",
            where=missing[0],
            remedy="copy them back under new names, and the next run reads them; under their old ones they count as"
            " read, and backfills would read them a second time",
        )

    def _doubts(self, batch_id: int, taken: Sequence[str]) -> Iterator[str]:
        if gone := [path for path in taken if self._storage.stat(path) is None]:
            yield (
                f"{len(gone)} input files were gone right after batch {batch_id} was read: if they had vanished before,"
                f" their rows are missing ({gone[0]})"
            )

    def _check_planned(self, batch: PlannedBatch) -> OffsetFile:
        """Just before the start: the newest offsets are this batch, as planned."""
        location = join(self._state.location, "offsets")
        offsets = list_log(location, storage=self._storage)
        planned = None
        if offsets is not None and offsets.latest == batch.batch_id:
            planned = read_offset_file(offsets.file(batch.batch_id), batch.batch_id, storage=self._storage)
        ends = [batch.sources[line.source].end for line in self._generation.lines]
        if planned is None or list(planned.offsets.values()) != ends:
            raise RefusedError(_foreign_writer(join(location, str(batch.batch_id)), "the offset log is not as planned"))
        return planned

    def _check_committed(self, batch_id: int) -> CommitFile:
        """Just after the end: this batch is the newest in both logs."""
        for log in ("offsets", "commits"):
            found = list_log(join(self._state.location, log), storage=self._storage)
            if found is None or found.latest != batch_id:
                latest = None if found is None else found.latest
                raise self._differs(batch_id, f"`{log}` stands at {latest} after it ended")
        committed = self._committed(batch_id)
        if committed is None:
            raise self._differs(batch_id, "it ended without a commit")
        return committed

    def _committed(self, batch_id: int) -> CommitFile | None:
        return read_commit_file(join(self._state.location, "commits", str(batch_id)), batch_id, storage=self._storage)

    def _difference(self, batch: PlannedBatch, planned: OffsetFile, report: Report) -> BatchFailedError | None:
        """What to raise of a committed batch that Spark reports otherwise than it was planned."""
        # Spark reports a source once however often the plan reads it; an offset file has a line each time.
        lines = self._generation.lines
        first_of_log = {line.log: index for index, line in reversed(list(enumerate(lines)))}
        offsets = list(planned.offsets.values())
        ends = [_decoded(offsets[index]) for index in sorted(first_of_log.values())]
        reported = [source.get("endOffset") for source in report.get("sources", [])]
        if not report or reported == ends:
            return None
        return self._differs(batch.batch_id, f"Spark reports the offsets {reported}, planned were {ends}")

    def _surplus(self, batch: PlannedBatch, report: Report) -> Iterator[str]:
        """Spark counts a row as often as it reads it, so that a surplus is no proof that one counts twice."""
        lines, rows = self._generation.lines, report.get("numInputRows")
        is_reused = len({line.source for line in lines}) < len(lines)
        if rows is not None and batch.rows is not None and not is_reused and rows > batch.rows:
            yield (
                f"Spark read {rows:,} rows in batch {batch.batch_id}, the sources' logs promised {batch.rows:,}: the"
                " transform or the sink reads its input more than once (several actions, or a sort that samples);"
                " `persist()` it there"
            )

    def _sink_holds(self, batch_id: int) -> bool:
        sink = self._query.stream.sink
        if not sink.is_idempotent:
            return False
        return sink.state(self._generation.query_id, storage=self._storage).holds(batch_id)

    def _record(
        self, batch_id: int, kind: str, committed: CommitFile, report: Report, *, was_in_sink: bool
    ) -> BatchRecord:
        outcome = self._query.stream.sink.outcome(self._generation.query_id, batch_id, storage=self._storage)
        reported_rows = report.get("sink", {}).get("numOutputRows", -1)
        observed = {} if was_in_sink else report.get("observedMetrics", {})
        output_rows = outcome.output_rows if outcome else (reported_rows if reported_rows >= 0 else None)
        record = BatchRecord(
            batch_id=batch_id,
            kind=kind,
            input_rows=None if was_in_sink else report.get("numInputRows"),
            output_rows=output_rows,
            watermark=iso_millis(committed.next_watermark_ms) if committed.next_watermark_ms else None,
            duration_ms={name: int(value) for name, value in report.get("durationMs", {}).items()},
            observed={name: found for name, found in observed.items() if not name.startswith(SOURCE_METRICS)},
            malformed_rows=_source_metric(observed, "malformed_rows"),
            late_rows=None if was_in_sink else _late_rows(report),
            sink_version=outcome.version if outcome else None,
            was_in_sink=was_in_sink,
            **self._watermarks.shown(self._state.planned),
        )
        return record if self._audit is None else self._audit.note(record)

    def _written(self, batch_id: int | None, *, is_in_sink: bool = False) -> Query:
        """The query with whatever writes its next batch; `batch_id` is None when Spark decides which that is."""
        query = self._query
        if self._audit is not None:
            query = self._audit.watching(query, batch_id, is_in_sink=is_in_sink)
        elif self._followed is not None and self._followed.decision.batch_id == batch_id:
            query = replace(query, write=self._followed.write)
        write = query.write
        if write is None and is_in_sink and isinstance(query.stream.sink, StagingSink) and query.knows_files:
            # The sink's own writer may have forgotten the batch, where the table lets transactions expire.
            write = self._pass_over
        elif write is None and self._published is not None and self._published.is_possible():
            write = self._published.write
        return query if write is None else replace(query, write=self._keeping_failure(write))

    def _pass_over(self, frame: DataFrame, _batch_id: int) -> None:
        """Write nothing of a batch that the sink holds; its state has yet to go on."""
        if self._has_state():
            run_through(frame)

    def _keeping_failure(self, write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        def keeping(frame: DataFrame, batch_id: int) -> None:
            try:
                write(frame, batch_id)
            except BaseException as exc:
                self._failure = exc
                raise

        return keeping

    def _start(self, query: Query, *, once: bool) -> StreamingQuery:
        function = query.function_of_batches()
        if function is not None and not is_connected(self._session):
            query = replace(query, write=self._while_held(function))
        try:
            return query.start(self._state.location, once=once)
        except Exception as exc:
            raise self._failed(exc) from exc

    def _await(self, query: StreamingQuery) -> None:
        while not self._has_ended(query):
            pass
        self._check_exception(query)

    def _has_ended(self, query: StreamingQuery) -> bool:
        """Wait a second for the end of a query; end it where the lease is lost, for another run goes on with it.

        Raises:
            LeaseLostError: It is.
            BatchFailedError: Spark failed.
        """
        try:
            if query.awaitTermination(_POLL_SECONDS):
                return True
        except Exception as exc:
            raise self._failed(exc) from exc
        try:
            self._lease.check()
        except LeaseLostError:
            query.stop()
            raise
        except StorageError:
            # It is looked at again in a second, and before anything is written here.
            logger.warning("the lease can't be looked at", exc_info=True)
        return False

    def _check_exception(self, query: StreamingQuery) -> None:
        exception = query.exception()
        if exception is not None:
            raise self._failed(exception) from exception

    def _while_held(self, function: Callable[[DataFrame, int], object]) -> Callable[[DataFrame, int], None]:
        """A sink's function, called as long as the lease holds: nothing else keeps a second writer out of its sink."""

        def write(frame: DataFrame, batch_id: int) -> None:
            self._lease.check()
            function(frame, batch_id)

        return write

    def _failed(self, exc: Exception) -> SluiceError:
        if self._stopped_by is not None:
            return self._stopped_by
        try:
            self._lease.check()
        except LeaseLostError as lost:
            # Whatever Spark says: two of them were at one checkpoint.
            return lost
        except SluiceError:
            logger.warning("the lease can't be looked at", exc_info=True)
        if isinstance(self._failure, SluiceError):
            return self._failure
        if self._audit is not None and (cause := self._audit.cause(exc, self._newest_planned)) is not None:
            return cause
        changed = state_changed(str(exc), join(self._state.location, "state"))
        if changed is not None:
            return RefusedError(changed)
        where = f"stream `{self._query.stream.name}`, {self._state.location}"
        if isinstance(self._failure, Exception):
            # What Spark says of a function that raised is where it was called from.
            exc = self._failure
        return spark_failed(exc, where=where, consequence="the next run repeats this batch as planned")

    def _newest_planned(self) -> int | None:
        """The batch that was under way, whoever planned it."""
        offsets = list_log(join(self._state.location, "offsets"), storage=self._storage)
        return offsets.latest if offsets is not None else None

    def _differs(self, batch_id: int, what: str) -> BatchFailedError:
        return BatchFailedError(
            f"batch {batch_id} is not what was planned: {what}",
            where=self._state.location,
            remedy="look at the checkpoint with `sluice inspect`, and find out who else writes it",
        )


def _logged(warnings: Sequence[str]) -> Sequence[str]:
    for warning in warnings:
        logger.warning("%s", warning)
    return warnings


def _source_metric(observed: Mapping[str, Mapping[str, Any]], metric: str) -> dict[str, int]:
    """One of the metrics that sources observe, by source."""
    return {
        name.removeprefix(SOURCE_METRICS): found[metric]
        for name, found in observed.items()
        if name.startswith(SOURCE_METRICS) and metric in found
    }


def _late_rows(report: Report) -> int | None:
    """The rows that stateful operators dropped by the watermark; None when there are none of them."""
    counts = [operator.get("numRowsDroppedByWatermark") for operator in report.get("stateOperators", [])]
    return sum(count for count in counts if count is not None) if counts else None


def _unread_files(batch: PlannedBatch, report: Report) -> dict[str, int]:
    read = _source_metric(report.get("observedMetrics", {}), "read_files")
    planned = {name: source.files for name, source in batch.sources.items()}
    return {name: files - count for name, count in read.items() if (files := planned.get(name)) is not None}


def _log_id(offsets: Sequence[str | None], index: int) -> int | None:
    offset = offsets[index] if index < len(offsets) else None
    return None if offset is None else logged_offset(offset)


def _decoded(offset: str | None) -> Any:
    return None if offset is None else msgspec.json.decode(offset)


def _extended(log: SourceLog, log_id: int, added: tuple[LogEntry, ...]) -> SourceLog:
    is_compact = log_file_name(log_id, log.compact_ids).endswith(".compact")
    return SourceLog(log_id, (*log.entries, *added), (*log.compact_ids, log_id) if is_compact else log.compact_ids)


def _foreign_writer(file: str, cause: str) -> Problem:
    return Problem(
        code="CHECKPOINT_CHANGED",
        file=file,
        cause=cause,
        consequence="two writers on one checkpoint lose or double rows",
        remedy="find the other writer (another Airflow, a notebook, a streaming job) and stop it",
    )
