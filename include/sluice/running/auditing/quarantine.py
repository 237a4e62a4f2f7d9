"""The quarantine: a Delta table of rows that failed, with why, and the run and batch that put them there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.delta_table import load_table, open_log, spark_columns
from sluice.errors import DeclarationError
from sluice.quality.compile import Check, QualityPlan
from sluice.quality.sql_text import identifier, string_literal
from sluice.storage import Storage
from sluice.stream import Replacement, StagingSink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FAILED, RUN, BATCH = "_failed_expectations", "_run_id", "_batch_id"
"""The columns that a quarantine has beyond the row's own."""
RELEASE = "_release_id"
"""The column that claims a row for a release; a quarantine has it from its first release on."""
_OURS = ((FAILED, "array<string>"), (RUN, "string"), (BATCH, "bigint"))


def quarantined_rows(frame: DataFrame, plan: QualityPlan, condition: str, run_id: str, batch_id: int) -> DataFrame:
    """The rows that go to the quarantine, with the expectations that each one fails."""
    rows = frame.where(condition).withColumn(FAILED, failed_expectations(plan))
    return rows.selectExpr(*map(identifier, frame.columns), *quarantine_columns(FAILED, run_id, batch_id))


def failed_expectations(plan: QualityPlan) -> Column:
    """The expectations that a row fails, as a quarantine names them."""
    from pyspark.sql import functions

    failed = [
        functions.when(functions.expr(f"coalesce({check.unexpected}, false)"), functions.lit(describe(check)))
        for check in plan.row_checks("warn", "drop", "quarantine", "fail")
    ]
    return functions.array_compact(functions.array(*failed)).cast("array<string>")


def quarantine_columns(failed: str, run_id: str, batch_id: int) -> list[str]:
    """The columns that a quarantine has beyond the row's own, in SQL: why, from a column, and who put it there."""
    return [f"`{failed}` AS {FAILED}", f"{string_literal(run_id)} AS {RUN}", f"{batch_id}L AS {BATCH}"]


def kept_rows(frame: DataFrame, removed: str | None) -> DataFrame:
    """The rows that stay when those go that `drop` and `quarantine` take away."""
    return frame if removed is None else frame.where(f"NOT {removed}")


def describe(check: Check) -> str:
    """An expectation as a quarantine names it: its type and its columns."""
    return f"{check.expectation.type}({', '.join(column.name for column in check.columns)})"


def is_quarantine(table: StagingSink, *, storage: Storage) -> bool:
    """Whether there is a quarantine at its place.

    Raises:
        StorageError: The table can't be read.
    """
    if open_log(table.location or "", storage=storage) is None:
        return False
    found = spark_columns(load_table(table.location or "", storage=storage))
    return all(found.get(name) == kind for name, kind in _OURS)


def replace_own(table: StagingSink, rows: DataFrame, run_id: str, application: str, attempt: int) -> None:
    """Let the rows of a run's attempt be the only ones that this run has put into a quarantine."""
    table.replace_where(rows, f"{RUN} = '{run_id}'", application=application, version=attempt)


def remove_others(
    table: StagingSink, session: SparkSession, wanted: Replacement, run_id: str, batch_id: int, *, storage: Storage
) -> None:
    """Take what a run's own rows stand for out of a quarantine: the interval's rows of batches up to one."""
    kinds = spark_columns(load_table(table.location or "", storage=storage))
    if wanted.column not in kinds:
        return
    interval = wanted.interval.condition(wanted.column, kinds[wanted.column])
    nothing = table.read_versions(session, [], storage=storage)
    condition = f"{interval} AND {BATCH} <= {batch_id} AND {RUN} != '{run_id}'"
    table.replace_where(nothing, condition, application=settled_application(wanted.application), version=wanted.attempt)


def settled_application(application: str) -> str:
    """What names, in the quarantine's log, that a backfill is done with it."""
    return f"{application}-settled"


def check_quarantine(table: StagingSink, columns: Sequence[tuple[str, str]], *, storage: Storage) -> None:
    """Make sure that a quarantine is one of this stream's, or that there is none yet.

    Args:
        table: The quarantine.
        columns: Names and types of the result, as `DataFrame.dtypes` has them.
        storage: Where it is.

    Raises:
        DeclarationError: The result has a column of ours, or the table has other columns.
        StorageError: The table can't be read.
    """
    if taken := {FAILED, RUN, BATCH, RELEASE}.intersection(name for name, _ in columns):
        raise DeclarationError(
            f"the result has a column `{min(taken)}`, which the quarantine needs for itself",
            where=table.location,
            remedy="call it something else in the transform",
        )
    if open_log(table.location or "", storage=storage) is None:
        return
    own = "give the quarantine a table of its own: `Stream(quarantine=sinks.delta(PATH))`"
    found = {
        name.casefold(): kind for name, kind in spark_columns(load_table(table.location or "", storage=storage)).items()
    }
    for name, kind in (*_OURS, *columns):
        there = found.get(name.casefold())
        if there is None and name in dict(_OURS):
            raise DeclarationError(
                f"the table is no quarantine: it has no column `{name}`", where=table.location, remedy=own
            )
        if there is None and not table.takes_new_columns:
            raise DeclarationError(
                f"the quarantine has no column `{name}`, which the result has",
                where=table.location,
                remedy="let it take new columns: `Stream(quarantine=sinks.delta(PATH, merge_schema=True))`",
            )
        if there is not None and there != kind:
            raise DeclarationError(
                f"`{name}` is {there} in the quarantine, and {kind} in the result", where=table.location, remedy=own
            )
