"""Runs from end to end, in a warm session: what they read, write and record, and how the next run goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, RefusedError
from sluice.sinks.contract import Sink
from sluice.spark_setting import spark_setting
from tests.spark.lab import (
    FIRST_MTIME,
    Lab,
    append_outside,
    append_rows,
    available_now,
    bounded,
    ids,
    log_bytes,
    reader,
    rows,
    snapshot,
    uncommit,
    watermarks,
    write_numbers,
)

pytestmark = pytest.mark.spark

CALLS: list[tuple[int, list[int]]] = []
"""What `collect` was called with."""

JOINED = {"numbers": 0, "others": 2}


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def small(numbers: DataFrame) -> DataFrame:
    """Fails in an executor, on the first id above 2."""

    def check(number):  # noqa: ANN001, ANN202 - pyspark takes type hints for those of a pandas function
        if number > 2:
            raise ValueError(f"{number} is too large")
        return number

    return numbers.select(F.udf(check, "bigint")("id").alias("id"))


def timed(numbers: DataFrame) -> DataFrame:
    return numbers.select("id", F.current_timestamp().alias("at"))


def observed(numbers: DataFrame) -> DataFrame:
    return numbers.observe("quality", F.count(F.lit(1)).alias("rows"), F.max("id").alias("largest"))


def counted(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy((F.col("id") % 2).alias("id")).agg(F.count(F.lit(1)).alias("count"))


def first_three(numbers: DataFrame) -> DataFrame:
    return numbers.limit(3)


def total(numbers: DataFrame) -> DataFrame:
    return numbers.agg(F.sum("id").alias("id"))


def first_of_each(numbers: DataFrame) -> DataFrame:
    events = numbers.select("id", F.timestamp_seconds("id").alias("at")).withWatermark("at", "2 seconds")
    return events.dropDuplicatesWithinWatermark(["id"])


def per_window(numbers: DataFrame) -> DataFrame:
    events = numbers.select("id", F.timestamp_seconds("id").alias("at")).withWatermark("at", "1 second")
    windows = events.groupBy(F.window("at", "2 seconds")).agg(F.sum("id").alias("total"))
    return windows.select(F.unix_timestamp("window.start").alias("id"), "total")


def matched(numbers: DataFrame, others: DataFrame) -> DataFrame:
    """Numbers with their match, or with null once the watermark has passed the time for one."""
    left = numbers.select("id", F.timestamp_seconds("id").alias("at")).withWatermark("at", "1 second")
    right = others.selectExpr("id AS other", "timestamp_seconds(id) AS other_at").withWatermark("other_at", "1 second")
    return left.join(right, F.expr("id = other AND at = other_at"), "left_outer").select("id", "other")


def collect(frame: DataFrame, batch_id: int) -> None:
    CALLS.append((batch_id, ids(frame)))


def declared(transform: str = "same", sink: Sink | None = None, *, mode: Any = "append", **options: Any) -> Stream:
    """A stream of JSON files, one per batch, into Parquet."""
    options = {"max_files_per_batch": 1, **options}
    return Stream(
        name="s",
        sources={"numbers": sources.files("land", format="json", schema="id bigint", **options)},
        transform=f"{__name__}:{transform}",
        sink=sink or sinks.files("out", format="parquet"),
        output_mode=mode,
    )


def join() -> Stream:
    given = {name: sources.files(name, format="json", schema="id bigint", max_files_per_batch=1) for name in JOINED}
    sink = sinks.files("out", format="parquet")
    return Stream(name="s", sources=given, transform=f"{__name__}:matched", sink=sink)


def joined_by_both(lab: Lab, **counts: int) -> list[tuple[list[Any], int]]:
    """Rows, and the watermark at the end, of one run by Sluice and one by Spark; ids of `others` begin at 2."""
    for name, first in JOINED.items():
        write_numbers(lab.root / name, counts[name], first=first)
    lab.run(join())
    plain = [reader(lab.spark, maxFilesPerTrigger=1).json(str(lab.root / name)) for name in JOINED]
    available_now(matched(*plain), lab.root / "spark", lab.root / "spark-out", sink="parquet")
    return [
        (rows(lab.spark.read.parquet(str(lab.root / out))), max(watermarks(checkpoint).values()))
        for out, checkpoint in (("out", lab.checkpoint(join())), ("spark-out", lab.root / "spark"))
    ]


def written(lab: Lab) -> list[int]:
    return ids(lab.spark.read.parquet(str(lab.root / "out")))


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


class TestRunAfterRun:
    """What one run leaves, and the next finds."""

    def test_first_run(self, lab: Lab) -> None:
        """A first run reads everything, one batch per planned step, and its record says what each did."""
        write_numbers(lab.root / "land", 2, rows=3)
        record = lab.run(declared(sink=sinks.delta("out")))
        assert ids(lab.table("out")) == list(range(6))
        assert record.status == "succeeded"
        assert [(b.batch_id, b.kind, b.input_rows, b.output_rows, b.sink_version) for b in record.batches] == [
            (0, "data", 3, 3, 0),
            (1, "data", 3, 3, 1),
        ]
        assert record.batches[0].duration_ms["addBatch"] > 0

    def test_record_on_disk(self, lab: Lab) -> None:
        """The record on disk is the one that is returned, with the query id that the sink's table has."""
        write_numbers(lab.root / "land", 1)
        stream = declared(sink=sinks.delta("out"))
        record = lab.run(stream)
        (on_disk,) = lab.records(stream)
        assert on_disk["run_id"] == record.run_id
        assert (on_disk["status"], len(on_disk["batches"]), on_disk["token"]) == ("succeeded", 1, record.token)
        commit = (lab.root / "out" / "_delta_log" / f"{0:020d}.json").read_text()
        assert f'"appId":"{record.query_id}"' in commit

    def test_second_run(self, lab: Lab) -> None:
        """A second run reads only what came since, in the next batch, under the next token."""
        write_numbers(lab.root / "land", 2)
        first = lab.run(declared())
        write_numbers(lab.root / "land", 1, first=2)
        second = lab.run(declared())
        assert [batch.batch_id for batch in second.batches] == [2]
        assert (second.query_id, second.token) == (first.query_id, first.token + 1)
        assert written(lab) == [0, 1, 2]

    def test_skip(self, lab: Lab) -> None:
        """A run that finds nothing new changes neither the checkpoint nor the records."""
        write_numbers(lab.root / "land", 1)
        stream = declared()
        lab.run(stream)
        before = snapshot(lab.checkpoint(stream))
        assert [lab.run(stream).status for _ in range(2)] == ["skipped", "skipped"]
        assert snapshot(lab.checkpoint(stream)) == before
        assert len(lab.records(stream)) == 1

    def test_retry_of_a_run_that_succeeded(self, lab: Lab) -> None:
        """A retry under the same key gives the first try's record, and reads nothing that came since."""
        write_numbers(lab.root / "land", 1)
        first = lab.run(declared(), run_key="2026-01-31")
        write_numbers(lab.root / "land", 1, first=1)
        assert lab.run(declared(), run_key="2026-01-31").run_id == first.run_id
        assert written(lab) == [0]


