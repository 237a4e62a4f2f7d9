"""Batches of a Delta source as Sluice plans them, against those of Spark's AvailableNow over the same table.

The table has an initial snapshot of three versions and six files, then four versions, two of them by delta-rs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from sluice import Stream, sinks, sources
from sluice.delta_log.table import open_log, snapshot_files
from sluice.errors import BatchFailedError, RefusedError
from sluice.interval import Interval
from sluice.locations import spark_location
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.sources.contract import Bound, Position
from sluice.storage import Storage
from sluice.times import Clock, system_clock
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, append_outside, append_rows, available_now, bounded, ids, offset_lines, snapshot
from tests.spark.power_cuts import Cut
from tests.spark.test_expired_transactions import cut_run

pytestmark = pytest.mark.spark

VALUES = ["a b", "x%20y", "ü ñ", "k=v", "a/b", "a:b", "q?", "h#h", "br[1]", "p+q", "am&p", "t~i", "q'q", "bs\\x", "e%"]
"""Values of a partition column that a path or a URI spells otherwise."""

SPARK_NAMES = {
    "max_files_per_batch": "maxFilesPerTrigger",
    "max_bytes_per_batch": "maxBytesPerTrigger",
    "starting_version": "startingVersion",
    "skip_change_commits": "skipChangeCommits",
    "ignore_deletes": "ignoreDeletes",
}
ALL_ROWS = [*range(12), *range(100, 106), *range(200, 203), *range(300, 304), 400]


def same(numbers: DataFrame) -> DataFrame:
    return numbers


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table with all of its seven versions."""
    table = tmp_path_factory.mktemp("tables") / "whole"
    append_rows(spark, table, range(6), files=3)
    append_rows(spark, table, range(6, 8))
    append_rows(spark, table, range(8, 12), files=2)
    append_rows(spark, table, range(100, 106), files=3)
    append_outside(table, range(200, 203))
    append_rows(spark, table, range(300, 304), files=2)
    append_outside(table, range(400, 401))
    return table


@pytest.fixture
def table(whole: Path, tmp_path: Path) -> Path:
    """The table when it had only its first three versions."""
    young = tmp_path / "table"
    shutil.copytree(whole, young)
    for version in range(3, 7):
        for file in (young / "_delta_log").glob(f"*{version:020d}.*"):
            file.unlink()
    return young


def grow(table: Path, whole: Path) -> None:
    """Add the four later versions."""
    shutil.copytree(whole, table, dirs_exist_ok=True)


def declared(table: Path, sink: Any = None, checkpoint: Path | None = None, **options: Any) -> Stream:
    return Stream(
        name="s",
        sources={"numbers": sources.delta(str(table), **options)},
        transform=f"{__name__}:same",
        sink=sink or sinks.noop(),
        checkpoint=str(checkpoint) if checkpoint else None,
    )


def stream_of(spark: SparkSession, table: Path, **options: Any) -> DataFrame:
    """Spark's own stream of the table."""
    given = {SPARK_NAMES[name]: value for name, value in options.items()}
    return spark.readStream.format("delta").options(**given).load(str(table))


def in_two_days() -> datetime:
    return datetime.now(UTC) + timedelta(days=2)


def planned(lab: Lab, stream: Stream, clock: Clock = system_clock) -> tuple[list[int], list[Any]]:
    """Rows and end offset of every batch that Sluice would run."""
    batches = lab.plan(stream, clock=clock).batches
    ranges = [msgspec.to_builtins(batch.sources["numbers"].document) for batch in batches]
    return [found["rows"] for found in ranges], [found["end"] for found in ranges]


