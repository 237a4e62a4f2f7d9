"""The example by which watermarks are taught: five files, one run each.

Windows are 5 s wide and the watermark trails the newest event by 10 s. A window comes out once the watermark has
passed its end; what comes later for it is dropped.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.runs.record import RunRecord
from tests.spark.lab import Lab, Reports, available_now, dropped_rows, log_bytes, reader, rows, watermarks, write_files

pytestmark = pytest.mark.spark

FILES = (
    [(1, 1), (15, 2)],
    [(1, 1), (15, 2), (35, 3)],
    [(15, 1), (15, 2), (20, 3), (26, 4)],
    [(36, 1)],
    [(50, 1)],
)
"""Events by file: (second, id)."""


def windows(events: DataFrame) -> DataFrame:
    return (
        events.select(F.timestamp_seconds("second").alias("at"), "id")
        .withWatermark("at", "10 seconds")
        .groupBy(F.window("at", "5 seconds"))
        .agg(F.sort_array(F.collect_list("id")).alias("ids"))
        .select(F.unix_timestamp("window.start").alias("start"), "ids")
    )


class Example:
    """Five runs of Sluice, and five of plain Spark, over the same files."""

    def __init__(self, lab: Lab) -> None:
        source = sources.files("land", format="json", schema="second bigint, id bigint")
        sink = sinks.delta("windows")
        stream = Stream(name="golden", sources={"events": source}, transform=f"{__name__}:windows", sink=sink)
        self.checkpoint, self.plain = lab.checkpoint(stream), lab.root / "plain"
        self.records: list[RunRecord] = []
        self.windows: list[list[tuple[Any, ...]]] = []
        land, plain_table = lab.root / "land", lab.root / "plain-windows"
        land.mkdir()
        frame = windows(reader(lab.spark, "second bigint, id bigint").json(str(land)))
        with Reports(lab.spark) as reports:
            for number, events in enumerate(FILES):
                lines = [json.dumps({"second": second, "id": id_}) for second, id_ in events]
                write_files(land, {f"{number}.json": "\n".join(lines)}, first=number)
                self.records.append(lab.run(stream))
                self.windows.append(rows(lab.table("windows")))
                available_now(frame, self.plain, plain_table, sink="parquet")
        self.dropped = {
            report["batchId"]: dropped_rows(report)
            for report in reports.batches
            if report["id"] == self.records[0].query_id and dropped_rows(report)
        }
        self.plain_windows = rows(lab.spark.read.parquet(str(plain_table)))


@pytest.fixture(scope="module")
def example(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Example:
    return Example(Lab(spark, tmp_path_factory.mktemp("windows")))


def test_watermark_after_each_run(example: Example) -> None:
    """The watermark stands at 5, 25, 25, 26 and 40 s after the runs, as their records say."""
    seconds = (5, 25, 25, 26, 40)
    assert [record.batches[-1].watermark for record in example.records] == [
        f"1970-01-01T00:00:{second:02d}.000Z" for second in seconds
    ]


def test_windows_come_out_when_the_watermark_has_passed_them(example: Example) -> None:
    """After each run, the table holds the windows that were due, and no other."""
    starts = [[start for start, _ in windows] for windows in example.windows]
    assert starts == [[0], [0, 15], [0, 15], [0, 15], [0, 15, 25, 35]]


def test_windows_hold_what_came_in_time(example: Example) -> None:
    """A window holds what came before the watermark passed it."""
    assert example.windows[-1] == [(0, [1]), (15, [2, 2]), (25, [4]), (35, [1, 3])]


def test_late_rows_are_dropped(example: Example) -> None:
    """The third file is batch 4; it has three late rows in two windows, which Spark counts once each."""
    assert example.dropped == {2: 1, 4: 2}


def test_each_run_ends_with_the_no_data_batches_that_are_due(example: Example) -> None:
    """A run that moves the watermark emits what became due by it, in a batch without data."""
    kinds = [[batch.kind for batch in record.batches] for record in example.records]
    assert kinds == [["data", "no_data"], ["data", "no_data"], ["data"], ["data", "no_data"], ["data", "no_data"]]


def test_plain_spark_gives_the_same_windows(example: Example) -> None:
    """One AvailableNow run per file, by Spark alone, fills the same table."""
    assert example.windows[-1] == example.plain_windows


def test_plain_spark_leaves_the_same_checkpoint(example: Example) -> None:
    """Both logs and the source's log are byte for byte those of Spark alone."""
    assert list(watermarks(example.checkpoint).values()) == [
        5000,
        5000,
        25000,
        25000,
        25000,
        26000,
        26000,
        40000,
        40000,
    ]
    for log in ("offsets", "commits", "sources/0"):
        assert log_bytes(example.checkpoint / log) == log_bytes(example.plain / log)
