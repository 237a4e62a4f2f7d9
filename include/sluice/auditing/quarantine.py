"""The quarantine: a Delta table of rows that failed, with why, and the run and batch that put them there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from sluice.errors import DeclarationError
from sluice.quality.compile import Check, QualityPlan
from sluice.runs.backfill_names import tidied_application
from sluice.sinks.replaceable import Replacement
from sluice.sinks.splitting import SplittingSink
from sluice.sql_text import identifier, string_literal
from sluice.storage import Storage
from sluice.times import epoch_micros

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FAILED, RUN, BATCH = "_failed_expectations", "_run_id", "_batch_id"
"""The columns that a quarantine has beyond the row's own."""
RETURN = "_release_id"
"""The column that claims a row for a release; a quarantine has it from its first release on."""
COMPUTED = "_interval_micros"
"""What the transform gave as the interval column, in microseconds since the epoch: to edit a row does not change it. A
quarantine has it from the first row on that a stream with an `interval_column` put there; null for older rows."""
_ADDED = {RETURN: "STRING", COMPUTED: "BIGINT"}
OURS = (FAILED, RUN, BATCH, *_ADDED)
_OURS = ((FAILED, "array<string>"), (RUN, "string"), (BATCH, "bigint"))
_KINDS = ("date", "timestamp", "timestamp_ntz")
_NO_TIME = "-9223372036854775807L"
"""What stands for no value, in SQL."""
_FIRST_DAY, _LAST_DAY = -719162, 2932896
"""The first and the last day of Python's calendar, in days since the epoch."""


def quarantined_rows(
    frame: DataFrame, plan: QualityPlan, condition: str, run_id: str, batch_id: int, *, interval_column: str | None
) -> DataFrame:
    """The rows that go to the quarantine, with the expectations that each one fails."""
    rows = frame.where(condition).withColumn(FAILED, failed_expectations(plan))
    computed = computed_interval(interval_column, dict(frame.dtypes))
    added = quarantine_columns(FAILED, run_id, batch_id, computed)
    return rows.selectExpr(*map(identifier, frame.columns), *added)


def failed_expectations(plan: QualityPlan) -> Column:
    """The expectations that a row fails, as a quarantine names them."""
    from pyspark.sql import functions

    failed = [
        functions.when(functions.expr(f"coalesce({check.unexpected}, false)"), functions.lit(describe(check)))
        for check in plan.row_checks("warn", "drop", "quarantine", "fail")
    ]
    return functions.array_compact(functions.array(*failed)).cast("array<string>")


def quarantine_columns(failed: str, run_id: str, batch_id: int, computed: str | None) -> list[str]:
    """The columns that a quarantine has beyond the row's own, in SQL.

    Args:
        failed: The column that tells why.
        run_id: The run that puts the rows there.
        batch_id: The batch that they are of.
        computed: The interval column, by `computed_interval`.
    """
    found = [f"`{failed}` AS {FAILED}", f"{string_literal(run_id)} AS {RUN}", f"{batch_id}L AS {BATCH}"]
    return found if computed is None else [*found, f"{computed} AS {COMPUTED}"]


def computed_interval(column: str | None, kinds: Mapping[str, str], *, before: Sequence[str] = ()) -> str | None:
    """What a row's interval column says, in microseconds since the epoch, in SQL; None where there is none.

    Args:
        column: The stream's interval column.
        kinds: The types of the row's columns, by name.
        before: The struct that has the row.
    """
    if column is None or kinds.get(column) not in _KINDS:
        return None
    named = identifier(*before, column)
    by_kind = {
        "date": f"unix_date({named}) * 86400000000L",
        "timestamp": f"unix_micros({named})",
        "timestamp_ntz": f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {named})",
    }
    return f"coalesce({by_kind[kinds[column]]}, {_NO_TIME})"


def is_moved(column: str | None, kinds: Mapping[str, str]) -> str | None:
    """In SQL over a quarantine, whether somebody has edited the interval column of a row; None where nothing tells."""
    now = computed_interval(column, kinds)
    return None if now is None or COMPUTED not in kinds else f"{COMPUTED} != {now}"


def day_columns(column: str | None, kinds: Mapping[str, str]) -> tuple[str, str]:
    """In SQL over a quarantine, the days (UTC) that the transform gave a row, and that it has now, as `was` and `now`.

    Days beyond the calendar's years 1 to 9999 become its first or last one.
    """
    days = []
    for name, micros in (("was", COMPUTED), ("now", computed_interval(column, kinds))):
        day = f"CAST(least(greatest(floor({micros} / 86400000000), {_FIRST_DAY}), {_LAST_DAY}) AS INT)"
        days.append(f"CASE WHEN {micros} != {_NO_TIME} THEN date_from_unix_date({day}) END AS {name}")
    return days[0], days[1]


def kept_rows(frame: DataFrame, removed: str | None) -> DataFrame:
    """The rows that stay when those go that `drop` and `quarantine` take away."""
    return frame if removed is None else frame.where(f"NOT {removed}")


