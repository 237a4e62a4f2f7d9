"""One `MERGE` into a Delta table, which bears whose batch it is in its own commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING
from uuid import uuid4

from sluice.locations import spark_location
from sluice.sinks.contract import SinkBatch
from sluice.spark_setting import spark_setting
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APPLICATION, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
"""By these, a `MERGE` leaves the transaction in its commit that an append leaves by options of the writer; Delta passes
over one whose transaction the table has."""
TABLE, ROWS = "t", "s"
"""What the table and the rows are called in a condition."""


def merge(
    rows: DataFrame,
    location: str,
    condition: str,
    clauses: Sequence[str],
    *,
    batch: SinkBatch | None = None,
) -> None:
    """Merge rows into a table, in one commit.

    Args:
        rows: What is merged, as `s`; may be read more than once.
        location: The table, as `t`.
        condition: Which rows of the table one of these finds.
        clauses: What becomes of them: `WHEN ... THEN ...`.
        batch: Whose rows they are, if the table is to know it by that: Delta passes over one that it has.
    """
    session, view = rows.sparkSession, f"sluice_{uuid4().hex}"
    table = f"delta.{identifier(spark_location(location))} AS {TABLE}"
    text = " ".join([f"MERGE INTO {table} USING {view} AS {ROWS} ON {condition}", *clauses])
    rows.createOrReplaceTempView(view)
    try:
        with _transaction(session, batch) if batch is not None else nullcontext():
            session.sql(text)
    finally:
        session.catalog.dropTempView(view)


@contextmanager
def _transaction(session: SparkSession, batch: SinkBatch) -> Iterator[None]:
    """Let what changes a Delta table meanwhile say in its commit whose it is."""
    application, version = batch.query_id, str(batch.batch_id)
    with spark_setting(session, _APPLICATION, application), spark_setting(session, _VERSION, version):
        yield


def same_keys(keys: Sequence[str]) -> str:
    """That a row of the table has the keys of a merged one, of which none is null."""
    return " AND ".join(f"{of_table(key)} = {of_rows(key)}" for key in keys)


def update(columns: Sequence[str], **others: str) -> str:
    """Columns of the table become those of the merged row, and others what is told of each."""
    told = {name: of_rows(name) for name in columns} | others
    return f"UPDATE SET {', '.join(f'{identifier(name)} = {value}' for name, value in told.items())}"


def insert(columns: Sequence[str], **others: str) -> str:
    """The merged row becomes one of the table, with other columns as it is told."""
    told = {name: of_rows(name) for name in columns} | others
    return f"INSERT ({', '.join(map(identifier, told))}) VALUES ({', '.join(told.values())})"  # noqa: S608 - quoted, every one


def of_table(column: str) -> str:
    """A column of the table, in a condition."""
    return f"{TABLE}.{identifier(column)}"


def of_rows(column: str) -> str:
    """A column of the merged row."""
    return f"{ROWS}.{identifier(column)}"
