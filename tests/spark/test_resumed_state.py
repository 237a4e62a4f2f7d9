"""State of a batch that the sink has, or whose rows are decided, and that is not committed: it is what the sink has."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, RefusedError, SluiceError
from sluice.spark.left_behind import forget_tables
from sluice.spark_setting import spark_setting
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, uncommit, write_files
from tests.spark.power_cuts import Cut, power_cut
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

SINKS: dict[str, Any] = {
    "files": sinks.files("out", format="parquet"),
    "delta": sinks.delta("out"),
    "merging": sinks.delta("out", optimize_write=False),
}


def once(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["id"])


def per_hundred(numbers: DataFrame) -> DataFrame:
    timed = numbers.withColumn("at", F.timestamp_seconds("id")).withWatermark("at", "0 seconds")
    return (
        timed.groupBy(F.window("at", "100 seconds")).count().select(F.unix_seconds("window.start").alias("id"), "count")
    )


def rows(lab: Lab) -> list[tuple[Any, ...]]:
    is_table = (lab.root / "out" / "_delta_log").exists()
    found = lab.spark.read.format("delta" if is_table else "parquet").load(str(lab.root / "out"))
    return sorted(tuple(row) for row in found.collect())


def stop_stores(lab: Lab) -> None:
    """Let Spark forget the state that it has in memory, as a driver does that dies."""
    lab.spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()  # type: ignore[union-attr]
    forget_tables(lab.spark)


@pytest.mark.parametrize(
    ("sink", "transform"),
    [
        *[("files", "once"), ("delta", "per_hundred"), ("merging", "once")],
        *rarely(("files", "per_hundred"), ("delta", "once"), ("merging", "per_hundred")),
    ],
)
def test_a_batch_that_the_sink_has(lab: Lab, sink: str, transform: str) -> None:
    """The retry reads it again or passes over it, and every later run finds the state."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform}",
        sink=SINKS[sink],
    )
    arrivals = [[1, 2], [1, 105], [5, 250], [105, 2, 400]]
    for number, ids in enumerate(arrivals):
        content = "\n".join(f'{{"id": {found}}}' for found in ids)
        write_files(lab.root / "in", {f"{number}.json": content}, first=number)
        lab.run(stream)
        if number == 1:
            newest = max(int(file.name) for file in (lab.checkpoint(stream) / "commits").glob("[0-9]*"))
            uncommit(lab.checkpoint(stream), newest)
            stop_stores(lab)
            assert lab.plan(stream).verdict == "resume"
            lab.run(stream)
            stop_stores(lab)
    once_each = [(found,) for found in sorted({found for ids in arrivals for found in ids})]
    assert rows(lab) == (once_each if transform == "once" else [(0, 3), (100, 1), (200, 1)])


def by_id(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["id"])


@pytest.mark.parametrize("then", ["CORRECTED", None])
def test_a_setting_behind_a_batch_that_the_sink_has(lab: Lab, then: str | None) -> None:
    """Values that are parsed otherwise would make a state of other rows; a setting of speed alone would not."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:by_id",
        sink=sinks.delta("out"),
        conf={"spark.sql.legacy.timeParserPolicy": "LEGACY"},
    )
    for number in (0, 1):
        write_files(lab.root / "in", {f"{number}.json": f'{{"id": {number}}}'}, first=number)
        lab.run(stream)
    uncommit(lab.checkpoint(stream), 1)
    stop_stores(lab)
    with pytest.raises(RefusedError) as refused:
        lab.run(replace(stream, conf={"spark.sql.legacy.timeParserPolicy": then} if then else None))
    read_remedy(refused.value, "READ_OTHERWISE", "set it back, run the stream once, and change it then")
    lab.run(replace(stream, conf={**(stream.conf or {}), "spark.sql.files.maxPartitionBytes": "1m"}))
    assert rows(lab) == [(0,), (1,)]


def test_a_setting_of_a_whole_spark(lab: Lab) -> None:
    """A cluster's defaults count as what is declared does."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:by_id",
        sink=sinks.delta("out"),
    )
    policy = "spark.sql.legacy.timeParserPolicy"
    lab.spark.conf.set(policy, "LEGACY")
    try:
        for number in (0, 1):
            write_files(lab.root / "in", {f"{number}.json": f'{{"id": {number}}}'}, first=number)
            lab.run(stream)
    finally:
        lab.spark.conf.unset(policy)
    uncommit(lab.checkpoint(stream), 1)
    stop_stores(lab)
    with pytest.raises(RefusedError) as refused:
        lab.run(stream)
    assert refused.value.finding.code == "READ_OTHERWISE"
    lab.spark.conf.set(policy, "LEGACY")
    try:
        lab.run(stream)
    finally:
        lab.spark.conf.unset(policy)
    assert rows(lab) == [(0,), (1,)]


