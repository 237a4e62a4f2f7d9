"""A batch that goes into two tables: staged and decided once, then published from there by whoever goes on.

A driver that dies between the two commits leaves a batch of which one table has its part. The next one publishes the
other part as it was staged, into the tables of then: today's transform, suite and declaration decide nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from sluice.auditing.quarantine import (
    COMPUTED,
    add_column,
    computed_interval,
    failed_expectations,
    quarantine_columns,
)
from sluice.checkpoint.state_store import has_state
from sluice.errors import LeaseLostError, SluiceError
from sluice.gate.decided_batch import (
    Decision,
    check_counts,
    check_staged,
    forget,
    forget_batches_before,
)
from sluice.home import StreamHome
from sluice.project import Project
from sluice.quality.compile import QualityPlan
from sluice.runs.lease import Lease
from sluice.sinks.contract import SinkBatch
from sluice.sinks.splitting import SplittingSink
from sluice.spark.query import run_through, spark_failed
from sluice.spark.staged_rows import read_staged_rows, row_of, write_staged_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROW, _PART, _FAILED = "row", "part", "failed"
"""The columns of a staged file: the row as a struct, the table that it goes to, and the expectations that it fails."""
_BEGUN = (
    "the other table has its part of the batch, so the rest stays as it was decided, whatever is declared now: let the"
    " table take it, by its columns, types and constraints"
)
_NOT_BEGUN = "no table has any row of the batch: the next run decides it anew"
"""What becomes of a batch that a table has refused."""


def stage(
    frame: DataFrame, plan: QualityPlan, home: StreamHome, generation: int, batch: SinkBatch
) -> tuple[str, dict[str, int]]:
    """Write the rows of a batch aside, each with where it goes by a suite; gives the folder's name and its files.

    The rows are computed once: what is measured, and what both tables get, is what was written here.
    """
    from pyspark.sql import functions

    forget_batches_before(home, generation, batch.batch_id)
    part = functions.expr(
        f"CASE WHEN {plan.quarantined or 'false'} THEN 'quarantine' WHEN {plan.removed or 'false'} THEN 'drop'"
        " ELSE 'sink' END"
    )
    rows = frame.select(row_of(frame).alias(_ROW), part.alias(_PART), failed_expectations(plan).alias(_FAILED))
    name = f"{batch.batch_id}-{batch.token}"
    return name, write_staged_rows(rows, home, generation, name)


def staged_rows(session: SparkSession, home: StreamHome, generation: int, folder: str, row_type: str) -> DataFrame:
    """All rows of a staged batch, with the columns of the result."""
    return _read(session, home, generation, folder, row_type).select(f"{_ROW}.*")


def publish(
    decision: Decision, session: SparkSession, project: Project, home: StreamHome, generation: int, *, lease: Lease
) -> None:
    """Write what was staged into the tables that have not got it yet: the quarantine first, if it gets any rows.

    Where one refuses its rows and neither has any, the decision is taken back: corrected, the batch is decided anew.

    Args:
        decision: What was decided.
        session: Spark.
        project: Where the tables are.
        home: The stream's folder in the home.
        generation: The generation of the batch.
        lease: The right to write.

    Raises:
        BatchFailedError: A table refuses the rows, or the decision was taken back by another driver.
        LeaseLostError: Another run goes on with the checkpoint.
        RefusedError: Staged rows are gone.
        StorageError: A table can't be read.
    """
    storage = home.storage
    batch = SinkBatch(decision.query_id, decision.batch_id, "append", lease.token)
    tables = {"quarantine": decision.quarantine.sink(project), "sink": decision.sink.sink(project)}
    # A commit without rows would begin a batch that the sink may refuse.
    order = ("quarantine", "sink") if decision.quarantined else ("sink", "quarantine")
    # Once a table has its part, a decision is not taken back any more.
    check_counts(home, generation, decision)
    states = {part: table.state(decision.query_id, storage=storage) for part, table in tables.items()}
    if states[order[1]].holds(decision.batch_id):
        # The other one has its part as well, also where it has forgotten that.
        return
    for part in order:
        table, state = tables[part], states[part]
        if state.holds(decision.batch_id):
            continue
        if part == "quarantine" and decision.quarantined == 0 and state.exists:
            # A commit without rows is worth its time only to make a table, so that it can be read.
            continue
        check_staged(home, generation, decision)
        rows = _read(session, home, generation, decision.folder, decision.row_type).where(f"{_PART} = '{part}'")
        columns = [f"{_ROW}.*"]
        if part == "quarantine":
            kinds = dict(rows.select(f"{_ROW}.*").dtypes)
            computed = computed_interval(decision.interval_column, kinds, before=(_ROW,))
            if computed is not None:
                add_column(table, session, COMPUTED, storage=storage)
            columns += quarantine_columns(_FAILED, decision.run_id, decision.batch_id, computed)
        try:
            table.write_batch(rows.selectExpr(*columns), batch, load_function=project.load_function, storage=storage)
        except LeaseLostError:
            raise
        except Exception as exc:
            is_begun = any(
                known.state(decision.query_id, storage=storage).holds(decision.batch_id) for known in tables.values()
            )
            if not is_begun:
                lease.check()
                forget(home, generation, decision.batch_id)
            raise _refused(exc, table, is_begun=is_begun) from exc


def _refused(exc: Exception, table: SplittingSink, *, is_begun: bool) -> SluiceError:
    """What to raise where a table does not take its part."""
    if isinstance(exc, SluiceError):
        return exc
    consequence = _BEGUN if is_begun else _NOT_BEGUN
    return table.cause(str(exc)) or spark_failed(exc, where=table.location or "", consequence=consequence)


def go_on_with_state(frame: DataFrame, home: StreamHome, generation: int) -> None:
    """Compute a batch that is decided for its state, where there is one: nothing else needs its rows.

    Raises:
        StorageError: Whether there is one can't be told right now.
    """
    if has_state(home.checkpoint_location(generation), storage=home.storage):
        run_through(frame)


@dataclass
class Followed:
    """A decided batch of a stream that has no suite any more: only its tables have yet to get it."""

    decision: Decision
    home: StreamHome
    generation: int
    project: Project
    lease: Lease

    def write(self, frame: DataFrame, _batch_id: int) -> None:
        """Finish the batch, in the place of the sink's own stream writer."""
        go_on_with_state(frame, self.home, self.generation)
        self.lease.check()
        publish(self.decision, frame.sparkSession, self.project, self.home, self.generation, lease=self.lease)


def _read(session: SparkSession, home: StreamHome, generation: int, folder: str, row_type: str) -> DataFrame:
    from pyspark.sql.types import ArrayType, StringType, StructType

    columns = StructType.fromJson(msgspec.json.decode(row_type))
    schema = StructType().add(_ROW, columns).add(_PART, StringType()).add(_FAILED, ArrayType(StringType()))
    return read_staged_rows(session, home, generation, folder, schema)
