"""Input that Spark can't read as declared: its modes are respected, and what they let pass is in the record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError
from sluice.plan import Strategy
from sluice.planning.planner import Limits
from tests.spark.lab import Lab, rows, snapshot, write_files

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, size int, name string"
JSON = ['{"id":1,"size":2,"name":"a"}', '{"id":2,"size":"abc","name":"b"}', '{"id":3', '{"id":"x","size":1,"name":"c"}']
CSV = ["1,2,a", "2,abc,b", "3,4", "4,5,d,extra"]


def same(events: DataFrame) -> DataFrame:
    return events


def one_column(events: DataFrame) -> DataFrame:
    return events.select("id")


def twice(events: DataFrame) -> DataFrame:
    return events.union(events)


def declared(kind: str, transform: str = "same", *, schema: str = SCHEMA, **options: Any) -> Stream:
    return Stream(
        name="s",
        sources={"events": sources.files("land", format=kind, schema=schema, **options)},
        transform=f"{__name__}:{transform}",
        sink=sinks.files("out", format="parquet"),
    )


def land(lab: Lab, lines: list[str], name: str = "a") -> None:
    write_files(lab.root / "land", {name: "\n".join(lines)})


def by_spark(lab: Lab, stream: Stream, transform: Any) -> list[tuple[Any, ...]]:
    """What Spark makes of the same files with the same options, without Sluice."""
    source: Any = stream.sources["events"]
    reader = lab.spark.read.format(source.format).schema(source.schema).options(**source.options)
    return rows(transform(reader.load(str(lab.root / "land"))))


def written(lab: Lab) -> list[tuple[Any, ...]]:
    return rows(lab.spark.read.parquet(str(lab.root / "out")))


@pytest.mark.parametrize("transform", [same, one_column])
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "dropMalformed"])
@pytest.mark.parametrize(("kind", "lines"), [("json", JSON), ("csv", CSV)])
def test_malformed_rows_are_counted(
    lab: Lab,
    kind: str,
    lines: list[str],
    mode: str,
    transform: Any,
) -> None:
    """The rows are those of Spark's mode, and the record tells how many of them it made null or dropped."""
    land(lab, lines)
    stream = declared(kind, transform.__name__, mode=mode)

    record = lab.run(stream)

    assert written(lab) == by_spark(lab, stream, transform)
    kept = by_spark(lab, declared(kind, mode="DROPMALFORMED"), transform)
    assert record.batches[0].malformed_rows == {"events": len(lines) - len(kept)}
    assert record.batches[0].observed == {}


def count_rows(events: DataFrame) -> DataFrame:
    return events.selectExpr("1 AS one")


@pytest.mark.parametrize("schema", [SCHEMA, "id bigint, size int", f"{SCHEMA}, _corrupt_record string"])
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize(("kind", "lines"), [("json", JSON[:2]), ("csv", ["1,2,a", "2,3,b"])])
def test_a_transform_that_uses_no_column(lab: Lab, kind: str, lines: list[str], mode: str, schema: str) -> None:
    """Spark reads no mark without a column; the rows are as many as ever."""
    land(lab, lines)
    record = lab.run(declared(kind, "count_rows", schema=schema, mode=mode))

    assert written(lab) == [(1,), (1,)]
    assert set(record.batches[0].malformed_rows) == {"events"}


def test_a_declared_column_for_malformed_rows(lab: Lab) -> None:
    """A schema that names Spark's own column gets it, as ever."""
    land(lab, JSON)
    stream = declared("json", schema=f"{SCHEMA}, _corrupt_record string")

    record = lab.run(stream)

    assert written(lab) == by_spark(lab, stream, same)
    assert record.batches[0].malformed_rows == {"events": 3}
    assert len([row for row in written(lab) if row[3] is not None]) == 3


def test_sound_input(lab: Lab) -> None:
    """Nothing malformed is a count too; and a source that the query reads twice is counted once."""
    land(lab, JSON[:1])
    assert lab.run(declared("json", "twice")).batches[0].malformed_rows == {"events": 0}


