"""Fits a suite to the result of a stream's transform and to its sink, before a batch runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.auditing.quarantine import check_quarantine
from sluice.auditing.written_rows import measures
from sluice.errors import DeclarationError
from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.suite import Suite
from sluice.sinks.contract import VersionedSink
from sluice.spark.shown_error import spark_message
from sluice.storage import Storage
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fit_suite(suite: Suite, stream: Stream, frame: DataFrame, *, storage: Storage) -> QualityPlan:
    """Compile a suite for the result of a transform, and let Spark analyse what is measured. Runs no job.

    Raises:
        DeclarationError: It does not fit the result, the sink or the quarantine.
    """
    plan = compile_suite(suite, dict(frame.dtypes), sample=suite.sample)
    _refuse_rereads(plan, stream)
    if plan.quarantined is not None and stream.quarantine_table is not None:
        check_quarantine(stream.quarantine_table, frame, storage=storage)
    try:
        _ = frame.agg(*measures(plan)).schema
    except Exception as exc:
        raise DeclarationError(
            f"Spark does not take what the suite measures: {spark_message(exc)}",
            where=suite.source,
            remedy="correct the expectation, or the transform",
        ) from exc
    return plan


def _refuse_rereads(plan: QualityPlan, stream: Stream) -> None:
    """Make sure that the sink's rows can be read again where an expectation needs it.

    Raises:
        DeclarationError: They can't.
    """
    if plan.rereads and not isinstance(stream.sink, VersionedSink):
        raise DeclarationError(
            f"`{plan.rereads[0].type}` reads again what the run wrote, which {stream.sink.named} can't tell",
            where=plan.rereads[0].place,
            remedy="use a Delta sink, or remove it from this suite",
        )