def by_spark(spark: SparkSession, table: Path, checkpoint: Path, **options: Any) -> tuple[list[int], list[Any]]:
    """Rows and end offset of every batch that Spark plans and runs."""
    reports = available_now(stream_of(spark, table, **options), checkpoint)
    ends = offset_lines(checkpoint)
    return [report["numInputRows"] for report in reports], [ends[report["batchId"]][0] for report in reports]


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({}, (1, 1)),
        ({"max_files_per_batch": 1}, (6, 7)),
        *rarely(({"max_files_per_batch": 2}, (3, 4)), ({"max_files_per_batch": 1, "starting_version": 0}, (6, 7))),
        ({"max_files_per_batch": 2, "starting_version": 0}, (3, 4)),
        ({"starting_version": 1}, (1, 1)),
        ({"max_bytes_per_batch": 600}, (3, 4)),
        *rarely(
            ({"max_bytes_per_batch": 1200, "starting_version": 0}, (2, 3)),
            ({"max_bytes_per_batch": 1200, "max_files_per_batch": 1}, (6, 7)),
        ),
    ],
    ids=str,
)
def test_same_batches(lab: Lab, table: Path, whole: Path, options: dict[str, int], batches: tuple[int, int]) -> None:
    """Rows and offsets of every batch are Spark's, for the snapshot and for the versions after it."""
    checkpoint = lab.root / "spark"
    stream = declared(table, checkpoint=checkpoint, **options)
    for step, count in zip((lambda: None, lambda: grow(table, whole)), batches, strict=True):
        step()
        expected = planned(lab, stream)
        assert expected == by_spark(lab.spark, table, checkpoint, **options)
        assert len(expected[0]) == count


@pytest.mark.parametrize("options", [{}, {"starting_version": 0}], ids=["snapshot", "changes"])
@pytest.mark.parametrize("batches", [*rarely(1), 4])
def test_spark_goes_on_after_planned_batches(
    lab: Lab, table: Path, whole: Path, options: dict[str, int], batches: int
) -> None:
    """After planned batches that end inside the snapshot or a version, Spark reads exactly the rest."""
    stream = declared(table, sinks.files("out", format="parquet"), max_files_per_batch=1, **options)
    lab.run(stream, bounded(max_batches=batches))
    out = str(lab.root / "out")
    assert len(ids(lab.spark.read.parquet(out))) == 2 * batches
    grow(table, whole)
    available_now(stream_of(lab.spark, table, **options), lab.checkpoint(stream), lab.root / "out", sink="parquet")
    assert ids(lab.spark.read.parquet(out)) == ALL_ROWS


@pytest.mark.parametrize("options", [{}, {"starting_version": 0}], ids=["snapshot", "changes"])
def test_sluice_goes_on_after_spark(lab: Lab, table: Path, whole: Path, options: dict[str, int]) -> None:
    """After batches of Spark's own, stopped inside the snapshot or a version, Sluice reads exactly the rest."""
    checkpoint, out = lab.root / "spark", str(lab.root / "out")
    writer = stream_of(lab.spark, table, max_files_per_batch=1, **options).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(checkpoint)).option("path", out)
    query = writer.trigger(processingTime="100 milliseconds").start()
    while not (checkpoint / "commits" / "1").exists():
        query.awaitTermination(0.05)
    query.stop()
    grow(table, whole)
    record = lab.run(declared(table, sinks.files("out", format="parquet"), checkpoint, **options))
    assert record.status == "succeeded"
    assert ids(lab.spark.read.parquet(out)) == ALL_ROWS


@pytest.mark.parametrize(("options", "batches"), [({}, 2), *rarely(({"max_bytes_per_batch": 1_000_000_000}, 1))])
def test_many_files(lab: Lab, options: dict[str, int], batches: int) -> None:
    """Without a limit a batch has at most 1,000 files; a limit of bytes alone is the only one."""
    table = lab.root / "many"
    rows = pa.table({"id": pa.array(range(1001), pa.int64()), "part": pa.array(range(1001), pa.int32())})
    write_deltalake(str(table), rows, partition_by=["part"])
    stream = declared(table, **options)
    found = planned(lab, stream)
    assert found == by_spark(lab.spark, table, lab.root / "by-spark", **options)
    assert len(found[0]) == batches


