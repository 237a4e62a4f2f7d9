"""Runs a stream: lease, plan, record, then batch by batch exactly what was planned.

A kill at any point leaves a state that the next run's plan explains and finishes: a batch is written into the offset
log before it runs, Spark runs it again as logged, and the sink skips what it holds already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from sluice.auditing.audit import Audit, prepare_audit
from sluice.auditing.conservation import as_decided, rows_in_quarantine, tied_to_input
from sluice.auditing.judge_with_spark import settle_former
from sluice.auditing.staged_batch import Followed
from sluice.checkpoint.reader import read_checkpoint
from sluice.checkpoint.writer import write_metadata
from sluice.errors import DeclarationError, Problem, RefusedError
from sluice.gate import decided_batch
from sluice.gate.decided_batch import Decision
from sluice.home import DropsDuplicates, Generation, SourceLine, log_keys
from sluice.plan import Plan
from sluice.planning.survey import Survey
from sluice.planning.transform_text import transform_digest
from sluice.planning.verdict import Request, decided_before
from sluice.project import Project
from sluice.running.batches import BatchRunner
from sluice.running.observers import Observer, Silent
from sluice.running.preparation import Preparation, refusal
from sluice.running.published_batches import published_batches
from sluice.runs.driver import following_requests
from sluice.runs.lease import Lease
from sluice.runs.record import BatchRecord, RunRecord
from sluice.runs.stop import StopEvent
from sluice.spark.duplicates import find_ambiguous
from sluice.spark.fingerprints import fingerprints
from sluice.spark.java_options import Work
from sluice.spark.query import Query, build_query, plan_reader
from sluice.spark.row_flow import row_flow
from sluice.spark.session import choose_shuffle_partitions, close_session, open_session
from sluice.spark.state_check import check_state
from sluice.spark.watermark_log import WatermarkLog
from sluice.spark.writers import check_home, name_writer
from sluice.times import Clock, iso_time, system_clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_stream(
    project: Project,
    request: Request,
    *,
    observer: Observer | None = None,
    stop: StopEvent | None = None,
    session: SparkSession | None = None,
    clock: Clock = system_clock,
) -> RunRecord:
    """Run a stream up to its bound.

    Args:
        project: The project of the stream.
        request: What to run.
        observer: Is told how the run goes on.
        stop: Set from elsewhere, it ends the run between two batches; so does a request in the home.
        session: A Spark session to use in place of one that the project's settings describe.
        clock: Tells the time.

    Returns:
        The run record, with status `succeeded`, `skipped` or `stopped`. A skip is noted and leaves no record file.

    Raises:
        RefusedError: What is on disk does not allow going on.
        LeaseTakenError: Another run has taken the lease.
        RunError: The run failed; its record says how.
        QualityFailedError: The suite failed; its record says how.
        DeclarationError: A declaration is wrong.
    """
    preparation = Preparation.of(project, request, clock)
    if (done := preparation.done()) is not None:
        return done
    seen, plan = preparation.look()
    if (settled := preparation.settle(seen, plan)) is not None:
        return settled
    run_id = preparation.open_record(seen, plan).run_id
    with preparation.take_lease(plan.generation, run_id) as lease:
        preparation = preparation.under(lease)
        # First of all: whoever takes over from this run knows nothing of the one before it.
        preparation.close_dead(lease)
        # What was seen before the lease may have been another run's work in progress.
        seen, plan = preparation.look()
        if (settled := preparation.settle(seen, plan, has_lease=True)) is not None:
            return settled
        record = msgspec.structs.replace(preparation.open_record(seen, plan), run_id=run_id)
        stop = stop or StopEvent()
        with following_requests(preparation.home, run_id, stop, lease):
            return _Run(preparation, lease, observer or Silent(), stop, record, session).execute(seen, plan)


@dataclass
class _Run:
    preparation: Preparation
    lease: Lease
    observer: Observer
    stop: StopEvent
    record: RunRecord
    session: SparkSession | None
    opened: SparkSession | None = None
    """The session, if it is this run's own."""
    audit: Audit | None = None
    """Of streams with a suite."""

    def execute(self, seen: Survey, plan: Plan) -> RunRecord:
        self._save(plan=plan.as_json(), token=self.lease.token)
        try:
            self._save(status="running", started_at=iso_time(self.preparation.journal.clock()))
            query, generation, plan = self._prepare(seen, plan)
            self._save(query_id=generation.query_id, plan=plan.as_json(), explain=query.explain())
            self.observer.planned(plan)
            project = self.preparation.project
            settle_former(project, self.preparation.home, seen, query, self.record.run_id)
            journal, lease = self.preparation.journal, self.lease
            self.audit = prepare_audit(project, seen, query, plan, self.record, journal=journal, lease=lease)
            if self.audit is not None:
                self.audit.begin()
            self._keep_generation(seen, generation)
            is_complete = self._run_batches(query, generation, plan)
            self._judge(is_last=is_complete)
        except BaseException as exc:
            if self.audit is not None and self.audit.gate.judged is not None:
                self.record = msgspec.structs.replace(self.record, quality=self.audit.recorded())
            self.preparation.journal.close_failed(self.record, exc)
            raise
        finally:
            if self.opened is not None:
                close_session(self.opened)
        return self.preparation.journal.close(self.record, "succeeded" if is_complete else "stopped")

    def _prepare(self, seen: Survey, plan: Plan) -> tuple[Query, Generation, Plan]:
        """Start Spark and analyse the query; only then the order of its sources is certain."""
        project, stream = self.preparation.project, self.preparation.stream
        if self.session is None:
            project.check_function(stream.transform)  # a wrong reference need not wait for Spark
        self.observer.phase("starting Spark")
        if (session := self.session) is None:
            work = None if plan.size_bytes is None else Work(plan.size_bytes, len(plan.batches))
            session = self.opened = open_session(project, stream, work=work)
        name_writer(project, session, self.lease)
        check_home(project, session, self.preparation.journal.records.file(self.record.run_id))
        if seen.checkpoint.is_new:
            reads = ([source.amount for source in batch.sources.values()] for batch in plan.batches)
            choose_shuffle_partitions(session, project.conf_of(stream), reads)
        self.observer.phase("analysing the query")
        started_at = seen.starts
        query = build_query(project, stream, session, started_at)
        generation = self._generation(seen, query, started_at)
        check_state(query.frame, seen.checkpoint, stream.output_mode, storage=self.preparation.home.storage)
        next_id = 0 if seen.checkpoint.planned_id is None else seen.checkpoint.planned_id + 1
        generation = generation.beginning(next_id, fingerprints(project, query, storage=self.preparation.home.storage))
        self.preparation.home.forget_skips()
        if seen.lines is None or {line.source for line in seen.lines} != {line.source for line in query.lines}:
            # The plan was made for sources in an order, or of a number, that the query now corrects.
            self._keep_generation(seen, generation)
            plan = self.preparation.look()[1]
            if plan.problem is not None:
                raise refusal(plan.problem)
        return query, generation, plan

    def _run_batches(self, query: Query, generation: Generation, plan: Plan) -> bool:
        home = self.preparation.home
        checkpoint = home.checkpoint_location(generation.generation)
        state = read_checkpoint(checkpoint, storage=home.storage, log_keys=log_keys(generation))
        if self.audit is not None:
            self._save(batches=tuple(map(self.audit.note, self.record.batches)))
        decided = decided_before(plan, home)
        followed = self._followed(query, generation, decided)
        watermarks = WatermarkLog(query, home, generation, state)
        project = self.preparation.project
        published = published_batches(project, query, generation.query_id, self.lease, home.storage)
        runner = BatchRunner(
            query, generation, home, self.lease, self.stop, state, watermarks, self.audit, followed, published
        )
        flow, kinds = row_flow(query), {source.kind for source in query.stream.sources.values()}
        for batch in runner.run(plan):
            done = tied_to_input(self._told(batch, generation, decided), flow, reads_more="delta" in kinds)
            generation = self._keep_sink_identity(generation)
            self._save(batches=(*self.record.batches, done))
            if decided is not None or (self.audit is not None and self.audit.plan.quarantined is not None):
                decided_batch.forget(home, generation.generation, done.batch_id)
            self.observer.committed(done)
        return runner.is_complete

    def _followed(self, query: Query, generation: Generation, decided: Decision | None) -> Followed | None:
        """What finishes a batch that was decided before; with a suite, the audit does."""
        if decided is None:
            return None
        if self.preparation.project.is_remote:
            raise DeclarationError(
                f"run {decided.run_id} has split batch {decided.batch_id} between two tables, which Spark Connect can't"
                " finish",
                where=f"stream `{query.stream.name}`",
                remedy="run it once with a Spark of its own",
            )
        project, home = self.preparation.project, self.preparation.home
        return Followed(decided, home, generation.generation, project, self.lease)

    def _told(self, batch: BatchRecord, generation: Generation, decided: Decision | None) -> BatchRecord:
        """A batch's record, with who has decided it, and what was declared otherwise when it was begun."""
        decided_by = decided.run_id if decided is not None and decided.batch_id == batch.batch_id else None
        then, now = generation.declared_at(batch.batch_id), generation.begun_with[-1].declared
        changed = tuple(name for name, value in then.items() if now.get(name, value) != value)
        if decided is not None and decided_by is not None:
            taken = rows_in_quarantine(decided, self.preparation.project, storage=self.preparation.home.storage)
            batch = as_decided(batch, decided, taken)
        return msgspec.structs.replace(batch, decided_by=decided_by, changed=changed)

    def _judge(self, *, is_last: bool) -> None:
        """Judge what the run wrote; closes the gate if it has not failed.

        Raises:
            QualityFailedError: It has failed, and the stream is held.
        """
        if self.audit is None:
            return
        if not self.record.batches:
            # Another run's rows were judged; this one has none.
            self.audit.gate.leave()
            return
        self.observer.phase("auditing")
        self.audit.finish(self.record, is_last=is_last)
        quality = self.audit.recorded()
        self._save(quality=quality)
        self.audit.gate.close()
        self.observer.audited(quality)

    def _generation(self, seen: Survey, query: Query, started_at: Mapping[str, Mapping[str, Any]]) -> Generation:
        """What is known of the generation; kept on its first run, compared on every later one.

        Raises:
            RefusedError: Spark numbers the sources otherwise than it did.
        """
        if seen.record is None:
            return Generation(
                generation=seen.generation,
                query_id=seen.checkpoint.query_id or str(uuid4()),
                created_at=iso_time(self.preparation.journal.clock()),
                lines=query.lines,
                declared=tuple(sorted(query.stream.sources)),
                checkpoint=self.preparation.home.checkpoint,
                has_timers=query.has_timers,
                drops_duplicates=self._drops_duplicates(query),
                sources={name: dict(found) for name, found in started_at.items()},
            )
        if seen.record.lines != query.lines:
            was, now = _numbered(seen.record.lines), _numbered(query.lines)
            raise RefusedError(
                Problem(
                    code="SOURCE_ORDER_CHANGED",
                    file=seen.checkpoint.location,
                    cause=f"the query reads its sources as ({now}), the checkpoint was made with ({was})",
                    consequence="Spark would take the offsets of one source for those of another",
                    remedy="restore the order in the transform (of unions and joins), or declare a new stream with"
                    " a sink of its own",
                )
            )
        sources = {name: dict(found) for name, found in started_at.items()}
        return msgspec.structs.replace(
            seen.record, has_timers=query.has_timers, drops_duplicates=self._drops_duplicates(query), sources=sources
        )

    def _drops_duplicates(self, query: Query) -> DropsDuplicates | None:
        project, stream = self.preparation.project, query.stream
        if stream.interval_column is None:
            return None
        across = find_ambiguous(query.frame, stream.interval_column, plan_reader(query.frame.sparkSession))
        return DropsDuplicates(stream.interval_column, transform_digest(project, stream), across)

    def _keep_generation(self, seen: Survey, generation: Generation) -> None:
        """Begin the checkpoint: its query id first, which whoever goes on after a kill takes from there."""
        home = self.preparation.home
        home.claim_checkpoint()
        if seen.checkpoint.query_id is None:
            write_metadata(seen.checkpoint.location, generation.query_id, storage=home.storage)
        if generation != seen.record:
            home.keep_generation(generation)

    def _keep_sink_identity(self, generation: Generation) -> Generation:
        """After the first batch, remember which table it went into."""
        if generation.sink_identity is not None:
            return generation
        home = self.preparation.home
        identity = self.preparation.stream.sink.state(None, storage=home.storage).identity
        if identity is not None:
            generation = msgspec.structs.replace(generation, sink_identity=identity)
            home.keep_generation(generation)
        return generation

    def _save(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        self.preparation.journal.records.save(self.record)


def _numbered(lines: tuple[SourceLine, ...]) -> str:
    """The sources in order; a source that comes twice with the logs, which tell a union of it from two reads."""
    is_reused = len({line.source for line in lines}) < len(lines)
    return ", ".join(f"{line.source} in log {line.log}" if is_reused else line.source for line in lines)
