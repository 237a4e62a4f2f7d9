"""Backfills of tables whose partitions Spark spells otherwise than delta-rs, or Python can't spell at all."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
from sluice.runs.record import RunRecord
from tests.spark.lab import Lab, ids, write_files

pytestmark = pytest.mark.spark

DAY = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))


def as_delivered(visits: DataFrame) -> DataFrame:
    return visits


def in_far_years(visits: DataFrame) -> DataFrame:
    far = F.expr("CASE id WHEN 1 THEN make_date(12026, 1, 2) WHEN 2 THEN make_date(-1, 1, 2) ELSE day END")
    return visits.withColumn("day", far)


def stream(day: str = "day", transform: str = "as_delivered", **sink: Any) -> Stream:
    return Stream(
        name="s",
        sources={"visits": sources.files("land", format="json", schema=f"id bigint, `{day}` date, town string")},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out", **sink),
        interval_column=day,
    )


def arrive(lab: Lab, name: str, *towns: str, day: str = "day") -> None:
    first = 10 * int(name)
    rows = [{"id": first + place, day: "2026-01-02", "town": town} for place, town in enumerate(towns)]
    write_files(lab.root / "land", {f"{name}.json": "\n".join(map(json.dumps, rows))}, first=first)


def backfill(lab: Lab, declared: Stream) -> RunRecord:
    return backfill_stream(lab.project, BackfillRequest(lab.project.resolve(declared), DAY), session=lab.spark)


def test_a_letter_beyond_ascii_after_a_compaction(lab: Lab) -> None:
    """Spark names the files anew, with the letter as it is; delta-rs removes such files under names with escapes."""
    declared = stream(partition_by=["day", "town"])
    arrive(lab, "0", "K\u00f6ln", "Bonn")
    lab.run(declared)
    arrive(lab, "1", "K\u00f6ln", "Bonn")
    lab.run(declared)
    request = BackfillRequest(lab.project.resolve(declared), DAY)
    assert plan_backfill(lab.project, request).publish == "metadata"
    lab.spark.sql(f"OPTIMIZE delta.`{lab.root / 'out'}`")

    plan = plan_backfill(lab.project, request)
    assert (plan.publish, "only Spark spells the names" in plan.reason) == ("replace_where", True)
    record = backfill(lab, declared)

    assert ids(lab.spark_table("out")) == [0, 1, 10, 11]
    assert record.backfill is not None
    assert (record.backfill.rows_replaced, record.backfill.rows_written) == (4, 4)


@pytest.mark.parametrize("day", ["day", "d\u00e4tum"])
def test_a_letter_beyond_ascii_where_spark_writes(lab: Lab, day: str) -> None:
    """Also in the name of the interval column."""
    declared = stream(day, partition_by=["day", "town"] if day == "day" else [day], optimize_write=False)
    arrive(lab, "0", "K\u00f6ln", "Bonn", day=day)
    lab.run(declared)

    backfill(lab, declared)

    assert ids(lab.spark_table("out")) == [0, 1]


def test_days_beyond_the_years_of_python(lab: Lab) -> None:
    """They are in no interval that somebody can name, and in the way of none."""
    declared = stream(transform="in_far_years", partition_by="day")
    arrive(lab, "0", "a", "b", "c", "d")
    lab.run(declared)

    record = backfill(lab, declared)

    assert ids(lab.spark_table("out")) == [0, 1, 2, 3]
    assert record.backfill is not None
    assert (record.backfill.rows_replaced, record.backfill.rows_written) == (2, 2)
