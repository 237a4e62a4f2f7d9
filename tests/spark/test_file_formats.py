"""Formats of files beside those that every Spark reads by itself: Avro, XML, and whole files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from tests.spark.lab import Lab, ids, touch, write_files
from tests.spark.sink_operations import SECOND
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def by_day(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("day", F.expr("DATE'2026-01-01' + CAST(id % 2 AS INT)"))


def measured(numbers: DataFrame) -> DataFrame:
    name = F.element_at(F.split("path", "/"), -1)
    return numbers.select(name.alias("name"), "length", F.decode("content", "UTF-8").alias("text"))


def declared(source: Any, sink: Any = None, transform: str = "same", **more: Any) -> Stream:
    return Stream(
        name="s",
        sources={"numbers": source},
        transform=f"{__name__}:{transform}",
        sink=sink or sinks.delta("out"),
        **more,
    )


def write_avro(lab: Lab, name: str, numbers: list[int], second: int) -> Path:
    """A file of Avro as Spark writes it."""
    aside = lab.root / f"aside-{name}"
    lab.spark.createDataFrame([(number, str(number)) for number in numbers], "id bigint, name string").coalesce(
        1
    ).write.format("avro").save(str(aside))
    (written,) = aside.glob("*.avro")
    place = lab.root / "in" / name
    place.parent.mkdir(exist_ok=True)
    written.rename(place)
    touch(place, second)
    return place


def xml(*numbers: object) -> str:
    return "<rows>" + "".join(f"<row><id>{number}</id><name>n</name></row>" for number in numbers) + "</rows>"


def test_avro(lab: Lab) -> None:
    """Read, judged, and replaced by a backfill; a file that is none fails its batch, which waits for the right one."""
    (lab.root / "suite.json").write_bytes(
        document(row("expect_column_values_to_be_between", policy="fail", column="id", max_value=99))
    )
    numbers = sources.files("in", format="avro", schema="id bigint, name string, missing string")
    sink = sinks.delta("out", partition_by=["day"])
    stream = declared(numbers, sink, "by_day", interval_column="day", quality="suite.json")
    write_avro(lab, "0.avro", [1, 2], 0)
    write_avro(lab, "1.avro", [3], 1)
    assert lab.run(stream).status == "succeeded"
    assert ids(lab.table("out")) == [1, 2, 3]
    assert lab.table("out").where("missing IS NOT NULL").count() == 0
    assert lab.plan(stream).verdict == "skip"
    backfill = BackfillRequest(lab.project.resolve(stream), SECOND)
    assert backfill_stream(lab.project, backfill, session=lab.spark).status == "succeeded"
    assert ids(lab.table("out")) == [1, 2, 3]

    (broken,) = write_files(lab.root / "in", {"2.avro": "none of Avro's"}, first=2)
    with pytest.raises(BatchFailedError, match="Encountered error while reading file"):
        lab.run(stream)
    broken.unlink()
    write_avro(lab, "2.avro", [4], 2)
    assert lab.run(stream).status == "succeeded"
    assert ids(lab.table("out")) == [1, 2, 3, 4]


@pytest.mark.parametrize(("mode", "known"), [("PERMISSIVE", [1, 2, 3, None]), ("DROPMALFORMED", [1, 2, 3])])
def test_xml(lab: Lab, mode: str, known: list[int | None]) -> None:
    """A row whose column is no number is counted, and its mode says what becomes of it."""
    schema = "id bigint, name string"
    stream = declared(sources.files("in", format="xml", row_tag="row", schema=schema, mode=mode))
    write_files(lab.root / "in", {"0.xml": xml(1, 2), "1.xml": xml("three", 3)})

    record = lab.run(stream)

    assert [batch.malformed_rows for batch in record.batches] == [{"numbers": 1}]
    found = [found["id"] for found in lab.table("out").select("id").collect()]
    assert sorted(found, key=lambda number: (number is None, number)) == known


def test_xml_that_fails(lab: Lab) -> None:
    stream = declared(sources.files("in", format="xml", row_tag="row", schema="id bigint", mode="FAILFAST"))
    (file,) = write_files(lab.root / "in", {"0.xml": xml("three")})
    with pytest.raises(BatchFailedError, match="Malformed"):
        lab.run(stream)
    file.write_text(xml(3))
    lab.run(stream)
    assert ids(lab.table("out")) == [3]


def test_a_transform_of_xml_that_uses_no_column(lab: Lab) -> None:
    stream = declared(sources.files("in", format="xml", row_tag="row", schema="id bigint"), transform="ones")
    write_files(lab.root / "in", {"0.xml": xml(1, "two")})
    assert [batch.malformed_rows for batch in lab.run(stream).batches] == [{"numbers": 0}]
    assert ids(lab.table("out")) == [1, 1]


def ones(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.lit(1).alias("id"))


@pytest.mark.parametrize(
    ("file_format", "options"),
    [("avro", {"compression": "deflate", "record_name": "Number"}), ("xml", {"row_tag": "row", "root_tag": "rows"})],
)
def test_written_and_read_again(lab: Lab, file_format: str, options: dict[str, Any]) -> None:
    """What one stream writes, another reads, as planned by the first one's manifest."""
    numbers = sources.files("in", format="json", schema="id bigint, name string", max_files_per_batch=1)
    first = declared(numbers, sinks.files("between", format=file_format, **options))
    write_files(lab.root / "in", {f"{n}.json": f'{{"id": {n}, "name": "n"}}' for n in range(3)})
    assert len(lab.run(first).batches) == 3
    reading = {"row_tag": "row"} if file_format == "xml" else {}
    between = sources.files("between", format=file_format, schema="id bigint, name string", **reading)
    second = Stream(name="t", sources={"numbers": between}, transform=f"{__name__}:same", sink=sinks.delta("out"))

    assert lab.run(second).status == "succeeded"

    assert ids(lab.table("out")) == [0, 1, 2]
    assert {found["name"] for found in lab.table("out").collect()} == {"n"}


def test_whole_files(lab: Lab) -> None:
    """A row for each, also of those in folders that are columns; Spark makes none of an empty file."""
    stream = declared(sources.files("in", format="binaryFile", path_glob_filter="*.bin"), transform="measured")
    write_files(lab.root / "in" / "day=1", {"a.bin": "one", "b.bin": "three", "c.txt": "no"})
    lab.run(stream)
    write_files(lab.root / "in" / "day=2", {"d.bin": "seven", "empty.bin": ""}, first=5)
    lab.run(stream)
    found = sorted(tuple(found) for found in lab.table("out").collect())
    assert found == [("a.bin", 3, "one"), ("b.bin", 5, "three"), ("d.bin", 5, "seven")]
    assert lab.plan(stream).verdict == "skip"
