"""Backfills that can't be exact beside what the live stream has done: refused with the reason, nothing is replaced."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.runs.record import RunRecord
from tests.campaign import in_campaigns
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_files

pytestmark = pytest.mark.spark


def counted_per_batch(days: DataFrame) -> DataFrame:
    """For each number, how often it was there so far: a row for each batch that has it."""

    def follow(key, frames, state):  # noqa: ANN001, ANN202 - pyspark takes type hints for those of a pandas function
        seen = sum(len(frame) for frame in frames) + (state.get[0] if state.exists else 0)
        state.update((seen,))
        yield pd.DataFrame({"n": [key[0]], "seen": [seen]})

    counted = (
        days.withWatermark("at", "0 seconds")
        .groupBy("n")
        .applyInPandasWithState(follow, "n bigint, seen bigint", "seen bigint", "append", "NoTimeout")
    )
    return counted.withColumn("day", F.lit("2026-01-02").cast("date"))


def once_a_day(days: DataFrame) -> DataFrame:
    once = days.withWatermark("at", "0 seconds").dropDuplicatesWithinWatermark(["n", "day"])
    return once.select("n", "day", "at")


def dated(days: DataFrame) -> DataFrame:
    return once_a_day(days.withColumn("day", F.to_date("at")))


def late_by_day(days: DataFrame) -> DataFrame:
    timed = days.withColumn("date", F.col("at").cast("date")).withColumn("when", F.col("date").cast("timestamp"))
    once = timed.withWatermark("when", "0 seconds").dropDuplicatesWithinWatermark(["n", "date", "day"])
    return once.select("n", "day", "at")


def stream(transform: str, name: str = "s", **changes: Any) -> Stream:
    days = sources.files("land", format="json", schema="n bigint, at timestamp, day date", max_files_per_batch=1)
    known: dict[str, Any] = {
        "name": name,
        "sources": {"days": days},
        "transform": f"{__name__}:{transform}",
        "sink": sinks.delta("out", partition_by=["day"]),
        "interval_column": "day",
    }
    return Stream(**known | changes)


def arrive(lab: Lab, number: int, *rows: tuple[int, str]) -> None:
    """A file of rows: a number, and a time of January 2nd."""
    lines = [json.dumps({"n": n, "at": f"2026-01-02T{at}Z", "day": "2026-01-02"}) for n, at in rows]
    write_files(lab.root / "land", {f"{number}.json": "\n".join(lines)}, first=number)


def backfill(lab: Lab, declared: Stream) -> RunRecord:
    """Recompute January 2nd."""
    interval = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    return backfill_stream(lab.project, BackfillRequest(lab.project.resolve(declared), interval), session=lab.spark)


def refused(lab: Lab, declared: Stream) -> str:
    """Why a backfill of January 2nd is refused; the table is as it was."""
    return refusal(lab, declared).finding.code


def refusal(lab: Lab, declared: Stream) -> RefusedError:
    """The same, with what to do."""
    before = lab.table("out").orderBy("n").collect()
    with pytest.raises(RefusedError) as caught:
        backfill(lab, declared)
    assert lab.table("out").orderBy("n").collect() == before
    return caught.value


def numbers(lab: Lab, path: str = "out") -> list[int]:
    return sorted(row["n"] for row in lab.table(path).collect())


def test_rows_that_depend_on_the_batches(lab: Lab) -> None:
    """Three batches made three rows, one batch of all three files would make one, and the watermark has passed them."""
    for number in range(3):
        arrive(lab, number, (7, f"0{number + 1}:00:00"))
    later = {"n": 8, "at": "2026-01-09T00:00:00Z", "day": "2026-01-09"}
    write_files(lab.root / "land", {"3.json": json.dumps(later)}, first=3)
    declared = stream("counted_per_batch")
    lab.run(declared)
    assert numbers(lab) == [7, 7, 7, 8]

    read_remedy(refusal(lab, declared), "BACKFILL_BATCH_BY_BATCH", "let a new one, with a table of its own, read every")
    lab.run(stream("counted_per_batch", "anew", sink=sinks.delta("anew")))
    assert numbers(lab, "anew") == [7, 7, 7, 8]


@in_campaigns
def test_a_late_row_that_the_state_does_not_know(lab: Lab) -> None:
    """The backfill would count it in, and the live stream would emit the next row of its key beside it.

    Once the watermark has passed the day, every further row of it is late: then it is counted in.
    """
    declared = stream("dated")
    arrive(lab, 0, (1, "01:00:00"), (2, "10:00:00"))
    lab.run(declared)
    arrive(lab, 1, (3, "02:00:00"))
    lab.run(declared)
    assert numbers(lab) == [1, 2]
    assert sum(batch["late_rows"] for record in lab.records(declared) for batch in record["batches"]) == 1

    assert refused(lab, declared) == "BACKFILL_LATE_ROWS"

    arrive(lab, 2, (3, "11:00:00"))
    lab.run(declared)
    assert numbers(lab) == [1, 2, 3]
    lines = [json.dumps({"n": n, "at": f"2026-01-0{n}T00:00:00Z", "day": f"2026-01-0{n}"}) for n in (4, 5)]
    for number, line in enumerate(lines, 3):
        write_files(lab.root / "land", {f"{number}.json": line}, first=number)
    lab.run(declared)
    backfill(lab, declared)
    assert numbers(lab) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("known", ["all", "nothing", "otherwise"])
def test_a_late_row_that_may_come_in_time_for_ever(lab: Lab, known: str) -> None:
    """A day that is not that of the event time is never over: a key that was late may come again in time.

    Spark is asked, whatever is known of the newest run: a module that the transform's own imports may be edited.
    """
    declared = stream("once_a_day")

    def arrive_later(number: int, *rows: tuple[int, str]) -> None:
        lines = [json.dumps({"n": n, "at": f"2026-01-05T{at}Z", "day": "2026-01-02"}) for n, at in rows]
        write_files(lab.root / "land", {f"{number}.json": "\n".join(lines)}, first=number)

    arrive_later(0, (1, "01:00:00"), (2, "10:00:00"))
    lab.run(declared)
    backfill(lab, declared)
    arrive_later(1, (3, "02:00:00"))
    lab.run(declared)
    assert numbers(lab) == [1, 2]
    if known != "all":
        home = lab.project.stream_home(declared)
        generation = home.generation(1)
        assert generation is not None
        assert generation.drops_duplicates is not None
        found = msgspec.structs.replace(generation.drops_duplicates, timeless=None) if known == "otherwise" else None
        home.keep_generation(msgspec.structs.replace(generation, drops_duplicates=found))

    says = "let the transform make `day` of the event time"
    read_remedy(refusal(lab, declared), "BACKFILL_LATE_ROWS", says)
    arrive_later(2, (3, "11:00:00"))
    lab.run(declared)
    assert numbers(lab) == [1, 2, 3]


def test_a_late_row_whose_key_tells_the_event_time(lab: Lab) -> None:
    """The event time is cast from a key: a further row of that key is as late, so the backfill may count it in."""
    declared = stream("late_by_day")
    for number, (n, at) in enumerate([(1, "03"), (2, "05"), (3, "02"), (3, "02")]):
        row = {"n": n, "at": f"2026-01-{at}T01:00:00Z", "day": "2026-01-02"}
        write_files(lab.root / "land", {f"{number}.json": json.dumps(row)}, first=number)
        lab.run(declared)
    assert numbers(lab) == [1, 2]

    backfill(lab, declared)
    assert numbers(lab) == [1, 2, 3]

    write_files(lab.root / "land", {"4.json": json.dumps(row)}, first=4)
    lab.run(declared)
    assert numbers(lab) == [1, 2, 3]


@in_campaigns
def test_without_late_rows_today_can_be_backfilled(lab: Lab) -> None:
    """The state knows every key that the backfill counts: what comes next is dropped as it always was."""
    declared = stream("once_a_day")
    arrive(lab, 0, (1, "01:00:00"), (2, "10:00:00"))
    lab.run(declared)

    backfill(lab, declared)
    arrive(lab, 1, (2, "10:00:00"), (3, "12:00:00"))
    lab.run(declared)

    assert numbers(lab) == [1, 2, 3]


@in_campaigns
def test_state_that_nothing_tells_of(lab: Lab) -> None:
    """A checkpoint of an older Spark has no metadata of its operators; a run notes them, and it is refused then."""
    arrive(lab, 0, (7, "01:00:00"))
    declared = stream("counted_per_batch")
    lab.run(declared)
    for folder in lab.checkpoint(declared).glob("state/*/_metadata"):
        shutil.rmtree(folder)
    assert refused(lab, declared).startswith("BACKFILL_")
    arrive(lab, 1, (7, "01:00:00"))
    lab.run(declared)

    assert refused(lab, declared) == "BACKFILL_BATCH_BY_BATCH"


def as_delivered(days: DataFrame) -> DataFrame:
    return days.select("n", "day")


def negated(days: DataFrame) -> DataFrame:
    return days.select((-F.col("n")).alias("n"), "day")


@in_campaigns
def test_two_streams_and_one_table(lab: Lab) -> None:
    """Of another project even: each would delete what the other has written."""
    first, second = stream("as_delivered"), stream("negated", "other")
    for number in (1, 2):
        arrive(lab, number, (number, "01:00:00"))
        lab.run(first)
        lab.run(second)

    assert {refused(lab, declared) for declared in (first, second)} == {"BACKFILL_TABLE_SHARED"}
    assert Path(lab.root / "out").is_dir()
    assert numbers(lab) == [-2, -1, 1, 2]


def undated(days: DataFrame) -> DataFrame:
    return days.select("n", "at")


def dated_where_it_is(days: DataFrame) -> DataFrame:
    return days.selectExpr("n", "at", "CASE WHEN n < 10 THEN day END AS day")


def never_dated(days: DataFrame) -> DataFrame:
    return days.selectExpr("n", "at", "CAST(NULL AS DATE) AS day")


def no_floor(days: DataFrame) -> DataFrame:
    return dated_where_it_is(days).where("n > 2")


@pytest.mark.parametrize("partitions", [[], ["day"]])
def test_rows_that_have_an_interval_only_now(lab: Lab, partitions: list[str]) -> None:
    """Refused until they have it in the table, too; rows without one by the transform itself are nobody's concern."""
    follows = sinks.delta("out", schema_evolution="add", partition_by=partitions)
    arrive(lab, 0, (1, "10:00"), (2, "11:00"), (11, "11:00"))
    # Delta writes no row without the column that partitions its table.
    lab.run(stream("never_dated" if partitions else "undated", sink=follows, interval_column=None))
    arrive(lab, 1, (3, "12:00"), (12, "12:00"))
    declared = stream("dated_where_it_is", sink=follows)
    lab.run(declared)
    problem = read_remedy(refusal(lab, declared), "BACKFILL_UNDATED_ROWS", "the `day` that it has now")
    assert problem.cause == "2 rows of the table have no `day`, and are else like rows that the interval is to have"
    assert numbers(lab) == [1, 2, 3, 11, 12]
    # Rows that the transform gives no longer are not there twice.
    assert backfill(lab, replace(declared, transform=f"{__name__}:no_floor")).status == "succeeded"
    assert numbers(lab) == [1, 2, 3, 11, 12]
    lab.spark.sql(f"UPDATE delta.`{lab.root / 'out'}` SET day = DATE'2026-01-02' WHERE day IS NULL AND n < 10")
    assert backfill(lab, declared).status == "succeeded"
    assert numbers(lab) == [1, 2, 3, 11, 12]


def test_undated_rows_of_a_stream_with_state(lab: Lab) -> None:
    """Where the transform runs as a stream, rows without a value are nobody's concern, either."""
    days = {1: "2026-01-02", 2: None}
    lines = [json.dumps({"n": n, "at": "2026-01-02T10:00:00Z", "day": day}) for n, day in days.items()]
    write_files(lab.root / "land", {"f-0.json": "\n".join(lines)})
    declared = stream("once_a_day", sink=sinks.delta("out"))
    lab.run(declared)
    arrive(lab, 1, (3, "12:00"))
    lab.run(declared)
    assert backfill(lab, declared).status == "succeeded"
    assert numbers(lab) == [1, 2, 3]