def describe(check: Check) -> str:
    """An expectation as a quarantine names it: its type and its columns."""
    return f"{check.expectation.type}({', '.join(column.name for column in check.columns)})"


def is_quarantine(table: SplittingSink, *, storage: Storage) -> bool:
    """Whether there is a quarantine at its place.

    Raises:
        StorageError: The table can't be read.
    """
    found = table.columns(storage=storage)
    return found is not None and all(found.get(name) == kind for name, kind in _OURS)


def first_batch(table: SplittingSink, session: SparkSession) -> int | None:
    """The first batch of which a quarantine that is there has rows; None when it has none."""
    found: int | None = table.read_rows(session).selectExpr(f"min({BATCH})").collect()[0][0]
    return found


def add_column(table: SplittingSink, session: SparkSession, name: str, *, storage: Storage) -> None:
    """Give a quarantine that is there a column of ours, if it lacks it: `RELEASE` or `COMPUTED`."""
    known = table.columns(storage=storage)
    if known is not None and name not in known:
        table.add_column(session, name, _ADDED[name], storage=storage)


def replace_own(table: SplittingSink, rows: DataFrame, run_id: str, application: str, attempt: int) -> None:
    """Let the rows of a run's attempt be the only ones that this run has put into a quarantine."""
    table.replace_where(rows, f"{RUN} = '{run_id}'", application=application, version=attempt)


def remove_others(
    table: SplittingSink,
    session: SparkSession,
    wanted: Replacement,
    run_ids: Collection[str],
    batch_id: int,
    *,
    check: Callable[[], None],
    storage: Storage,
) -> None:
    """Take what a backfill has computed anew out of a quarantine: the interval's rows of batches up to one.

    A row that somebody has moved into the interval by an edit is not among them: its source has it elsewhere. Nor is
    one that comes later, however long this stands still: runs are named, as they are there while the lease holds.

    Args:
        table: The quarantine.
        session: Spark.
        wanted: What was replaced.
        run_ids: The backfill, and those that have replaced rows after it: their rows stay.
        batch_id: The batch up to which everything was read.
        check: Makes sure that the lease holds.
        storage: Where the table is.
    """
    kinds = table.columns(storage=storage) or {}
    is_known = wanted.column in kinds
    if not is_known and COMPUTED not in kinds:
        return
    interval = wanted.interval.condition(wanted.column, kinds[wanted.column]) if is_known else "false"
    if COMPUTED in kinds:
        start, end = (epoch_micros(moment) for moment in (wanted.interval.start, wanted.interval.end))
        computed = f"{COMPUTED} >= {start} AND {COMPUTED} < {end}"
        interval = f"CASE WHEN {COMPUTED} IS NULL THEN {interval} ELSE {computed} END"
    nothing = table.read_versions(session, [], storage=storage)
    computed_anew = f"{interval} AND {BATCH} <= {batch_id}"
    found = {row[0] for row in table.read_rows(session).where(computed_anew).select(RUN).distinct().collect()}
    check()
    # A table in which nothing is to be removed notes all the same that it is tidy.
    removed = ", ".join(map(string_literal, sorted(found - {*run_ids}))) or "NULL"
    condition = f"{computed_anew} AND {RUN} IN ({removed})"
    table.replace_where(nothing, condition, application=tidied_application(wanted.application), version=wanted.attempt)


def let_quarantine_follow(table: SplittingSink, frame: DataFrame, *, storage: Storage) -> None:
    """Let a quarantine follow a result, as far as it is declared to.

    Raises:
        DeclarationError: It has other columns than the result all the same.
        StorageError: The table can't be read.
    """
    table.let_follow(frame, storage=storage)
    # Whoever else writes into it may have given it a column of the name, and another type, this very moment.
    check_quarantine(table, frame, storage=storage)


def check_quarantine(table: SplittingSink, frame: DataFrame | None = None, *, storage: Storage) -> None:
    """Make sure that a quarantine is one of this stream's, or that there is none yet.

    Args:
        table: The quarantine.
        frame: The result, if its columns are to fit.
        storage: Where it is.

    Raises:
        DeclarationError: The result has a column of ours, or the table has other columns.
        StorageError: The table can't be read.
    """
    if taken := [name for name in (() if frame is None else frame.columns) if name.lower() in OURS]:
        raise DeclarationError(
            f"the result has a column `{min(taken)}`, which the quarantine needs for itself",
            where=table.location,
            remedy="call it something else in the transform",
        )
    quarantine = table.columns(storage=storage)
    if quarantine is None:
        return
    own = "give the quarantine a table of its own: `Stream(quarantine=sinks.delta(PATH))`"
    found = {name.lower(): kind for name, kind in quarantine.items()}
    for name, kind in _OURS:
        if (there := found.get(name)) is None:
            raise DeclarationError(
                f"the table is no quarantine: it has no column `{name}`", where=table.location, remedy=own
            )
        if there != kind:
            raise DeclarationError(
                f"the table is no quarantine: `{name}` is {there} in it, and not {kind}",
                where=table.location,
                remedy=own,
            )
    if frame is not None:
        table.check_same(frame, otherwise=own, storage=storage)
