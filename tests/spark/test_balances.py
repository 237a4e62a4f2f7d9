"""What was read is tied to what was published, wherever the plan of the transform tells what becomes of a row."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.runs.balance import balance_of
from tests.spark.lab import Lab, append_outside, write_numbers

pytestmark = pytest.mark.spark


def each(numbers: DataFrame, others: DataFrame) -> DataFrame:
    more = numbers.withColumn("twice", F.col("id") * 2).repartition(2).alias("n")
    return more.select("id", "twice").union(others.selectExpr("id", "0 AS twice"))


def some(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.where("id % 2 = 0").union(others)


def several(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.union(others).select(F.explode(F.array("id", "id")).alias("id"))


def distinct(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.union(others).dropDuplicates(["id"])


def looked_up(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.union(others).join(numbers.sparkSession.range(2), "id")


@pytest.mark.parametrize(
    ("transform", "published", "unmatched"),
    [("each", 7, 0), ("some", 5, 2), ("several", 14, None), ("distinct", 5, None), ("looked_up", 4, None)],
)
def test_rows_read_and_published(lab: Lab, transform: str, published: int, unmatched: int | None) -> None:
    """Counted where each row becomes one or none; said to be unknown elsewhere."""
    write_numbers(lab.root / "in", 5)
    append_outside(lab.root / "table", [0, 1])
    stream = Stream(
        name="numbers",
        sources={
            "numbers": sources.files("in", format="json", schema="id bigint"),
            "others": sources.delta("table"),
        },
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out"),
    )
    record = lab.run(stream)
    (batch,) = record.batches
    assert (batch.input_rows, batch.output_rows, batch.unmatched_rows, batch.warnings) == (7, published, unmatched, ())
    found = balance_of(record)
    assert found is not None
    assert not found.is_broken
    assert ("not known" in found.text) is (unmatched is None)
