"""Streams that run on a Spark in the tests' process and on a server alike: declared once, imported by both."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources

HELD_SECONDS = 120
"""How long a held row waits at most: longer than the next run takes to end it."""
COMMIT_SECONDS = 6
"""Within which a batch whose rows are no longer held would have committed."""
FOLDER = os.environ.get("SLUICE_TEST_FOLDER", "")
"""Where sinks that are functions leave a trace; a server gets it with the function."""


def observed(a: DataFrame) -> DataFrame:
    return a.observe("quality", F.max("id").alias("largest"), F.count("id").alias("ids"))


def windows(a: DataFrame) -> DataFrame:
    events = a.select("id", F.timestamp_seconds("id").alias("at")).withWatermark("at", "1 second")
    grouped = events.groupBy(F.window("at", "2 seconds")).agg(F.sum("id").alias("total"))
    return grouped.select(F.unix_timestamp("window.start").alias("id"), "total")


def b_then_a(a: DataFrame, b: DataFrame) -> DataFrame:
    return b.union(a)


def a_then_b(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.union(b)


def b_with_a(a: DataFrame, b: DataFrame) -> DataFrame:
    return b.join(a.select("id", "_metadata.file_size"), "id")


def watermarked(frame: DataFrame, name: str, delay: str) -> DataFrame:
    events = frame.select(F.col("id").alias(f"{name}_id"), F.timestamp_seconds("id").alias(f"{name}_at"))
    return events.withWatermark(f"{name}_at", delay)


def a_and_perhaps_b(a: DataFrame, b: DataFrame) -> DataFrame:
    """An outer join of two watermarks."""
    within = "a_id = b_id AND b_at BETWEEN a_at AND a_at + INTERVAL 2 SECONDS"
    joined = watermarked(a, "a", "1 second").join(watermarked(b, "b", "2.5 seconds"), F.expr(within), "left_outer")
    return joined.select(F.col("a_id").alias("id"), "b_id")


def a_twice(a: DataFrame) -> DataFrame:
    return a.union(a.selectExpr("id + 1000 AS id"))


def a_with_a(a: DataFrame) -> DataFrame:
    return a.alias("left").join(a.alias("right"), "id")


def from_a_view(a: DataFrame) -> DataFrame:
    a.createOrReplaceTempView("seen")
    return a.sparkSession.sql("SELECT id FROM seen UNION ALL SELECT id + 1000 FROM seen")


def from_a_table_expression(a: DataFrame) -> DataFrame:
    a.createOrReplaceTempView("seen")
    return a.sparkSession.sql("WITH c AS (SELECT id FROM seen) SELECT id FROM c UNION ALL SELECT id + 1000 FROM c")


def by_id(a: DataFrame) -> DataFrame:
    return a.dropDuplicates(["id"])


def by_text(a: DataFrame) -> DataFrame:
    return a.withColumn("text", F.col("id").cast("string")).dropDuplicates(["text"]).drop("text")


def by_id_as_text(a: DataFrame) -> DataFrame:
    deduped = a.withColumn("id", F.col("id").cast("string")).dropDuplicates(["id"])
    return deduped.select(F.col("id").cast("bigint").alias("id"))


def by_id_mended(a: DataFrame) -> DataFrame:
    return by_id(a.where("id >= 0"))


def slow(a: DataFrame) -> DataFrame:
    """Leaves a trace of each row in its first moment, and takes its time for one that the test holds."""

    def wait(number):  # noqa: ANN001, ANN202 - pyspark takes type hints for those of a pandas function
        begin(number)
        return number

    return a.select(F.udf(wait, "bigint")("id").alias("id"))


def begin(number: int) -> None:
    """Leave the trace `begun-N`. What is held (`held-N`) waits, its first time, for the next query (`built-again`)."""
    begun = Path(FOLDER, f"begun-{number}")
    is_first = not begun.exists()
    begun.touch()
    deadline = time.monotonic() + HELD_SECONDS
    while is_first and Path(FOLDER, f"held-{number}").exists() and time.monotonic() < deadline:
        if Path(FOLDER, "built-again").exists():
            return
        time.sleep(0.05)


def slow_and_patient(a: DataFrame) -> DataFrame:
    """Once a batch has begun, gives it every chance to commit before the query is started again."""
    if Path(FOLDER, "begun-0").exists():
        Path(FOLDER, "built-again").touch()
        commit = Path(FOLDER, "var", "sluice", "s", "generations", "0001", "commits", "0")
        deadline = time.monotonic() + COMMIT_SECONDS
        while not commit.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    return slow(a)


def same(a: DataFrame) -> DataFrame:
    return a


def with_function(a: DataFrame) -> DataFrame:
    """Calls a function of this module in Python's workers, which can't import it."""
    return a.select(F.udf(lambda number: add_ten(number), "bigint")("id").alias("id"))  # noqa: PLW0108


def add_ten(number: int) -> int:
    return number + 10


def losing(a: DataFrame) -> DataFrame:
    """Deletes the file of row 1 once row 0 is read: by then AvailableNow has listed both."""

    def lose(number):  # noqa: ANN001, ANN202 - pyspark takes type hints for those of a pandas function
        if number == 0:
            Path(FOLDER, "a", "0001.json").unlink(missing_ok=True)
        return number

    return a.select(F.udf(lose, "bigint")("id").alias("id"))


def keep(frame: DataFrame, batch_id: int) -> None:
    """Write a line for each call."""
    rows = sorted(row["id"] for row in frame.collect())
    with Path(FOLDER, "calls.txt").open("a") as calls:
        calls.write(f"{batch_id} {rows}\n")


def keep_slowly(frame: DataFrame, batch_id: int) -> None:
    rows = sorted(row["id"] for row in frame.collect())
    begin(batch_id)
    with Path(FOLDER, "calls.txt").open("a") as calls:
        calls.write(f"{batch_id} {rows}\n")


def dated(a: DataFrame) -> DataFrame:
    return a.select("id", F.date_add(F.lit("2026-01-01").cast("date"), (F.col("id") % 3).cast("int")).alias("day"))


def doubled(a: DataFrame) -> DataFrame:
    return dated(a).withColumn("id", F.col("id") * 2)


def doubled_once_each(a: DataFrame) -> DataFrame:
    events = doubled(a).withColumn("at", F.col("day").cast("timestamp")).withWatermark("at", "9 days")
    return events.dropDuplicatesWithinWatermark(["id", "day"]).drop("at")


def doubled_in_a_view(a: DataFrame) -> DataFrame:
    """A server looks the view up whenever it analyses the query."""
    doubled(a).createOrReplaceTempView("seen")
    return a.sparkSession.sql("SELECT * FROM seen").dropDuplicates(["id", "day"])


def sorted_rows(a: DataFrame) -> DataFrame:
    return a.orderBy("id")


def absent_column(a: DataFrame) -> DataFrame:
    return a.select("absent")


def stream_of_its_own(a: DataFrame) -> DataFrame:
    return a.sparkSession.readStream.format("rate").load().select(F.col("value").alias("id"))


def salted_cast(a: DataFrame) -> DataFrame:
    """Can't be computed."""
    return a.select(F.concat(F.lit("hush4canary"), F.col("id") + 7310000).cast("bigint").alias("id"))


