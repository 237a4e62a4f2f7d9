"""Live runs: Spark keeps the query at work, until the time of the run is over or somebody asks it to end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, LeaseLostError, QualityFailedError, QueryRefusedError, RefusedError
from sluice.gate.state import release_gate
from sluice.planning.planner import Limits
from sluice.planning.triggers import triggered
from sluice.planning.verdict import Request
from sluice.running.observers import Silent
from sluice.running.runner import run_stream
from sluice.runs.record import BatchRecord, RunRecord
from sluice.runs.stop import StopEvent, request_stop
from sluice.times import system_clock
from tests.remedies import read_remedy
from tests.spark.lab import NO_LIMITS, Lab, available_now, ids, log_files, write_numbers
from tests.spark.test_lost_leases import take_over
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark


def live(run_for: str = "3s", trigger: str = "processing-time=200ms") -> Limits:
    return triggered(NO_LIMITS, trigger, run_for, names=("--trigger", "--for"))


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def declared(sink: Any = None, **changes: Any) -> Stream:
    known: dict[str, Any] = {
        "name": "s",
        "sources": {"numbers": sources.files("in", format="json", schema="id bigint", max_files_per_batch=1)},
        "transform": f"{__name__}:same",
        "sink": sink or sinks.delta("out"),
    }
    return Stream(**known | changes)


class Meanwhile(Silent):
    """Does something when so many batches are done."""

    def __init__(self, **steps: Callable[[], object]) -> None:
        self._steps, self._done = {int(name.removeprefix("after_")): step for name, step in steps.items()}, 0

    def committed(self, batch: BatchRecord) -> None:
        self._done += 1
        step = self._steps.get(self._done)
        if step is not None:
            step()


def run_live(lab: Lab, stream: Stream, limits: Limits, stop: StopEvent | None = None, **steps: Any) -> RunRecord:
    request = Request(lab.project.resolve(stream), limits)
    return run_stream(lab.project, request, session=lab.spark, observer=Meanwhile(**steps), stop=stop)


def committed(lab: Lab, stream: Stream) -> tuple[list[int], list[int]]:
    """The ids in the two logs."""
    logs = (log_files(lab.checkpoint(stream) / name) for name in ("offsets", "commits"))
    offsets, commits = ([int(file.name) for file in log] for log in logs)
    return offsets, commits


def test_what_comes_while_it_is_at_work(lab: Lab) -> None:
    """Each batch is in the record as it is committed; the run ends when its time is over, between two batches."""
    stream = declared()
    write_numbers(lab.root / "in", 2, rows=2)

    stop = StopEvent()

    record = run_live(
        lab,
        stream,
        live("1m"),
        stop,
        after_2=lambda: write_numbers(lab.root / "in", 1, first=2, rows=2),
        after_3=stop.set,
    )

    assert (record.status, record.plan.strategy) == ("stopped", "live")
    assert [(batch.batch_id, batch.kind, batch.input_rows, batch.output_rows) for batch in record.batches] == [
        (0, "data", 2, 2), (1, "data", 2, 2), (2, "data", 2, 2),
    ]  # fmt: skip
    assert ids(lab.table("out")) == [0, 1, 2, 3, 4, 5]
    assert committed(lab, stream) == ([0, 1, 2], [0, 1, 2])
    (kept,) = lab.records(stream)
    assert kept["trigger"] == {"kind": "processing-time", "interval_ms": 200, "run_for_ms": 60_000}
    assert kept["live"]["doing"] != ""
    assert kept["live"]["committed_at"] > kept["live"]["began_at"]
    assert lab.run(stream).status == "skipped"


def test_an_idle_one_succeeds(lab: Lab) -> None:
    """It was at work for its time, and so it has a record, without batches: it is no skip."""
    stream = declared()
    (lab.root / "in").mkdir()

    record = run_live(lab, stream, live("300ms"))

    assert (record.status, record.batches) == ("succeeded", ())
    assert record.live is not None
    assert record.ended_at is not None
    assert record.ended_at >= record.live.ends_at
    assert committed(lab, stream) == ([], [])


HELD: list[Callable[[], object]] = []
"""What a batch waits for, once it is called: nothing but the first of them is done."""
CALLED: list[int] = []


def hold(frame: DataFrame, batch_id: int) -> None:
    CALLED.append(batch_id)
    frame.collect()
    if HELD:
        HELD.pop()()


@pytest.fixture(autouse=True)
def _nothing_held() -> Iterator[None]:
    yield
    HELD.clear()
    CALLED.clear()


def test_it_ends_behind_the_batch_under_way(lab: Lab) -> None:
    """Asked to stop, or out of time, while a batch is at work and others wait: that one is done, and no other begun."""
    stream = declared(sinks.foreach_batch(f"{__name__}:hold"))
    write_numbers(lab.root / "in", 4)
    (home,) = (lab.project.stream_home(lab.project.resolve(stream)),)
    stop = StopEvent()

    def ask() -> None:
        (run_id,) = (record["run_id"] for record in lab.records(stream))
        request_stop(home, run_id, requested_by="ada", now=datetime.now(UTC))
        assert stop.wait(30)

    HELD.append(ask)
    record = run_live(lab, stream, live("366d", "processing-time=366d"), stop)

    assert (record.status, CALLED, committed(lab, stream)) == ("stopped", [0], ([0], [0]))

    HELD.append(lambda: time_is_over(lab, stream))
    record = run_live(lab, stream, live("3s", "processing-time=0s"))

    assert (record.status, CALLED, committed(lab, stream)) == ("succeeded", [0, 1], ([0, 1], [0, 1]))
    assert [batch.batch_id for batch in record.batches] == [1]


def test_a_batch_that_fails_as_the_run_ends(lab: Lab) -> None:
    """Its time was over, and still it was to be done: the run fails, and the next one resumes it."""
    stream = declared(sinks.foreach_batch(f"{__name__}:hold"))
    write_numbers(lab.root / "in", 1)

    def fail() -> None:
        time_is_over(lab, stream)
        raise ValueError("no such place")

    HELD.append(fail)
    with pytest.raises(BatchFailedError, match="ValueError"):
        run_live(lab, stream, live("3s", "processing-time=0s"))

    assert lab.records(stream)[-1]["status"] == "failed"
    assert committed(lab, stream) == ([0], [])
    assert lab.run(stream).status == "succeeded"
    assert CALLED == [0, 0]


def time_is_over(lab: Lab, stream: Stream) -> None:
    ends_at = datetime.fromisoformat(lab.records(stream)[-1]["live"]["ends_at"])
    # The run looks at the clock at the latest then, and waits for this batch.
    threading.Event().wait((ends_at - datetime.now(UTC)).total_seconds() + 0.2)


def test_a_query_that_somebody_else_stops(lab: Lab) -> None:
    """It has not failed, and still its time was not over: the run fails, and a retry goes on for the rest of it."""
    stream = declared()
    write_numbers(lab.root / "in", 1)

    def stop_it() -> None:
        (query,) = lab.spark.streams.active
        query.stop()

    with pytest.raises(BatchFailedError, match="has ended before its time, and without an error"):
        run_live(lab, stream, live("1m"), after_1=stop_it)

    assert lab.records(stream)[-1]["status"] == "failed"
    assert lab.run(stream).status == "skipped"


def broken(frame: DataFrame, batch_id: int) -> None:
    CALLED.append(batch_id)
    if CALLED == [0, 1]:
        raise ValueError("no such place")
    frame.collect()


def test_a_retry_has_what_is_left_of_the_time(lab: Lab) -> None:
    """A batch that fails fails the run; the retry resumes it, and is at work for as long as the first try was to be."""
    stream = declared(sinks.foreach_batch(f"{__name__}:broken"))
    write_numbers(lab.root / "in", 2)
    with pytest.raises(BatchFailedError, match="ValueError"):
        lab.run(stream, live("2s"), run_key="key")
    (first,) = lab.records(stream)
    assert (first["status"], committed(lab, stream)) == ("failed", ([0, 1], [0]))

    write_numbers(lab.root / "in", 1, first=2)
    threading.Event().wait((datetime.fromisoformat(first["live"]["ends_at"]) - datetime.now(UTC)).total_seconds())
    record = lab.run(stream, NO_LIMITS, run_key="key")

    # The time is over: it finishes what was begun, and begins nothing.
    assert (record.status, record.tries, CALLED) == ("succeeded", 2, [0, 1, 1])
    assert [batch.batch_id for batch in record.batches] == [0, 1]
    assert record.live is not None
    assert record.live.ends_at == first["live"]["ends_at"]


def per_window(numbers: DataFrame) -> DataFrame:
    timed = numbers.select(F.timestamp_seconds("id").alias("at")).withWatermark("at", "0 seconds")
    return (
        timed.groupBy(F.window("at", "10 seconds"))
        .count()
        .select(F.unix_timestamp("window.start").alias("id"), "count")
    )


def test_windows_over_live_and_planned_runs(lab: Lab) -> None:
    """State and watermark go on from one to the other: each window comes out once, with all of its rows."""
    stream = declared(transform=f"{__name__}:per_window")
    write_numbers(lab.root / "in", 2, rows=7)
    lab.run(stream, live("1m"), stop_after=2)
    write_numbers(lab.root / "in", 2, first=2, rows=7)
    lab.run(stream)
    write_numbers(lab.root / "in", 2, first=4, rows=7)
    lab.run(stream, live("1m"), stop_after=2)

    lab.run(stream)

    records = lab.records(stream)
    assert sum(batch["input_rows"] for record in records for batch in record["batches"]) == 42
    found = {row["id"]: row["count"] for row in lab.table("out").collect()}
    # Up to 41: the window from 40 on is open.
    assert found == dict.fromkeys(range(0, 40, 10), 10)
    newest = max((batch for record in records for batch in record["batches"]), key=lambda batch: batch["batch_id"])
    assert newest["watermarks"] == {"numbers.at": "1970-01-01T00:00:41.000Z"}


def rated(numbers: DataFrame) -> DataFrame:
    return numbers.where("value >= 0")


def counted(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("value").count()


def rate(**changes: Any) -> Stream:
    numbers = {"numbers": sources.other("rate", rowsPerSecond=20, numPartitions=1)}
    return declared(sinks.noop(), **{"sources": numbers, "transform": f"{__name__}:rated"} | changes)


def test_another_run_on_a_checkpoint_of_epochs(lab: Lab) -> None:
    """Continuous runs go on from each other; any other is refused, for Spark fails to start there."""
    stream = rate()
    first = run_live(lab, stream, live("3s", "continuous=300ms"))
    newest = max(committed(lab, stream)[1])
    assert (first.status, first.plan.strategy) == ("succeeded", "live")
    assert {batch.kind for batch in first.batches} == {"data"}
    assert newest >= 3
    assert {batch.input_rows for batch in first.batches} == {None}

    for limits in (NO_LIMITS, Limits(strategy="drain"), live("1s")):
        with pytest.raises(RefusedError) as refused:
            lab.run(stream, limits)
        read_remedy(refused.value.finding, "CHECKPOINT_OF_EPOCHS", "go on with `--trigger continuous=1s --for 1m`")
    again = run_live(lab, stream, live("3s", "continuous=300ms"))

    assert again.status == "succeeded"
    assert max(committed(lab, stream)[1]) > newest
    assert all(batch.batch_id > newest for batch in again.batches)
    # What is refused here is what Spark can't do; once it can, this is to be planned.
    with pytest.raises(StreamingQueryException, match="is null"):
        available_now(lab.spark.readStream.format("rate").load(), lab.checkpoint(stream))


def test_a_continuous_query_on_a_checkpoint_of_batches(lab: Lab) -> None:
    """It is refused, for there would be no way back; other runs go on."""
    stream = rate()
    lab.run(stream)
    with pytest.raises(RefusedError) as refused:
        run_live(lab, stream, live("1s", "continuous=300ms"))
    read_remedy(refused.value.finding, "CHECKPOINT_OF_BATCHES", "run it with another trigger, or without")
    before = committed(lab, stream)[1]

    record = run_live(lab, stream, live("2s"))

    assert record.status == "succeeded"
    assert len(committed(lab, stream)[1]) > len(before)


def test_what_spark_refuses(lab: Lab) -> None:
    """A query with state is not begun: nothing of it is left, and it can be run otherwise."""
    stream = rate(transform=f"{__name__}:counted", output_mode="update")
    with pytest.raises(QueryRefusedError, match="Continuous processing does not support Aggregate operations"):
        run_live(lab, stream, live("5s", "continuous=1s"))
    assert committed(lab, stream) == ([], [])
    assert not (lab.checkpoint(stream) / "metadata").exists()
    assert run_live(lab, stream, live("1s")).status == "succeeded"


def test_who_loses_the_lease_ends_at_once(lab: Lab) -> None:
    """In the midst of a batch: the other run goes on with the checkpoint."""
    stream = declared(transform="tests.spark.test_lost_leases:endless", name="numbers")
    write_numbers(lab.root / "in", 1)
    offsets = lab.checkpoint(stream) / "offsets" / "0"

    def take_it() -> None:
        while not offsets.exists():
            threading.Event().wait(0.01)
        take_over(lab)

    thread = threading.Thread(target=take_it, daemon=True)
    thread.start()
    with pytest.raises(LeaseLostError):
        run_live(lab, stream, live("1h", "processing-time=1m"))

    thread.join(30)
    assert not lab.spark.streams.active
    assert not (lab.root / "out" / "_delta_log").exists()


TIMED: list[int] = []
STOPS: list[StopEvent] = []
"""What is set once a timer has fired."""


def note(frame: DataFrame, batch_id: int) -> None:
    TIMED.extend(ids(frame))
    if -1 in TIMED:
        STOPS[0].set()


def test_timers_fire_in_it(lab: Lab) -> None:
    """A drained run would never end on them; here they are due by Spark's own clock."""
    TIMED.clear()
    stream = declared(sinks.foreach_batch(f"{__name__}:note"), transform="tests.spark.test_timers:quiet_keys")
    write_numbers(lab.root / "in", 1, first=1)

    STOPS[:] = [StopEvent()]

    record = run_live(lab, stream, live("2m", "processing-time=500ms"), STOPS[0])

    assert TIMED == [1, -1]
    assert {batch.kind for batch in record.batches} == {"data", "no_data"}


