"""Runs a stream: lease, plan, record, then batch by batch exactly what was planned.

A kill at any point leaves a state that the next run's plan explains and finishes: a batch is written into the offset
log before it runs, Spark runs it again as logged, and the sink skips what it holds already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from sluice.auditing.audit import Audit
from sluice.auditing.begun_audit import prepare_audit
from sluice.auditing.conservation import tied_to_input
from sluice.auditing.judge_with_spark import settle_with_spark
from sluice.auditing.staged_batch import Followed
from sluice.checkpoint.reader import read_checkpoint
from sluice.checkpoint.writer import write_metadata
from sluice.errors import DeclarationError, Problem, RefusedError
from sluice.gate import decided_batch
from sluice.gate.decided_batch import Decision
from sluice.generation_notes import WrittenBatch
from sluice.home import Generation, log_keys
from sluice.lineage.sending import lineage_sent
from sluice.lineage.settings import lineage_settings
from sluice.plan import BackfillStageKind, Plan, Stage, StageKind
from sluice.planning.older_table import older_quarantine
from sluice.planning.survey import Survey, first_computed, pending_id, rows_count
from sluice.planning.verdict import Request, decided_before
from sluice.project import Project
from sluice.running.analysed_query import QueryMaker
from sluice.running.batch_history import with_history
from sluice.running.begun_query import Begun, check_fits, check_order
from sluice.running.divided_batches import written_parts
from sluice.running.known_generation import KnownGeneration, as_in_sink, known_folders
from sluice.running.live_time import LiveTime
from sluice.running.observers import Observer, Silent
from sluice.running.preparation import Preparation, refusal
from sluice.running.published_batches import published_batches
from sluice.running.repeated_batch import clear_state_of_try, has_gone_on, pinned_anew
from sluice.running.result_columns import check_result, let_tables_follow, newest_written
from sluice.running.source_marks import source_marks
from sluice.running.spark_batches import SparkBatches
from sluice.running.woken_drivers import may_have_state, standing_beside, take_back_unproven
from sluice.runs.driver import following_requests
from sluice.runs.lease import Lease, LeaseFile
from sluice.runs.record import BatchRecord, RunRecord
from sluice.runs.stop import StopEvent
from sluice.runs.summary import Status
from sluice.several_sinks import SeveralSinks
from sluice.spark.column_origins import read_columns
from sluice.spark.duplicates import noted_duplicates
from sluice.spark.fingerprints import fingerprints, is_edited
from sluice.spark.first_batch_check import first_batch_checked
from sluice.spark.live_query import check_drained, check_live
from sluice.spark.named_tables import register_tables
from sluice.spark.query import Query
from sluice.spark.read_again import check_read_again
from sluice.spark.row_flow import RowFlow, counted, row_flow
from sluice.spark.session import SessionOpener, choose_shuffle_partitions, open_session
from sluice.spark.shown_error import unforeseen_words
from sluice.spark.state_trial import try_state
from sluice.spark.watermark_log import WatermarkLog
from sluice.times import Clock, iso_time, system_clock
from sluice.trigger import LiveTrigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@lineage_sent()
def run_stream(
    project: Project,
    request: Request,
    *,
    observer: Observer | None = None,
    stop: StopEvent | None = None,
    session: SparkSession | None = None,
    opener: SessionOpener = open_session,
    clock: Clock = system_clock,
) -> RunRecord:
    """Run a stream up to its bound.

    Args:
        project: The project of the stream.
        request: What to run.
        observer: Is told how the run goes on.
        stop: Set from elsewhere, it ends the run between two batches; so does a request in the home.
        session: A Spark session to use in place of one that the project's settings describe.
        opener: Opens that one, if the run needs Spark.
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
    seen, plan = preparation.survey_and_plan()
    if (ended := preparation.end_without_spark(seen, plan)) is not None:
        return ended
    record = preparation.open_record(seen, plan)
    with ExitStack() as at_end:
        told, ending = observer or Silent(), stop or StopEvent()
        run = _Run(preparation, told, ending, session, opener, at_end, seen, plan, record)
        return run.walk()