class TestBounds:
    """Where a run stops."""

    def test_max_batches(self, lab: Lab) -> None:
        """A run of two batches stops after two, and the next goes on."""
        write_numbers(lab.root / "land", 5)
        assert len(lab.run(declared(), bounded(max_batches=2)).batches) == 2
        assert written(lab) == [0, 1]
        assert len(lab.run(declared()).batches) == 3
        assert written(lab) == list(range(5))

    def test_until(self, lab: Lab) -> None:
        """A run until a time reads the files from before it."""
        write_numbers(lab.root / "land", 4)
        lab.run(declared(), bounded(datetime.fromtimestamp(FIRST_MTIME + 2, UTC)))
        assert written(lab) == [0, 1]

    def test_stop_request(self, lab: Lab) -> None:
        """A stop request ends the run after the batch under way; the next run finishes."""
        write_numbers(lab.root / "land", 4)
        record = lab.run(declared(), stop_after=2)
        assert (record.status, len(record.batches)) == ("stopped", 2)
        assert written(lab) == [0, 1]
        assert lab.run(declared()).status == "succeeded"
        assert written(lab) == list(range(4))


class TestDrain:
    """One AvailableNow start, in which Spark decides the batches."""

    def test_more_batches_than_spark_remembers(self, lab: Lab) -> None:
        """Spark keeps the last few reports; the record has all of 12 batches, with their rows."""
        write_numbers(lab.root / "land", 12)
        with spark_setting(lab.spark, "spark.sql.streaming.numRecentProgressUpdates", "3"):
            record = lab.run(declared(sink=sinks.noop()), bounded(strategy="drain"))
        assert [batch.batch_id for batch in record.batches] == list(range(12))
        assert {batch.input_rows for batch in record.batches} == {1}
        assert lab.run(declared(sink=sinks.noop())).status == "skipped"

    def test_after_a_planned_batch_that_was_not_committed(self, lab: Lab) -> None:
        """The batch under way is finished as planned, then Spark takes the rest."""
        write_numbers(lab.root / "land", 4)
        stream = declared()
        lab.run(stream, bounded(max_batches=2))
        uncommit(lab.checkpoint(stream), 1)
        record = lab.run(stream, bounded(strategy="drain"))
        assert [batch.batch_id for batch in record.batches] == [1, 2, 3]
        assert written(lab) == list(range(4))

    def test_stop_request(self, lab: Lab) -> None:
        """A stop request ends Spark's query; what it left is finished by the next run, every row once."""
        write_numbers(lab.root / "land", 40)
        record = lab.run(declared(), bounded(strategy="drain"), stop_after=1)
        assert record.status == "stopped"
        assert 1 <= len(record.batches) < 40
        assert lab.run(declared(max_files_per_batch=None)).status == "succeeded"
        assert written(lab) == list(range(40))

    def test_a_source_that_only_spark_can_plan(self, lab: Lab) -> None:
        """A table in the order of its event time is drained, and its batches are recorded."""
        append_rows(lab.spark, lab.root / "table", range(3))
        stream = replace(declared(), sources={"numbers": sources.delta("table", with_event_time_order=True)})
        record = lab.run(stream)
        assert (record.plan.strategy, record.status) == ("drain", "succeeded")
        assert [batch.input_rows for batch in record.batches] == [3]
        assert written(lab) == [0, 1, 2]

        # Spark has nothing to do, and need not be asked; the next version begins it.
        idle = lab.plan(stream)
        assert (idle.verdict, idle.reason) == ("skip", "nothing new")
        append_rows(lab.spark, lab.root / "table", [3])
        record = lab.run(stream)
        assert [batch.input_rows for batch in record.batches] == [1]
        assert written(lab) == [0, 1, 2, 3]
        assert lab.plan(stream).verdict == "skip"


