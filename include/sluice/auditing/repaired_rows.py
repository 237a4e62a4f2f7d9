"""Which rows of a quarantine a release may send: those that pass by now, of done batches, as they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.auditing.quarantine import BATCH, OURS, RETURN
from sluice.checkpoint.reader import read_checkpoint
from sluice.errors import DeclarationError
from sluice.home import StreamHome
from sluice.quality.compile import compile_suite
from sluice.quality.suite import Suite
from sluice.sinks.splitting import SplittingSink
from sluice.spark.shown_error import spark_message
from sluice.sql_text import any_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def passing(rows: DataFrame, suite: Suite) -> Column:
    """The rows of a quarantine that a suite would let into the sink, as a condition of Spark's.

    Raises:
        DeclarationError: The suite does not fit the columns.
    """
    from pyspark.sql import functions

    columns = [(name, kind) for name, kind in rows.dtypes if name not in OURS]
    plan = compile_suite(suite, dict(columns))
    failing = [
        check.unexpected
        for check in plan.row_checks("drop", "quarantine", "fail")
        if check.unexpected is not None and (check.expectation.policy != "fail" or check.expectation.mostly == 1.0)
    ]
    if not failing:
        return functions.lit(True)  # noqa: FBT003 - a literal of Spark's
    return functions.expr(f"NOT coalesce({any_of(failing)}, false)")


def of_done_batches(home: StreamHome) -> Column:
    """The rows of batches that are committed.

    Of one that has yet to go into the sink, a backfill of its interval knows nothing: it would take out of the sink
    what a release has put there.

    Raises:
        StorageError: The checkpoint can't be read.
    """
    from pyspark.sql import functions

    checkpoint = home.checkpoint_location(home.current_generation())
    committed = read_checkpoint(checkpoint, storage=home.storage).committed_id
    return functions.col(BATCH) <= (-1 if committed is None else committed)


def asked(where: str | None) -> Column:
    """The rows that meet a condition in Spark SQL; all of them for None."""
    from pyspark.sql import functions

    return functions.expr("true" if where is None else where)


def check_condition(table: SplittingSink, session: SparkSession, where: str | None) -> None:
    """Let Spark and Delta say whether rows can be claimed by a condition: an UPDATE takes less than a query.

    Raises:
        DeclarationError: They can't.
    """
    from pyspark.sql import functions

    if where is None:
        return
    try:
        none = asked(where) & functions.lit(False)  # noqa: FBT003 - a literal of Spark's
        table.update_rows(session, none, {RETURN: functions.col(RETURN)})
    except Exception as exc:
        raise DeclarationError(
            f"the condition is wrong: {spark_message(exc)}",
            where="--where",
            remedy="give one over the quarantine's columns, in Spark SQL: `dep_delay < 1440`",
        ) from exc