@dataclass
class _Run:
    """One run, on its way through the stages of its plan."""

    preparation: Preparation
    observer: Observer
    stop: StopEvent
    session: SparkSession | None
    opener: SessionOpener
    at_end: ExitStack
    """What is given back when the run ends: the lease, the session, whoever listens for requests to stop."""
    seen: Survey
    plan: Plan
    record: RunRecord
    lease: Lease = field(init=False)
    opened: ExitStack = field(init=False)
    """The session, if it is this run's own."""
    query: Query = field(init=False)
    generation: Generation = field(init=False)
    standing: Mapping[int, LeaseFile] = field(default_factory=dict)
    """The leases of drivers that may have begun the batch that is done again, and may go on with it."""
    audit: Audit | None = None
    """Of streams with a suite."""
    decided: Decision | None = None
    """What a driver that died had decided of the batch that is resumed."""
    runner: SparkBatches = field(init=False)
    flow: RowFlow | None = None
    planned_with: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """By the batch that was pending, what was declared when it was planned."""
    was_cut: bool = False
    """Whether a batch was left for somebody has asked the run to stop."""
    is_complete: bool = False
    """Whether everything that was planned, and what became due by it, is done."""
    is_over: bool = False
    """Whether its record is closed."""

    def walk(self) -> RunRecord:
        """Take one stage after the other, to the end of the plan; a stage that plans anew goes on with the new one."""
        number = 0
        while not self.is_over and number < len(self.plan.stages):
            self._take(self.plan.stages[number])
            number += 1
        if not self.is_over:
            self._close()
        return self.record

    def _take(self, stage: Stage) -> None:
        steps: dict[StageKind | BackfillStageKind, Callable[[], None]] = {
            "lease": self._take_lease,
            "session": self._start_session,
            "settle": self._settle,
            "begin": self._begin,
            "batch": partial(self._run_batch, stage),
            "drain": self._let_spark_decide,
            "live": self._let_spark_decide,
            "no_data": self._run_no_data,
            "audit": self._judge,
            "publish": self._publish,
            "record": self._close,
        }
        steps[stage.kind]()

    def _take_lease(self) -> None:
        run_id = self.record.run_id
        self.lease = self.at_end.enter_context(self.preparation.take_lease(self.plan.generation, run_id))
        self.preparation = preparation = self.preparation.under(self.lease)
        # First of all: whoever takes over from this run knows nothing of the one before it.
        preparation.close_dead(self.lease)
        take_back_unproven(preparation.home, self.plan.generation, self.lease)
        # What was seen before the lease may have been another run's work in progress.
        self.seen, self.plan = preparation.survey_and_plan()
        if (ended := preparation.end_without_spark(self.seen, self.plan, has_lease=True)) is not None:
            self.record, self.is_over = ended, True
            return
        self.record = msgspec.structs.replace(preparation.open_record(self.seen, self.plan), run_id=run_id)
        self.at_end.enter_context(following_requests(preparation.home, run_id, self.stop, self.lease))
        self.opened = self.at_end.enter_context(ExitStack())
        self._save(plan=self.plan.document, token=self.lease.token)
        self.at_end.push(self._close_failed)
        self._save(status="running", started_at=iso_time(preparation.journal.clock()))
        preparation.journal.tell(self.record)

    def _close_failed(self, _kind: object, exc: BaseException | None, _trace: object) -> None:
        if exc is None or self.is_over:
            return
        if self.audit is not None and self.audit.gate.judged is not None:
            self.record = msgspec.structs.replace(self.record, quality=self.audit.recorded())
        self.preparation.journal.close_failed(self.record, exc, unforeseen_words(exc))

    def _start_session(self) -> None:
        """Start Spark and analyse the query; only then the order of its sources is certain."""
        preparation = self.preparation
        project, stream, home = preparation.project, preparation.stream, preparation.home
        self.query = query = self._analyse()
        if has_gone_on(self.seen.checkpoint, storage=home.storage):
            self._plan_anew()
            # Whoever has gone on may have begun the checkpoint.
            self.opened.close()
            self.query = query = self._analyse()
        seen = self.seen
        if self.plan.trigger is not None:
            check_live(query, self.plan.trigger)
        elif self.plan.strategy == "drain":
            check_drained(query)
        self._check_first_batch()
        check_order(query, Begun.of(seen))
        generation = self._known_generation()
        seen = self._take_up_try()
        fits, kept = check_fits(query, Begun.of(seen), storage=home.storage)
        self.query = query = replace(query, fits_state=fits)
        newest = newest_written(seen.checkpoint.committed_id, seen.sink)
        check_result(query, seen.known, newest, project.conf_of(stream), storage=home.storage)
        self._begin_with(msgspec.structs.replace(generation, state=kept))
        home.forget_skips()
        if seen.lines is None or {line.source for line in seen.lines} != {line.source for line in query.lines}:
            # The plan was made for sources in an order, or of a number, that the query now corrects.
            self._keep_generation()
            self._plan_anew()
        columns = None if lineage_settings() is None else read_columns(query)
        explained = query.explain()
        self._save(query_id=self.generation.query_id, plan=self.plan.document, explain=explained, columns=columns)
        self.observer.planned(self.plan)

    def _begin_with(self, generation: Generation) -> None:
        """Note what is declared, for the batches whose rows are made by it."""
        query, seen, storage = self.query, self.seen, self.preparation.home.storage
        declared = fingerprints(self.preparation.declared(), query)
        if (pending := pending_id(seen)) is not None:
            self.planned_with = {pending: generation.declared_at(pending)}
            if rows_count(seen):
                check_read_again(query, seen, self.planned_with[pending], declared, storage=storage)
        if is_edited(generation.newest_declared, declared):
            try_state(query, seen.checkpoint, storage=storage)
        self.generation = generation.beginning(first_computed(seen), declared)

    def _check_first_batch(self) -> None:
        """Let Spark say what is wrong with a first batch before it is planned, and choose its settings."""
        seen, query = self.seen, self.query
        conf = self.preparation.project.conf_of(self.preparation.stream)
        if seen.checkpoint.is_new:
            reads = ([source.amount for source in batch.sources.values()] for batch in self.plan.batches)
            choose_shuffle_partitions(query.frame.sparkSession, conf, reads)
        if Begun.of(seen).is_nothing:
            self.opened.enter_context(first_batch_checked(query, conf))

    def _take_up_try(self) -> Survey:
        """Clear what a try before has left of the batch that is done again; what is seen then."""
        seen, preparation = self.seen, self.preparation
        project, stream, home = preparation.project, preparation.stream, preparation.home
        if seen.checkpoint.is_pending and stream.sink.is_idempotent and may_have_state(seen.checkpoint):
            # Before anything of it is cleared: who wakes up from now on may write some.
            self.standing = standing_beside(self.lease, home.storage)
        if seen.checkpoint.is_pending and not rows_count(seen):
            self.lease.check()
            clear_state_of_try(seen, storage=home.storage)
        if Begun.of(seen).is_nothing:
            conf = project.conf_of(stream)
            checkpoint = pinned_anew(self.query, seen.checkpoint, conf, storage=home.storage)
            self.seen = replace(seen, checkpoint=checkpoint)
        return self.seen

    def _plan_anew(self) -> None:
        self.seen, self.plan = self.preparation.survey_and_plan()
        if self.plan.problem is not None:
            raise refusal(self.plan.problem)
        # Only now it is known that there is nothing to do.
        self.is_complete = self.plan.verdict == "skip"

    def _analyse(self) -> Query:
        maker = QueryMaker(self.observer, self.session, self.opener, self.opened)
        return maker.analyse(self.preparation, self.lease, self.record, self.plan, self.seen)

    def _settle(self) -> None:
        declared, home = self.preparation.declared(), self.preparation.home
        settle_with_spark(declared, home, self.seen, self.query, self.record.run_id)

    def _begin(self) -> None:
        """Open the gate, begin the checkpoint, and make ready for the first batch."""
        preparation, query, seen = self.preparation, self.query, self.seen
        journal, home = preparation.journal, preparation.home
        declared, committed = preparation.declared(), seen.checkpoint.committed_id
        older = older_quarantine(preparation.stream, self.generation, committed, storage=home.storage)
        if older is not None and older.is_blocking:
            raise RefusedError(older)
        if older is not None:
            self._warn(older)
        self.audit = prepare_audit(
            declared,
            self.generation.newest_declared,
            seen,
            query,
            self.plan,
            self.record,
            journal=journal,
            lease=self.lease,
        )
        if self.audit is not None:
            self.audit.begin()
        judged = None if self.audit is None else self.audit.plan
        let_tables_follow(query, judged, self.lease, storage=home.storage)
        marks = source_marks(seen, self.plan, self.generation.marks, journal.clock(), storage=home.storage)
        generation = msgspec.structs.replace(self.generation, marks=marks)
        generation = as_in_sink(generation, seen, storage=home.storage)
        self.generation = generation.begun_by(self.record.run_id, seen.checkpoint.committed_id)
        self._keep_generation()
        self.known = KnownGeneration(self.generation, home, {} if rows_count(seen) else self.planned_with)
        checkpoint = home.checkpoint_location(self.generation.generation)
        state = read_checkpoint(checkpoint, storage=home.storage, log_keys=log_keys(self.generation))
        if self.audit is not None:
            self._save(batches=tuple(map(self.audit.note, self.record.batches)))
        self.decided = decided_before(self.plan, home)
        self.flow = row_flow(query)
        self.runner = SparkBatches(
            counted(query, self.flow) if self.audit is None and self.plan.trigger is None else query,
            self.known,
            self.lease,
            self.stop,
            state,
            WatermarkLog(query, home, self.generation, state),
            journal.clock,
            self.audit,
            self._followed(),
            published_batches(query, self.known, self.lease, self.record.run_id),
            self.standing,
        )
        self.at_end.enter_context(self.runner.begun(self.plan))

    def _run_batch(self, stage: Stage) -> None:
        batch = next(batch for batch in self.plan.batches if batch.batch_id == stage.batch_id)
        if not self._is_cut():
            self._note(self.runner.run(batch))

    def _let_spark_decide(self) -> None:
        if not self._is_cut():
            if self.plan.trigger is None:
                self._note(self.runner.drain())
            else:
                self._go_live(self.plan.trigger)
            self._is_cut()

    def _go_live(self, trigger: LiveTrigger) -> None:
        clock = self.preparation.journal.clock
        time = LiveTime.begin(trigger, self.record.live, clock, lambda told: self._save(live=told))
        if not time.is_over():
            self.observer.phase(f"live: {trigger.word} until {iso_time(time.ends_at)}")
            self._note(self.runner.live(time))

    def _run_no_data(self) -> None:
        if not self.was_cut:
            self._note(self._no_data())

    def _no_data(self) -> Iterator[BatchRecord]:
        self.is_complete = yield from self.runner.run_no_data()

    def _note(self, batches: Iterator[BatchRecord]) -> None:
        """Record each batch once it is committed."""
        query, preparation, home = self.query, self.preparation, self.preparation.home
        reads_more = any(source.counts_more_rows for source in query.stream.sources.values())
        planned = self.plan.batches if self.plan.strategy == "exact" else ()
        promised = {batch.batch_id: batch.rows for batch in planned}
        for batch in batches:
            rows = promised.get(batch.batch_id)
            told = with_history(batch, self.decided, self.planned_with, self.generation, preparation)
            done = tied_to_input(told, self.flow, promised=rows, reads_more=reads_more)
            self._keep_what_was_written(done)
            self._save(batches=(*self.record.batches, done))
            is_split = self.audit is not None and self.audit.plan.quarantined is not None
            if self.decided is not None or is_split or query.results:
                decided_batch.forget(home, self.generation.generation, done.batch_id)
            self.observer.committed(done)

    def _is_cut(self) -> bool:
        """Whether the run is to stop before its next batch; then it is not complete, whatever it has done."""
        self.was_cut = self.was_cut or self.stop.is_set()
        self.is_complete = False
        return self.was_cut

    def _followed(self) -> Followed | None:
        """What finishes a batch that was decided before; with a suite, the audit does."""
        decided, preparation = self.decided, self.preparation
        if decided is None:
            return None
        if preparation.project.is_remote:
            raise DeclarationError(
                f"run {decided.run_id} has split batch {decided.batch_id} between two tables, which Spark Connect can't"
                " finish",
                where=f"stream `{preparation.stream.name}`",
                remedy="run it once with a Spark of its own",
            )
        return Followed(decided, preparation.home, self.generation.generation, preparation.project, self.lease)

    def _judge(self) -> None:
        """Judge what the run wrote.

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
        self.audit.finish(self.record, is_last=self.is_complete)
        self._save(quality=self.audit.recorded())

    def _publish(self) -> None:
        """Close the gate: from here on what the run wrote counts downstream."""
        quality = self.record.quality
        if self.audit is not None and quality is not None and self.record.batches:
            self.audit.gate.close()
            self.observer.audited(quality)

    def _close(self) -> None:
        if self.record.batches:
            session, storage = self.query.frame.sparkSession, self.preparation.home.storage
            if (unknown := register_tables(self.preparation.stream, session, storage=storage)) is not None:
                self._warn(unknown)
        self.is_over = True
        status: Status = "succeeded" if self.is_complete else "stopped"
        self.record = self.preparation.journal.close(self.record, status)

    def _known_generation(self) -> Generation:
        """What is known of the generation; kept on its first run."""
        seen, query = self.seen, self.query
        told: dict[str, Any] = {
            "has_timers": query.has_timers,
            "drops_duplicates": noted_duplicates(query),
            "sources": {name: dict(found) for name, found in seen.starts.items()},
            "folders": known_folders(seen, query),
        }
        if seen.known is not None:
            return msgspec.structs.replace(seen.known, **told)
        return Generation(
            generation=seen.generation,
            query_id=seen.checkpoint.query_id or str(uuid4()),
            created_at=iso_time(self.preparation.journal.clock()),
            lines=query.lines,
            declared=tuple(sorted(query.stream.sources)),
            checkpoint=self.preparation.home.checkpoint,
            **told,
        )

    def _keep_generation(self) -> None:
        """Begin the checkpoint: its query id first, which whoever goes on after a kill takes from there."""
        home, checkpoint = self.preparation.home, self.seen.checkpoint
        home.claim_checkpoint()
        if checkpoint.query_id is None:
            write_metadata(checkpoint.location, self.generation.query_id, storage=home.storage)
        if self.generation != self.seen.known:
            home.keep_generation(self.generation)

    def _keep_what_was_written(self, batch: BatchRecord) -> None:
        """Remember into which table the batches went, and the newest of them: by that an older copy is known."""
        home, sink, known = self.preparation.home, self.preparation.stream.sink, self.known.generation
        changes: dict[str, Any] = {}
        if known.sink_identity is None:
            changes["sink_identity"] = sink.state(None, storage=home.storage).identity
        if batch.sink_version is not None:
            changes["written"] = WrittenBatch(batch.batch_id, batch.sink_version)
        quarantine = self.preparation.stream.quarantine_table if batch.quarantined_rows else None
        if quarantine is not None:
            there = quarantine.state(known.query_id, storage=home.storage)
            if there.holds(batch.batch_id) and there.version is not None:
                changes["quarantined"] = WrittenBatch(batch.batch_id, there.version, there.identity)
        if isinstance(sink, SeveralSinks):
            parts = written_parts(sink, known.query_id, batch.batch_id, storage=home.storage)
            changes["written_parts"] = {**known.written_parts, **parts}
        self.known.keep(lambda known: msgspec.structs.replace(known, **changes))

    def _warn(self, warning: Problem) -> None:
        self.plan = replace(self.plan, warnings=(*self.plan.warnings, warning))
        self._save(plan=self.plan.document)
        self.observer.warned(warning)

    def _save(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        self.preparation.journal.records.save(self.record)
