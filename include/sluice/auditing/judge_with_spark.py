"""Judges an earlier run that died unjudged: with Spark, before this run writes a row beside its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from sluice.auditing.written_rows import WrittenRows
from sluice.errors import BatchFailedError, HeldError
from sluice.gate.audit_record import QUALITY_METRICS, is_measured, with_columns, with_measures
from sluice.gate.unjudged_runs import held_by, judge_anew, settle
from sluice.home import StreamHome
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.planning.survey import Survey
from sluice.planning.verdict import unjudged_run
from sluice.quality.compile import compile_suite
from sluice.quality.reread import not_measured
from sluice.quality.results import CheckResult
from sluice.runs.record import BatchRecord
from sluice.spark.query import Query


def settle_with_spark(declared: CheckedDeclaration, home: StreamHome, seen: Survey, query: Query, run_id: str) -> None:
    """Judge what another run wrote and nobody could judge without Spark; for who has the lease.

    What its driver did not live to measure, or to read again, is read from the sink. What can't be read fails.

    Args:
        declared: The declaration.
        home: The stream's folder in the home.
        seen: What this run has seen of the checkpoint.
        query: This run's; a run that died before it was audited left no columns of its own.
        run_id: This run, which judges its own rows when they are all there.

    Raises:
        HeldError: It has failed, and the stream is held.
        DeclarationError: The suite is wrong.
        StorageError: The sink, or a file of the home, can't be read now.
    """
    stream = seen.stream
    unjudged = unjudged_run(home, seen, declared)
    if unjudged is None or unjudged.judged is not None or unjudged.record.run_id == run_id:
        return
    suite = declared.suite
    if suite is None:
        return
    record = unjudged.record
    columns = record.quality.columns if record.quality is not None else dict(query.frame.dtypes)
    plan = compile_suite(suite, columns, sample=suite.sample)
    written = WrittenRows(stream, query.frame.sparkSession, home.storage, plan, tuple(columns))

    def measured(batch: BatchRecord) -> BatchRecord:
        if is_measured(plan, batch.observed.get(QUALITY_METRICS)):
            return batch
        try:
            values = written.measure(batch)
        except BatchFailedError:
            values = None
        return with_measures(batch, values)

    def reread(batches: Sequence[BatchRecord]) -> list[CheckResult]:
        try:
            return written.reread(batches)
        except BatchFailedError as exc:
            return not_measured(plan, str(exc))

    record = msgspec.structs.replace(
        with_columns(record, suite.name, columns), batches=tuple(map(measured, record.batches))
    )
    unjudged = replace(unjudged, record=record, earlier=tuple(map(measured, unjudged.earlier)))
    judged = judge_anew(unjudged, plan, reread, stream=stream, home=home)
    settle(home, judged)
    if judged.is_held:
        raise HeldError(held_by(judged, stream.name))