def salted_mismatch(a: DataFrame) -> DataFrame:
    """Can't be analysed."""
    salt = os.environ.get("SALT", "hush4canary-of-the-environment")
    return a.select("id", F.lit(salt), F.concat(F.lit("hush4canary"), F.col("id"))).select("idd")


def numbers(folder: str, **options: Any) -> sources.files:
    return sources.files(folder, format="json", schema="id bigint", **{"max_files_per_batch": 1, **options})


def declared(transform: Any, *, two: bool = False, sink: Any = None, **changes: Any) -> Stream:
    return Stream(
        name="s",
        sources={"a": numbers("a"), "b": numbers("b")} if two else {"a": numbers("a")},
        transform=f"{__name__}:{transform.__name__}",
        sink=sink or sinks.delta("out"),
        **changes,
    )


def flagged(a: DataFrame) -> DataFrame:
    return a.withColumn("odd", F.col("id") % 2 == 1)


_BY_DAY = sinks.delta("out", partition_by=["day"])
STREAMS: dict[str, Stream] = {
    "observed": declared(observed),
    "windows": declared(windows),
    "b_then_a": declared(b_then_a, two=True),
    "a_then_b": declared(a_then_b, two=True),
    "b_with_a": declared(b_with_a, two=True, sink=sinks.files("out", format="parquet")),
    "a_and_perhaps_b": declared(a_and_perhaps_b, two=True),
    "a_twice": declared(a_twice),
    "a_with_a": declared(a_with_a),
    "from_a_view": declared(from_a_view),
    "from_a_table_expression": declared(from_a_table_expression),
    "doubled_in_a_view": declared(doubled_in_a_view, sink=_BY_DAY, interval_column="day"),
    "two_watermarks_in_sql": Stream(
        name="s",
        sources={"a": numbers("a"), "b": numbers("b")},
        sql="""
            SELECT l.id, r.id AS other
            FROM stream(a) WATERMARK timestamp_seconds(id) AS left_at DELAY OF INTERVAL 1 SECOND AS l
            LEFT JOIN stream(b) WATERMARK timestamp_seconds(id) AS right_at DELAY OF INTERVAL 1 SECOND AS r
            ON l.id = r.id AND left_at = right_at
        """,
        sink=sinks.delta("out"),
    ),
    "in_sql": Stream(
        name="s",
        sources={"a": numbers("a")},
        sql="WITH c AS (SELECT id FROM stream(a)) SELECT id FROM c UNION ALL SELECT id + 1000 FROM c",
        sink=sinks.delta("out"),
    ),
    "by_id": declared(by_id),
    "by_text": declared(by_text),
    "by_id_as_text": declared(by_id_as_text),
    "by_id_mended": declared(by_id_mended),
    "slow": declared(slow),
    "slow_and_patient": declared(slow_and_patient),
    "with_function": declared(with_function),
    "reread": declared(same, quality="suite.json"),
    "losing": declared(losing),
    "calling": declared(same, sink=sinks.foreach_batch(f"{__name__}:keep")),
    "calling_slowly": declared(same, sink=sinks.foreach_batch(f"{__name__}:keep_slowly")),
    "sorted_rows": declared(sorted_rows),
    "absent_column": declared(absent_column),
    "salted_cast": declared(salted_cast),
    "salted_mismatch": declared(salted_mismatch),
    "stream_of_its_own": declared(stream_of_its_own),
    "dated": declared(dated, sink=_BY_DAY, interval_column="day"),
    "doubled": declared(doubled, sink=_BY_DAY, interval_column="day"),
    "doubled_once_each": declared(doubled_once_each, sink=_BY_DAY, interval_column="day"),
    "undated_doubled_first": declared(dated, interval_column="day"),
    "undated_doubled": declared(doubled, interval_column="day"),
    "checked": declared(flagged, quality="suite.json"),
    "checked_days": declared(doubled, sink=_BY_DAY, interval_column="day", quality="suite.json"),
    "as_it_is": declared(same),
    "from_a_table": replace(declared(same), sources={"a": sources.delta("table", max_files_per_batch=1)}),
}
"""By transform or purpose; a project declares one of them, by the name `s`."""
