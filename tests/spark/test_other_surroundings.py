"""What a transform reads as it starts, beside its sources, changes between a kill and the resume.

No text and no plan tells of a file of settings or a variable: what the batch was is known by what was kept of it.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from tests.campaign import rarely
from tests.spark.lab import Lab, bounded, write_files
from tests.spark.power_cuts import Cut
from tests.spark.test_mended_files import cut_run
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

TOO_LARGE = row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=10**9)
TOTAL = row("expect_column_max_to_be_between", policy="fail", column="id", max_value=10**9)


def by_window(numbers: DataFrame) -> DataFrame:
    """Its clock is set by a variable."""
    seconds = F.col("id") + int(os.environ.get("AHEAD", "0"))
    windows = numbers.select(F.timestamp_seconds(seconds).alias("at")).withWatermark("at", "0 seconds")
    counts = windows.groupBy(F.window("at", "100 seconds")).count()
    return counts.select(F.unix_seconds("window.start").alias("id"), "count")


def joined(numbers: DataFrame, others: DataFrame) -> DataFrame:
    """Two watermarks; one clock is set by a variable."""
    ahead = int(os.environ.get("AHEAD", "0"))
    left = numbers.select("id", F.timestamp_seconds(F.col("id") + ahead).alias("at")).withWatermark("at", "0 seconds")
    right = others.select(F.col("id").alias("other"), F.timestamp_seconds("id").alias("then"))
    right = right.withWatermark("then", "0 seconds")
    return left.join(right, F.expr("id = other AND then BETWEEN at AND at + INTERVAL 1 SECOND"), "left").select(
        "id", "other"
    )


@pytest.mark.parametrize(
    ("cut", "suite"),
    [
        (Cut("Spark's commit"), None),
        (Cut("Spark's commit", 1, "after"), [TOTAL]),
        (Cut("Spark's commit"), [TOO_LARGE]),
        *rarely(
            (Cut("Spark's commit", 1, "after"), None),
            (Cut("Spark's commit"), [TOTAL]),
            (Cut("Spark's commit", 1, "after"), [TOO_LARGE]),
        ),
    ],
)
def test_the_watermark_goes_on_by_what_was_written(
    lab: Lab, cut: Cut, suite: list[Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moved by what the batch would be now, it would take the rows that come next for late ones."""
    if suite is not None:
        (lab.root / "suite.json").write_bytes(document(*suite))
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:by_window",
        sink=sinks.delta("out"),
        quality=None if suite is None else "suite.json",
    )
    for second, numbers in enumerate(([2], [130], [240])):
        write_files(lab.root / "in", {f"{second}.json": "\n".join(f'{{"id": {n}}}' for n in numbers)}, first=second)
        lab.run(stream)
    write_files(lab.root / "in", {"3.json": '{"id": 245}\n{"id": 350}'}, first=3)
    assert cut_run(lab, stream, cut) is not None
    monkeypatch.setenv("AHEAD", "5000")
    record = lab.run(stream)
    monkeypatch.delenv("AHEAD")

    if cut.moment == "before":
        (resumed,) = [batch for batch in record.batches if batch.was_in_sink]
        assert resumed.watermark == "1970-01-01T00:05:50.000Z"
        assert [found.partition(" has other event times of ")[2][:10] for found in resumed.warnings] == ["numbers.at"]
    write_files(lab.root / "in", {"4.json": '{"id": 355}\n{"id": 460}'}, first=70)
    lab.run(stream)
    write_files(lab.root / "in", {"5.json": '{"id": 900}'}, first=71)
    lab.run(stream)
    assert sorted(map(tuple, lab.table("out").collect())) == [(0, 1), (100, 1), (200, 2), (300, 2), (400, 1)]