def by_k(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["k"])


@pytest.mark.parametrize("cut", [Cut("commit out", 1, "before"), Cut("commit out_quarantine", 1, "after")])
def test_an_edit_behind_a_first_batch_that_is_decided(lab: Lab, cut: Cut) -> None:
    """Its rows are published as they were decided, and its state goes with them: an edit would take it for another."""
    suite = document(row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=999))
    (lab.root / "suite.json").write_bytes(suite)
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint, k bigint")},
        transform=f"{__name__}:by_id",
        sink=sinks.delta("out"),
        quality="suite.json",
    )
    write_files(lab.root / "in", {"0.json": '{"id": 1, "k": 11}\n{"id": 2, "k": 12}\n{"id": 2000, "k": 13}'})
    with power_cut(cut, lab.root) as writes, contextlib.suppress(BaseException):
        lab.run(stream)
    assert writes.at is not None
    for leases in (lab.root / "home").rglob("leases"):
        shutil.rmtree(leases)
    stop_stores(lab)

    with pytest.raises(RefusedError) as refused:
        lab.run(replace(stream, transform=f"{__name__}:by_k"))
    assert refused.value.finding.code == "STATE_CHANGED"

    lab.run(stream)
    write_files(lab.root / "in", {"1.json": '{"id": 2, "k": 2}\n{"id": 3, "k": 11}'}, first=1)
    lab.run(stream)
    assert rows(lab) == [(1, 11), (2, 12), (3, 11)]


def small_once(numbers: DataFrame) -> DataFrame:
    return numbers.where("id < 200").dropDuplicates(["id"])


_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_CONTEXTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


@pytest.mark.parametrize("is_written_over", [True, False])
def test_an_edit_behind_a_batch_whose_rows_count(lab: Lab, is_written_over: bool) -> None:  # noqa: FBT001
    """The state would be what edited code makes of rows that are written, as in HDFS, and the watermark everywhere."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:once",
        sink=sinks.delta("out"),
    )
    for number, found in enumerate((1, 250)):
        write_files(lab.root / "in", {f"{number}.json": f'{{"id": {found}}}'}, first=number)
        lab.run(stream)
    uncommit(lab.checkpoint(stream), 1)
    stop_stores(lab)
    manager = _CONTEXTS if is_written_over else lab.spark.conf.get(_MANAGER) or ""
    with spark_setting(lab.spark, _MANAGER, manager):
        with pytest.raises(RefusedError) as refused:
            lab.run(replace(stream, transform=f"{__name__}:small_once"))
        read_remedy(refused.value, "READ_OTHERWISE", "set it back, run the stream once, and change it then")
        lab.run(stream)
        stop_stores(lab)
        write_files(lab.root / "in", {"2.json": '{"id": 250}\n{"id": 1}\n{"id": 3}'}, first=2)
        lab.run(replace(stream, transform=f"{__name__}:small_once"))
    assert rows(lab) == [(1,), (3,), (250,)]


_STARTS = itertools.count()


def with_a_seed(numbers: DataFrame) -> DataFrame:
    """Spelled otherwise at every start: a seed of Spark's, a time, an id, the order of a set."""
    salted = numbers.withColumn("salt", F.rand()).withColumn("id_of", F.expr("uuid()"))
    started = salted.withColumn("at", F.lit(datetime.now(UTC))).withColumn("start", F.lit(next(_STARTS)))
    return started.dropDuplicates(["id"]).select("id")