class TestResume:
    """After a crash between the sink and the commit."""

    @pytest.mark.parametrize("kind", ["delta", "files"])
    def test_a_sink_that_holds_the_batch(self, lab: Lab, kind: str) -> None:
        """The batch runs again as logged, the sink skips it, and the record says so."""
        sink = {"delta": sinks.delta("out"), "files": sinks.files("out", format="parquet")}[kind]
        write_numbers(lab.root / "land", 2)
        stream = declared(sink=sink)
        lab.run(stream)
        uncommit(lab.checkpoint(stream), 1)
        before = log_bytes(lab.checkpoint(stream) / "offsets")
        record = lab.run(stream)
        (batch,) = record.batches
        assert (record.plan.verdict, batch.batch_id, batch.kind) == ("resume", 1, "uncommitted")
        assert (batch.was_in_sink, batch.input_rows) == (True, None)
        assert log_bytes(lab.checkpoint(stream) / "offsets") == before
        assert ids(lab.spark.read.format("delta" if kind == "delta" else "parquet").load(str(lab.root / "out"))) == [
            0,
            1,
        ]

    def test_a_sink_that_does_not(self, lab: Lab) -> None:
        """A function is called again with the same batch, and then with what came since."""
        write_numbers(lab.root / "land", 2)
        stream = declared(sink=sinks.foreach_batch(f"{__name__}:collect"))
        lab.run(stream)
        uncommit(lab.checkpoint(stream), 1)
        write_numbers(lab.root / "land", 1, first=2)
        record = lab.run(stream)
        assert [batch.kind for batch in record.batches] == ["uncommitted", "data"]
        assert CALLS == [(0, [0]), (1, [1]), (1, [1]), (2, [2])]

    def test_an_entry_without_its_batch(self, lab: Lab) -> None:
        """An entry in the source's log whose batch was never planned is the next batch, as it stands."""
        write_numbers(lab.root / "land", 2)
        stream = declared(sink=sinks.noop())
        lab.run(stream)
        uncommit(lab.checkpoint(stream), 1)
        (lab.checkpoint(stream) / "offsets" / "1").unlink()
        (lab.checkpoint(stream) / "offsets" / ".1.crc").unlink(missing_ok=True)
        record = lab.run(stream)
        assert [(batch.batch_id, batch.kind, batch.input_rows) for batch in record.batches] == [(1, "data", 1)]

    def test_an_input_that_is_gone(self, lab: Lab) -> None:
        """A planned file that is gone, which Spark would read as empty, refuses the run."""
        write_numbers(lab.root / "land", 2)
        stream = declared(sink=sinks.foreach_batch(f"{__name__}:collect"))
        lab.run(stream)
        uncommit(lab.checkpoint(stream), 1)
        (lab.root / "land" / "0001.json").unlink()
        with pytest.raises(RefusedError) as refused:
            lab.run(stream)
        assert refused.value.finding.code == "INPUT_GONE"

    @pytest.mark.parametrize("kind", ["delta", "files"])
    def test_an_input_that_the_sink_has(self, lab: Lab, kind: str) -> None:
        """Where the sink holds the batch, its input may be gone: it is committed unread, and the stream goes on."""
        sink = {"delta": sinks.delta("out"), "files": sinks.files("out", format="parquet")}[kind]
        write_numbers(lab.root / "land", 2)
        stream = declared(sink=sink)
        lab.run(stream)
        uncommit(lab.checkpoint(stream), 1)
        commits = log_bytes(lab.checkpoint(stream) / "commits")
        (lab.root / "land" / "0001.json").unlink()
        write_numbers(lab.root / "land", 1, first=2)

        plan = lab.plan(stream)
        record = lab.run(stream)

        assert (plan.verdict, [(found.code, found.is_blocking) for found in plan.warnings]) == (
            "resume",
            [("INPUT_GONE", False)],
        )
        assert [(batch.batch_id, batch.was_in_sink) for batch in record.batches] == [(1, True), (2, False)]
        assert "0001.json" in record.batches[0].warnings[0]
        assert ids(lab.spark.read.format("delta" if kind == "delta" else "parquet").load(str(lab.root / "out"))) == [
            0,
            1,
            2,
        ]
        assert list(log_bytes(lab.checkpoint(stream) / "commits")) == [*commits, "1", "2"]

    def test_data_files_of_a_table_that_the_sink_has(self, lab: Lab) -> None:
        """The same goes for data files of a Delta table that is the source: Spark plans the batch by the log."""
        stream = replace(declared(sink=sinks.delta("out")), sources={"numbers": sources.delta("table")})
        for number in range(2):
            append_outside(lab.root / "table", [number])
            lab.run(stream)
        uncommit(lab.checkpoint(stream), 1)
        log = lab.root / "table" / "_delta_log" / "00000000000000000001.json"
        added = [json.loads(line)["add"]["path"] for line in log.read_text().splitlines() if '"add"' in line]
        (lab.root / "table" / added[0]).unlink()
        append_outside(lab.root / "table", [2])

        record = lab.run(stream)

        assert [(batch.batch_id, batch.was_in_sink) for batch in record.batches] == [(1, True), (2, False)]
        assert ids(lab.table("out")) == [0, 1, 2]

    @pytest.mark.parametrize("what", ["state", "suite"])
    def test_an_input_that_only_the_sink_has(self, lab: Lab, what: str) -> None:
        """The rows are in the sink, but a state or a suite needs them, too: the run is refused, and says so."""
        write_numbers(lab.root / "land", 2)
        stream = declared("first_of_each") if what == "state" else declared()
        lab.run(stream)
        uncommit(lab.checkpoint(stream), 1)
        (lab.root / "land" / "0001.json").unlink()
        if what == "suite":
            suite = {"name": "s", "expectations": [{"type": "expect_table_row_count_to_be_between", "kwargs": {}}]}
            (lab.root / "suite.json").write_text(json.dumps(suite))
            stream = replace(stream, quality="suite.json")

        with pytest.raises(RefusedError, match=f"the sink has the batch's rows; it is the {what} that") as refused:
            lab.run(stream)

        assert refused.value.finding.code == "INPUT_GONE"

    def test_a_lost_checkpoint(self, lab: Lab) -> None:
        """A sink that holds more than the checkpoint has planned refuses the run: Spark would skip new rows."""
        write_numbers(lab.root / "land", 2)
        stream = declared()
        lab.run(stream)
        (lab.root / "home" / "s").rename(lab.root / "lost")
        with pytest.raises(RefusedError) as refused:
            lab.run(stream)
        assert refused.value.finding.code == "SINK_AHEAD"


