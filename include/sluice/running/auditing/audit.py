"""Audits a run: measures each batch on its way into the sink, and lets nothing count that fails before it does.

    gate      what happens to a batch
    publish   written aside and measured on the way; judged; published by one commit of metadata
    cache     kept by Spark and measured; judged; then split into quarantine and sink
    write     written, measured on the way; judged when the run ends

What was measured is on disk before a batch is published: a later try finds it there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sluice.errors import QualityFailedError, SluiceError
from sluice.home import StreamHome
from sluice.planning.plan import GateChoice, Plan
from sluice.planning.survey import Survey
from sluice.project import Project
from sluice.quality.compile import QualityPlan
from sluice.quality.declared_suite import declared_suite
from sluice.quality.gate import Judgement, describe_failed, failing_columns, failing_results, judge_run, quality_failed
from sluice.quality.results import CheckResult
from sluice.running.auditing.audit_record import (
    QUALITY_METRICS,
    counted,
    former_runs,
    is_measured,
    quality_record,
    together,
    with_measures,
)
from sluice.running.auditing.gate_choice import choose_gate
from sluice.running.auditing.gate_state import (
    BatchAudit,
    GateState,
    carried_runs,
    close_gate,
    gate_to_go_on_with,
    keep_audits,
    keep_gate,
    read_audit,
    read_gate,
)
from sluice.running.auditing.quarantine import kept_rows, quarantined_rows
from sluice.running.auditing.suite_fit import fit_suite
from sluice.running.auditing.written_rows import WrittenRows, measure, measures
from sluice.running.lease import Lease
from sluice.running.preparation import Preparation
from sluice.running.query import Query, plan_reader
from sluice.running.record import BatchRecord, QualityRecord, RunRecord
from sluice.running.session import is_remote
from sluice.stream import BatchSink, SinkBatch, SinkState, StagingSink, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PATIENCE_SECONDS = 60.0
"""How long observed measures may take to arrive once a batch is written: Spark drops events when it has too many."""
_ABORTED = "sluice quality: "
_EMITS_LATER = "EventTimeWatermark"
"""In Spark's plan of a query whose rows may come out only in batches without data, which no plan has."""


