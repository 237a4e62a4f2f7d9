"""The rows that a run wrote into its sink, read again from there to be measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sluice.errors import BatchFailedError, RefusedError, SluiceError
from sluice.gate.audit_record import counted
from sluice.quality.compile import QualityPlan
from sluice.quality.reread import not_measured, reread
from sluice.quality.results import CheckResult
from sluice.runs.record import BatchRecord
from sluice.sinks.contract import VersionedSink
from sluice.spark.shown_error import spark_message
from sluice.sql_text import identifier
from sluice.storage import Storage
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

T = TypeVar("T")


@dataclass(frozen=True)
class WrittenRows:
    """Reads what a run's batches wrote; what was compacted or deleted since is still there by its versions."""

    stream: Stream
    session: SparkSession
    storage: Storage
    plan: QualityPlan
    columns: tuple[str, ...]
    """The columns of the result; a table may have more."""

    def measure(self, batch: BatchRecord) -> Mapping[str, Any] | None:
        """The measures of one batch; None when its rows can't be read any more, or are not all that came in.

        Raises:
            BatchFailedError: Spark can't read them now.
            StorageError: The table's log can't be read now.
        """
        sink = self.stream.sink
        if self.plan.removed is not None or not isinstance(sink, VersionedSink):
            return None
        if batch.sink_version is None and batch.output_rows:
            return None
        try:
            return self._with_rows(sink, [batch], lambda rows: measure(self.plan, rows))
        except RefusedError:
            return None

    def reread(self, batches: Sequence[BatchRecord]) -> list[CheckResult]:
        """What Great Expectations says of the rows of a run; all fail when they can't be read any more.

        Raises:
            BatchFailedError: Spark can't read them now.
            StorageError: The table's log can't be read now.
        """
        if not self.plan.rereads:
            return []
        sink = self.stream.sink
        if not isinstance(sink, VersionedSink):
            return not_measured(self.plan, f"{sink.named} does not tell what a run wrote")
        lost = [batch.batch_id for batch in batches if batch.sink_version is None and batch.output_rows]
        if lost:
            return not_measured(self.plan, f"the table does not tell any more what batch {lost[0]} wrote")
        try:
            counting = counted(batches, self.stream.output_mode)
            return self._with_rows(sink, counting, lambda rows: reread(self.plan, rows))
        except RefusedError as exc:
            return not_measured(self.plan, str(exc))

    def _with_rows(self, sink: VersionedSink, batches: Sequence[BatchRecord], read: Callable[[DataFrame], T]) -> T:
        versions = [batch.sink_version for batch in batches if batch.sink_version is not None]
        try:
            rows = sink.read_versions(self.session, versions, storage=self.storage)
            return read(rows.select(*map(identifier, self.columns)))
        except SluiceError:
            raise
        except Exception as exc:
            raise BatchFailedError(
                f"what was written could not be read again: {spark_message(exc, is_of_rows=True)}",
                where=sink.location,
                remedy="run it again",
            ) from exc


def measures(plan: QualityPlan) -> list[Column]:
    """What is measured, as columns of one row."""
    from pyspark.sql import functions

    return [functions.expr(measure.sql).alias(measure.name) for measure in plan.measures]


def measure(plan: QualityPlan, rows: DataFrame) -> Mapping[str, Any]:
    """Measure rows by reading them once."""
    row = rows.agg(*measures(plan)).first()
    return row.asDict() if row is not None else {}
