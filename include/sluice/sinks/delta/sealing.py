"""Seals the transactions of a writer that may stand still just before its commit.

Delta passes over a write whose transaction is not newer than the one that its log has of the same application, and lets
a commit fail beside which another one of that application was made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sluice.delta_log.table import find_table, last_transaction, transaction_of
from sluice.locations import spark_location
from sluice.sinks.delta.table_rules import rule_for_spark
from sluice.storage import Storage
from sluice.storage_failures import library_call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def seal(
    location: str,
    application: str,
    number: int,
    session: Callable[[], SparkSession],
    *,
    after: int | None,
    storage: Storage,
) -> bool:
    """See `SplittingSink.seal`."""
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    table = find_table(location, storage=storage)
    if table is None:
        return True
    last = last_transaction(table, location, application, storage=storage)
    if last is not None and last >= number:
        return True
    if last != after:
        return False
    if rule_for_spark(table) is not None:
        _seal_by_spark(location, application, number, session())
        return True
    made = CommitProperties(app_transactions=[transaction_of(application, number)])
    try:
        with library_call("the Delta table could not be sealed", location, passing=CommitFailedError):
            table.create_write_transaction(
                [],
                "append",
                table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=made,
            )
    except CommitFailedError:
        # The application has written at this very moment.
        return False
    return True


def _seal_by_spark(location: str, application: str, number: int, session: SparkSession) -> None:
    """Delta lets one of the two fail where the application writes at this very moment."""
    nothing = session.read.format("delta").load(spark_location(location)).limit(0)
    writer = nothing.write.format("delta").mode("append").option("txnAppId", application)
    writer.option("txnVersion", number).save(spark_location(location))
