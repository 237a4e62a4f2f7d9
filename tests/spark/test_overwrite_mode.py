"""Whatever mode the session overwrites partitions in, what is replaced is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime

import pytest
from pyspark.sql import DataFrame, functions

from sluice import Stream, sinks, sources
from sluice.interval import Interval
from sluice.sinks.contract import SinkBatch
from sluice.sinks.delta import parquet_aside
from sluice.sinks.delta.sink import DeltaSink
from sluice.sinks.replaceable import Replacement
from sluice.spark_setting import spark_setting
from sluice.storage import Storage
from tests.spark.lab import Lab, rows, write_files
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

MODE = "spark.sql.sources.partitionOverwriteMode"


def no_function(_name: str) -> Callable[..., object]:
    raise AssertionError


def days(lab: Lab, *numbers: int) -> DataFrame:
    return lab.spark.createDataFrame([(number, date(2026, 1, number)) for number in numbers], "n bigint, day date")


def found(lab: Lab) -> list[int]:
    return [row[0] for row in rows(lab.table("out").select("n"))]


def delivered_once(days: DataFrame) -> DataFrame:
    """A day is there until something comes for it again."""
    return days.groupBy("day").agg(functions.count("*").alias("n")).where("n = 1")


def test_dynamic_partition_overwrites_in_a_run(lab: Lab) -> None:
    """A stream with a suite that writes all of its result anew: a group that is gone from it is gone from the table."""
    check = row("expect_column_values_to_be_between", policy="fail", column="n", max_value=1)
    (lab.root / "suite.json").write_bytes(document(check))
    stream = Stream(
        name="s",
        sources={"days": sources.files("land", format="json", schema="day date")},
        transform=f"{__name__}:delivered_once",
        sink=sinks.delta("out", partition_by="day"),
        output_mode="complete",
        quality="suite.json",
    )
    with spark_setting(lab.spark, MODE, "dynamic"):
        for number, arrived in enumerate([("2026-01-01", "2026-01-02"), ("2026-01-01",)]):
            lines = "\n".join(json.dumps({"day": day}) for day in arrived)
            write_files(lab.root / "land", {f"{number}.json": lines}, first=number)
            lab.run(stream)

    assert rows(lab.table("out").select("day")) == [(date(2026, 1, 2),)]


def test_dynamic_partition_overwrites(lab: Lab) -> None:
    """A batch of mode `complete`, replacements, files written aside again: no partition is left over."""
    sink, storage = DeltaSink(str(lab.root / "out"), ("day",)), Storage()
    interval = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC))
    with spark_setting(lab.spark, MODE, "dynamic"):
        for batch_id, numbers in enumerate([(1, 2, 3, 4), (2, 3, 4)]):
            batch = SinkBatch("query", batch_id, "complete", 1)
            sink.write_batch(days(lab, *numbers), batch, load_function=no_function, storage=storage)
        assert found(lab) == [2, 3, 4]

        replaced = Replacement("day", interval, 1, "backfill", 0)
        sink.replace_rows(sink.interval_rows(days(lab, 1, 4), replaced), replaced)
        assert found(lab) == [1, 4]

        sink.replace_where(days(lab, 2), "n < 3", application="settled", version=0)
        assert found(lab) == [2, 4]

        folder = str(lab.root / "aside")
        parquet_aside.write_aside(days(lab, 1, 2), folder, ["day"], storage=storage)
        aside = parquet_aside.write_aside(days(lab, 2), folder, ["day"], storage=storage)
        assert len(aside.files) == len(list((lab.root / "aside").rglob("*.parquet"))) == 1
