"""Backfills over real flights: every row once, whatever the live stream commits meanwhile, and DuckDB agrees."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from demo.landing import land_flights
from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, DeclarationError, LeaseTakenError, RefusedError
from sluice.interval import Interval
from sluice.planning.backfill import BackfillPlan
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
from sluice.running.observers import Silent
from sluice.runs.lease import acquire
from sluice.runs.record import RunRecord
from tests.campaign import in_campaigns
from tests.flight_days import DAYS, KEY, SCHEMA, FlightDays
from tests.remedies import read_remedy
from tests.spark.lab import Lab, bounded, snapshot, write_files

pytestmark = pytest.mark.spark


def as_delivered(flights: DataFrame) -> DataFrame:
    dated = flights.withColumn("flight_date", F.make_date("year", "month", "day"))
    return dated.select(*KEY, F.upper("tailnum").alias("tailnum"), "distance")


def in_kilometers(flights: DataFrame) -> DataFrame:
    return as_delivered(flights).withColumn("distance", F.round(F.col("distance") * 1.609344).cast("int"))


def once_each(flights: DataFrame) -> DataFrame:
    timed = in_kilometers(flights).withColumn("at", F.col("flight_date").cast("timestamp"))
    return timed.withWatermark("at", "2 days").dropDuplicatesWithinWatermark(KEY).drop("at")


def by_flight(flights: DataFrame) -> DataFrame:
    """The same flight flies every day, so each key is there again after the delay."""
    timed = as_delivered(flights).withColumn("at", F.col("flight_date").cast("timestamp"))
    return timed.withWatermark("at", "2 days").dropDuplicatesWithinWatermark(["carrier", "flight"]).drop("at")


def by_tail_number(flights: DataFrame) -> DataFrame:
    return as_delivered(flights).dropDuplicates(["tailnum"])


def by_parts_of_the_date(flights: DataFrame) -> DataFrame:
    """The interval column is made of the keys, after the duplicates were dropped; a static table drops its own."""
    planes = flights.sparkSession.createDataFrame([("UA",), ("UA",)], "carrier string").dropDuplicates(["carrier"])
    keys = ["year", "month", "day", *KEY[1:]]
    once = flights.union(flights).dropDuplicates(keys)
    return in_kilometers(once.join(planes, "carrier", "left_semi"))


def per_day(flights: DataFrame) -> DataFrame:
    timed = as_delivered(flights).withColumn("at", F.col("flight_date").cast("timestamp"))
    windows = timed.withWatermark("at", "1 day").groupBy(F.window("at", "1 day"), "origin").agg(F.count("*").alias("n"))
    return windows.select(F.col("window.start").cast("date").alias("flight_date"), "origin", "n")


def doubled(flights: DataFrame) -> DataFrame:
    return flights.withColumn("distance", F.col("distance") * 2)


def per_day_of(flights: DataFrame) -> DataFrame:
    timed = flights.withColumn("at", F.col("flight_date").cast("timestamp"))
    windows = timed.withWatermark("at", "0 days").groupBy(F.window("at", "1 day")).agg(F.sum("distance").alias("n"))
    return windows.select(F.col("window.start").cast("date").alias("flight_date"), "n")


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
class Flights(FlightDays):
    """Flights, and a stream of them in a lab."""

    lab: Lab

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
        self,
        stream: Stream,
        first: int,
        last: int,
        *,
        key: str | None = None,
        phase: Callable[[str], None] | None = None,
    ) -> RunRecord:
        """Recompute the days from `first` to `last`."""
        request = self.request(stream, first, last, key)
        return backfill_stream(self.lab.project, request, session=self.lab.spark, observer=_Phases(phase))

    def plan(self, stream: Stream, first: int, last: int) -> BackfillPlan:
        return plan_backfill(self.lab.project, self.request(stream, first, last))

    def request(self, stream: Stream, first: int, last: int, key: str | None = None) -> BackfillRequest:
        interval = Interval(datetime(2013, 1, first, tzinfo=UTC), datetime(2013, 1, last + 1, tzinfo=UTC))
        return BackfillRequest(self.lab.project.resolve(stream), interval, key)


class _Phases(Silent):
    def __init__(self, act: Callable[[str], None] | None) -> None:
        self._act = act

    def phase(self, text: str) -> None:
        if self._act is not None:
            self._act(text)


@pytest.fixture
def flights(lab: Lab, archive: Path) -> Flights:
    """Nothing has arrived yet."""
    return Flights(lab.root, archive, lab)


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
    assert [phase.text for phase in record.phases] == ["writing the rows aside", "publishing"]
    assert record.explain is not None
    assert "flight_date" in record.explain
    after = snapshot(flights.lab.checkpoint(flights.stream()))
    assert before.items() <= after.items()
    again = flights.backfill(flights.stream("in_kilometers"), 1, DAYS)
    assert flights.rows() == flights.expected(1, DAYS)
    assert again.backfill is not None
    assert again.backfill.rows_written == again.backfill.rows_replaced == sum(flights.rows().values())
    assert snapshot(flights.lab.checkpoint(flights.stream())) == after


@in_campaigns
def test_operators_that_spark_refuses_in_a_batch(flights: Flights) -> None:
    """They run as a stream on a checkpoint of their own; a file that was delivered twice counts once."""
    stream = flights.stream("once_each")
    flights.land(1, 3)
    shutil.copy(flights.root / "land" / "02-0.csv", flights.root / "land" / "02-9.csv")
    flights.lab.run(stream)
    before, rows = snapshot(flights.lab.checkpoint(stream)), flights.rows()

    record = flights.backfill(stream, 1, 2)

    assert flights.rows() == rows == Counter(dict.fromkeys(flights.expected(1, 3), 1))
    assert record.backfill is not None
    assert record.backfill.rows_written == record.backfill.rows_replaced == sum(row[0].day < 3 for row in rows)
    assert snapshot(flights.lab.checkpoint(stream)) == before
    assert not list((flights.root / "home" / "departures" / "backfills").rglob("*.parquet"))


@pytest.mark.parametrize("transform", ["by_flight", "by_tail_number"])
def test_duplicates_across_intervals(flights: Flights, transform: str) -> None:
    """Where the keys do not tell the interval, a row of it could go for one of another day: nothing is replaced.

    A dry run knows that from the live run; where nothing is known of one, it says so, and Spark tells.
    """
    stream = flights.stream(transform)
    flights.land(1, DAYS)
    flights.lab.run(stream)
    rows = flights.rows()

    planned = flights.plan(stream, 8, 9)
    assert planned.problem is not None
    assert planned.problem.code == "BACKFILL_DUPLICATES"

    home = flights.lab.project.stream_home(stream)
    generation = home.generation(1)
    assert generation is not None
    home.keep_generation(msgspec.structs.replace(generation, drops_duplicates=None))
    unknown = flights.plan(stream, 8, 9)
    assert unknown.verdict == "run"
    assert "BACKFILL_DUPLICATES" in unknown.left_to_spark[0]
    with pytest.raises(RefusedError, match="with `flight_date`, or the columns") as refused:
        flights.backfill(stream, 8, 9)

    assert flights.rows() == rows
    assert len({row[0] for row in rows}) > 1

    read_remedy(refused.value, "BACKFILL_DUPLICATES", "leave this stream as it is.*a new stream with a sink of its own")
    anew = replace(flights.stream("once_each"), name="anew", sink=sinks.delta("anew", partition_by=["flight_date"]))
    flights.lab.run(anew)
    flights.backfill(anew, 8, 9)
    assert flights.lab.table("anew").count() == sum(flights.expected(1, DAYS).values())
    assert flights.lab.run(stream).status == "skipped"


@in_campaigns
def test_duplicates_by_what_the_interval_column_is_made_of(flights: Flights) -> None:
    """Keys that tell the interval column count as it does; a static table's duplicates are none of the stream's."""
    stream = flights.stream("by_parts_of_the_date")
    flights.land(1, 3)
    flights.lab.run(stream)
    rows = flights.rows()

    flights.backfill(stream, 2, 2)

    assert flights.rows() == rows
    assert set(rows) == {row for row in flights.expected(1, 3) if row[1] == "UA"}


@in_campaigns
def test_rows_that_the_live_stream_keeps_back(flights: Flights) -> None:
    """Only days that the watermark has passed can be recomputed; late rows, which the stream dropped, count now."""
    stream = flights.stream("per_day")
    flights.land(1, 5)
    flights.lab.run(stream)
    counts = {row["flight_date"].day: row["sum(n)"] for row in by_day(flights)}
    with pytest.raises(RefusedError) as refused:
        flights.backfill(stream, 1, 5)
    read_remedy(refused.value, "BACKFILL_BEYOND_WATERMARK", "end the interval at or before the watermark")
    flights.land(1, 1, rest=True)
    flights.lab.run(stream)

    record = flights.backfill(stream, 1, 2)

    assert [found["status"] for found in flights.lab.records(stream)].count("refused") == 1
    after = {row["flight_date"].day: row["sum(n)"] for row in by_day(flights)}
    assert set(after) == set(counts) == {1, 2, 3}
    assert after[1] > counts[1]
    assert after[1] == sum(count for row, count in flights.expected(9, 9).items() if row[0].day == 1)
    assert {day: after[day] for day in (2, 3)} == {day: counts[day] for day in (2, 3)}
    assert record.backfill is not None
    assert record.backfill.rows_written == 6
    # One file's late rows, summed up by the task that read it: one for each airport.
    assert record.backfill.late_rows == 3


@in_campaigns
def test_windows_that_are_longer_than_the_interval(flights: Flights) -> None:
    """A window that begins in the interval and is still open is left to the live stream, which emits it once."""
    stream = flights.stream("sliding")
    flights.land(1, 6)
    flights.lab.run(stream)
    before = days(flights)

    flights.backfill(stream, 2, 4)
    assert days(flights) == before
    flights.land(7, DAYS)
    flights.lab.run(stream)

    assert max(Counter(days(flights)).values()) == 1


def test_a_compaction_in_between(flights: Flights) -> None:
    """Delta would commit and double rows without a word; the backfill sees it and starts again."""
    stream = flights.stream("in_kilometers")
    flights.land(1, 2)
    flights.lab.run(flights.stream())
    flights.land(1, 2, rest=True)
    flights.lab.run(flights.stream())
    compacted: list[int] = []

    def compact(phase: str) -> None:
        if phase == "publishing" and not compacted:
            compacted.append(DeltaTable(str(flights.table)).optimize.compact()["numFilesRemoved"])

    record = flights.backfill(stream, 1, 2, phase=compact)

    assert compacted[0] > 0
    assert flights.rows() == flights.expected(1, 2)
    assert record.backfill is not None
    assert record.backfill.attempt == 1


def test_part_of_a_partition(flights: Flights) -> None:
    """Where the interval is no whole partitions, Spark replaces the rows, under the live stream's lease."""
    stream = flights.stream(sink=sinks.delta("lake"))
    flights.land(1, 3)
    flights.lab.run(stream)
    changed = replace(stream, transform=f"{__name__}:in_kilometers")
    assert flights.plan(changed, 2, 2).publish == "replace_where"

    record = flights.backfill(changed, 2, 2, key="the second")

    assert flights.rows() == flights.expected(2, 2)
    assert record.backfill is not None
    assert record.backfill.rows_written == sum(row[0].day == 2 for row in flights.rows())
    assert flights.backfill(changed, 2, 2, key="the second") == record
    flights.land(2, 2, rest=True)
    told: list[str] = []

    def go_on(phase: str) -> None:
        if phase == "replacing the rows":
            with pytest.raises(LeaseTakenError) as caught:
                flights.lab.run(stream)
            told.append(str(caught.value))

    flights.backfill(changed, 2, 2, phase=go_on)
    assert record.run_id not in told[0]