class TestFailure:
    """A batch that fails."""

    def test_record(self, lab: Lab) -> None:
        """A transform that fails in an executor fails the run; what it raised is told, and nothing of its row."""
        write_numbers(lab.root / "land", 5)
        stream = declared("small")
        with pytest.raises(BatchFailedError, match="ValueError") as failed:
            lab.run(stream)
        (record,) = lab.records(stream)
        assert (record["status"], record["run_id"]) == ("failed", failed.value.run_id)
        assert [batch["batch_id"] for batch in record["batches"]] == [0, 1, 2]
        assert record["error"]["type"] == "BatchFailedError"
        assert "ValueError" in record["error"]["message"]
        assert "3 is too large" not in record["error"]["message"]

    def test_after_mending(self, lab: Lab) -> None:
        """Once the transform is mended, the same batch runs again from the same bytes, then the rest."""
        write_numbers(lab.root / "land", 5)
        stream = declared("small")
        with pytest.raises(BatchFailedError):
            lab.run(stream)
        planned = snapshot(lab.checkpoint(stream) / "offsets")
        assert "3" in planned
        record = lab.run(declared("same"))
        assert [(b.batch_id, b.kind) for b in record.batches] == [(3, "uncommitted"), (4, "data")]
        after = snapshot(lab.checkpoint(stream) / "offsets")
        assert {name: after[name] for name in planned} == planned
        assert written(lab) == list(range(5))


