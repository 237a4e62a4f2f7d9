"""A topic goes, or becomes another one, while Spark reads it: nothing counts that was not planned, or it is told."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, RefusedError, StorageError
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.known_generation import KnownGeneration
from sluice.running.observers import Silent
from sluice.running.query_starts import QueryStarts
from sluice.running.read_inputs import ReadInputs
from sluice.sinks.delta.sink import DeltaSink
from sluice.sources.kafka.source import KafkaSource
from sluice.spark.watermark_log import WatermarkLog
from tests.kafka.topics import Kafka
from tests.remedies import read_remedy
from tests.spark.lab import Lab
from tests.spark.power_cuts import Cut
from tests.spark.power_cuts import killed as power_cut
from tests.spark.sink_operations import Killed, killed

pytestmark = pytest.mark.spark


def numbers(orders: DataFrame) -> DataFrame:
    return orders.select(F.col("value").cast("string").cast("bigint").alias("id"))


def dated(orders: DataFrame) -> DataFrame:
    return numbers(orders).withColumn("day", F.lit("2026-01-02").cast("date"))


def declared(kafka: Kafka, how: str = "", /, **source: Any) -> Stream:
    """A stream into a table that Sluice publishes; or, by Spark, into files that Spark's own writer writes."""
    read = {"orders": sources.kafka(kafka.bootstrap, **source)}
    sink = sinks.files("out", format="parquet") if how == "by Spark" else sinks.delta("out")
    return Stream(name="s", sources=read, transform=f"{__name__}:numbers", sink=sink)


def ids(lab: Lab) -> list[int]:
    return sorted(row["id"] for row in lab.table("out").collect())


