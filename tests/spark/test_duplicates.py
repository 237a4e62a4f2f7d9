"""Whether the keys of dropped duplicates tell the interval column, by the plans that Spark makes of real queries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.spark.duplicates import find_dropped
from sluice.spark.query import plan_reader
from sluice.spark_setting import spark_setting

pytestmark = pytest.mark.spark

Transform = Callable[[DataFrame], DataFrame]


def timed(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("timestamp", "2 days")


def dated(rows: DataFrame) -> DataFrame:
    return rows.withColumn("day", F.to_date("timestamp"))


def wide(rows: DataFrame) -> DataFrame:
    """More columns than Spark shows of a plan by default."""
    return dated(rows).select("*", *(F.lit(n).alias(f"c{n}") for n in range(40)))


def hours(rows: DataFrame) -> DataFrame:
    windows = rows.groupBy(F.window("timestamp", "1 hour")).agg(F.count("*").alias("n"))
    return windows.select(F.to_date("window.start").alias("day"), "n")


def static(rows: DataFrame) -> DataFrame:
    return rows.sparkSession.range(3).dropDuplicates(["id"]).withColumnRenamed("id", "value")


def by_text(rows: DataFrame, at: str) -> DataFrame:
    """A time's text is a key, and the time is not."""
    texts = rows.withColumn("text", F.col("timestamp").cast("string")).withColumn("at", F.expr(at))
    return texts.withColumn("day", F.to_date("at")).dropDuplicates(["value", "text"])


TELL: dict[str, Transform] = {
    "no duplicates": dated,
    "the column": lambda rows: dated(rows).dropDuplicates(["value", "day"]),
    "all columns": lambda rows: dated(rows).distinct(),
    "all of many columns": lambda rows: wide(rows).distinct(),
    "within the watermark": lambda rows: dated(timed(rows)).dropDuplicatesWithinWatermark(["day"]),
    "under another name": lambda rows: (
        rows.withColumn("d", F.to_date("timestamp")).dropDuplicates(["d"]).select(F.col("d").alias("day"))
    ),
    "what it is made of, later": lambda rows: dated(timed(rows).dropDuplicates(["timestamp"])),
    "what it is made of, in a window": lambda rows: hours(timed(rows).dropDuplicatesWithinWatermark(["timestamp"])),
    "both sides of a union": lambda rows: (once := dated(rows).dropDuplicates(["day"])).union(once),
    "under a union": lambda rows: dated(rows.unionByName(rows).dropDuplicates(["value", "timestamp"])),
    "a static table's": lambda rows: dated(rows).join(static(rows), "value"),
    "the date of a time that is cast from a key": lambda rows: by_text(rows, "timestamp(text)"),
    "beside brackets in a text": lambda rows: (
        dated(rows).withColumn("a", F.concat(F.lit("(, ["), F.col("value").cast("string"))).dropDuplicates(["day", "a"])
    ),
}
DO_NOT: dict[str, Transform] = {
    "others": lambda rows: dated(rows).dropDuplicates(["value"]),
    "within the watermark": lambda rows: dated(timed(rows)).dropDuplicatesWithinWatermark(["value"]),
    "a part of what it is made of": lambda rows: rows.dropDuplicates(["value"]).select(
        F.date_add(F.to_date("timestamp"), F.col("value").cast("int")).alias("day")
    ),
    "what is made of it": lambda rows: dated(rows).withColumn("year", F.year("day")).dropDuplicates(["year"]),
    "others, and then the column": lambda rows: dated(rows).dropDuplicates(["value"]).dropDuplicates(["day"]),
    "the second side of a union": lambda rows: dated(rows).union(dated(rows).dropDuplicates(["value"])),
    "the date of another time": lambda rows: by_text(
        rows, "timestamp(text) + make_interval(0, 0, 0, cast(value AS int))"
    ),
    "the date of a time that is another by chance": lambda rows: by_text(rows, "timestamp_seconds(rand() * value)"),
    "the date of the other time of a union": lambda rows: (
        by_text(rows, "timestamp(text)")
        .drop("day")
        .union(by_text(rows, "timestamp_seconds(value)").drop("day"))
        .withColumn("day", F.to_date("at"))
        .dropDuplicates(["value", "text"])
    ),
    "others of many columns": lambda rows: wide(rows).dropDuplicates([f"c{n}" for n in range(40)]),
    "another column of that name": lambda rows: dated(
        rows.withColumn("day", F.lit(1)).dropDuplicates(["day", "value"]).drop("day")
    ),
}