class TestSinks:
    """Sinks and output modes."""

    def test_foreach_batch(self, lab: Lab) -> None:
        """The function gets every batch with its id."""
        write_numbers(lab.root / "land", 3, rows=2)
        lab.run(declared(sink=sinks.foreach_batch(f"{__name__}:collect")))
        assert CALLS == [(0, [0, 1]), (1, [2, 3]), (2, [4, 5])]

    def test_partitioned_table(self, lab: Lab) -> None:
        """A Delta table is partitioned as declared."""
        write_numbers(lab.root / "land", 2)
        lab.run(declared("timed", sinks.delta("out", partition_by=["id"])))
        files = pa.table(DeltaTable(str(lab.root / "out")).get_add_actions(flatten=True))
        assert sorted(files.column("partition.id").to_pylist()) == [0, 1]
        assert [path.count("id=") for path in files.column("path").to_pylist()] == [1, 1]

    def test_complete_mode(self, lab: Lab) -> None:
        """In complete mode the table holds all groups after every run."""
        stream = declared("counted", sinks.delta("out"), mode="complete", max_files_per_batch=None)
        write_numbers(lab.root / "land", 3)
        lab.run(stream)
        assert rows(lab.table("out")) == [(0, 2), (1, 1)]
        write_numbers(lab.root / "land", 1, first=3)
        lab.run(stream)
        assert rows(lab.table("out")) == [(0, 2), (1, 2)]

    def test_update_mode(self, lab: Lab) -> None:
        """In update mode the sink gets the groups that a batch changed."""
        stream = declared("counted", sinks.foreach_batch(f"{__name__}:collect"), mode="update")
        write_numbers(lab.root / "land", 3)
        lab.run(stream)
        assert CALLS == [(0, [0]), (1, [1]), (2, [0])]

    def test_state_without_keys(self, lab: Lab) -> None:
        """A limit and a total keep their state in one partition, whatever their metadata says: later runs go on."""
        limited = declared("first_three", sinks.delta("limited"))
        summed = replace(declared("total", sinks.delta("summed"), mode="complete"), name="t")
        for first in (0, 2):
            write_numbers(lab.root / "land", 2, first=first)
            lab.run(limited)
            lab.run(summed)
        assert (ids(lab.table("limited")), ids(lab.table("summed"))) == ([0, 1, 2], [6])

    def test_console(self, lab: Lab) -> None:
        """The console sink prints, and the run is recorded as any other."""
        write_numbers(lab.root / "land", 1)
        assert lab.run(declared(sink=sinks.console())).batches[0].input_rows == 1


