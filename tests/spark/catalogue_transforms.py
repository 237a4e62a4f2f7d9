"""Transforms that Spark refuses, each for another reason: what tests expect of them must not stand beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

NONE, OF_EVENTS = GroupStateTimeout.NoTimeout, GroupStateTimeout.EventTimeTimeout


def timed(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("at", F.timestamp_seconds("id"))


def plain(numbers: DataFrame) -> DataFrame:
    return numbers


def counts(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").count()


def negative_delay(numbers: DataFrame) -> DataFrame:
    return timed(numbers).withWatermark("at", "-1 minute")


def unparsed_delay(numbers: DataFrame) -> DataFrame:
    return timed(numbers).withWatermark("at", "one minute")


def no_time(numbers: DataFrame) -> DataFrame:
    return numbers.withWatermark("id", "1 minute")


def within_no_watermark(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicatesWithinWatermark(["id"])


def two_windows(numbers: DataFrame) -> DataFrame:
    return timed(numbers).groupBy(F.window("at", "1 minute"), F.window("at", "2 minutes")).count()


def long_slide(numbers: DataFrame) -> DataFrame:
    return timed(numbers).groupBy(F.window("at", "1 minute", "2 minutes")).count()


def negative_window(numbers: DataFrame) -> DataFrame:
    return timed(numbers).groupBy(F.window("at", "-1 minute")).count()


def late_start(numbers: DataFrame) -> DataFrame:
    return timed(numbers).groupBy(F.window("at", "1 minute", "1 minute", "2 minutes")).count()


def distinct(numbers: DataFrame) -> DataFrame:
    keyed = timed(numbers).withWatermark("at", "1 minute").groupBy("at")
    return keyed.agg(F.count_distinct("id"))


def of_windows_of_windows(numbers: DataFrame) -> DataFrame:
    inner = timed(numbers).withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute"), "id").count()
    return inner.groupBy(F.window(F.window_time("window"), "5 minutes")).agg(F.sum("count"))


def ordered(numbers: DataFrame) -> DataFrame:
    return numbers.orderBy("id")


def limited(numbers: DataFrame) -> DataFrame:
    return numbers.limit(3)


def looked_at(numbers: DataFrame) -> DataFrame:
    numbers.collect()
    return numbers


def writing(numbers: DataFrame) -> DataFrame:
    numbers.sparkSession.range(3).writeStream.format("noop").start()
    return numbers


def anti(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.join(others.select(F.col("id").alias("other")), F.expr("id = other"), "left_anti")


def outer(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.join(others.select(F.col("id").alias("other")), F.expr("id = other"), "left_outer")


def crossed(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.crossJoin(others.select(F.col("id").alias("other")))


def outer_of_a_table(numbers: DataFrame) -> DataFrame:
    table = numbers.sparkSession.range(3).withColumnRenamed("id", "other")
    return numbers.join(table, F.expr("id = other"), "right_outer")


def _kept(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame({"id": [key[0]]})


def _too_early(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    state.setTimeoutTimestamp(1)
    yield pd.DataFrame({"id": [key[0]]})


def _without_timeouts(
    key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    state.setTimeoutDuration(1000)
    yield pd.DataFrame({"id": [key[0]]})


def kept_in_complete(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").applyInPandasWithState(_kept, "id long", "n long", "complete", NONE)


def kept_in_append(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").applyInPandasWithState(_kept, "id long", "n long", "append", NONE)


def timeouts_without_watermark(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").applyInPandasWithState(_kept, "id long", "n long", "append", OF_EVENTS)


def too_early(numbers: DataFrame) -> DataFrame:
    keyed = timed(numbers).withWatermark("at", "0 seconds").groupBy("id")
    return keyed.applyInPandasWithState(_too_early, "id long", "n long", "append", OF_EVENTS)


def without_timeouts(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").applyInPandasWithState(_without_timeouts, "id long", "n long", "append", NONE)


def fails(frame: DataFrame, batch_id: int) -> None:
    raise ValueError(f"{frame.count()} rows in batch {batch_id}")
