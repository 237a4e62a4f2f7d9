"""The generator of rows with Spark: what is planned is what it makes; into a table, into memory, and once more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.sinks.contract import Sink
from sluice.sinks.memory import batches_of
from tests.spark.lab import Lab, available_now, bounded, uncommit

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)


def ticks(ticks: DataFrame) -> DataFrame:
    return ticks


def by_day(ticks: DataFrame) -> DataFrame:
    return ticks.withColumn("day", F.to_date("timestamp"))


def counted(ticks: DataFrame) -> DataFrame:
    return ticks.groupBy((F.col("value") % 3).alias("value")).count()


def stream(sink: Sink, transform: str = "ticks", **more: object) -> Stream:
    source = sources.rate_micro_batch(rows_per_batch=4, start_timestamp=START, advance_millis_per_batch=43_200_000)
    return Stream(
        name="ticks",
        sources={"ticks": source},
        transform=f"{__name__}:{transform}",
        sink=sink,
        **more,  # type: ignore[arg-type]
    )


def values(rows: list[Row]) -> list[int]:
    return sorted(row["value"] for row in rows)


def test_what_is_planned_is_made(lab: Lab) -> None:
    """A bound takes every batch that is over before it; without one, a run takes one."""
    made = stream(sinks.delta("out"))

    first = lab.run(made, bounded(START + timedelta(days=1)))
    second = lab.run(made)

    assert [[batch.input_rows for batch in record.batches] for record in (first, second)] == [[4, 4], [4]]
    assert values(lab.table("out").collect()) == list(range(12))
    assert {str(row["timestamp"].date()) for row in lab.table("out").collect()} == {"2026-01-01", "2026-01-02"}
    assert lab.plan(made, bounded(START + timedelta(days=1))).verdict == "skip"


def test_spark_goes_on_from_there(lab: Lab) -> None:
    """The checkpoint is its own: it makes the rows that come next."""
    made = stream(sinks.delta("out"))
    lab.run(made, bounded(START + timedelta(days=1)))
    source = made.sources["ticks"]
    frame = source.read_stream(lab.spark, name="ticks", started_at={})

    available_now(frame, lab.checkpoint(made), lab.root / "out", sink="delta")

    assert values(lab.spark_table("out").collect()) == list(range(12))


def test_a_backfill_makes_the_same_rows(lab: Lab) -> None:
    """With the times that they had in the stream."""
    made = stream(sinks.delta("out", partition_by=["day"]), "by_day", interval_column="day")
    lab.run(made, bounded(START + timedelta(days=2)))
    before = sorted(map(tuple, lab.table("out").collect()))
    day = Interval(START, START + timedelta(days=1))

    record = backfill_stream(lab.project, BackfillRequest(lab.project.resolve(made), day, "again"), session=lab.spark)

    assert record.backfill is not None
    assert (record.backfill.rows_replaced, record.backfill.rows_written) == (8, 8)
    assert sorted(map(tuple, lab.table("out").collect())) == before


def test_into_memory(lab: Lab) -> None:
    made = stream(sinks.memory("ticks"))

    lab.run(made, bounded(START + timedelta(days=1)))

    found = batches_of("ticks")
    assert {batch: values(rows) for batch, rows in found.items()} == {0: [0, 1, 2, 3], 1: [4, 5, 6, 7]}


def test_a_batch_that_comes_twice_counts_once(lab: Lab) -> None:
    made = stream(sinks.memory("twice"))
    lab.run(made, bounded(START + timedelta(days=1)))
    uncommit(lab.checkpoint(made), 1)

    lab.run(made, bounded(START + timedelta(days=1)))

    assert sorted(value for rows in batches_of("twice").values() for value in values(rows)) == list(range(8))


def test_a_whole_result_in_memory(lab: Lab) -> None:
    """In `complete` mode each batch is the whole result: the newest one counts."""
    made = stream(sinks.memory("counted"), "counted", output_mode="complete")

    lab.run(made, bounded(START + timedelta(days=1)))

    newest = batches_of("counted")[1]
    assert {row["value"]: row["count"] for row in newest} == {0: 3, 1: 3, 2: 2}
