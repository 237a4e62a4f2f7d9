"""Backfills over real flights: every row once, whatever the live stream commits meanwhile, and DuckDB agrees."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from demo.landing import land_flights
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, LeaseHeldError, RefusedError
from sluice.planning.backfill import BackfillPlan
from sluice.running.backfill import BackfillRequest, backfill_stream, plan_backfill
from sluice.running.record import RunRecord
from sluice.running.runner import Silent
from sluice.sinks.delta import DeltaSink
from sluice.stream import Interval, Replaced, Replacement
from tests.spark.lab import Lab, bounded, snapshot, write_files

pytestmark = pytest.mark.spark

SCHEMA = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,
    hour int, minute int, time_hour timestamp
"""
DAYS = 10
KEY = ["flight_date", "carrier", "flight", "origin", "sched_dep_time"]


def as_delivered(flights: DataFrame) -> DataFrame:
    dated = flights.withColumn("flight_date", F.make_date("year", "month", "day"))
    return dated.select(*KEY, F.upper("tailnum").alias("tailnum"), "distance")


def in_kilometers(flights: DataFrame) -> DataFrame:
    return as_delivered(flights).withColumn("distance", F.round(F.col("distance") * 1.609344).cast("int"))


def once_each(flights: DataFrame) -> DataFrame:
    timed = in_kilometers(flights).withColumn("at", F.col("flight_date").cast("timestamp"))
    return timed.withWatermark("at", "2 days").dropDuplicatesWithinWatermark(KEY).drop("at")


def per_day(flights: DataFrame) -> DataFrame:
    timed = as_delivered(flights).withColumn("at", F.col("flight_date").cast("timestamp"))
    windows = timed.withWatermark("at", "1 day").groupBy(F.window("at", "1 day"), "origin").agg(F.count("*").alias("n"))
    return windows.select(F.col("window.start").cast("date").alias("flight_date"), "origin", "n")