@pytest.mark.parametrize("transform", TELL.values(), ids=TELL)
def test_keys_that_tell(spark: SparkSession, transform: Transform) -> None:
    """One row of a key is in the same interval as any other."""
    frame = transform(spark.readStream.format("rate").load())
    assert find_dropped(frame, "day", plan_reader(spark)).across is None


@pytest.mark.parametrize("transform", DO_NOT.values(), ids=DO_NOT)
def test_keys_that_do_not_tell(spark: SparkSession, transform: Transform) -> None:
    """The operator is named, with its keys."""
    frame = transform(spark.readStream.format("rate").load())
    assert (find_dropped(frame, "day", plan_reader(spark)).across or "").startswith("Deduplicate")


def once(rows: DataFrame, *keys: str) -> DataFrame:
    return rows.dropDuplicatesWithinWatermark(["value", *keys])


IN_TIME: dict[str, Transform] = {
    "without a watermark": lambda rows: dated(rows).dropDuplicates(["value", "day"]),
    "the event time among the keys": lambda rows: once(timed(rows), "timestamp").withColumn("day", F.col("value")),
    "the event time": lambda rows: once(timed(rows)).withColumnRenamed("timestamp", "day"),
    "its date, before": lambda rows: once(timed(dated(rows)), "day"),
    "its date, in between": lambda rows: once(dated(timed(rows)), "day"),
    "its date, afterwards": lambda rows: dated(once(timed(rows))),
    "its date by a cast, renamed": lambda rows: once(
        timed(rows.withColumn("d", F.col("timestamp").cast("date"))), "d"
    ).select(F.col("d").alias("day")),
    "of a time that is renamed": lambda rows: once(
        dated(rows).withColumnRenamed("timestamp", "at").withWatermark("at", "1 day"), "day"
    ),
}
BEYOND_TIME: dict[str, Transform] = {
    "another column": lambda rows: once(timed(rows).withColumn("day", F.col("value")), "day"),
    "a date of another time": lambda rows: once(
        timed(rows.withColumn("day", F.to_date(F.timestamp_seconds("value")))), "day"
    ),
    "a later day": lambda rows: once(timed(dated(rows)), "day").withColumn("day", F.date_add("day", 1)),
    "a month": lambda rows: once(timed(rows).withColumn("day", F.trunc("timestamp", "MM")), "day"),
    "keys of no time": lambda rows: timed(rows).withColumn("day", F.col("value")).dropDuplicates(["value", "day"]),
    "the other side of a union": lambda rows: once(timed(dated(rows).union(dated(rows))), "day"),
}


@pytest.mark.parametrize("transform", IN_TIME.values(), ids=IN_TIME)
def test_keys_that_are_late_for_good(spark: SparkSession, transform: Transform) -> None:
    """A key that came too late does not come in time, once the watermark has passed its interval."""
    frame = transform(spark.readStream.format("rate").load())
    assert find_dropped(frame, "day", plan_reader(spark)).timeless is None


@pytest.mark.parametrize("transform", BEYOND_TIME.values(), ids=BEYOND_TIME)
def test_keys_that_may_come_again(spark: SparkSession, transform: Transform) -> None:
    """The operator is named, with its keys."""
    frame = transform(spark.readStream.format("rate").load())
    assert (find_dropped(frame, "day", plan_reader(spark)).timeless or "").startswith("Deduplicate")


def test_a_date_elsewhere(spark: SparkSession) -> None:
    """Intervals begin at midnight in UTC; dates of another zone do not."""
    with spark_setting(spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
        frame = once(timed(dated(spark.readStream.format("rate").load())), "day")
        assert find_dropped(frame, "day", plan_reader(spark)).timeless is not None


def test_a_column_that_is_not_traced(spark: SparkSession) -> None:
    """What a function of Python makes of the keys counts as unknown."""
    day = F.udf(lambda moment: moment.date(), "date")
    frame = spark.readStream.format("rate").load().dropDuplicates(["timestamp"]).withColumn("day", day("timestamp"))
    assert find_dropped(frame, "day", plan_reader(spark)).across is not None


def test_the_session_stays_as_it_is(spark: SparkSession) -> None:
    """To see all of a plan, a setting is changed for a moment."""
    before = spark.conf.get("spark.sql.debug.maxToStringFields")
    find_dropped(dated(spark.readStream.format("rate").load()), "day", plan_reader(spark))
    assert spark.conf.get("spark.sql.debug.maxToStringFields") == before