class TestRecord:
    """What a record holds beyond counts."""

    def test_clock_of_the_plan(self, lab: Lab) -> None:
        """`current_timestamp()` in a batch is the plan's clock."""
        write_numbers(lab.root / "land", 1)
        noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
        lab.run(declared("timed"), clock=lambda: noon)
        (row,) = lab.spark.read.parquet(str(lab.root / "out")).select(F.unix_timestamp("at")).collect()
        assert row[0] == noon.timestamp()

    def test_observed_metrics(self, lab: Lab) -> None:
        """What the transform observes stands in the record of each batch."""
        write_numbers(lab.root / "land", 2, rows=2)
        record = lab.run(declared("observed"))
        assert [batch.observed for batch in record.batches] == [
            {"quality": {"rows": 2, "largest": 1}},
            {"quality": {"rows": 2, "largest": 3}},
        ]


class TestNoDataBatches:
    """Batches without data, which state makes due when the watermark moves."""

    @pytest.mark.parametrize("transform", [first_of_each, per_window])
    def test_same_rows_as_available_now(self, lab: Lab, transform: Any) -> None:
        """An exact run of several batches emits what AvailableNow emits, and leaves the same watermarks."""
        write_numbers(lab.root / "land", 4, rows=3)
        stream = declared(transform.__name__)
        record = lab.run(stream)
        frame = transform(reader(lab.spark, maxFilesPerTrigger=1).json(str(lab.root / "land")))
        available_now(frame, lab.root / "spark", lab.root / "spark-out", sink="parquet")
        by_sluice = rows(lab.spark.read.parquet(str(lab.root / "out")))
        assert by_sluice == rows(lab.spark.read.parquet(str(lab.root / "spark-out")))
        assert watermarks(lab.checkpoint(stream)) == watermarks(lab.root / "spark")
        assert [batch.kind for batch in record.batches] == ["data"] * 4 + ["no_data"]

    def test_two_watermarks(self, lab: Lab) -> None:
        """Rows that found no match come out when both watermarks have passed them, as with AvailableNow."""
        by_sluice, by_spark = joined_by_both(lab, numbers=4, others=4)
        assert by_sluice == by_spark
        assert by_sluice == ([(1, None), (2, 2), (3, 3)], 2000)

    def test_a_source_that_holds_the_watermark_back(self, lab: Lab) -> None:
        """Where one of two sources has no data in a batch, the watermark is where it is within one AvailableNow."""
        by_sluice, by_spark = joined_by_both(lab, numbers=4, others=2)
        assert by_sluice == by_spark == ([(1, None), (2, 2), (3, 3)], 2000)

    def test_one_that_a_stopped_run_owes(self, lab: Lab) -> None:
        """A run that was stopped before its no-data batch leaves it to the next, which has no data to read."""
        write_numbers(lab.root / "land", 2, rows=3)
        stream = declared("per_window")
        assert lab.run(stream, stop_after=2).status == "stopped"
        owed = written(lab)
        record = lab.run(stream)
        assert [batch.kind for batch in record.batches] == ["no_data"]
        assert set(written(lab)) > set(owed)
        assert lab.run(stream).status == "skipped"


class TestStarting:
    """Where a first run begins."""

    def test_starting_latest(self, lab: Lab) -> None:
        """A stream that starts at the latest reads what came after its first plan."""
        write_numbers(lab.root / "land", 1)
        stream = declared(starting="latest")
        assert lab.run(stream, clock=lambda: datetime.fromtimestamp(FIRST_MTIME + 1, UTC)).status == "skipped"
        write_numbers(lab.root / "land", 1, first=2)
        assert lab.run(stream, clock=lambda: datetime.fromtimestamp(FIRST_MTIME + 3, UTC)).status == "succeeded"
        assert written(lab) == [2]
