"""One `MERGE` into a Delta table, which bears whose batch it is in its own commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from sluice.locations import spark_location
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
    application: str,
    version: int,
    evolves: bool = False,
) -> None:
    """Merge rows into a table, in one commit.

    Args:
        rows: What is merged, as `s`; may be read more than once.
        location: The table, as `t`.
        condition: Which rows of the table one of these finds.
        clauses: What becomes of them: `WHEN ... THEN ...`.
        application: Names who merges in the table's log.
        version: As the application numbers it.
        evolves: Whether columns may be added to the table.
    """
    session, view = rows.sparkSession, f"sluice_{uuid4().hex}"
    how = "MERGE WITH SCHEMA EVOLUTION INTO" if evolves else "MERGE INTO"
    table = f"delta.{identifier(spark_location(location))} AS {TABLE}"
    text = " ".join([f"{how} {table} USING {view} AS {ROWS} ON {condition}", *clauses])
    rows.createOrReplaceTempView(view)
    try:
        with transaction(session, application, version):
            session.sql(text)
    finally:
        session.catalog.dropTempView(view)


@contextmanager
def transaction(session: SparkSession, application: str, version: int) -> Iterator[None]:
    """Let what changes a Delta table meanwhile say in its commit whose it is."""
    with spark_setting(session, _APPLICATION, application), spark_setting(session, _VERSION, str(version)):
        yield


def same_keys(keys: Sequence[str]) -> str:
    """That a row of the table has the keys of a merged one, of which none is null."""
    return " AND ".join(f"{_of_table(key)} = {_of_rows(key)}" for key in keys)


def update(columns: Sequence[str]) -> str:
    """Columns of the table become those of the merged row."""
    # Not as `t.column`: a column that the merge adds is none of the table yet.
    return f"UPDATE SET {', '.join(f'{identifier(name)} = {_of_rows(name)}' for name in columns)}"


def insert(columns: Sequence[str]) -> str:
    """The merged row becomes one of the table."""
    names, values = ", ".join(map(identifier, columns)), ", ".join(map(_of_rows, columns))
    return f"INSERT ({names}) VALUES ({values})"  # noqa: S608 - quoted, every one


def _of_table(column: str) -> str:
    return f"{TABLE}.{identifier(column)}"


def _of_rows(column: str) -> str:
    return f"{ROWS}.{identifier(column)}"