@in_campaigns
def test_parts_of_a_partition_one_after_the_other(flights: Flights, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill that needs the live stream's lease waits for another one's, says so, and then does its work.

    It does not wait for ever: a retry may come at a better time.
    """
    stream = flights.stream(sink=sinks.delta("lake"))
    flights.land(1, 3)
    flights.lab.run(stream)
    changed = replace(stream, transform=f"{__name__}:in_kilometers")
    said: list[str] = []
    waits = threading.Event()

    def hear(phase: str) -> None:
        said.append(phase)
        if phase.startswith("waiting"):
            waits.set()

    with ThreadPoolExecutor() as threads:
        begun: list[Future[RunRecord]] = []

        def begin_other(phase: str) -> None:
            if phase == "replacing the rows":
                begun.append(threads.submit(flights.backfill, changed, 3, 3, phase=hear))
                assert waits.wait(60)

        first = flights.backfill(changed, 2, 2, phase=begin_other)
        other = begun[0].result(120)

    assert (first.status, other.status) == ("succeeded", "succeeded")
    assert flights.rows() == flights.expected(2, 3)
    waited = [phase for phase in said if phase.startswith("waiting")]
    assert len(waited) == 1
    assert f"the stream is being run by run {first.run_id}" in waited[0]
    monkeypatch.setattr("sluice.running.backfill_preparation._LIVE_LEASE_PATIENCE", timedelta(0))
    home = flights.lab.project.stream_home(flights.lab.project.resolve(stream))
    taken = acquire(home.storage, home.lease_folder(1), run_id="another", sink_is_idempotent=True)
    with taken, pytest.raises(LeaseTakenError, match="run another") as gave_up:
        flights.backfill(changed, 1, 1)
    assert gave_up.value.retryable


@in_campaigns
def test_a_driver_without_its_lease(flights: Flights, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is committed in spite of the backfill's lease loses rows to Spark's replacement: all is done again.

    Where no attempt is left, the error and the record say what is wrong with the table, until a retry has mended it.
    """
    stream = flights.stream("in_kilometers", sink=sinks.delta("lake"))
    flights.land(1, 3)
    flights.lab.run(stream)
    flights.land(2, 2, rest=True)
    leases = flights.root / "home" / "departures" / "leases" / "0001"
    committed: list[int] = []

    def go_on(phase: str) -> None:
        if phase == "replacing the rows" and not committed:
            newest = max(leases.iterdir(), key=lambda file: int(file.stem))
            newest.write_text(json.dumps(json.loads(newest.read_text()) | {"is_released": True}))
            flights.lab.run(stream)
            committed.append(DeltaTable(str(flights.table)).version())

    with monkeypatch.context() as patched:
        patched.setattr("sluice.running.backfill._MOST_ATTEMPTS", 1)
        with pytest.raises(BatchFailedError, match="may be missing since version 2: version 1"):
            flights.backfill(stream, 2, 2, key="once", phase=go_on)
    assert flights.rows() != flights.expected(1, 3)
    failed = next(found for found in flights.lab.records(stream) if found["interval"])
    assert failed["status"] == "failed"
    assert "version 1 (WRITE)" in failed["backfill"]["damage"]

    record = flights.backfill(stream, 2, 2, key="once")

    assert committed == [1]
    assert flights.rows() == flights.expected(1, 3)
    assert record.backfill is not None
    assert (record.backfill.attempt, record.backfill.damage) == (1, None)
    flights.land(3, 3, rest=True)
    committed.clear()

    started_again = flights.backfill(stream, 3, 3, phase=go_on)

    assert flights.rows() == flights.expected(1, 3)
    assert started_again.backfill is not None
    assert (started_again.backfill.attempt, started_again.backfill.damage) == (1, None)


def test_an_input_that_is_gone(flights: Flights) -> None:
    """A file that the live stream has read and nobody can read again is named, and nothing is replaced."""
    stream = flights.stream()
    flights.land(1, 3)
    flights.lab.run(stream)
    rows = flights.rows()
    gone = flights.root / "land" / "02-0.csv"
    gone.unlink()

    with pytest.raises(RefusedError, match=str(gone)) as caught:
        flights.backfill(stream, 1, 1)

    assert caught.value.finding.code == "BACKFILL_INPUT_GONE"
    assert flights.rows() == rows


def test_lateness(flights: Flights) -> None:
    """With a declared lateness, only what arrived in time is read; what came later need not even be there."""
    stream = flights.stream(lateness="2 days")
    (flights.root / "land").mkdir()
    for day in range(1, 6):
        file = flights.root / "land" / f"{day}.csv"
        shutil.copy2(flights.archive / f"flights-2013-01-{day:02d}.csv", file)
    flights.lab.run(stream, bounded(max_batches=4))
    (flights.root / "land" / "5.csv").unlink()

    plan = flights.plan(stream, 2, 2)
    flights.backfill(replace(stream, transform=f"{__name__}:in_kilometers"), 2, 2)

    assert plan.slices["flights"].amount["files"] == 3
    assert sum(row[0].day == 2 for row in flights.rows()) == sum(row[0].day == 2 for row in flights.expected(2, 2))
    assert {row for row in flights.rows() if row[0].day == 2} == {
        row for row in flights.expected(2, 2) if row[0].day == 2
    }


def test_files_from_before_the_start_and_with_patterns_for_names(flights: Flights) -> None:
    """What lies before the generation's start is read too, and a name like `[1]` means that file alone."""
    flights.land(1, 3)
    land = flights.root / "land"
    (land / "01-0.csv").rename(land / "0[1]-0.csv")
    shutil.copy(land / "02-0.csv", land / "01-0.csv")
    stream = flights.stream(sources={"flights": replace(source_of(flights.stream()), starting=at(land / "03-0.csv"))})
    (land / "01-0.csv").unlink()
    flights.lab.run(stream)
    assert {row[0].day for row in flights.rows()} == {3}

    flights.backfill(stream, 1, 2)

    assert flights.rows() == flights.expected(9, 9)


@in_campaigns
def test_a_delta_source_in_the_middle_of_a_version(flights: Flights) -> None:
    """What the live stream has yet to read of a version is left to it."""
    spark = flights.lab.spark
    upstream = flights.root / "upstream"
    for version in range(2):
        frame = spark.range(version * 8, version * 8 + 8, 1, 4).selectExpr("id", "DATE'2013-01-01' AS day")
        frame.write.format("delta").mode("append").save(str(upstream))
    stream = Stream(
        name="numbers",
        sources={"flights": sources.delta("upstream", max_files_per_batch=1, starting_version=0)},
        transform=f"{__name__}:same",
        sink=sinks.delta("lake", partition_by=["day"]),
        interval_column="day",
    )
    flights.lab.run(stream, bounded(max_batches=6))
    read = ids(flights)

    record = flights.backfill(stream, 1, 1)
    after = ids(flights)
    flights.lab.run(stream)

    assert len(read) == 12
    assert after == read
    assert record.backfill is not None
    assert record.backfill.rows_written == 12
    assert ids(flights) == list(range(16))


@in_campaigns
def test_a_chain_is_backfilled_from_source_to_sink(flights: Flights) -> None:
    """Downstream counts what was replaced upstream, and leaves to its live stream what was appended meanwhile."""
    flights.land(1, 4)
    upstream, counts, windows = flights.stream(), downstream("counts", "doubled"), downstream("windows", "per_day_of")
    flights.lab.run(upstream)
    flights.lab.run(counts)
    flights.lab.run(windows)
    before = per_origin(flights, "windows")
    # Day 5 arrives, and downstream has not read it; the days before are recomputed in kilometres.
    flights.land(5, 5)
    flights.lab.run(upstream)
    flights.backfill(flights.stream("in_kilometers"), 1, 2)

    flights.backfill(counts, 1, 2)
    flights.backfill(windows, 1, 2)

    expected = Counter({row: 1 for row in flights.rows() if row[0].day <= 4})
    doubled_rows = flights.lab.table("counts").collect()
    assert len(doubled_rows) == sum(expected.values())
    assert sum(row["distance"] for row in doubled_rows) == sum(2 * row[-1] for row in expected)
    assert per_origin(flights, "windows") != before
    assert per_origin(flights, "windows")[1] == sum(row[-1] for row in expected if row[0].day == 1)
    flights.lab.run(counts)
    assert len(flights.lab.table("counts").collect()) == sum(flights.rows().values())


@in_campaigns
def test_a_chain_whose_live_stream_is_behind(flights: Flights) -> None:
    """What was replaced before the live stream downstream has read it: that one has to go on first."""
    flights.land(1, 2)
    upstream, counts = flights.stream(), downstream("counts", "doubled")
    flights.lab.run(upstream)
    flights.lab.run(counts)
    flights.land(1, 1, rest=True)
    flights.lab.run(upstream)
    flights.backfill(flights.stream("in_kilometers"), 1, 1)

    with pytest.raises(RefusedError, match="has yet to read") as refused:
        flights.backfill(counts, 1, 1)
    read_remedy(refused.value, "BACKFILL_BEHIND_SOURCE", "run the live stream, which passes .*, then backfill again")
    flights.lab.run(counts)
    flights.backfill(counts, 1, 1)

    assert sum(row["distance"] for row in flights.lab.table("counts").collect()) == sum(
        2 * row[-1] * times for row, times in flights.rows().items()
    )


def downstream(name: str, transform: str) -> Stream:
    """A stream that reads the table of flights, into a table of its own name."""
    return Stream(
        name=name,
        sources={"flights": sources.delta("lake", skip_change_commits=True)},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta(name, partition_by=["flight_date"]),
        interval_column="flight_date",
    )


def per_origin(flights: Flights, table: str) -> dict[int, int]:
    """The kilometres or miles of each day."""
    found: Counter[int] = Counter()
    for row in flights.lab.table(table).collect():
        found[row["flight_date"].day] += row["n"]
    return dict(found)


def test_files_in_partitions(flights: Flights) -> None:
    """Columns that are folders, and rows that can't be parsed, come out as the live stream had them."""
    land = flights.root / "land"
    content = {f"day=2013-01-0{day}/{day}.json": f'{{"id": {day}}}\n{{"id": "x"}}\n' for day in (1, 2)}
    write_files(land, content)
    stream = flights.stream(
        "same",
        sources={"flights": sources.files("land", format="json", schema="id bigint, day date", mode="DROPMALFORMED")},
        sink=sinks.delta("lake", partition_by=["day"]),
        interval_column="day",
    )
    flights.lab.run(stream)
    before = sorted(map(tuple, flights.lab.table("lake").collect()))

    record = flights.backfill(stream, 1, 2)

    assert [row[0] for row in before] == [1, 2]
    assert sorted(map(tuple, flights.lab.table("lake").collect())) == before
    assert record.backfill is not None
    assert record.backfill.rows_written == 2


def test_columns_that_are_not_the_tables(flights: Flights) -> None:
    """A transform with other columns is told which, and nothing is replaced."""
    flights.land(1, 1)
    flights.lab.run(flights.stream())
    rows = flights.rows()

    with pytest.raises(DeclarationError, match=r"`n` \(none / bigint\)"):
        flights.backfill(flights.stream("per_carrier"), 1, 1)

    assert flights.rows() == rows


def same(flights: DataFrame) -> DataFrame:
    return flights


def per_carrier(flights: DataFrame) -> DataFrame:
    return as_delivered(flights).groupBy("flight_date", "carrier").agg(F.count("*").alias("n"))


def source_of(stream: Stream) -> Any:
    return stream.sources["flights"]


def at(file: Path) -> datetime:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)


def by_day(flights: Flights) -> list[Any]:
    return flights.lab.table("lake").groupBy("flight_date").agg({"n": "sum"}).collect()


def ids(flights: Flights) -> list[int]:
    return sorted(DeltaTable(str(flights.table)).to_pyarrow_table().column("id").to_pylist())


def days(flights: Flights) -> list[int]:
    return sorted(row["flight_date"].day for row in flights.lab.table("lake").collect())
