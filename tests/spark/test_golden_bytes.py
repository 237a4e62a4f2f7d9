"""What Sluice writes into a checkpoint is, byte for byte, what Spark writes when it plans the same batches itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sluice import Stream, sinks, sources
from tests.spark.lab import (
    Lab,
    append_outside,
    append_rows,
    available_now,
    ids,
    log_bytes,
    reader,
    snapshot,
    write_files,
    write_numbers,
)

pytestmark = pytest.mark.spark

NAMES = (
    *(
        "plain",
        "a b",
        "100%",
        "%41",
        "%C3%BC",
        "ü",
        "ü\u2013x",
        "x,y",
        "#h",
        "~t",
        "q'uote",
        'd"quote',
        "am&p",
        "se;mi",
    ),
    *("e=q", "p+lus", "at@!$()^`|<>", "tab\tnew\nline", "\u0080\u0085\u009f", "\u2000\u2028\u202f", "\u20ac\u20ff"),
    *("\u00a0\u00ad\u3000", "\u200b\ufeff\ue000", "\U0001f600\U00010400", "e\u0301"),
)
"""25 names: batches 0 to 24, with compactions at 9 and 19, and every kind of character that a URI spells otherwise."""


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def deduplicated(numbers: DataFrame) -> DataFrame:
    timed = numbers.selectExpr("id", "timestamp_seconds(id * 10) AS at")
    return timed.withWatermark("at", "5 seconds").dropDuplicatesWithinWatermark(["id"])


@pytest.fixture(scope="module")
def checkpoints(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same folder, one file per batch, planned by Spark and by Sluice."""
    lab = Lab(spark, tmp_path_factory.mktemp("golden"))
    write_files(lab.root / "land ü", {f"{name}.json": json.dumps({"id": n}) for n, name in enumerate(NAMES)})
    source = sources.files("land ü", format="json", schema="id bigint", max_files_per_batch=1)
    sink = sinks.files("sluice-out", format="parquet")
    stream = Stream(name="numbers", sources={"numbers": source}, transform=f"{__name__}:same", sink=sink)
    lab.run(stream)
    frame = reader(spark, maxFilesPerTrigger=1).json(str(lab.root / "land ü"))
    available_now(frame, lab.root / "spark", lab.root / "spark-out", sink="parquet")
    return lab.root / "spark", lab.checkpoint(stream)


def test_source_log_with_two_compactions(checkpoints: tuple[Path, Path]) -> None:
    """The source's log is Spark's own: names, URIs, times, order, `.compact` files."""
    by_spark, by_sluice = (log_bytes(checkpoint / "sources" / "0") for checkpoint in checkpoints)
    assert [name for name in by_sluice if "compact" in name] == ["9.compact", "19.compact"]
    assert by_sluice == by_spark


def test_offset_log(checkpoints: tuple[Path, Path]) -> None:
    """All 25 offset files are Spark's own, the pinned settings and their order included."""
    by_spark, by_sluice = (log_bytes(checkpoint / "offsets") for checkpoint in checkpoints)
    assert len(by_sluice) == len(NAMES)
    assert by_sluice == by_spark


def test_query_metadata(checkpoints: tuple[Path, Path]) -> None:
    """The query id stands in the file as Spark would have written it."""
    by_spark, by_sluice = ((checkpoint / "metadata").read_bytes() for checkpoint in checkpoints)
    assert re.sub(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", b"ID", by_sluice) == b'{"id":"ID"}'
    assert len(by_sluice) == len(by_spark)


def test_every_row_of_every_name_is_read_once(checkpoints: tuple[Path, Path], spark: SparkSession) -> None:
    """Spark finds the file behind every URI that Sluice spelled."""
    out = checkpoints[0].parent / "sluice-out"
    assert ids(spark.read.parquet(str(out))) == list(range(len(NAMES)))


def test_spark_goes_on_without_reading_anything_again(checkpoints: tuple[Path, Path], spark: SparkSession) -> None:
    """Spark recognises every path that Sluice logged: its own next run finds nothing new."""
    land, checkpoint = checkpoints[0].parent / "land ü", checkpoints[1]
    before = snapshot(checkpoint)
    frame = reader(spark).json(str(land))
    assert available_now(frame, checkpoint, checkpoints[0].parent / "sluice-out", sink="parquet") == []
    assert snapshot(checkpoint) == before


def test_several_files_per_batch(lab: Lab) -> None:
    """The files of a batch stand in Spark's order: oldest first."""
    write_numbers(lab.root / "land", 7)
    source = sources.files("land", format="json", schema="id bigint", max_files_per_batch=3)
    stream = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sinks.noop())
    lab.run(stream)
    available_now(reader(lab.spark, maxFilesPerTrigger=3).json(str(lab.root / "land")), lab.root / "spark")
    for log in ("sources/0", "offsets", "commits"):
        assert log_bytes(lab.checkpoint(stream) / log) == log_bytes(lab.root / "spark" / log)


def test_watermarks_and_no_data_batches(lab: Lab) -> None:
    """Of a query with state, also the watermarks and the no-data batch are written as Spark would have."""
    write_numbers(lab.root / "land", 3)
    source = sources.files("land", format="json", schema="id bigint", max_files_per_batch=1)
    stream = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:deduplicated", sink=sinks.noop())
    lab.run(stream)
    frame = deduplicated(reader(lab.spark, maxFilesPerTrigger=1).json(str(lab.root / "land")))
    available_now(frame, lab.root / "spark")
    for log in ("sources/0", "offsets", "commits"):
        by_sluice = log_bytes(lab.checkpoint(stream) / log)
        assert by_sluice == log_bytes(lab.root / "spark" / log)
    assert list(by_sluice) == ["0", "1", "2", "3"]


def test_delta_offsets(lab: Lab) -> None:
    """A Delta source's offsets are Spark's own: inside a snapshot, inside versions, and at their ends."""
    table = lab.root / "table"
    append_rows(lab.spark, table, range(4), files=2)
    append_rows(lab.spark, table, range(4, 6))
    source = sources.delta("table", max_files_per_batch=1)
    stream = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sinks.noop())
    for growth in (lambda: None, lambda: append_rows(lab.spark, table, range(6, 12), files=3)):
        growth()
        append_outside(table, range(100, 103))
        lab.run(stream)
        frame = lab.spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(table))
        available_now(frame, lab.root / "spark")
    by_sluice = log_bytes(lab.checkpoint(stream) / "offsets")
    assert len(by_sluice) == 8
    assert by_sluice == log_bytes(lab.root / "spark" / "offsets")
