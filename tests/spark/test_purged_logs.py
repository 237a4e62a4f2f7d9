"""The logs of a checkpoint keep as many batches as Spark keeps; what goes on from there finds all that it needs."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.planning.planner import Limits
from sluice.spark_setting import spark_setting
from tests.spark.lab import Lab, available_now, reader, rows, write_files
from tests.spark.power_cuts import Cut
from tests.spark.test_expired_transactions import cut_run

pytestmark = pytest.mark.spark

KEPT = "spark.sql.streaming.minBatchesToRetain"
SCHEMA = "ts bigint"


def counted(clicks: DataFrame) -> DataFrame:
    windows = clicks.withColumn("at", F.timestamp_seconds("ts")).withWatermark("at", "1 second")
    return (
        windows.groupBy(F.window("at", "10 seconds"))
        .count()
        .selectExpr("unix_timestamp(window.start) AS s", "count AS n")
    )


STREAM = Stream(
    name="s",
    sources={"clicks": sources.files("clicks", format="json", schema=SCHEMA, max_files_per_batch=1)},
    transform=f"{__name__}:counted",
    sink=sinks.delta("out"),
)


def arrive(lab: Lab, *numbers: int) -> None:
    for number in numbers:
        write_files(lab.root / "clicks", {f"{number:03d}.json": f'{{"ts": {number * 10}}}'}, first=number)


def left(lab: Lab, log: str) -> list[str]:
    names = (file.name for file in (lab.checkpoint(STREAM) / log).iterdir() if not file.name.startswith("."))
    return sorted(names, key=lambda name: int(name.partition(".")[0]))


def test_a_life(lab: Lab) -> None:
    """Planned, killed, resumed, drained, by plain Spark: three batches are kept, and every window comes out once."""
    with spark_setting(lab.spark, KEPT, "2"):
        arrive(lab, *range(12))
        record = lab.run(STREAM)
        newest = record.batches[-1].batch_id
        assert newest >= 12
        assert left(lab, "offsets") == left(lab, "commits") == [str(newest - older) for older in (2, 1, 0)]
        assert left(lab, "sources/0") == ["9.compact", "10", "11"]
        arrive(lab, 12, 13)
        cut_run(lab, STREAM, Cut("Spark's commit", 1, "before"))
        arrive(lab, 14)
        assert lab.run(STREAM).status == "succeeded"
        assert len(left(lab, "offsets")) == len(left(lab, "commits")) == 3
        arrive(lab, 15)
        lab.run(STREAM, Limits(strategy="drain"))
        arrive(lab, *range(16, 32))
        lab.run(STREAM)
        assert left(lab, "sources/0")[0] == "29.compact"
        assert lab.plan(STREAM).verdict == "skip"
        arrive(lab, 32)
        clicks = reader(lab.spark, SCHEMA, maxFilesPerTrigger=1).json(str(lab.root / "clicks"))
        available_now(counted(clicks), lab.checkpoint(STREAM), lab.root / "out", sink="delta")
    assert sorted(rows(lab.spark_table("out"))) == [(number * 10, 1) for number in range(31)]
