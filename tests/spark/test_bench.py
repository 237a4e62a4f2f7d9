"""The test bench for users, as they use it: whole histories on real Spark."""

from __future__ import annotations

from typing import get_args

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.testing import Bench, Moment, bench

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

__all__ = ["bench"]

SCHEMA = "id bigint, at timestamp"


def by_minute(visits: DataFrame) -> DataFrame:
    counted = visits.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute")).count()
    return counted.select(F.col("window.start").alias("minute"), "count")


def stamped(visits: DataFrame) -> DataFrame:
    return visits.withColumn("seen", F.current_timestamp())


def stream(transform: str = "by_minute", **changes: object) -> Stream:
    declared = {
        "name": "visits",
        "sources": {"visits": sources.files("in", format="json", schema=SCHEMA)},
        "transform": f"{__name__}:{transform}",
        "sink": sinks.delta("out"),
    }
    return Stream(**declared | changes)


def test_a_history(bench: Bench) -> None:
    bench.open(stream())
    bench.add("visits", [{"id": 1, "at": "2026-01-01T09:00:10Z"}, (2, "2026-01-01T09:00:20Z")])
    bench.run()
    bench.check_rows([])
    bench.check_watermark("2026-01-01T08:59:20Z")
    bench.check_state([{"window": {"start": "2026-01-01T09:00:00Z"}, "count": 2}])
    bench.add("visits", [{"id": 3, "at": "2026-01-01T09:02:10Z"}])
    bench.run()
    bench.check_rows([{"minute": "2026-01-01T09:00:00Z", "count": 2}])
    bench.check_new_rows([])
    bench.add("visits", [{"id": 1, "at": "2026-01-01T10:00:10Z"}])
    bench.run()
    bench.check_new_rows([("2026-01-01T09:02:00Z", 1)])


@pytest.mark.parametrize("at", get_args(Moment))
def test_crash(bench: Bench, at: Moment) -> None:
    bench.open(stream())
    bench.add("visits", [(1, "2026-01-01T09:00:10Z")])
    bench.run()
    bench.add("visits", [(2, "2026-01-01T09:05:10Z")])
    bench.crash(at=at)
    bench.restart()
    bench.check_rows([{"minute": "2026-01-01T09:00:00Z", "count": 1}])


def test_clock(bench: Bench) -> None:
    bench.open(stream("stamped"), now="2026-03-01")
    bench.add("visits", [(1, "2026-01-01T09:00:10Z")])
    bench.run()
    bench.advance("1 hour 30 minutes")
    bench.add("visits", [(2, "2026-01-01T09:00:10Z")])
    bench.run()
    bench.check_rows([{"id": 1, "seen": "2026-03-01"}, {"id": 2, "seen": "2026-03-01T01:30Z"}])
