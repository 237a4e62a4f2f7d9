"""Rows that wait in the home until tables have them: written whole, by Spark, and read as they were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.gate.decided_batch import staged_files
from sluice.home import StreamHome
from sluice.locations import join, spark_location
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_READ_ALL = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Whatever the session says: a staged file that is gone must not go unseen."""


def row_of(frame: DataFrame) -> Column:
    """A row of a frame as a struct."""
    from pyspark.sql import functions

    return functions.expr(f"struct({', '.join(map(identifier, frame.columns))})")


def write_staged_rows(rows: DataFrame, home: StreamHome, generation: int, folder: str) -> dict[str, int]:
    """Write rows into a folder of what is staged, in place of what is there; gives its files, with their sizes."""
    place = join(home.staged_folder(generation), folder)
    rows.write.mode("overwrite").parquet(spark_location(place))
    home.storage.make_durable(place)
    return staged_files(home, place)


def read_staged_rows(
    session: SparkSession, home: StreamHome, generation: int, folder: str, schema: StructType
) -> DataFrame:
    """The rows of such a folder, with the columns that they were written with."""
    location = spark_location(join(home.staged_folder(generation), folder))
    return session.read.options(**_READ_ALL).schema(schema).parquet(location)