def judged(lab: Lab, *rows: dict[str, Any]) -> Stream:
    (lab.root / "suite.json").write_bytes(document(*rows))
    return declared(quality="suite.json")


def test_a_suite_judges_its_batches(lab: Lab) -> None:
    """Rows leave for the quarantine; a batch that fails is not published, and its release lets the next run go on."""
    most = {"column": "id", "max_value": 1}
    stream = judged(lab, row("expect_column_values_to_be_between", policy="quarantine", **most))
    write_numbers(lab.root / "in", 3)
    record = lab.run(stream, live("1m"), stop_after=3)
    assert record.quality is not None
    assert (record.quality.verdict, record.quality.rows, record.quality.quarantined) == ("warn", 3, 1)
    assert ids(lab.table("out")) == [0, 1]

    stream = judged(lab, row("expect_column_max_to_be_between", policy="fail", column="id", max_value=4))
    write_numbers(lab.root / "in", 3, first=3)
    with pytest.raises(QualityFailedError):
        run_live(lab, stream, live("1m"))
    assert ids(lab.table("out")) == [0, 1, 3, 4]

    release_gate(lab.project.stream_home(stream), "ada", system_clock())
    assert lab.run(stream).status == "succeeded"
    assert ids(lab.table("out")) == [0, 1, 3, 4, 5]