def test_a_bound_inside_the_history(lab: Lab, table: Path, whole: Path) -> None:
    """A run to a version, or to a time, reads what was committed up to there, and the next run the rest."""
    grow(table, whole)
    stream = declared(table, sinks.delta("out"))
    lab.run(stream, bounded(to_version=2))
    assert ids(lab.table("out")) == list(range(12))
    times = {entry["version"]: entry["timestamp"] for entry in DeltaTable(table).history()}
    lab.run(stream, bounded(datetime.fromtimestamp(times[5] / 1000, UTC)))
    assert ids(lab.table("out")) == [*range(12), *range(100, 106), *range(200, 203)]
    lab.run(stream)
    assert ids(lab.table("out")) == ALL_ROWS


@pytest.mark.parametrize("starting_version", [None, 0])
def test_order_of_files_with_odd_names(lab: Lab, starting_version: int | None) -> None:
    """The rows that are promised per file are those that Spark finds at its index, whatever the partitions' names."""
    values = ["a b", "a!b", "a#b", "ü", "z", "a:b", "a%b", "A", "\u2013", "[1]"]
    parts = [value for count, value in enumerate(values, 1) for _ in range(count)]
    rows = pa.table({"id": pa.array(range(len(parts)), pa.int64()), "part": parts})
    write_deltalake(lab.root / "odd", rows, partition_by=["part"])
    options = {"max_files_per_batch": 1}
    if starting_version is not None:
        options["starting_version"] = starting_version
    checkpoint = lab.root / "spark"
    expected = planned(lab, declared(lab.root / "odd", checkpoint=checkpoint, **options))
    assert expected == by_spark(lab.spark, lab.root / "odd", checkpoint, **options)
    assert sorted(expected[0]) == list(range(1, 11))


CHANGES: dict[str, tuple[str, dict[str, bool]]] = {
    "properties": ("ALTER TABLE {} SET TBLPROPERTIES ('a.b' = '1')", {}),
    "compaction": ("OPTIMIZE {}", {}),
    "skipped change": ("DELETE FROM {} WHERE id = 1", {"skip_change_commits": True}),
    "ignored delete": ("DELETE FROM {} WHERE id IN (1, 3)", {"ignore_deletes": True}),
}


@pytest.mark.parametrize(("statement", "options"), CHANGES.values(), ids=CHANGES)
def test_versions_that_append_nothing(lab: Lab, statement: str, options: dict[str, bool]) -> None:
    """Before other versions, and alone after a day, such a version makes the batches that Spark makes of it."""
    table, checkpoint = lab.root / "table", lab.root / "spark"
    stream = declared(table, checkpoint=checkpoint, **options)

    def change() -> None:
        lab.spark.sql(statement.format(f"delta.`{table}`"))

    def append() -> None:
        append_outside(table, [8, 9])

    steps: tuple[Callable[[], None], ...] = (change, append)
    append_rows(lab.spark, table, range(4), files=2)
    by_spark(lab.spark, table, checkpoint, **options)
    for step, rows in zip(steps, ([0], [2]), strict=True):
        step()
        assert lab.plan(stream).verdict == ("skip" if statement == CHANGES["compaction"][0] and rows == [0] else "run")
        expected = planned(lab, stream, in_two_days)
        assert expected == by_spark(lab.spark, table, checkpoint, **options)
        assert expected[0] == rows


def test_deleted_rows_are_refused(lab: Lab) -> None:
    """A version that deletes rows fails Spark; Sluice refuses before anything is written."""
    table = lab.root / "table"
    append_rows(lab.spark, table, range(4))
    stream = declared(table)
    lab.run(stream)
    lab.spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    before = snapshot(lab.checkpoint(stream))
    with pytest.raises(RefusedError) as refused:
        lab.run(stream)
    assert refused.value.finding.code == "SOURCE_NOT_APPEND_ONLY"
    assert snapshot(lab.checkpoint(stream)) == before
    with pytest.raises(StreamingQueryException, match="DELTA_SOURCE"):
        by_spark(lab.spark, table, lab.checkpoint(stream))