def test_each_of_two_watermarks_goes_on_by_what_was_written(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(folder: str) -> Any:
        return sources.files(folder, format="json", schema="id bigint")

    stream = Stream(
        name="s",
        sources={"numbers": read("in"), "others": read("beside")},
        transform=f"{__name__}:joined",
        sink=sinks.delta("out"),
    )
    write_files(lab.root / "in", {"0.json": '{"id": 10}\n{"id": 11}'})
    write_files(lab.root / "beside", {"0.json": '{"id": 10}\n{"id": 12}'})
    lab.run(stream)
    write_files(lab.root / "in", {"1.json": '{"id": 20}'}, first=1)
    write_files(lab.root / "beside", {"1.json": '{"id": 40}'}, first=1)
    assert cut_run(lab, stream, Cut("Spark's commit")) is not None
    monkeypatch.setenv("AHEAD", "5000")
    record = lab.run(stream)
    monkeypatch.delenv("AHEAD")

    resumed = record.batches[0]
    assert resumed.was_in_sink
    assert resumed.watermarks == {
        "numbers.at": "1970-01-01T00:00:20.000Z",
        "others.then": "1970-01-01T00:00:40.000Z",
    }
    assert resumed.watermark == "1970-01-01T00:00:20.000Z"
    write_files(lab.root / "in", {"2.json": '{"id": 22}\n{"id": 50}'}, first=2)
    write_files(lab.root / "beside", {"2.json": '{"id": 50}'}, first=2)
    lab.run(stream)
    write_files(lab.root / "in", {"3.json": '{"id": 90}'}, first=3)
    write_files(lab.root / "beside", {"3.json": '{"id": 90}'}, first=3)
    lab.run(stream)
    rows = sorted((found["id"], found["other"]) for found in lab.table("out").collect())
    assert rows == [(10, 10), (11, None), (20, None), (22, None), (50, 50), (90, 90)]


def test_a_drain_goes_on_by_what_was_written(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would go on by its own log. The batch has not moved the watermark, so that none without rows is due."""
    stream = windows(sinks.delta("out"))
    for second, number in enumerate((2, 130)):
        write_files(lab.root / "in", {f"{second}.json": f'{{"id": {number}}}'}, first=second)
        lab.run(stream)
    write_files(lab.root / "in", {"2.json": '{"id": 125}'}, first=2)
    assert cut_run(lab, stream, Cut("Spark's commit")) is not None
    monkeypatch.setenv("AHEAD", "5000")
    lab.run(stream)
    monkeypatch.delenv("AHEAD")

    write_files(lab.root / "in", {"3.json": '{"id": 135}\n{"id": 900}'}, first=70)
    record = lab.run(stream, bounded(strategy="drain"))

    assert record.status == "succeeded"
    assert sorted(map(tuple, lab.table("out").collect())) == [(0, 1), (100, 3)]


@pytest.mark.parametrize("sink", [sinks.files("out", format="parquet"), sinks.delta("out", optimize_write=False)])
def test_what_spark_writes_by_itself_is_doubted(lab: Lab, sink: Any) -> None:
    """Nobody has kept how far it takes the watermark: the record says so."""
    stream = windows(sink)
    for second, number in enumerate((2, 130)):
        write_files(lab.root / "in", {f"{second}.json": f'{{"id": {number}}}'}, first=second)
        lab.run(stream)
    write_files(lab.root / "in", {"2.json": '{"id": 240}'}, first=2)
    assert cut_run(lab, stream, Cut("Spark's commit")) is not None

    record = lab.run(stream)

    assert [found[:43] for found in record.batches[0].warnings] == ["how far batch 4 takes the watermarks was no"]


def windows(sink: Any) -> Stream:
    return Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:by_window",
        sink=sink,
    )


def test_the_watermark_of_a_drained_batch(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the second batch of a start that Spark plans itself."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint", max_files_per_batch=1)},
        transform=f"{__name__}:by_window",
        sink=sinks.delta("out"),
    )
    for second, number in enumerate((2, 130)):
        write_files(lab.root / "in", {f"{second}.json": f'{{"id": {number}}}'}, first=second)
    assert cut_run(lab, stream, Cut("commit out", 2, "after"), bounded(strategy="drain")) is not None
    monkeypatch.setenv("AHEAD", "5000")
    record = lab.run(stream)
    monkeypatch.delenv("AHEAD")

    assert (record.batches[0].batch_id, record.batches[0].watermark) == (1, "1970-01-01T00:02:10.000Z")
    write_files(lab.root / "in", {"2.json": '{"id": 135}\n{"id": 900}'}, first=70)
    lab.run(stream)
    assert sorted(map(tuple, lab.table("out").collect())) == [(0, 1), (100, 2)]