@dataclass
class Audit:
    """The audit of one run."""

    project: Project
    stream: Stream
    home: StreamHome
    plan: QualityPlan
    choice: GateChoice
    frame: DataFrame
    """The result of the transform."""
    query_id: str
    record: RunRecord
    """As the run began."""
    clock: Callable[[], datetime]
    lease: Lease
    last_batch: int | None
    """The id of the last batch that is planned; None when Spark decides, or when more may follow."""
    found: GateState | None = None
    """The gate as the run found it, where it goes on with what another run, or a former try, was stopped in."""
    earlier: tuple[BatchRecord, ...] = ()
    """What the runs had published that it goes on with: judged together with its own."""
    begun: BatchAudit | None = None
    """What was decided of a batch whose rows are in part published, by a driver that died then."""
    judged: Judgement | None = None
    """The newest judgement."""
    failure: BaseException | None = None
    """What ended a batch in its function; Spark only tells that something did."""
    _values: dict[int, Mapping[str, Any] | None] = field(default_factory=dict)
    _audits: dict[int, BatchAudit] = field(default_factory=dict)
    """Those of batches that no record may have yet."""
    _noted: set[int] = field(default_factory=set)
    _watched: dict[bool, DataFrame] = field(default_factory=dict)
    """The results for the sink's own stream writer, by whether a row that fails ends its batch."""
    _former: list[dict[str, float]] | None = None

    def __post_init__(self) -> None:
        for batch in together(self.earlier, self.record.batches):
            self._values[batch.batch_id] = batch.observed.get(QUALITY_METRICS)

    @property
    def released(self) -> GateState | None:
        """The gate with the batch that somebody has let through; None when nobody has."""
        return self.found if self.found is not None and self.found.released_by is not None else None

    @property
    def _written(self) -> WrittenRows:
        """What the run has written, to be read again."""
        session, columns = self.frame.sparkSession, tuple(self.frame.columns)
        return WrittenRows(self.stream, session, self.home.storage, self.plan, columns)

    def begin(self) -> None:
        """Fail what the columns alone decide, before anything runs; else open the gate.

        From then on there may be rows that nobody has judged.

        Raises:
            QualityFailedError: An expectation about the columns fails, and has the policy `fail`.
            BatchFailedError: What former runs have published can't be read now, and the suite asks for more of it.
        """
        self.judged = failing_columns(self.plan)
        if self.judged is not None:
            raise self._failed(self.judged, "nothing was run; correct the transform or the suite")
        opened = self._gate("open")
        if (found := self.found) is not None:
            kept = {name: getattr(found, name) for name in ("batch_id", "was_last", "failed", "released_by")}
            opened = msgspec.structs.replace(opened, **kept)
        keep_gate(self.home, opened)
        for batch in self.earlier:
            self._values[batch.batch_id] = self._completed(batch, self._values[batch.batch_id])

    def _guarded(self, function: Callable[[DataFrame, int], object]) -> Callable[[DataFrame, int], None]:
        """A function for Spark to call with a batch, whose error is kept."""

        def write(frame: DataFrame, batch_id: int) -> None:
            try:
                function(frame, batch_id)
            except BaseException as exc:
                self.failure = exc
                raise

        return write

    def watching(self, query: Query, batch_id: int | None = None, *, is_in_sink: bool = False) -> Query:
        """The query with its batches audited.

        Args:
            query: The stream's query.
            batch_id: The batch that it is to run; None when Spark decides.
            is_in_sink: Whether the sink holds the batch already: it is only measured, whichever way it went there.
        """
        if self.choice.gate != "write":
            write = self._publish if self.choice.gate == "publish" else self._write_cached
            return replace(query, frame=self.frame, write=self._guarded(write))
        if is_in_sink and not is_remote(self.project):
            return replace(query, frame=self.frame, write=self._guarded(self._recall))
        aborts = not self._is_let_through(batch_id)
        if aborts not in self._watched:
            self._watched[aborts] = self._watch(aborts=aborts)
        return replace(query, frame=self._watched[aborts])

    def _watch(self, *, aborts: bool) -> DataFrame:
        """The result with its measures observed and failing rows left out, for the sink's own stream writer."""
        frame = self.frame
        if self.choice.measured == "observe":
            frame = frame.observe(QUALITY_METRICS, *measures(self.plan))
        for check in self.plan.row_checks("fail") if aborts else ():
            if check.expectation.mostly == 1.0:
                said = f"'{_ABORTED}{check.expectation.id}'"
                frame = frame.where(f"assert_true(NOT coalesce({check.unexpected}, false), {said}) IS NULL")
        return kept_rows(frame, self.plan.removed)

    def note(self, batch: BatchRecord) -> BatchRecord:
        """A committed batch's record, with what was measured of it."""
        values = self._values.get(batch.batch_id)
        if values is None and not batch.was_in_sink:
            values = batch.observed.get(QUALITY_METRICS)
        if values is None:
            audit = self._known_audit(batch.batch_id)
            values = audit.values if audit is not None else None
        values = self._completed(batch, values)
        self._values[batch.batch_id] = values
        self._noted.add(batch.batch_id)
        return with_measures(batch, values)

    def _completed(self, batch: BatchRecord, values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """What was measured of a batch; measured in the sink where the suite asks for more than that, if it can be."""
        if is_measured(self.plan, values):
            return values
        return self._written.measure(batch) or values

    def cause(self, exc: BaseException, batch_id: int) -> SluiceError | None:
        """What ended a batch, when it is known better here than from Spark's error; None when it is not."""
        if isinstance(self.failure, SluiceError):
            return self.failure
        text = str(exc)
        for check in self.plan.row_checks("fail"):
            if f"{_ABORTED}{check.expectation.id}" in text:
                told = {"details": {"sluice": "a row that is not as expected ended the batch"}}
                found = CheckResult.of(check.expectation, check.path, success=False, result=told)
                self.judged = Judgement("fail", (found,), None, {})
                return self._blocked(batch_id)
        return None

    def finish(self, record: RunRecord, *, is_last: bool) -> None:
        """Judge the run. The gate is still open: its record must have the verdict before `close`.

        Args:
            record: With every batch that was committed.
            is_last: Whether all is done that was planned.

        Raises:
            QualityFailedError: It failed, with its rows in the sink: the stream is held.
        """
        self.judged = self._judge(is_last=is_last, rereads=self._reread(record.batches))
        if self.judged.verdict != "fail" or self._is_released(record, is_last=is_last):
            return
        failed = describe_failed(failing_results(self.judged))
        keep_gate(self.home, msgspec.structs.replace(self._gate("failed"), failed=failed))
        name = self.stream.name
        raise self._failed(
            self.judged,
            f"its rows are in the sink, and the stream `{name}` is held: correct the suite, or let it go on with"
            f" `sluice quality release {name}`",
        )

    def close(self) -> None:
        """Close the gate: the verdict on what was published is on disk."""
        close_gate(self.home)

    def leave(self) -> None:
        """Leave the gate as it was found: nothing was published."""
        if self.found is None or self.found.batch_id is None:
            close_gate(self.home)
        else:
            keep_gate(self.home, msgspec.structs.replace(self.found, state="blocked"))

    def recorded(self) -> QualityRecord:
        """The newest judgement as the run record has it."""
        judged = self.judged or Judgement("pass", (), None, {})
        is_released = judged.verdict == "fail" and self.released is not None
        by = self.released.released_by if self.released is not None and is_released else None
        return quality_record(judged, self.plan.suite.name, self.choice.gate, dict(self.frame.dtypes), released_by=by)

    def _publish(self, frame: DataFrame, batch_id: int) -> None:
        sink, batch = self.stream.sink, self._batch(batch_id)
        assert isinstance(sink, StagingSink)
        if self._holds(sink, batch_id):
            self._recall(frame, batch_id)
            return
        storage = self.home.storage
        observation, measured = self._observing(frame)
        folder = sink.write_batch_aside(kept_rows(measured, self.plan.removed), batch, storage=storage)
        if folder is None:
            # The table lacks a column, or has another type: Delta's own writer knows what to do.
            self._write_cached(frame, batch_id)
            return
        try:
            values = self._arrived(observation) if observation is not None else None
            if values is None:
                # What was written says it, but for rows that were left out.
                written = frame.sparkSession.read.schema(frame.schema).parquet(folder)
                values = measure(self.plan, written if self.plan.removed is None else frame)
            self._decide(batch_id, values)
            self.lease.check()
        except SluiceError:
            sink.forget_batch(batch, storage=storage)
            raise
        sink.publish_batch(batch, storage=storage)

    def _write_cached(self, frame: DataFrame, batch_id: int) -> None:
        sink, batch, quarantine = self.stream.sink, self._batch(batch_id), self._quarantine(batch_id)
        assert isinstance(sink, BatchSink)
        in_sink = self._holds(sink, batch_id)
        put_aside = self._state(quarantine) if quarantine is not None else SinkState(exists=False)
        in_quarantine = put_aside.holds(batch_id)
        if in_sink and (quarantine is None or in_quarantine):
            self._recall(frame, batch_id)
            return
        frame = frame.persist()
        try:
            # Once rows are in one of the two, the others are those that were decided then.
            decided = self._recall(frame, batch_id) if in_sink or in_quarantine else None
            if decided is None:
                decided = self._decide(batch_id, measure(self.plan, frame))
            self.lease.check()
            if quarantine is not None and not in_quarantine:
                self._put_aside(quarantine, frame, decided, batch, has_table=put_aside.exists)
            if not in_sink:
                sink.write_batch(kept_rows(frame, decided.removed), batch, load_function=self.project.load_function)
        finally:
            frame.unpersist()

    def _put_aside(
        self, quarantine: StagingSink, frame: DataFrame, decided: BatchAudit, batch: SinkBatch, *, has_table: bool
    ) -> None:
        """Put the rows that fail into the quarantine. Without any, a commit is worth its time only to make a table."""
        is_empty = decided.values.get(self.plan.removals.get("quarantine", "")) == 0
        if decided.quarantined is None or (is_empty and has_table):
            return
        rows = quarantined_rows(frame, self.plan, decided.quarantined, self.record.run_id, batch.batch_id)
        quarantine.write_batch(rows, batch, load_function=self.project.load_function)

    def _recall(self, frame: DataFrame, batch_id: int) -> BatchAudit | None:
        """The audit of a batch whose rows are published already, measured again where the suite asks for more now."""
        audit = self._known_audit(batch_id)
        found = audit.values if audit is not None else {}
        if not {measure.name for measure in self.plan.measures} <= found.keys():
            found = {**found, **self._measure_decided(frame, audit)}
            if audit is not None:
                audit = msgspec.structs.replace(audit, values=found)
                self._keep_audit(audit)
        self._values[batch_id] = found
        return audit

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
        self._values[batch_id] = values
        is_last = self._is_last(batch_id)
        self.judged = self._judge(is_last=is_last)
        is_let_through = self._is_let_through(batch_id) or self._but_released(is_last=is_last).verdict != "fail"
        if self.judged.verdict == "fail" and not is_let_through:
            raise self._blocked(batch_id)
        audit = BatchAudit(
            batch_id=batch_id,
            values=dict(values or {}),
            removed=self.plan.removed,
            quarantined=self.plan.quarantined,
        )
        self._keep_audit(audit)
        return audit

    def _is_last(self, batch_id: int) -> bool:
        """Whether nothing more is planned: in this run, or in the one that was stopped in this batch."""
        if self.found is not None and self.found.batch_id == batch_id and self.found.was_last:
            return True
        return self.last_batch is not None and batch_id >= self.last_batch

    def _is_let_through(self, batch_id: int | None) -> bool:
        return self.released is not None and self.released.batch_id == batch_id

    def _blocked(self, batch_id: int) -> QualityFailedError:
        """Note that a batch was not published; gives what to raise."""
        assert self.judged is not None
        failed, was_last = describe_failed(failing_results(self.judged)), self._is_last(batch_id)
        blocked = msgspec.structs.replace(self._gate("blocked"), batch_id=batch_id, was_last=was_last, failed=failed)
        keep_gate(self.home, blocked)
        return self._failed(
            self.judged,
            f"batch {batch_id} was not published; correct the data or the suite, and run it again; or let it"
            f" through with `sluice quality release {self.stream.name}`",
        )

    def _gate(self, state: Literal["open", "blocked", "failed"]) -> GateState:
        record = self.record
        return GateState(
            state=state,
            run_id=record.run_id,
            generation=record.generation,
            since=self.clock(),
            carried=carried_runs(self.found, record.run_id),
            columns=dict(self.frame.dtypes),
        )

    def _is_released(self, record: RunRecord, *, is_last: bool) -> bool:
        """Whether the run only fails for a batch that somebody has let through."""
        if self.released is None:
            return False
        rereads = self._reread(record.batches, without=self.released.batch_id)
        return self._but_released(is_last=is_last, rereads=rereads).verdict != "fail"

    def _reread(self, batches: Sequence[BatchRecord], *, without: int | None = None) -> list[CheckResult]:
        read = [batch for batch in together(self.earlier, batches) if batch.batch_id != without]
        return self._written.reread(read)

    def _but_released(self, *, is_last: bool, rereads: Sequence[CheckResult] = ()) -> Judgement:
        """The verdict on what nobody has let through."""
        if self.released is None:
            return self.judged or Judgement("pass", (), None, {})
        return self._judge(is_last=is_last, rereads=rereads, without=self.released.batch_id)

    def _judge(self, *, is_last: bool, rereads: Sequence[CheckResult] = (), without: int | None = None) -> Judgement:
        measured = [self._values[batch_id] for batch_id in sorted(self._values) if batch_id != without]
        batches = counted(measured, self.stream.output_mode)
        return judge_run(self.plan, batches, self._history(), now=self.clock(), is_last=is_last, rereads=rereads)

    def _history(self) -> list[dict[str, float]]:
        """The numbers of former runs, oldest first; read once, and only when a rule needs them."""
        if self._former is None:
            self._former = former_runs(self.home, self.record.run_id, self.plan)
        return self._former

    def _failed(self, judged: Judgement, remedy: str) -> QualityFailedError:
        return quality_failed(judged, self.plan.suite, remedy)

    def _quarantine(self, batch_id: int) -> StagingSink | None:
        has_begun = self.begun is not None and self.begun.batch_id == batch_id
        return self.stream.quarantine_table if self.plan.quarantined is not None or has_begun else None

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
        if audit is not None and self.plan.removals:
            quarantined = audit.quarantined or "false"
            taken = {"quarantine": quarantined, "drop": f"{audit.removed or 'false'} AND NOT {quarantined}"}
            names = self.plan.removals.items()
            counts = [functions.expr(f"count_if({taken[policy]})").alias(name) for policy, name in names]
            found |= frame.agg(*counts).collect()[0].asDict()
        return found

    def _observing(self, frame: DataFrame) -> tuple[Any, DataFrame]:
        if self.choice.measured == "pass":
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


def prepare_audit(
    preparation: Preparation, seen: Survey, query: Query, plan: Plan, record: RunRecord, *, lease: Lease
) -> Audit | None:
    """The audit of a run that is to begin; None for a stream without a suite.

    Raises:
        DeclarationError: The suite is wrong, or does not fit the result or the sink.
        RefusedError: A file of the home is damaged.
    """
    project, stream, home = preparation.project, preparation.request.stream, preparation.home
    suite = declared_suite(project, stream, storage=home.storage)
    if suite is None or record.query_id is None:
        return None
    compiled = fit_suite(suite, stream, query.frame, storage=home.storage)
    found = gate_to_go_on_with(read_gate(home), record.run_id)
    choice = plan.quality or choose_gate(project, stream, suite, plan.batches, storage=home.storage)
    begun = _begun(preparation, plan, record)
    if begun is not None and choice.gate != "cache":
        choice = replace(choice, gate="cache", measured="pass", reason=f"batch {begun.batch_id} is split already")
    is_planned = plan.batches and plan.strategy == "exact"
    emits_later = _EMITS_LATER in plan_reader(query.frame.sparkSession).analysed_text(query.frame)
    return Audit(
        project=project,
        stream=stream,
        home=home,
        plan=compiled,
        choice=choice,
        frame=query.frame,
        query_id=record.query_id,
        record=record,
        clock=preparation.clock,
        lease=lease,
        last_batch=plan.batches[-1].batch_id if is_planned and not emits_later else None,
        found=found,
        earlier=preparation.done_by(carried_runs(found, record.run_id), seen),
        begun=begun,
    )


def _begun(preparation: Preparation, plan: Plan, record: RunRecord) -> BatchAudit | None:
    """The audit of a batch that is to run again, and that the quarantine holds: whatever the suite says today."""
    table, home = preparation.request.stream.quarantine_table, preparation.home
    for batch in plan.batches:
        audit = read_audit(home, record.generation, batch.batch_id) if batch.kind == "uncommitted" else None
        if audit is None or audit.quarantined is None or table is None:
            continue
        if table.state(record.query_id, storage=home.storage).holds(batch.batch_id):
            return audit
    return None