def reads_twice(frame: DataFrame, batch_id: int) -> None:
    frame.count()
    frame.write.format("noop").mode("append").save()


def sorts(numbers: DataFrame) -> DataFrame:
    return numbers.repartitionByRange(2, "id")


@pytest.mark.parametrize("transform", ["same", "sorts"])
def test_rows_that_are_read_more_than_once(lab: Lab, transform: str) -> None:
    """Spark counts a row as often as it reads it: that proves no harm, and is told, not cried."""
    append_rows(lab.spark, lab.root / "table", range(5))
    sink = sinks.foreach_batch(f"{__name__}:reads_twice")
    stream = Stream(
        name="s",
        sources={"numbers": sources.delta("table")},
        transform=f"{__name__}:{transform}",
        sink=sink,
    )

    record = lab.run(stream)

    assert record.status == "succeeded"
    (warning,) = record.batches[0].warnings
    assert "the sources' logs promised 5" in warning
    assert lab.records(stream)[0]["batches"][0]["warnings"] == [warning]


PARTS = ("plain", "a b", "x:y", "é%", "q?#+&=[]{}*")


@pytest.fixture
def partitioned(lab: Lab) -> Path:
    """A version of a file per partition, all with one name: so do writers that are not Delta's, and conversions."""
    table = lab.root / "partitioned"
    rows = [(number, part) for number, part in enumerate(PARTS)]
    frame = lab.spark.createDataFrame(rows, "id bigint, part string").repartition(1)
    frame.write.format("delta").partitionBy("part").save(str(table))
    commit = table / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            folder = action["add"]["path"].rpartition("/")[0]
            (file,) = (table / unquote(folder)).glob("*.parquet")
            file.rename(file.with_name("part-0.parquet"))
            action["add"]["path"] = f"{folder}/part-0.parquet"
    commit.write_text("\n".join(map(json.dumps, actions)))
    for crc in (table / "_delta_log").glob("*.crc"):
        crc.unlink()
    return table


@pytest.mark.parametrize("index", range(len(PARTS)))
def test_a_slice_in_the_middle_of_files_with_one_name(lab: Lab, partitioned: Path, index: int) -> None:
    """What a stream has read of a version, it knows by whole paths: by partition, whatever characters are in it."""
    source = sources.delta(str(partitioned), starting_version=0, max_files_per_batch=1)
    available = source.available(Position(None), Bound(), storage=Storage(), now=datetime.now(UTC))
    ends = [step.end for step in available.steps]
    live: list[int] = []
    query = lab.spark.readStream.format("delta").options(startingVersion=0, maxFilesPerTrigger=1)
    taking = query.load(str(partitioned)).writeStream.foreachBatch(lambda frame, _: live.extend(ids(frame)))
    taking.option("checkpointLocation", str(lab.root / "spark")).trigger(availableNow=True).start().awaitTermination()

    taken = source.slice(Position(ends[index]), None, storage=Storage())

    assert taken.amount["files"] == index + 1
    assert ids(source.read_batch(lab.spark, name="numbers", taken=taken)) == sorted(live[: index + 1])


def test_excluded_files(lab: Lab, partitioned: Path) -> None:
    """Spark passes over them; so does a plan, which promises no row of them, and the slice of a backfill."""
    frame = lab.spark.createDataFrame([(5, "plain"), (6, "a b"), (7, "x:y")], "id bigint, part string")
    frame.repartition(1).write.format("delta").mode("append").save(str(partitioned))
    options: dict[str, Any] = {"exclude_regex": "part=(a%20b|x%253Ay)/", "starting_version": 0}
    stream = declared(partitioned, sinks.delta("out"), max_files_per_batch=1, **options)

    record = lab.run(stream)

    expected = [0, 3, 4, 5]
    assert ids(lab.table("out")) == expected
    assert [batch.input_rows for batch in record.batches] == [1] * 4
    assert [source.rows for batch in record.plan.batches for source in batch.sources.values()] == [1] * 4
    source = sources.delta(str(partitioned), **options)
    end = list(offset_lines(lab.checkpoint(stream)).values())[-1][0]
    taken = source.slice(Position(json.dumps(end)), None, storage=Storage())
    assert taken.amount["files"] == 4
    assert ids(source.read_batch(lab.spark, name="numbers", taken=taken)) == expected


