"""State of a batch that the sink has, or whose rows are decided, and that is not committed: it is what the sink has."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from tests.spark.lab import Lab, forget_tables, uncommit, write_files

pytestmark = pytest.mark.spark

SINKS: dict[str, Any] = {
    "files": sinks.files("out", format="parquet"),
    "delta": sinks.delta("out"),
    "merging": sinks.delta("out", merge_schema=True),
}


def once(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["id"])


def per_hundred(numbers: DataFrame) -> DataFrame:
    timed = numbers.withColumn("at", F.timestamp_seconds("id")).withWatermark("at", "0 seconds")
    return (
        timed.groupBy(F.window("at", "100 seconds")).count().select(F.unix_seconds("window.start").alias("id"), "count")
    )


def rows(lab: Lab) -> list[tuple[Any, ...]]:
    is_table = (lab.root / "out" / "_delta_log").exists()
    found = lab.spark.read.format("delta" if is_table else "parquet").load(str(lab.root / "out"))
    return sorted(tuple(row) for row in found.collect())


def stop_stores(lab: Lab) -> None:
    """Let Spark forget the state that it has in memory, as a driver does that dies."""
    lab.spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()  # type: ignore[union-attr]
    forget_tables(lab.spark)


@pytest.mark.parametrize("transform", ["once", "per_hundred"])
@pytest.mark.parametrize("sink", SINKS)
def test_a_batch_that_the_sink_has(lab: Lab, sink: str, transform: str) -> None:
    """The retry reads it again or passes over it, and every later run finds the state."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform}",
        sink=SINKS[sink],
    )
    arrivals = [[1, 2], [1, 105], [5, 250], [105, 2, 400]]
    for number, ids in enumerate(arrivals):
        content = "\n".join(f'{{"id": {found}}}' for found in ids)
        write_files(lab.root / "in", {f"{number}.json": content}, first=number)
        lab.run(stream)
        if number == 1:
            newest = max(int(file.name) for file in (lab.checkpoint(stream) / "commits").glob("[0-9]*"))
            uncommit(lab.checkpoint(stream), newest)
            stop_stores(lab)
            assert lab.plan(stream).verdict == "resume"
            lab.run(stream)
            stop_stores(lab)
    once_each = [(found,) for found in sorted({found for ids in arrivals for found in ids})]
    assert rows(lab) == (once_each if transform == "once" else [(0, 3), (100, 1), (200, 1)])