@pytest.mark.parametrize("sink", ["delta", "files"])
def test_a_query_that_is_spelled_otherwise_at_every_start(lab: Lab, sink: str) -> None:
    """Nobody has edited it: a batch whose rows count goes on, and its state is theirs."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:with_a_seed",
        sink=SINKS[sink],
    )
    for number, found in enumerate((1, 2)):
        write_files(lab.root / "in", {f"{number}.json": f'{{"id": {found}}}'}, first=number)
        lab.run(stream)
    uncommit(lab.checkpoint(stream), 1)
    stop_stores(lab)

    lab.run(stream)
    stop_stores(lab)
    write_files(lab.root / "in", {"2.json": '{"id": 2}\n{"id": 3}'}, first=2)
    lab.run(stream)
    assert rows(lab) == [(1,), (2,), (3,)]


FUNCTION: dict[str, Any] = {}
"""What the function of a sink does: into which table it writes, whether it dies behind that, how many rows it takes."""


def write_once(frame: DataFrame, batch_id: int) -> None:
    writer = frame.write.format("delta").mode("append").option("txnAppId", "s").option("txnVersion", batch_id)
    writer.save(FUNCTION["table"])
    if FUNCTION.pop("dies", False):
        raise RuntimeError("it dies")


def look_at_one(frame: DataFrame, _batch_id: int) -> None:
    FUNCTION.setdefault("seen", []).append(frame.limit(1).count())


def ignore(_frame: DataFrame, batch_id: int) -> None:
    FUNCTION.setdefault("seen", []).append(batch_id)


@pytest.mark.parametrize("store", ["", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"])
@pytest.mark.parametrize("function", ["write_once", "look_at_one", "ignore"])
def test_a_function_that_does_not_compute_its_batch(lab: Lab, function: str, store: str) -> None:
    """Its state goes on all the same; Spark alone commits the batch, and its next one can't load the state."""
    FUNCTION.clear()
    FUNCTION["table"] = str(lab.root / "out")
    conf = {"spark.sql.streaming.stateStore.providerClass": store} if store else {}
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:once",
        sink=sinks.foreach_batch(f"{__name__}:{function}"),
        conf=conf,
    )
    write_files(lab.root / "in", {"0.json": '{"id": 1}'})
    lab.run(stream)
    write_files(lab.root / "in", {"1.json": '{"id": 1}\n{"id": 2}'}, first=1)
    if function == "write_once":
        FUNCTION["dies"] = True
        with pytest.raises(SluiceError):
            lab.run(stream)
    lab.run(stream)
    stop_stores(lab)
    write_files(lab.root / "in", {"2.json": '{"id": 2}\n{"id": 3}\n{"id": 1}'}, first=2)

    assert lab.run(stream).status == "succeeded"

    assert lab.plan(stream).verdict == "skip"
    if function == "write_once":
        assert rows(lab) == [(1,), (2,), (3,)]


def leave(_frame: DataFrame, _batch_id: int) -> None:
    sys.exit(0)


def test_a_function_that_leaves(lab: Lab) -> None:
    """The run fails: no thread of Spark's waits for an answer for ever."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:once",
        sink=sinks.foreach_batch(f"{__name__}:leave"),
    )
    write_files(lab.root / "in", {"0.json": '{"id": 1}'})
    with pytest.raises(BatchFailedError, match="what writes batch 0 ended by SystemExit"):
        lab.run(stream)