def test_failfast(lab: Lab) -> None:
    """In this mode the batch fails with Spark's words, nothing is written, and the retry runs it as planned."""
    land(lab, JSON)
    stream = declared("json", mode="FAILFAST")

    with pytest.raises(BatchFailedError, match="MALFORMED_RECORD_IN_PARSING"):
        lab.run(stream)

    assert not list((lab.root / "out").glob("*.parquet"))
    assert lab.records(stream)[0]["error"]["type"] == "BatchFailedError"
    land(lab, JSON[:1])
    assert lab.run(stream).plan.verdict == "resume"
    assert written(lab) == [(1, 2, "a")]


def write_parquet(path: Path, **columns: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def truncated(lab: Lab) -> Lab:
    """Two sound Parquet files, and one that was cut."""
    for number in range(3):
        ids, sizes = pa.array([number], pa.int64()), pa.array([1], pa.int32())
        write_parquet(lab.root / "land" / f"{number}.parquet", id=ids, size=sizes, name=["a"])
    path = lab.root / "land" / "1.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    return lab


def test_truncated_file(truncated: Lab) -> None:
    """Spark's error names the file; nothing is written; a file that was mended is read by the retry."""
    stream = declared("parquet")
    with pytest.raises(BatchFailedError, match=r"1\.parquet"):
        truncated.run(stream)
    before = snapshot(truncated.checkpoint(stream) / "offsets")

    path = truncated.root / "land" / "1.parquet"
    write_parquet(path, id=pa.array([1], pa.int64()), size=pa.array([1], pa.int32()), name=["a"])
    truncated.run(stream)

    assert written(truncated) == [(0, 1, "a"), (1, 1, "a"), (2, 1, "a")]
    assert snapshot(truncated.checkpoint(stream) / "offsets") == before


@pytest.mark.parametrize("strategy", ["exact", "drain"])
def test_ignored_files_are_counted(truncated: Lab, strategy: Strategy) -> None:
    """`ignore_corrupt_files` lets a file pass without a word; the record does not."""
    record = truncated.run(declared("parquet", ignore_corrupt_files=True), Limits(strategy=strategy))
    assert written(truncated) == [(0, 1, "a"), (2, 1, "a")]
    assert record.batches[0].unread_files == {"events": 1}


SETTING = "spark.sql.files.ignoreCorruptFiles"


@pytest.fixture
def told(spark: SparkSession) -> Iterator[None]:
    """A session that lets files pass, as one does that is opened with this setting."""
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.unset(SETTING)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("strategy", ["exact", "drain"])
def test_files_that_a_setting_lets_pass_are_counted(truncated: Lab, strategy: Strategy) -> None:
    """It is told as the option of its name is."""
    record = truncated.run(replace(declared("parquet"), conf={SETTING: True}), Limits(strategy=strategy))
    assert written(truncated) == [(0, 1, "a"), (2, 1, "a")]
    assert record.batches[0].unread_files == {"events": 1}


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("options", "conf"),
    [({"ignore_corrupt_files": False}, {SETTING: True}), ({}, None)],
    ids=["overruled by an option", "not the stream's own"],
)
def test_a_setting_that_lets_no_file_pass(truncated: Lab, options: dict[str, Any], conf: Any) -> None:
    with pytest.raises(BatchFailedError, match=r"1\.parquet"):
        truncated.run(replace(declared("parquet", **options), conf=conf))


def test_wrong_schema(lab: Lab) -> None:
    """A Parquet column of another type fails the batch with Spark's words, which name the file."""
    write_parquet(lab.root / "land" / "a.parquet", id=["not a number"], size=pa.array([1], pa.int32()), name=["a"])
    with pytest.raises(BatchFailedError, match=r"a\.parquet"):
        lab.run(declared("parquet"))


def test_the_record_on_disk(lab: Lab) -> None:
    """Whoever reads the record reads the counts."""
    land(lab, JSON)
    stream = declared("json")
    lab.run(stream)
    assert lab.records(stream)[0]["batches"][0]["malformed_rows"] == {"events": 3}
