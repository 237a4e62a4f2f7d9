"""A folder of files as the sink: its manifest tells of every batch, so a folder that lacks one is another one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, RefusedError
from sluice.storage import Storage
from sluice.surroundings import Surroundings
from tests.spark.lab import Lab, write_files, write_numbers

pytestmark = pytest.mark.spark


def per_minute(clicks: DataFrame) -> DataFrame:
    windows = clicks.withWatermark("at", "0 seconds").groupBy(F.window("at", "1 minute"))
    return windows.count().select("window.start", "count")


def test_every_batch_is_in_the_manifest(lab: Lab) -> None:
    """Also those without rows, and those without input; once the folder or its manifest is gone, a run is refused."""
    stream = Stream(
        name="s",
        sources={"clicks": sources.files("land", format="json", schema="at timestamp", max_files_per_batch=1)},
        transform=f"{__name__}:per_minute",
        sink=sinks.files("out", format="json"),
    )
    times = ("2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z", "2026-01-01T00:05:00Z")
    write_files(lab.root / "land", {f"{n}.json": json.dumps({"at": at}) for n, at in enumerate(times)})

    record = lab.run(stream)

    assert [(batch.kind, batch.output_rows) for batch in record.batches][-1][0] == "no_data"
    manifest = lab.root / "out" / "_spark_metadata"
    assert [(manifest / str(batch.batch_id)).is_file() for batch in record.batches] == [True] * len(record.batches)
    assert lab.plan(stream).verdict == "skip"

    for gone in (manifest, lab.root / "out"):
        shutil.rmtree(gone)
        write_files(lab.root / "land", {f"{gone.name}.json": json.dumps({"at": "2026-01-01T00:09:00Z"})}, first=9)
        with pytest.raises(RefusedError, match="the manifest there has none of them") as refused:
            lab.run(stream)
        assert refused.value.finding.code == "SINK_REPLACED"


def numbered(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("id", "id % 2 AS `the half`", "'a=b' AS `a:b%`")


def numbers(*partitions: str) -> Stream:
    return Stream(
        name="s",
        sources={"numbers": sources.files("land", format="json", schema="id bigint")},
        transform=f"{__name__}:numbered",
        sink=sinks.files("out=1", format="parquet", partition_by=partitions),
    )


@pytest.mark.parametrize("partitions", [(), ("the half",), ("the half", "a:b%")])
def test_one_layout(lab: Lab, partitions: tuple[str, ...]) -> None:
    """Whoever reads the folder finds the files of one layout: another `partition_by` is refused, also by a plan."""
    write_numbers(lab.root / "land", 2)
    lab.run(numbers(*partitions))
    write_numbers(lab.root / "land", 1, first=2)
    others: list[tuple[str, ...]] = [(), ("the half",), ("the half", "a:b%"), ("a:b%", "the half")]

    for other in others:
        if other != partitions:
            with pytest.raises(DeclarationError, match=r"the sink's files are partitioned by .*, and `partition_by`"):
                lab.plan(numbers(*other))

    lab.run(numbers(*partitions))
    assert sorted(row["id"] for row in lab.spark.read.parquet(str(lab.root / "out=1")).collect()) == [0, 1, 2]


def test_a_folder_that_was_moved(lab: Lab) -> None:
    """Spark's manifest has whole paths: what was there before would not be seen. A link to the folder is no move."""
    write_numbers(lab.root / "land", 1)
    lab.run(numbers())
    write_numbers(lab.root / "land", 1, first=1)
    (lab.root / "out=1").rename(lab.root / "moved")
    moved = replace(numbers(), sink=sinks.files("moved", format="parquet"))

    with pytest.raises(DeclarationError, match="the sink's manifest names files elsewhere"):
        moved.sink.resolved(Surroundings(str(lab.root))).check_table(moved.sink_use({}, storage=Storage()))

    (lab.root / "moved").rename(lab.root / "out=1")
    (lab.root / "link").symlink_to(lab.root / "out=1")
    link = sinks.files("link", format="parquet").resolved(Surroundings(str(lab.root)))
    link.check_table(moved.sink_use({}, storage=Storage()))
    assert lab.run(numbers()).status == "succeeded"
