"""Audits a run: measures each batch on its way into the sink, and lets nothing count that fails before it does.

    gate      what happens to a batch
    publish   written aside and measured on the way; judged; published by one commit of metadata
    cache     kept and measured; judged; then written: by Spark, or in the home where rows go to the quarantine, too
    write     written, measured on the way; judged when the run ends

What was measured is on disk before a batch is published: a later try finds it there. What was decided of a batch that
goes into two tables is followed by whoever finishes it; see `staged_batch`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from sluice.auditing import staged_batch
from sluice.auditing.conservation import balanced, rows_in_quarantine
from sluice.auditing.quarantine import kept_rows
from sluice.auditing.run_gate import RunGate
from sluice.auditing.written_rows import WrittenRows, measure, measures
from sluice.errors import SluiceError
from sluice.gate import decided_batch
from sluice.gate.audit_record import (
    QUALITY_METRICS,
    is_measured,
    together,
    with_measures,
)
from sluice.gate.state import (
    BatchAudit,
    keep_audits,
    read_audit,
)
from sluice.gate.stopped_batch import key_of
from sluice.home import StreamHome
from sluice.plan import Judging
from sluice.project import Project
from sluice.quality.compile import QualityPlan
from sluice.quality.remeasured import measured_otherwise
from sluice.quality.results import CheckResult
from sluice.runs.kept_table import Table
from sluice.runs.lease import Lease
from sluice.runs.record import BatchRecord, QualityRecord, RunRecord
from sluice.sinks.contract import BatchSink, SinkBatch, SinkState, StagingSink
from sluice.sinks.keyed import KeyedSink
from sluice.sinks.splitting import SplittingSink
from sluice.spark.query import Query, run_through
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PATIENCE_SECONDS = 60.0
"""How long observed measures may take to arrive once a batch is written: Spark drops events when it has too many."""
_RAISED, _ABORTED = "[USER_RAISED_EXCEPTION] ", "sluice quality: "
_RESULT_METRICS = "sluice.result"


@dataclass
class Audit:
    """The audit of one run."""

    project: Project
    stream: Stream
    home: StreamHome
    plan: QualityPlan
    judging: Judging
    frame: DataFrame
    """The result of the transform."""
    query_id: str
    record: RunRecord
    """As the run began."""
    lease: Lease
    gate: RunGate
    tables: tuple[SplittingSink, SplittingSink] | None = None
    """The sink and its quarantine, where the suite puts rows there."""
    is_read_otherwise: bool = False
    """Whether the batch that an earlier run has published would be measured as others now, where it is read again."""
    _note: Callable[[int], None] = field(init=False)
    _audits: dict[int, BatchAudit] = field(default_factory=dict)
    """Those of batches that no record may have yet."""
    _noted: set[int] = field(default_factory=set)
    _read_again: set[int] = field(default_factory=set)
    """Batches that were measured as they are read by now: the sink itself knows better, where it can be asked."""
    _watched: dict[frozenset[str], DataFrame] = field(default_factory=dict)
    """The results for the sink's own stream writer, by what rows may fail without ending their batch."""

    @property
    def _written(self) -> WrittenRows:
        """What the run has written, to be read again."""
        session, columns = self.frame.sparkSession, tuple(self.frame.columns)
        return WrittenRows(self.stream, session, self.home.storage, self.plan, columns)

    def begin(self) -> None:
        """Open the gate, unless the columns alone let the run fail.

        Raises:
            QualityFailedError: They do.
            BatchFailedError: What earlier runs have published can't be read now, and the suite asks for more of it.
        """
        self.gate.begin()
        for batch in self.gate.earlier:
            self._keep_values(batch, self.gate.values[batch.batch_id])

    def watching(
        self, query: Query, note: Callable[[int], None], batch_id: int | None = None, *, is_in_sink: bool = False
    ) -> Query:
        """The query with its batches audited.

        Args:
            query: The stream's query.
            note: Called with a batch's id once its rows are computed and judged, and before they count.
            batch_id: The batch that it is to run; None when Spark decides.
            is_in_sink: Whether the sink holds the batch already: it is only measured, whichever way it went there.
        """
        self._note, sink = note, self.stream.sink
        if self.judging.where == "publish" and isinstance(sink, StagingSink):
            return replace(query, frame=self.frame, write=partial(self._publish, sink))
        if self.judging.where != "write" and isinstance(sink, BatchSink):
            return replace(query, frame=self.frame, write=partial(self._write_cached, sink))
        if is_in_sink and not self.project.is_remote:
            return replace(query, frame=self.frame, write=self._recall)
        excused = self.gate.excused_of(batch_id)
        if excused not in self._watched:
            self._watched[excused] = self._watch(excused)
        return replace(query, frame=self._watched[excused])

    def _watch(self, excused: frozenset[str]) -> DataFrame:
        """The result with its measures observed and failing rows left out, for the sink's own stream writer.

        Args:
            excused: What rows may fail that somebody has let through.
        """
        from pyspark.sql import functions

        # Where nothing is observed, Spark asks the checks of rows, too, that a join or a filter leaves out.
        if self.judging.measured == "observe":
            frame = self.frame.observe(QUALITY_METRICS, *measures(self.plan))
        else:
            frame = self.frame.observe(_RESULT_METRICS, functions.count("*").alias("rows"))
        for check in self.plan.row_checks("fail"):
            if check.expectation.mostly == 1.0 and key_of(check.expectation) not in excused:
                said = f"'{_ABORTED}{check.expectation.id}'"
                frame = frame.where(f"assert_true(NOT coalesce({check.unexpected}, false), {said}) IS NULL")
        return kept_rows(frame, self.plan.removed)

    def note(self, batch: BatchRecord) -> BatchRecord:
        """A committed batch's record, with what was measured of it."""
        values = self.gate.values.get(batch.batch_id)
        if values is None and not batch.was_in_sink:
            values = batch.observed.get(QUALITY_METRICS)
        audit = self._audits.get(batch.batch_id)
        if audit is None and (values is None or batch.input_rows is None):
            # Another driver has written it, by the suite of then.
            audit = self._known_audit(batch.batch_id)
        if values is None and audit is not None:
            values = audit.values
        self._noted.add(batch.batch_id)
        values = self._keep_values(batch, values)
        batch, taken = with_measures(batch, values), self._in_quarantine(batch)
        if audit is not None and audit.taken is not None:
            batch = balanced(batch, self.plan, audit.values, audit.taken, in_quarantine=taken)
        elif not (batch.was_in_sink and "drop" in self.plan.removals and (audit is None or audit.removed is None)):
            # Else nobody knows any more how many rows were dropped before the sink had the others.
            batch = balanced(batch, self.plan, values, in_quarantine=taken)
        self.gate.note(batch)
        return batch

    def _in_quarantine(self, batch: BatchRecord) -> int | None:
        """What the quarantine's log says of a batch; None where it was not split, or is done since."""
        storage, generation = self.home.storage, self.record.generation
        decision = decided_batch.read_decision(self.home, generation, batch.batch_id)
        return None if decision is None else rows_in_quarantine(decision, self.project, storage=storage)

    def _keep_values(self, batch: BatchRecord, values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Keep what was measured of a batch; measured in the sink where the suite asks for more, if it can be."""
        if not is_measured(self.plan, values) or batch.batch_id in self._read_again:
            values = self._written.measure(batch) or values
        self.gate.values[batch.batch_id] = values
        return values

    def cause(self, exc: BaseException, newest: Callable[[], int]) -> SluiceError | None:
        """What ended a batch, when it is known better here than from Spark's error; None when it is not.

        Args:
            exc: Spark's error.
            newest: Gives the batch that was under way, whoever planned it; asked only where a row ended it.
        """
        text = str(exc)
        for check in self.plan.row_checks("fail"):
            # Spark's plan, which it shows with the error, has all of them.
            if f"{_RAISED}{_ABORTED}{check.expectation.id}" in text:
                told = {"details": {"sluice": "a row that is not as expected ended the batch"}}
                found = CheckResult.of(check.expectation, check.path, success=False, result=told)
                return None if (batch_id := newest()) < 0 else self.gate.stop_for(batch_id, found)
        return None

    def finish(self, record: RunRecord, *, is_last: bool) -> None:
        """Judge the run; see `RunGate.finish`.

        Args:
            record: With every batch that was committed.
            is_last: Whether all is done that was planned.
        """

        def reread(without: Collection[int]) -> Sequence[CheckResult]:
            batches = together(self.gate.earlier, record.batches)
            return self._written.reread([batch for batch in batches if batch.batch_id not in without])

        self.gate.finish(reread, is_last=is_last)

    def recorded(self) -> QualityRecord:
        """The newest judgement as the run record has it."""
        return self.gate.recorded(self.judging.where)

    def _publish(self, sink: StagingSink, frame: DataFrame, batch_id: int) -> None:
        batch = self._batch(batch_id)
        if self._holds(sink, batch_id):
            self._recall(frame, batch_id)
            return
        storage = self.home.storage
        observation, measured = self._observing(frame)
        aside = sink.write_batch_aside(kept_rows(measured, self.plan.removed), batch, storage=storage)
        if aside is None:
            # The table lacks a column, or has another type or rule: Delta's own writer knows what to do.
            self._write_cached(sink, frame, batch_id)
            return
        try:
            values = self._arrived(observation) if observation is not None else None
            if values is None:
                # What was written says it, but for rows that were left out.
                written = frame.sparkSession.read.schema(frame.schema).parquet(aside.folder)
                values = measure(self.plan, written if self.plan.removed is None else frame)
            self._decide(batch_id, values)
            self.lease.check()
        except SluiceError:
            sink.forget_batch(batch, storage=storage)
            raise
        sink.publish_batch(batch, aside, storage=storage)

    def _write_cached(self, sink: BatchSink, frame: DataFrame, batch_id: int) -> None:
        batch = self._batch(batch_id)
        decided = decided_batch.read_decision(self.home, self.record.generation, batch_id)
        if decided is not None:
            self._follow(decided, frame)
            return
        if self._holds(sink, batch_id):
            self._recall(frame, batch_id)
            return
        if self.tables is not None:
            self._write_split(*self.tables, frame, batch)
            return
        # Spark does not find the columns of a batch that is sorted and persisted; only a whole result can be sorted.
        # And what is persisted may be computed again where a part of it is lost: a merge would have other rows then.
        is_kept = batch.output_mode == "complete" or isinstance(sink, KeyedSink)
        frame = frame.localCheckpoint() if is_kept else frame.persist()
        try:
            decided_now = self._decide(batch_id, measure(self.plan, frame))
            self.lease.check()
            rows, load_function = kept_rows(frame, decided_now.removed), self.project.load_function
            sink.write_batch(rows, batch, load_function=load_function, storage=self.home.storage)
        finally:
            frame.unpersist()

    def _write_split(self, sink: SplittingSink, quarantine: SplittingSink, frame: DataFrame, batch: SinkBatch) -> None:
        """Stage a batch, decide where its rows go, and publish it into both tables."""
        generation = self.record.generation
        if self._holds(quarantine, batch.batch_id):
            raise decided_batch.lost_decision(batch.batch_id, quarantine)
        folder, files = staged_batch.stage(frame, self.plan, self.home, generation, batch)
        row_type = frame.schema.json()
        try:
            rows = staged_batch.staged_rows(frame.sparkSession, self.home, generation, folder, row_type)
            audit = self._decide(batch.batch_id, measure(self.plan, rows))
        except SluiceError:
            decided_batch.discard(self.home, generation, folder)
            raise
        decision = decided_batch.Decision(
            batch_id=batch.batch_id,
            query_id=self.query_id,
            run_id=self.record.run_id,
            folder=folder,
            files=files,
            row_type=row_type,
            sink=Table.of(sink, self.project),
            quarantine=Table.of(quarantine, self.project),
            values=audit.values,
            quarantined=audit.values[self.plan.removals["quarantine"]],
            dropped=audit.values[self.plan.removals["drop"]] if "drop" in self.plan.removals else 0,
            interval_column=self.stream.interval_column,
        )
        self._publish_staged(decided_batch.decide(self.project, self.home, generation, decision), frame.sparkSession)

    def _follow(self, decision: decided_batch.Decision, frame: DataFrame) -> None:
        """Finish a batch that was decided before."""
        staged_batch.go_on_with_state(frame, self.home, self.record.generation)
        values = decision.values
        if not is_measured(self.plan, values):
            values = {**self._measure_staged(decision, frame.sparkSession), **values}
        audit = BatchAudit(batch_id=decision.batch_id, values=values, taken=decision.removed())
        self._keep_audit(audit)
        self.gate.values[decision.batch_id] = values
        self._publish_staged(decision, frame.sparkSession)

    def _measure_staged(self, decision: decided_batch.Decision, session: SparkSession) -> Mapping[str, Any]:
        """What the suite of today asks for more; nothing, where the rows do not have its columns."""
        generation, columns = self.record.generation, dict(self.frame.dtypes)
        rows = staged_batch.staged_rows(session, self.home, generation, decision.folder, decision.row_type)
        if dict(rows.dtypes) != columns:
            return {}
        left = decision.removed()
        return {**measure(self.plan, rows), **{name: left[policy] for policy, name in self.plan.removals.items()}}

    def _publish_staged(self, decision: decided_batch.Decision, session: SparkSession) -> None:
        self.lease.check()
        staged_batch.publish(decision, session, self.project, self.home, self.record.generation, lease=self.lease)

    def _recall(self, frame: DataFrame, batch_id: int) -> None:
        """Take a published batch as it was audited; it is measured again where the suite asks for more now."""
        run_through(frame)
        audit = self._known_audit(batch_id)
        found = audit.values if audit is not None else {}
        # Read by other code, or of other files, it is not what was written: that is looked at when the run is judged.
        if not is_measured(self.plan, found) and not self.is_read_otherwise:
            now = self._measure_decided(frame, audit)
            # Nor is it where what was measured then is measured otherwise: the transform reads something that changed.
            if measured_otherwise(self.plan, found, now) is None:
                found = {**found, **now}
                self._read_again.add(batch_id)
                if audit is not None:
                    self._keep_audit(msgspec.structs.replace(audit, values=found))
        self.gate.values[batch_id] = found

    def _known_audit(self, batch_id: int) -> BatchAudit | None:
        return read_audit(self.home, self.record.generation, batch_id)

    def _keep_audit(self, audit: BatchAudit) -> None:
        for batch_id in sorted(self._noted & self._audits.keys())[:-1]:
            del self._audits[batch_id]
        self._audits[audit.batch_id] = audit
        keep_audits(self.home, self.record.generation, self._audits.values())

    def _decide(self, batch_id: int, values: Mapping[str, Any] | None) -> BatchAudit:
        """Judge the run with this batch, and note what was measured before anything of it is published.

        Raises:
            QualityFailedError: It fails, and nobody has released it.
        """
        self.lease.check()
        self.gate.judge_batch(batch_id, values)
        found = dict(values or {})
        taken: dict[str, int] = {policy: found[name] for policy, name in self.plan.removals.items() if name in found}
        audit = BatchAudit(
            batch_id=batch_id,
            values=found,
            removed=self.plan.removed,
            taken=taken if taken.keys() == self.plan.removals.keys() else None,
        )
        self._keep_audit(audit)
        self._note(batch_id)
        return audit

    def _batch(self, batch_id: int) -> SinkBatch:
        return SinkBatch(self.query_id, batch_id, self.stream.output_mode, self.record.token or 0)

    def _holds(self, sink: BatchSink, batch_id: int) -> bool:
        return sink.is_idempotent and self._state(sink).holds(batch_id)

    def _state(self, sink: BatchSink) -> SinkState:
        return sink.state(self.query_id, storage=self.home.storage)

    def _measure_decided(self, frame: DataFrame, audit: BatchAudit | None) -> dict[str, Any]:
        """The measures of a batch that is split already: rows that have left are counted by the rule they left by."""
        from pyspark.sql import functions

        found = dict(measure(self.plan, frame))
        if self.plan.removals:
            taken = {"quarantine": "false", "drop": (audit.removed if audit is not None else None) or "false"}
            names = self.plan.removals.items()
            counts = [functions.expr(f"count_if({taken[policy]})").alias(name) for policy, name in names]
            found |= frame.agg(*counts).collect()[0].asDict()
        return found

    def _observing(self, frame: DataFrame) -> tuple[Any, DataFrame]:
        if self.judging.measured == "afterwards":
            return None, frame
        from pyspark.sql import Observation

        observation = Observation(QUALITY_METRICS)
        return observation, frame.observe(observation, *measures(self.plan))

    def _arrived(self, observation: Any) -> Mapping[str, Any] | None:
        """What was observed; None when it does not arrive."""
        found: list[Mapping[str, Any]] = []
        waiting = threading.Thread(target=lambda: found.append(observation.get), name="sluice-observed", daemon=True)
        waiting.start()
        waiting.join(_PATIENCE_SECONDS)
        return found[0] if found else None