def sliding(flights: DataFrame) -> DataFrame:
    timed = as_delivered(flights).withColumn("at", F.col("flight_date").cast("timestamp"))
    windows = timed.withWatermark("at", "1 day").groupBy(F.window("at", "3 days", "1 day")).agg(F.count("*").alias("n"))
    return windows.select(F.col("window.start").cast("date").alias("flight_date"), "n")


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file per day of the year, each with the time at which its day was over."""
    folder = tmp_path_factory.mktemp("archive")
    land_flights(folder)
    return folder


@dataclass(frozen=True)
class Flights:
    """Ten days of flights, half of them in two parts, of which the second arrives late."""

    lab: Lab
    archive: Path

    def land(self, first: int, last: int, *, rest: bool = False) -> None:
        """Let days arrive: of each the first two thirds, or the rest."""
        (self.lab.root / "land").mkdir(exist_ok=True)
        for day in range(first, last + 1):
            lines = (self.archive / f"flights-2013-01-{day:02d}.csv").read_text("utf-8").splitlines()
            cut = len(lines) * 2 // 3
            part = [lines[0], *(lines[cut:] if rest else lines[1:cut])]
            write_files(self.lab.root / "land", {f"{day:02d}-{int(rest)}.csv": "\n".join(part)}, first=day)

    def stream(self, transform: str = "as_delivered", **changes: Any) -> Stream:
        declared: dict[str, Any] = {
            "name": "departures",
            "sources": {
                "flights": sources.files(
                    "land", format="csv", schema=SCHEMA, header=True, null_value="NA", max_files_per_batch=4
                )
            },
            "transform": f"{__name__}:{transform}",
            "sink": sinks.delta("lake", partition_by=["flight_date"]),
            "interval_column": "flight_date",
        }
        return Stream(**declared | changes)

    def backfill(
        self, stream: Stream, first: int, last: int, *, key: str | None = None, phase: Callable[[str], None] | None = None
    ) -> RunRecord:
        """Recompute the days from `first` to `last`."""
        request = self.request(stream, first, last, key)
        return backfill_stream(self.lab.project, request, session=self.lab.spark, observer=_Phases(phase))

    def plan(self, stream: Stream, first: int, last: int) -> BackfillPlan:
        return plan_backfill(self.lab.project, self.request(stream, first, last))

    def request(self, stream: Stream, first: int, last: int, key: str | None = None) -> BackfillRequest:
        interval = Interval(datetime(2013, 1, first, tzinfo=UTC), datetime(2013, 1, last + 1, tzinfo=UTC))
        return BackfillRequest(self.lab.project.resolve(stream), interval, key)

    @property
    def table(self) -> Path:
        return self.lab.root / "lake"

    def rows(self) -> Counter[tuple[Any, ...]]:
        """What the table holds, read by delta-rs."""
        found = DeltaTable(str(self.table)).to_pyarrow_table().select([*KEY, "tailnum", "distance"])
        return Counter(zip(*(found.column(name).to_pylist() for name in found.column_names), strict=True))

    def expected(self, first: int, last: int) -> Counter[tuple[Any, ...]]:
        """DuckDB's answer over all that has arrived: kilometers from day `first` to `last`, miles elsewhere."""
        query = f"""
            select make_date(year, month, day) as flight_date, carrier, flight, origin, sched_dep_time, upper(tailnum),
                case when day between {first} and {last} then round(distance * 1.609344)::int else distance end
            from read_csv('{self.lab.root}/land/*.csv', header = true, nullstr = 'NA', all_varchar = false, columns = {{
                'year': 'int', 'month': 'int', 'day': 'int', 'dep_time': 'int', 'sched_dep_time': 'int',
                'dep_delay': 'int', 'arr_time': 'int', 'sched_arr_time': 'int', 'arr_delay': 'int',
                'carrier': 'varchar', 'flight': 'int', 'tailnum': 'varchar', 'origin': 'varchar', 'dest': 'varchar',
                'air_time': 'int', 'distance': 'int', 'hour': 'int', 'minute': 'int', 'time_hour': 'varchar'}})
        """
        with duckdb.connect() as database:
            return Counter(database.execute(query).fetchall())


class _Phases(Silent):
    def __init__(self, act: Callable[[str], None] | None) -> None:
        self._act = act

    def phase(self, text: str) -> None:
        if self._act is not None:
            self._act(text)


@pytest.fixture
def flights(lab: Lab, archive: Path) -> Flights:
    """Nothing has arrived yet."""
    return Flights(lab, archive)


def test_beside_the_live_stream(flights: Flights) -> None:
    """Ten days with a changed transform, while late rows of the same days are committed: every row exactly once."""
    flights.land(1, DAYS)
    flights.lab.run(flights.stream())
    before = snapshot(flights.lab.checkpoint(flights.stream()))

    def late(phase: str) -> None:
        if phase in {"writing the rows aside", "publishing"}:
            days = (1, 5) if phase == "publishing" else (6, 10)
            flights.land(*days, rest=True)
            flights.lab.run(flights.stream("in_kilometers"))

    record = flights.backfill(flights.stream("in_kilometers"), 1, DAYS, phase=late)

    assert flights.rows() == flights.expected(1, DAYS)
    assert record.status == "succeeded"
    assert record.backfill is not None
    assert record.backfill.rows_replaced == record.backfill.rows_written
    assert record.backfill.attempt == 0
    after = snapshot(flights.lab.checkpoint(flights.stream()))
    assert before.items() <= after.items()
    again = flights.backfill(flights.stream("in_kilometers"), 1, DAYS)
    assert flights.rows() == flights.expected(1, DAYS)
    assert again.backfill is not None
    assert again.backfill.rows_written == again.backfill.rows_replaced == sum(flights.rows().values())
    assert snapshot(flights.lab.checkpoint(flights.stream())) == after