def at_start(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something once, when everything was looked at and Spark is about to read."""
    start, left = QueryStarts.start, [act]

    def starting(starts: QueryStarts, *args: Any, **kwargs: Any) -> Any:
        while left:
            left.pop()()
        return start(starts, *args, **kwargs)

    monkeypatch.setattr(QueryStarts, "start", starting)


@pytest.mark.parametrize("strategy", ["exact", "drain"])
def test_records_that_go_while_they_are_read(
    lab: Lab, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, strategy: Any
) -> None:
    """Where that is allowed, Spark passes over them without a word: the record tells."""
    topic = kafka.topic()
    stream = declared(kafka, topics=[topic], fail_on_data_loss=False)
    kafka.send(topic, ["0"])
    lab.run(stream)
    kafka.send(topic, map(str, range(1, 5)))
    at_start(monkeypatch, lambda: kafka.trim(topic, 0, 4))

    record = lab.run(stream, Limits(strategy=strategy))

    assert ids(lab) == [0, 4]
    (batch,) = record.batches
    (warning,) = batch.warnings
    assert f"{topic}-0 from 1 to 3; of 4 offsets Spark has read 1" in warning
    kafka.send(topic, ["5"])
    (batch,) = lab.run(stream, Limits(strategy=strategy)).batches
    assert (ids(lab), batch.warnings) == ([0, 4, 5], ())


def by_parity(orders: DataFrame) -> dict[str, DataFrame]:
    found = numbers(orders)
    return {"out": found.where("id % 2 = 0"), "odd": found.where("id % 2 = 1")}


def test_records_that_go_once_a_batch_is_decided(lab: Lab, kafka: Kafka) -> None:
    """One of two tables has its part, and the topic keeps nothing any more: the other gets what is staged for it."""
    topic = kafka.topic()
    kafka.send(topic, ["0", "1"])
    read = {"orders": sources.kafka(kafka.bootstrap, topics=[topic])}
    both = {name: sinks.delta(name) for name in ("out", "odd")}
    stream = Stream(name="s", sources=read, transform=f"{__name__}:by_parity", sinks=both)
    lab.run(stream)
    kafka.send(topic, ["2", "3"])
    power_cut(lab, stream, Cut("commit out"))
    # Whoever had the lease is gone: of several sinks, none refuses a second writer.
    (lab.root / "home" / "s" / "leases").rename(lab.root / "leases")
    kafka.trim(topic, 0, 4)

    plan = lab.plan(stream)
    (batch,) = lab.run(stream).batches

    assert (plan.verdict, [warning.is_blocking for warning in plan.warnings]) == ("resume", [False])
    assert "decided and staged" in batch.warnings[0]
    kafka.send(topic, ["4", "5"])
    lab.run(stream)
    assert ids(lab) == [0, 2, 4]
    assert sorted(row["id"] for row in lab.table("odd").collect()) == [1, 3, 5]


def twice(orders: DataFrame) -> DataFrame:
    # In one task: Spark may share a consumer of Kafka between two that read the same partition, and fail.
    return numbers(orders).unionByName(numbers(orders)).coalesce(1)


def test_records_that_go_from_a_topic_that_is_read_twice(
    lab: Lab, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark counts each record twice, and as many rows as there were offsets; what is gone is told all the same."""
    topic = kafka.topic()
    stream = replace(declared(kafka, topics=[topic], fail_on_data_loss=False), transform=f"{__name__}:twice")
    kafka.send(topic, ["0"])
    lab.run(stream)
    kafka.send(topic, map(str, range(1, 7)))
    at_start(monkeypatch, lambda: kafka.trim(topic, 0, 4))

    (batch,) = lab.run(stream).batches

    assert ids(lab) == [0, 0, 4, 4, 5, 5, 6, 6]
    (warning,) = batch.warnings
    assert f"{topic}-0 from 1 to 3; of 6 offsets Spark has read nobody knows how many" in warning


@pytest.mark.parametrize("how", ["published", "drained", "by Spark"])
def test_brokers_that_go_away_behind_a_commit(
    lab: Lab, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What counts is recorded, whatever can be asked of it by then: nothing need be, where it was asked before."""
    topic = kafka.topic()
    stream = declared(kafka, how, topics=[topic])
    kafka.send(topic, ["0", "1"])
    wait, answer = ReadInputs.told, KafkaSource.check_read

    def without_brokers(inputs: ReadInputs, *args: Any) -> Any:
        def away(*_: Any, **__: Any) -> Any:
            raise StorageError("Kafka gives no answer", where=topic, remedy="see to its brokers")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KafkaSource, "check_read", away)
            return wait(inputs, *args)

    monkeypatch.setattr(ReadInputs, "told", without_brokers)
    record = lab.run(stream, Limits(strategy="drain" if how == "drained" else None))

    assert KafkaSource.check_read is answer
    assert record.status == "succeeded"
    (batch,) = record.batches
    if how == "by Spark":
        (warning,) = batch.warnings
        assert "whether batch 0 was read as it was planned is not known: Kafka gives no answer" in warning
    else:
        assert (ids(lab), batch.warnings) == ([0, 1], ())
    assert lab.plan(stream).verdict == "skip"


@pytest.mark.parametrize("how", ["published", "by Spark", "drained", "the first batch"])
def test_a_topic_that_is_made_again_while_it_is_read(
    lab: Lab, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Offsets are those of the earlier one: nothing counts, or the run fails, where Spark's own writer had it."""
    topic = kafka.topic()
    stream = declared(kafka, how, topics=[topic])
    kafka.send(topic, ["0"])
    first = how == "the first batch"
    if not first:
        lab.run(stream)
    kafka.send(topic, map(str, range(1, 5)))

    def make_again() -> None:
        kafka.delete_topic(topic)
        kafka.topic(name=topic)
        kafka.send(topic, map(str, range(100, 108)))

    at_start(monkeypatch, make_again)
    is_counted = how == "by Spark"
    with pytest.raises(BatchFailedError if is_counted else RefusedError, match="was deleted and made again"):
        lab.run(stream, Limits(strategy="drain" if how == "drained" else None))

    if not is_counted:
        assert (ids(lab) if not first else [0]) == [0]
        assert lab.records(stream)[-1]["status"] == "refused"
    problem = lab.plan(stream).problem
    assert problem is not None
    assert problem.code == "KAFKA_TOPIC_REPLACED"


@pytest.mark.parametrize("how", ["trimmed", "made again"])
def test_a_topic_that_a_backfill_reads(lab: Lab, kafka: Kafka, how: str) -> None:
    """The rows of the interval would be replaced by others, or by nothing."""
    topic = kafka.topic()
    stream = replace(
        declared(kafka, topics=[topic], fail_on_data_loss=False),
        transform=f"{__name__}:dated",
        sink=sinks.delta("out", partition_by=["day"]),
        interval_column="day",
    )
    kafka.send(topic, map(str, range(5)))
    lab.run(stream)

    def change(phase: str) -> None:
        if phase != "writing the rows aside":
            return
        if how == "trimmed":
            kafka.trim(topic, 0, 4)
        else:
            kafka.delete_topic(topic)
            kafka.topic(name=topic)
            kafka.send(topic, map(str, range(100, 108)))

    observer = Silent()
    observer.phase = change  # type: ignore[method-assign]
    day = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    with pytest.raises(RefusedError) as refused:
        backfill_stream(
            lab.project, BackfillRequest(lab.project.resolve(stream), day), observer=observer, session=lab.spark
        )

    assert refused.value.finding.code == ("BACKFILL_INPUT_GONE" if how == "trimmed" else "KAFKA_TOPIC_REPLACED")
    assert ids(lab) == [0, 1, 2, 3, 4]


def test_a_transaction_is_open_behind_the_plan(lab: Lab, kafka: Kafka) -> None:
    """A batch that was planned with its records, and is to be read without them: Spark would wait, and fail."""
    topic = kafka.topic()
    stream = declared(kafka, topics=[topic])
    with kafka.transaction() as transaction:
        transaction.send(topic, ["1", "2"])
        with killed(QueryStarts, "start"):
            lab.run(stream)
        committed = declared(kafka, topics=[topic], settings={"isolation.level": "read_committed"})

        with pytest.raises(RefusedError) as refused:
            lab.run(committed)

        read_remedy(refused.value, "KAFKA_TRANSACTION_OPEN", "wait until the transaction is over")
        transaction.commit()
    lab.run(committed)
    assert ids(lab) == [1, 2]


def test_a_topic_of_a_pattern_that_is_made_again_behind_a_look(lab: Lab, kafka: Kafka) -> None:
    """A run that finds nothing but that it is gone goes past it: what has its name then begins anew."""
    prefix = f"p{uuid.uuid4().hex}"
    one, other = kafka.topic(name=f"{prefix}-a"), kafka.topic(name=f"{prefix}-b")
    kafka.send(one, ["0"])
    kafka.send(other, ["1"])
    stream = declared(kafka, pattern=f"{prefix}-.*", fail_on_data_loss=False)
    lab.run(stream)
    kafka.delete_topic(one)
    assert [problem.code for problem in lab.run(stream).plan.warnings] == ["KAFKA_TOPIC_GONE"]

    kafka.topic(name=one)
    kafka.send(one, ["20", "21"])
    lab.run(stream)

    assert ids(lab) == [0, 1, 20, 21]
    assert lab.plan(stream).verdict == "skip"


def left_behind(lab: Lab, kafka: Kafka) -> tuple[Stream, Callable[[], None], str]:
    """A stream that has gone past a topic of its pattern, what makes that one again, and the name of the other."""
    prefix = f"p{uuid.uuid4().hex}"
    one, other = kafka.topic(name=f"{prefix}-a"), kafka.topic(name=f"{prefix}-b")
    kafka.send(one, ["0"])
    kafka.send(other, ["1"])
    stream = declared(kafka, pattern=f"{prefix}-.*", fail_on_data_loss=False)
    lab.run(stream)
    kafka.delete_topic(one)
    lab.run(stream)
    kafka.send(other, ["2"])

    def make_again() -> None:
        kafka.topic(name=one)
        kafka.send(one, ["20", "21"])

    return stream, make_again, one


def die(*_: Any, **__: Any) -> None:
    raise Killed


@pytest.mark.parametrize("kill", [None, (KnownGeneration, "keep"), (DeltaSink, "publish_batch")])
def test_a_topic_that_was_left_behind_and_that_spark_finds_again(
    lab: Lab, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, kill: tuple[type, str] | None
) -> None:
    """Between a drained run's look and Spark's: it begins anew, and is known from the next one of its name."""
    stream, make_again, one = left_behind(lab, kafka)
    at_start(monkeypatch, make_again)
    drain = Limits(strategy="drain")
    if kill is not None:
        with monkeypatch.context() as patch:
            patch.setattr(*kill, die)
            with pytest.raises(BatchFailedError, match="Killed"):
                lab.run(stream, drain)

    lab.run(stream, drain)
    kafka.send(one, ["22"])
    lab.run(stream, drain)

    assert ids(lab) == [0, 1, 2, 20, 21, 22]
    assert lab.plan(stream).verdict == "skip"
    kafka.delete_topic(one)
    make_again()
    problem = lab.plan(stream).problem
    assert problem is not None
    assert problem.code == "KAFKA_TOPIC_REPLACED"


def timed(orders: DataFrame) -> DataFrame:
    return numbers(orders).withColumn("at", F.timestamp_seconds(F.col("id"))).withWatermark("at", "1 second")


def test_a_topic_that_is_made_again_before_a_batch_is_measured_anew(
    lab: Lab, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """How far the old one's records had taken the watermark, nobody finds out by the new one's."""
    prefix = f"p{uuid.uuid4().hex}"
    stream = replace(declared(kafka, pattern=f"{prefix}-.*"), transform=f"{__name__}:timed")
    stream = replace(stream, sink=sinks.files("out", format="parquet"))
    kafka.send(kafka.topic(name=f"{prefix}-a"), ["1"])
    lab.run(stream)
    topic = kafka.topic(name=f"{prefix}-b")
    kafka.send(topic, ["1", "2"])
    with killed(WatermarkLog, "keep"):
        lab.run(stream)
    kafka.send(topic, ["3"])
    catch_up = WatermarkLog.catch_up

    def after_another(log: WatermarkLog, *args: Any, **kwargs: Any) -> None:
        kafka.delete_topic(topic)
        kafka.topic(name=topic)
        kafka.send(topic, ["100", "200", "300"])
        catch_up(log, *args, **kwargs)

    monkeypatch.setattr(WatermarkLog, "catch_up", after_another)
    with pytest.raises(RefusedError, match="was deleted and made again"):
        lab.run(stream)

    assert "batch 1 took the watermarks can't be measured: a topic was deleted and made again" in caplog.text