def dated(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("id", "date_add(date'2026-01-01', int(id % 2)) AS day")


def test_a_backfill_without_excluded_files(lab: Lab, partitioned: Path) -> None:
    """It reads no more than the live stream has."""
    stream = replace(
        declared(partitioned, sinks.delta("out"), exclude_regex="part=(a%20b|x%253Ay)/", starting_version=0),
        transform=f"{__name__}:dated",
        interval_column="day",
    )
    lab.run(stream)
    live = ids(lab.table("out"))
    interval = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))

    request = BackfillRequest(lab.project.resolve(stream), interval)
    record = backfill_stream(lab.project, request, session=lab.spark)

    assert record.status == "succeeded"
    assert ids(lab.table("out")) == live == [0, 3, 4]


def test_a_backfill_of_excluded_rows_that_were_rewritten(lab: Lab, partitioned: Path) -> None:
    """After a compaction, the names of the files tell no more what the live stream has passed over."""
    lab.spark.sql(f"INSERT INTO delta.`{partitioned}` VALUES (10, '{PARTS[0]}')")
    excluded = replace(
        declared(partitioned, sinks.delta("out"), exclude_regex=r"/part-0\.parquet$", starting_version=0),
        transform=f"{__name__}:dated",
        interval_column="day",
    )
    lab.run(excluded)
    live = ids(lab.table("out"))
    lab.spark.sql(f"OPTIMIZE delta.`{partitioned}`")
    interval = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))

    def backfill(stream: Stream) -> None:
        backfill_stream(lab.project, BackfillRequest(lab.project.resolve(stream), interval), session=lab.spark)

    with pytest.raises(RefusedError, match=r"version 2 \(OPTIMIZE\) has rewritten some into files") as refused:
        backfill(excluded)

    read_remedy(refused.value, "BACKFILL_EXCLUDED_ROWS", "leave the interval as it is; or take `exclude_regex` out")
    assert ids(lab.table("out")) == live
    whole = replace(excluded, sources={"numbers": sources.delta(str(partitioned), starting_version=0)})
    backfill(whole)
    assert ids(lab.table("out")) == ids(lab.spark_table(str(partitioned)))


def test_excluded_files_between_a_kill_and_its_resume(lab: Lab, partitioned: Path) -> None:
    """The batch is done as it was begun: what it was to read is not passed over, nor read what it was not to."""
    without, some = declared(partitioned, sinks.delta("out")), "part=plain/"
    cut_run(lab, without, Cut("commit out"))
    excluding = declared(partitioned, sinks.delta("out"), exclude_regex=some)

    with pytest.raises(RefusedError, match="whose `exclude_regex` was another one when it was begun") as refused:
        lab.run(excluding)

    read_remedy(
        refused.value, "INPUT_LEFT_OUT", "declare `exclude_regex` as it was, run the stream once, and change it"
    )
    lab.run(without)
    assert ids(lab.table("out")) == list(range(len(PARTS)))
    lab.spark.sql(f"INSERT INTO delta.`{partitioned}` VALUES (20, 'plain'), (21, 'a b')")
    lab.run(excluding)
    assert ids(lab.table("out")) == [*range(len(PARTS)), 21]


