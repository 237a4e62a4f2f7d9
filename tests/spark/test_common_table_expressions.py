"""Transforms in SQL with common table expressions: Spark keeps each apart in its plan, and refers to it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from tests.spark.lab import Lab, write_files

pytestmark = pytest.mark.spark


def ask(query: str, **frames: DataFrame) -> DataFrame:
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return next(iter(frames.values())).sparkSession.sql(query)


def once(days: DataFrame) -> DataFrame:
    return ask("WITH odd AS (SELECT n, at FROM days WHERE n % 2 = 1) SELECT n FROM odd", days=days)


def twice(days: DataFrame) -> DataFrame:
    return ask("WITH c AS (SELECT n FROM days) SELECT n FROM c UNION ALL SELECT -n FROM c", days=days)


def counted(days: DataFrame) -> DataFrame:
    rows = ask("WITH c AS (SELECT n % 3 AS n, at FROM days) SELECT n, at FROM c", days=days)
    return rows.withWatermark("at", "0 seconds").dropDuplicatesWithinWatermark(["n", "at"]).select("n")


def joined(days: DataFrame, hours: DataFrame) -> DataFrame:
    query = "WITH d AS (SELECT n FROM days), h AS (SELECT n AS m FROM hours) SELECT d.n FROM d JOIN h ON d.n = h.m"
    return ask(query, days=days, hours=hours)


def with_itself(days: DataFrame) -> DataFrame:
    """Whether Spark takes the time for one that may be null differs between a batch with rows and one without."""
    query = "WITH d AS (SELECT n, at FROM days) SELECT l.n FROM d l JOIN d r ON l.n = r.n AND l.at = r.at"
    timed = days.withColumn("at", F.timestamp_seconds(F.col("n") + 1)).withWatermark("at", "0 seconds")
    return ask(query, days=timed)


def of_a_static_recursion(days: DataFrame) -> DataFrame:
    steps = "SELECT 1 UNION ALL SELECT i + 1 FROM steps WHERE i < 2"
    return ask(f"WITH RECURSIVE steps (i) AS ({steps}) SELECT n FROM days JOIN steps ON n = 2 * i", days=days)


def stream(name: str) -> Stream:
    schema = "n bigint, at timestamp"
    found = {"days": sources.files("days", format="json", schema=schema)}
    if name == "joined":
        found["hours"] = sources.files("hours", format="json", schema=schema)
    return Stream(name="s", sources=found, transform=f"{__name__}:{name}", sink=sinks.delta("out"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("once", [1, 3, 5]),
        ("twice", [0, 1, 2, 3, 4, 5, 0, -1, -2, -3, -4, -5]),
        ("counted", [0, 1, 2, 0, 1, 2]),
        ("joined", [0, 1, 2, 3, 4, 5]),
        ("with_itself", [0, 1, 2, 3, 4, 5]),
        ("of_a_static_recursion", [2, 4]),
    ],
)
def test_runs(lab: Lab, name: str, expected: list[int]) -> None:
    """Run after run, each is a query as any other: what it reads is planned, and counted, by its sources."""
    declared = stream(name)
    for number in range(3):
        for folder in declared.sources:
            rows = [{"n": n, "at": f"2026-01-0{number + 1}T0{n}:00:00Z"} for n in (2 * number, 2 * number + 1)]
            write_files(lab.root / folder, {f"{number}.json": "\n".join(map(json.dumps, rows))}, first=number)
        assert lab.run(declared).status == "succeeded"

    held: Any = lab.table("out").collect()
    assert Counter(row["n"] for row in held) == Counter(expected)
    record = lab.project.stream_home(lab.project.resolve(declared)).generation(1)
    assert record is not None
    assert {line.source for line in record.lines} == set(declared.sources)
    assert lab.run(declared).status == "skipped"


def test_watermarks(lab: Lab) -> None:
    """One above a common table expression bears the name of the source below it."""
    declared = stream("counted")
    write_files(lab.root / "days", {"0.json": json.dumps({"n": 1, "at": "2026-01-01T01:00:00Z"})})
    lab.run(declared)

    watermarks = lab.plan(declared).watermarks
    assert watermarks is not None
    assert "days.at" in str(watermarks)
