"""What the streams of test_packed_runs.py do: it is copied into their projects."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

HERE = Path(__file__).parent


def plain(rows: DataFrame) -> DataFrame:
    return rows.select("id", "at")


def by_minute(rows: DataFrame) -> DataFrame:
    windows = rows.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute"))
    return windows.count().select(F.col("window.start").alias("minute"), "count")


def first_seen(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"])


def failing(rows: DataFrame) -> DataFrame:
    """It fails in its batch, until somebody mends it."""
    if (HERE / "mended").exists():
        return rows.select("id")
    return rows.select(F.when(F.col("id") >= 0, F.raise_error(F.lit("not yet"))).cast("long").alias("id"))


hour = F.udf(lambda at: at.strftime("%H"), StringType())


def _named(rows: DataFrame, name: str) -> DataFrame:
    """Leave something by every name that a session, or all of Spark, may know; each asks for "the" session."""
    import packed_library

    spark: Any = SparkSession.builder.getOrCreate()
    spark.udf.register("named", lambda _: name, "string")
    spark.sql(f"SELECT '{name}' AS name").createTempView("mine")
    spark.sql(f"SELECT '{name}' AS name").createGlobalTempView("everybody")
    spark.sql(f"SELECT '{name}' AS name").cache().count()
    table = HERE / "tables" / name
    spark.sql(f"CREATE TABLE IF NOT EXISTS known (name STRING) USING parquet LOCATION '{table}'")
    spark.sql(f"INSERT OVERWRITE known VALUES ('{name}')")
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    settings = (
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.ansi.enabled",
    )
    found: list[Column] = [F.lit(spark.conf.get(key)).alias(key.rpartition(".")[2]) for key in settings]
    known = [F.lit(spark.table(table).first()[0]).alias(table.rpartition(".")[2])
             for table in ("mine", "global_temp.everybody", "known")]  # fmt: skip
    queries = F.lit(len(spark.streams.active)).alias("queries")
    return rows.select(
        "id",
        F.expr("named(id)").alias("function"),
        F.date_format("at", "HH").alias("hour"),
        hour("at").alias("python_hour"),
        packed_library.hour("at").alias("library_hour"),
        packed_library.first_name(name).alias("worker"),
        *found,
        *known,
        queries,
    )


def one(rows: DataFrame) -> DataFrame:
    return _named(rows, "one")


def two(rows: DataFrame) -> DataFrame:
    return _named(rows, "two")


def write_or_lose_spark(batch: DataFrame, batch_id: int) -> None:
    """Spark's JVM dies in the middle of a batch, once; the driver lives on."""
    if not (HERE / "died").exists():
        (HERE / "died").touch()
        gateway: Any = batch.sparkSession.sparkContext._gateway
        gateway.proc.kill()
        gateway.proc.wait()
    _write(batch, "fatal", batch_id)


def stopping(rows: DataFrame) -> DataFrame:
    """Somebody stops the command while this one is at its work, once."""
    if not (HERE / "stopped").exists():
        (HERE / "stopped").touch()
        os.kill(os.getpid(), signal.SIGTERM)
    return rows.select("id", "at")


def write_or_die(batch: DataFrame, batch_id: int) -> None:
    """The driver and its JVM die between the plan of a batch and its commit, once."""
    if not (HERE / "killed").exists():
        (HERE / "killed").touch()
        os.killpg(0, signal.SIGKILL)
    _write(batch, "written", batch_id)


def _write(batch: DataFrame, name: str, batch_id: int) -> None:
    batch.write.mode("overwrite").parquet(str(HERE / "out" / name / str(batch_id)))