def test_excluded_files_of_a_batch_that_the_sink_has(lab: Lab, partitioned: Path) -> None:
    """Nothing of it is read any more: what is declared for the next one counts."""
    cut_run(lab, declared(partitioned, sinks.delta("out")), Cut("Spark's commit"))

    record = lab.run(declared(partitioned, sinks.delta("out"), exclude_regex="part=plain/"))

    assert record.batches[0].was_in_sink
    assert ids(lab.table("out")) == list(range(len(PARTS)))


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_schema_that_is_tracked(lab: Lab, *, is_relative: bool) -> None:
    """Only Spark ends its batches where the columns change; planned ones went on with those of the beginning."""
    table = lab.root / "table"
    append_rows(lab.spark, table, range(3))
    tracked = str(lab.checkpoint(declared(table, sinks.delta("out"))) / "_schemas")
    relative = str(Path(tracked).relative_to(lab.root))
    stream = declared(
        table, sinks.delta("out", schema_evolution="add"), schema_tracking_location=relative if is_relative else tracked
    )
    lab.run(stream)
    assert Path(tracked).is_dir()
    lab.spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMN more bigint")
    lab.spark.sql(f"INSERT INTO delta.`{table}` VALUES (3, 30)")

    assert (lab.plan(stream).verdict, lab.plan(stream).strategy) == ("run", "drain")
    with pytest.raises(BatchFailedError, match="DELTA_STREAMING_METADATA_EVOLUTION"):
        lab.run(stream)
    lab.run(stream)

    assert {(row["id"], row["more"]) for row in lab.table("out").collect()} == {
        (0, None),
        (1, None),
        (2, None),
        (3, 30),
    }


@pytest.mark.parametrize("place", ["s3://bucket/some where", "gs://bucket/t", "abfss://box@store/t"])
def test_files_are_spelled_as_spark_does(lab: Lab, place: str) -> None:
    """What a slice leaves out is told from the rest by `_metadata.file_path`, in object stores, too."""
    frame = lab.spark.createDataFrame(list(enumerate(VALUES)), "id bigint, part string")
    frame.repartition(1).write.format("delta").partitionBy("part").save(str(lab.root / "table"))
    storage = Storage()
    log = open_log(str(lab.root / "table"), storage=storage)
    assert log is not None
    paths = [file.path for file in snapshot_files(log, 0, storage=storage)]
    jvm: Any = lab.spark._jvm
    base = spark_location(place)
    absolute = jvm.org.apache.spark.sql.delta.util.DeltaFileOperations.absolutePath

    spelled = [jvm.org.apache.spark.paths.SparkPath.fromPath(absolute(base, path)).urlEncoded() for path in paths]

    assert len(spelled) == len(VALUES)
    assert [sources.delta(place)._uri(path) for path in paths] == spelled


def per_ten(numbers: DataFrame) -> DataFrame:
    timed = numbers.selectExpr("id", "timestamp_seconds(id) AS at").withWatermark("at", "0 seconds")
    return timed.groupBy("at").count().selectExpr("unix_seconds(at) AS id")


def test_a_batch_without_rows_upstream_begins_no_run(lab: Lab) -> None:
    """Nor does a compaction; what comes then is read once."""
    append_rows(lab.spark, lab.root / "in", range(1, 4))
    first = Stream(
        name="first", sources={"numbers": sources.delta("in")}, transform=f"{__name__}:per_ten", sink=sinks.delta("mid")
    )
    second = Stream(
        name="second", sources={"numbers": sources.delta("mid")}, transform=f"{__name__}:same", sink=sinks.delta("out")
    )
    lab.run(first)
    assert lab.run(second).status == "succeeded"
    assert ids(lab.table("out")) == [1, 2, 3]
    append_outside(lab.root / "in", range(2, 3))
    lab.run(first)
    DeltaTable(str(lab.root / "mid")).optimize.compact()

    plan = lab.plan(second)

    assert DeltaTable(str(lab.root / "mid")).version() > 1
    assert plan.verdict == "skip"
    append_outside(lab.root / "in", range(9, 10))
    lab.run(first)
    record = lab.run(second)
    assert [batch.input_rows for batch in record.batches] == [1]
    assert ids(lab.table("out")) == [1, 2, 3, 9]
    assert lab.plan(second).verdict == "skip"
