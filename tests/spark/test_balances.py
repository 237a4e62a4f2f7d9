"""What was read is tied to what was published, wherever the plan of the transform tells what becomes of a row."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.runs.balance import balance_of, broken_balance
from sluice.sinks.delta.sink import DeltaSink
from sluice.sinks.files import FilesSink
from tests.remedies import read_remedy
from tests.spark.lab import Lab, append_outside, ids, write_files, write_numbers

pytestmark = pytest.mark.spark


def kept(numbers: DataFrame) -> DataFrame:
    return numbers


def each(numbers: DataFrame, others: DataFrame) -> DataFrame:
    more = numbers.withColumn("twice", F.col("id") * 2).repartition(2).alias("n")
    return more.select("id", "twice").union(others.selectExpr("id", "0 AS twice"))


def some(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.where("id % 2 = 0").union(others)


def several(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.union(others).select(F.explode(F.array("id", "id")).alias("id"))


def halved(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("the half", F.expr("concat('ö ', id % 2)"))


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


def test_rows_in_files(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of Parquet tell their rows, also where the manifest is compacted; a writer that loses some is seen."""
    stream = Stream(
        name="numbers",
        sources={"numbers": sources.files("in", format="json", schema="id bigint", max_files_per_batch=1)},
        transform=f"{__name__}:halved",
        sink=sinks.files("out", format="parquet", partition_by=["the half"]),
    )
    write_numbers(lab.root / "in", 12, rows=3)
    batches = lab.run(stream).batches
    assert (lab.root / "out" / "_spark_metadata" / "9.compact").is_file()
    told = {(batch.input_rows, batch.output_rows, batch.unmatched_rows, batch.warnings) for batch in batches}
    assert (len(batches), told) == (12, {(3, 3, 0, ())})

    write_numbers(lab.root / "in", 1, first=12, rows=3)
    writer = FilesSink.writer
    monkeypatch.setattr(FilesSink, "writer", lambda sink, frame, **how: writer(sink, frame.where("id > 36"), **how))
    (batch,) = lab.run(stream).batches
    assert batch.output_rows == 2
    assert "the sources gave 3 rows, each of which the transform keeps, and 2 came out" in batch.warnings[0]
    lines = replace(stream, name="lines", sink=sinks.files("lines", format="json"))
    assert {batch.output_rows for batch in lab.run(lines).batches} == {None}


def without(monkeypatch: pytest.MonkeyPatch, condition: str) -> None:
    """Let a table's writer lose rows."""
    whole = DeltaSink.write_batch_aside

    def lossy(self: DeltaSink, frame: DataFrame, batch: Any, *, storage: Any) -> Any:
        return whole(self, frame.where(f"NOT ({condition})"), batch, storage=storage)

    monkeypatch.setattr(DeltaSink, "write_batch_aside", lossy)


def ranged(numbers: DataFrame) -> DataFrame:
    return numbers.repartitionByRange(2, "id")


def filtered(numbers: DataFrame) -> DataFrame:
    return numbers.where("id != 0").withColumn("twice", F.col("id") * 2)


@pytest.mark.parametrize("lost", ["id > 1", "id > 0", "id = 3", "id >= 0"])
@pytest.mark.parametrize("transform", ["kept", "filtered"])
@pytest.mark.parametrize("source", ["files", "table"])
def test_any_number_of_rows_lost(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, source: str, transform: str, lost: str
) -> None:
    """Half of them, three quarters, one, all: told, also where a filter may have left them out."""
    write_numbers(lab.root / "in", 4)
    append_outside(lab.root / "table", [0, 1, 2, 3])
    kinds = {"files": sources.files("in", format="json", schema="id bigint"), "table": sources.delta("table")}
    stream = Stream(
        name="numbers",
        sources={"numbers": kinds[source]},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out"),
    )
    without(monkeypatch, lost)
    record = lab.run(stream)
    assert broken_balance(record) is not None
    (batch,) = record.batches
    assert len(batch.warnings) == 1
    assert "came out" in batch.warnings[0] if transform == "kept" else "came to the sink" in batch.warnings[0]
    assert batch.unmatched_rows == (0 if transform == "kept" else 1)


KEPT_ONCE = {
    "sampled": ("ranged", {}, None),
    "filtered": ("filtered", {}, 1),
    "filtered and merged": ("filtered", {"merge_on": ["id"]}, 1),
    "the newest of a key": ("of_one_key", {"changes": sinks.changes(keys=["one"], sequence_by="id")}, None),
    "the history of a key": (
        "of_one_key",
        {"changes": sinks.changes(keys=["one"], sequence_by="id", stored_as_scd_type=2)},
        None,
    ),
}


@pytest.mark.parametrize("case", KEPT_ONCE)
def test_no_row_is_missed(lab: Lab, case: str) -> None:
    """What Spark reads twice, and what a merge makes of the rows of one key, is no loss."""
    transform, options, unmatched = KEPT_ONCE[case]
    write_numbers(lab.root / "in", 4)
    stream = Stream(
        name="numbers",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out", **options),
    )
    record = lab.run(stream)
    assert [(batch.unmatched_rows, batch.warnings) for batch in record.batches] == [(unmatched, ())]
    assert broken_balance(record) is None


def of_one_key(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("one", F.lit(1))


def test_rows_that_were_lost(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that loses rows is noticed by the run itself; a backfill of the interval brings them back."""
    write_files(lab.root / "in", {"1.json": "\n".join(f'{{"id": {n}, "day": "2026-01-02"}}' for n in range(4))})
    stream = Stream(
        name="numbers",
        sources={"numbers": sources.files("in", format="json", schema="id bigint, day date")},
        transform=f"{__name__}:kept",
        sink=sinks.delta("out", partition_by=["day"]),
        interval_column="day",
    )
    with monkeypatch.context() as patch:
        without(patch, "id = 0")
        record = lab.run(stream)
    read_remedy(broken_balance(record), "ROWS_NOT_IN_BALANCE", "computes the rows of an interval anew")
    assert "the sources gave 4 rows, each of which the transform keeps, and 3 came out" in record.batches[0].warnings[0]

    day = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    backfill_stream(lab.project, BackfillRequest(lab.project.resolve(stream), day, None), session=lab.spark)
    assert ids(lab.table("out")) == [0, 1, 2, 3]
