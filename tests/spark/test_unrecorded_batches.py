"""A driver dies between Spark's commit of a batch and its record: whoever comes next judges what it wrote."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import HeldError, QualityFailedError
from sluice.gate.state import release_gate
from sluice.planning.planner import Limits
from sluice.planning.triggers import triggered
from sluice.runs.record import RunRecord, RunRecords
from sluice.spark.left_behind import forget_tables
from sluice.times import system_clock
from tests.spark.lab import NO_LIMITS, Lab, bounded, ids, touch, write_files
from tests.spark.power_cuts import Cut, PowerCutError, power_cut
from tests.spark.test_mended_files import cut_run
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

LARGEST = row("expect_column_max_to_be_between", policy="fail", column="id", max_value=100)
UNIQUE = row("expect_column_values_to_be_unique", policy="fail", column="id")
LIVE = triggered(NO_LIMITS, "processing-time=100ms", "1s", names=("--trigger", "--for"))
SINKS: dict[str, Any] = {"delta": sinks.delta("out"), "files": sinks.files("out", format="parquet")}


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def per_window(numbers: DataFrame) -> DataFrame:
    timed = numbers.select(F.timestamp_seconds("id").alias("at")).withWatermark("at", "0 seconds")
    return timed.groupBy(F.window("at", "10 seconds")).count().select(F.col("count").alias("id"))


def declared(lab: Lab, expectation: dict[str, Any], sink: str, transform: str = "same") -> Stream:
    (lab.root / "suite.json").write_bytes(document(expectation))
    numbers = sources.files("in", format="json", schema="id bigint", max_files_per_batch=1)
    return Stream(
        name="s",
        sources={"numbers": numbers},
        transform=f"{__name__}:{transform}",
        sink=SINKS[sink],
        quality="suite.json",
    )


def die_unrecorded(lab: Lab, stream: Stream, limits: Limits = NO_LIMITS, *, batches: int = 1, **how: Any) -> None:
    """Let the power go as a run is about to record so many batches."""
    with power_cut(Cut("nothing of this name"), lab.root) as writes, pytest.MonkeyPatch.context() as patch:
        save = RunRecords.save

        def saving(records: RunRecords, record: RunRecord) -> None:
            if len(record.batches) >= batches and writes.at is None:
                writes.at = "the record"
                raise PowerCutError(writes.at)
            save(records, record)

        patch.setattr(RunRecords, "save", saving)
        try:
            lab.run(stream, limits, **how)
        except BaseException:
            assert writes.at is not None
    shutil.rmtree(lab.root / "home" / "s" / "leases")
    for query in lab.spark.streams.active:
        query.stop()
    forget_tables(lab.spark)


@pytest.mark.parametrize("run_key", [None, "the same"])
@pytest.mark.parametrize("limits", [NO_LIMITS, bounded(strategy="drain"), LIVE], ids=["exact", "drain", "live"])
@pytest.mark.parametrize(("sink", "expectation"), [("files", LARGEST), ("delta", UNIQUE)])
def test_rows_of_a_batch_that_nobody_recorded(
    lab: Lab, sink: str, expectation: dict[str, Any], limits: Limits, run_key: str | None
) -> None:
    """They fail, and hold the stream, also where Spark has planned the batch itself."""
    stream = declared(lab, expectation, sink)
    write_files(lab.root / "in", {"0.json": '{"id": 500}\n{"id": 500}'})
    die_unrecorded(lab, stream, limits, run_key=run_key)

    with pytest.raises((HeldError, QualityFailedError)):
        lab.run(stream, limits, run_key=run_key)

    write_files(lab.root / "in", {"1.json": '{"id": 1}'}, first=1)
    with pytest.raises(HeldError):
        lab.run(stream, limits)


@pytest.mark.parametrize(
    ("sink", "expectation"),
    [("files", row("expect_column_max_to_be_between", policy="fail", column="id", max_value=1)), ("delta", UNIQUE)],
)
def test_rows_of_a_batch_without_data_that_nobody_recorded(lab: Lab, sink: str, expectation: dict[str, Any]) -> None:
    """It follows a batch of an earlier run, whose clock it bears, and it is what has the rows."""
    stream = declared(lab, expectation, sink, "per_window")
    write_files(lab.root / "in", {"0.json": '{"id": 1}\n{"id": 2}\n{"id": 11}\n{"id": 12}\n{"id": 50}'})
    assert cut_run(lab, stream, Cut("Spark's commit")) is not None
    die_unrecorded(lab, stream, batches=2)

    with pytest.raises((HeldError, QualityFailedError)):
        lab.run(stream)

    write_files(lab.root / "in", {"1.json": '{"id": 51}'}, first=1)
    with pytest.raises(HeldError):
        lab.run(stream)


@pytest.mark.parametrize("edit", ["the transform", "a file"])
def test_a_released_batch_that_is_published_stays_released(lab: Lab, edit: str) -> None:
    """Its driver died before Spark's commit: what is read by now is not what was let through, and is not published."""
    stream = declared(lab, LARGEST, "delta")
    (file,) = write_files(lab.root / "in", {"0.json": '{"id": 500}'})
    with pytest.raises(QualityFailedError):
        lab.run(stream)
    release_gate(lab.project.stream_home(stream), "ada", system_clock())
    assert cut_run(lab, stream, Cut("Spark's commit")) is not None
    if edit == "a file":
        touch(file, 60)
    else:
        stream = declared(lab, LARGEST, "delta", "also_same")

    record = lab.run(stream)

    assert record.quality is not None
    assert (record.status, record.quality.verdict, record.quality.released_by) == ("succeeded", "fail", "ada")
    assert ids(lab.table("out")) == [500]


def also_same(numbers: DataFrame) -> DataFrame:
    return numbers.select("id")
