"""Runs of streams that read topics: what is planned is what Spark reads, and what plain Spark goes on from."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from sluice.interval import Interval
from sluice.plan import Plan
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.batches import BatchRunner
from sluice.running.observers import Silent
from sluice.running.query_starts import QueryStarts
from sluice.running.runner import run_stream
from sluice.runs.record import BatchRecord, RunRecord
from tests.builders import put
from tests.kafka.topics import Kafka
from tests.remedies import read_remedy
from tests.spark.lab import Lab, Reports, available_now, bounded, offset_lines, uncommit, write_numbers
from tests.spark.sink_operations import killed

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIELDS = "id bigint, at timestamp"
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def numbers(orders: DataFrame) -> DataFrame:
    return orders.select(F.col("value").cast("string").cast("bigint").alias("id"), "partition", "offset")


def told(frame: DataFrame) -> DataFrame:
    row = F.from_json(F.col("value").cast("string"), FIELDS)
    return frame.select(row.alias("row")).select("row.*")


def events(orders: DataFrame) -> DataFrame:
    return told(orders).withColumn("day", F.to_date("at"))


def distinct(orders: DataFrame) -> DataFrame:
    return events(orders).withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["id", "day"])


def joined(orders: DataFrame, returns: DataFrame) -> DataFrame:
    left = told(orders).withWatermark("at", "1 hour")
    right = told(returns).withColumnsRenamed({"id": "order", "at": "back"}).withWatermark("back", "1 hour")
    near = (F.col("id") == F.col("order")) & F.col("back").between(F.col("at"), F.expr("at + interval 1 hour"))
    return left.join(right, near, "left_outer").select("id", "order")


def both(orders: DataFrame, n: DataFrame) -> DataFrame:
    return orders.select(F.col("value").cast("string").cast("bigint").alias("id")).unionByName(n.select("id"))


def twice(orders: DataFrame, again: DataFrame) -> DataFrame:
    return numbers(orders).unionByName(numbers(again))


def stream(kafka: Kafka, topic: str, transform: str = "numbers", *, name: str = "orders", **changes: Any) -> Stream:
    source = {
        key: changes.pop(key) for key in list(changes) if key in {"starting", "max_offsets_per_batch", "settings"}
    }
    known: dict[str, Any] = {
        "name": name,
        "sources": {"orders": sources.kafka(kafka.bootstrap, topics=[topic], **source)},
        "transform": f"{__name__}:{transform}",
        "sink": sinks.delta(name),
    }
    return Stream(**known | changes)


def send(kafka: Kafka, topic: str, *values: int, partition: int = 0) -> None:
    kafka.send(topic, map(str, values), partition=partition)


def event(number: int, hours: float) -> Mapping[str, Any]:
    return {"id": number, "at": (NOON + timedelta(hours=hours)).isoformat()}


def ids(lab: Lab, path: str = "orders", column: str = "id") -> list[int]:
    return sorted(row[column] for row in lab.table(path).select(column).collect())


def amounts(lab: Lab, made: Stream) -> list[dict[str, int]]:
    return [dict(batch.sources["orders"].amount) for batch in lab.plan(made).batches]


def test_runs_one_after_the_other(lab: Lab, kafka: Kafka) -> None:
    """Planned, run, skipped; the checkpoint is one of Spark's, with which plain Spark goes on."""
    topic = kafka.topic(2)
    send(kafka, topic, 1, 2, 3, 4)
    send(kafka, topic, 5, 6, partition=1)
    made = stream(kafka, topic, max_offsets_per_batch=3)

    assert amounts(lab, made) == [{"offsets": 3}, {"offsets": 3}]
    first = lab.run(made)
    assert [batch.input_rows for batch in first.batches] == [3, 3]
    assert lab.plan(made).verdict == "skip"
    send(kafka, topic, 7, partition=1)
    assert [batch.input_rows for batch in lab.run(made).batches] == [1]

    assert ids(lab) == [1, 2, 3, 4, 5, 6, 7]
    checkpoint = lab.checkpoint(made)
    assert [line[0][topic] for line in offset_lines(checkpoint).values()] == [
        {"0": 2, "1": 1}, {"0": 4, "1": 2}, {"0": 4, "1": 3},
    ]  # fmt: skip
    begun = (checkpoint / "sources" / "0" / "0").read_bytes()
    assert begun == b'\0v1\n{"%s":{"0":0,"1":0}}' % topic.encode()

    send(kafka, topic, 8, 9)
    frame = numbers(made.sources["orders"].read_stream(lab.spark, name="orders", started_at={}))
    available_now(frame, checkpoint, lab.root / "orders", sink="delta")
    assert sorted(row.id for row in lab.spark_table("orders").collect()) == list(range(1, 10))


def counted(orders: DataFrame) -> DataFrame:
    return orders.select(*KAFKA_COLUMNS).groupBy(F.col("key").cast("string").alias("key")).count()


def test_demo_4_7_counts_over_topics(lab: Lab, kafka: Kafka) -> None:
    """The topics of a pattern, with seven columns; the offset is that behind the last record of each partition."""
    topic = kafka.topic(name="demo-00")
    kafka.topic(name="demo-01")
    found = sources.kafka(kafka.bootstrap, pattern=r"demo-0\d")
    made = stream(kafka, topic, "counted", sources={"orders": found}, sink=sinks.noop(), output_mode="update")
    kafka.send(topic, [("ann", "1")])

    with Reports(lab.spark) as reports:
        lab.run(made)
    kafka.send(topic, [("bob", "1"), ("ann", "2")])
    state = [kept for batch in lab.run(made).batches for kept in batch.state]

    assert [line[0] for line in offset_lines(lab.checkpoint(made)).values()] == [
        {topic: {"0": 1}, "demo-01": {"0": 0}}, {topic: {"0": 3}, "demo-01": {"0": 0}},
    ]  # fmt: skip
    assert [source["description"] for report in reports.batches for source in report["sources"]] == [
        r"KafkaV2[SubscribePattern[demo-0\d]]"
    ]
    assert [(kept.rows, kept.updated_rows) for kept in state] == [(2, 2)]


def test_spark_writes_where_it_begins_in_the_same_way(lab: Lab, kafka: Kafka) -> None:
    """Byte for byte, but for the order of partitions."""
    topic = kafka.topic()
    send(kafka, topic, 1)
    made = stream(kafka, topic)
    lab.run(made)
    frame = numbers(made.sources["orders"].read_stream(lab.spark, name="orders", started_at={}))
    available_now(frame, lab.root / "plain", lab.root / "out", sink="delta")

    ours, plain = (folder / "sources" / "0" / "0" for folder in (lab.checkpoint(made), lab.root / "plain"))
    assert ours.read_bytes() == plain.read_bytes()


def test_what_comes_between_the_first_plan_and_the_first_batch(lab: Lab, kafka: Kafka) -> None:
    """`latest` is when the first run looked, whether it had anything to do or not."""
    topic = kafka.topic()
    send(kafka, topic, 1)
    made = stream(kafka, topic, starting="latest")
    lab.run(made)
    send(kafka, topic, 2)

    lab.run(made)

    assert ids(lab) == [2]


@pytest.mark.parametrize("edit", ["servers", "topics", "pattern", "partitions", "starting"])
def test_an_edit_between_the_first_plan_and_the_first_batch(lab: Lab, kafka: Kafka, edit: str) -> None:
    """A topic begins where the first run found that it does, however it is declared since; another one, as declared."""
    name = uuid.uuid4().hex[:6]
    topic, other = kafka.topic(name=f"{name}-1"), kafka.topic(name=f"{name}-2")
    send(kafka, topic, 0)
    send(kafka, other, 7)
    lab.run(stream(kafka, topic, starting="latest"))
    send(kafka, topic, 1)
    send(kafka, other, 8)
    edited = {
        "servers": sources.kafka(f"{kafka.bootstrap},{kafka.bootstrap}", topics=[topic], starting="latest"),
        "topics": sources.kafka(kafka.bootstrap, topics=[other, topic], starting="latest"),
        "pattern": sources.kafka(kafka.bootstrap, pattern=f"{name}-.*", starting="latest"),
        "partitions": sources.kafka(kafka.bootstrap, partitions={topic: [0]}, starting="latest"),
        "starting": sources.kafka(kafka.bootstrap, topics=[topic], starting="earliest"),
    }[edit]
    made = stream(kafka, topic, sources={"orders": edited})

    lab.run(made)
    send(kafka, topic, 2)
    send(kafka, other, 9)
    lab.run(made)

    assert ids(lab) == {"topics": [1, 2, 9], "pattern": [1, 2, 9], "starting": [0, 1, 2]}.get(edit, [1, 2])


def test_a_driver_dies_before_the_batch_is_planned(lab: Lab, kafka: Kafka) -> None:
    """Where it begins is in the checkpoint, and the batch is not; retention goes on meanwhile."""
    topic = kafka.topic()
    send(kafka, topic, 1, 2, 3)
    made = stream(kafka, topic)
    begun = lab.checkpoint(made) / "sources" / "0" / "0"
    put(begun, b'\0v1\n{"%s":{"0":1}}' % topic.encode())

    lab.run(made)
    assert ids(lab) == [2, 3]

    other = stream(kafka, topic, name="other")
    put(lab.checkpoint(other) / "sources" / "0" / "0", begun.read_bytes())
    kafka.trim(topic, 0, 2)
    problem = lab.plan(other).problem
    assert problem is not None
    assert (problem.code, f"{topic}-0 from 1 to 1" in problem.cause) == ("KAFKA_RECORDS_GONE", True)


def test_a_batch_is_finished_as_it_was_planned(lab: Lab, kafka: Kafka) -> None:
    """Whatever has come since, and though the declaration begins elsewhere now."""
    topic = kafka.topic()
    send(kafka, topic, 1, 2)
    made = stream(kafka, topic)
    lab.run(made)
    uncommit(lab.checkpoint(made), 0)
    send(kafka, topic, 3)

    resumed = lab.run(stream(kafka, topic, starting="latest"))

    assert [(batch.kind, batch.was_in_sink) for batch in resumed.batches] == [("uncommitted", True), ("data", False)]
    assert ids(lab) == [1, 2, 3]


def test_a_partition_more(lab: Lab, kafka: Kafka) -> None:
    """From its first record on, also when it came between a batch and its resume."""
    topic = kafka.topic()
    send(kafka, topic, 1)
    made = stream(kafka, topic)
    lab.run(made)
    uncommit(lab.checkpoint(made), 0)
    kafka.add_partitions(topic, 2)
    send(kafka, topic, 2, 3, partition=1)

    lab.run(made)

    assert ids(lab) == [1, 2, 3]


@pytest.mark.parametrize("strategy", ["exact", "drain"])
def test_strategies(lab: Lab, kafka: Kafka, strategy: Any) -> None:
    """Equal rows, and one goes on where the other ended."""
    topic = kafka.topic(2)
    send(kafka, topic, 1, 2, 3)
    made = stream(kafka, topic, max_offsets_per_batch=2)
    lab.run(made, Limits(strategy=strategy))
    send(kafka, topic, 4, 5, 6, partition=1)
    lab.run(made, Limits(strategy="exact" if strategy == "drain" else "drain"))

    assert ids(lab) == [1, 2, 3, 4, 5, 6]
    assert lab.plan(made).verdict == "skip"


def test_a_bound_by_time(lab: Lab, kafka: Kafka) -> None:
    """Records of that time on wait for the next run."""
    topic = kafka.topic()
    for number in range(4):
        stamp = int((NOON + timedelta(hours=number)).timestamp() * 1000)
        kafka.send(topic, [str(number)], timestamp_ms=stamp)
    made = stream(kafka, topic)

    lab.run(made, bounded(NOON + timedelta(hours=2)))
    assert ids(lab) == [0, 1]
    lab.run(made)
    assert ids(lab) == [0, 1, 2, 3]


def test_committed_records_alone(lab: Lab, kafka: Kafka) -> None:
    """What was aborted is never read, and a batch of nothing but marks is none that fails."""
    topic = kafka.topic()
    made = stream(kafka, topic, settings={"isolation.level": "read_committed"})
    with kafka.transaction() as kept:
        kept.send(topic, ["1", "2"])
        assert lab.plan(made).verdict == "skip"
        kept.commit()
    lab.run(made)
    with kafka.transaction() as left:
        left.send(topic, ["3"])
        left.abort()
    assert [batch.input_rows for batch in lab.run(made).batches] == [0]

    assert ids(lab) == [1, 2]


def test_records_that_are_gone(lab: Lab, kafka: Kafka) -> None:
    """The cut is in the record; then the stream goes on as before."""
    topic = kafka.topic()
    send(kafka, topic, 1)
    made = stream(kafka, topic)
    lab.run(made)
    send(kafka, topic, 2, 3, 4)
    kafka.trim(topic, 0, 3)
    with pytest.raises(RefusedError, match="2 offsets") as refused:
        lab.run(made)
    read_remedy(refused.value, "KAFKA_RECORDS_GONE", "declare `fail_on_data_loss=False`, run the stream once")

    cut = replace(made, sources={"orders": sources.kafka(kafka.bootstrap, topics=[topic], fail_on_data_loss=False)})
    record = lab.run(cut)
    assert [problem.code for problem in record.plan.warnings] == ["KAFKA_RECORDS_GONE"]
    assert [batch.input_rows for batch in record.batches] == [1]
    send(kafka, topic, 5)
    lab.run(made)

    assert ids(lab) == [1, 4, 5]


def test_two_sources_of_one_topic(lab: Lab, kafka: Kafka) -> None:
    """What is gone of it is told once."""
    topic = kafka.topic()
    send(kafka, topic, 1)
    source = sources.kafka(kafka.bootstrap, topics=[topic], fail_on_data_loss=False)
    made = stream(kafka, topic, "twice", sources={"orders": source, "again": source})
    lab.run(made)
    send(kafka, topic, 2, 3)
    kafka.trim(topic, 0, 2)

    assert [problem.code for problem in lab.plan(made).warnings] == ["KAFKA_RECORDS_GONE"]


def test_a_topic_that_is_gone(lab: Lab, kafka: Kafka) -> None:
    """Told in milliseconds, also of a batch that is planned; another stream reads another topic."""
    topic = kafka.topic()
    send(kafka, topic, 1)
    made = stream(kafka, topic)
    lab.run(made)
    uncommit(lab.checkpoint(made), 0)
    kafka.delete_topic(topic)

    with pytest.raises(RefusedError) as refused:
        lab.run(made)

    read_remedy(refused.value, "KAFKA_TOPIC_GONE", "if it was deleted, declare a new stream with a sink of its own")
    other = kafka.topic()
    send(kafka, other, 2)
    lab.run(stream(kafka, other, name="anew"))
    assert ids(lab, "anew") == [2]


def test_a_topic_that_was_made_again(lab: Lab, kafka: Kafka) -> None:
    """Known by its id, though it reaches further than what was read of the earlier one."""
    topic = kafka.topic()
    send(kafka, topic, 1)
    made = stream(kafka, topic)
    lab.run(made)
    kafka.delete_topic(topic)
    kafka.topic(name=topic)
    send(kafka, topic, 2, 3)

    with pytest.raises(RefusedError, match="made again") as refused:
        lab.run(made)

    read_remedy(refused.value, "KAFKA_TOPIC_REPLACED", "declare a new stream with a sink of its own")
    lab.run(stream(kafka, topic, name="anew"))
    assert (ids(lab), ids(lab, "anew")) == ([1], [2, 3])


class _Between(Silent):
    """Does something once a run has planned, or has committed its first batch."""

    def __init__(self, act: Callable[[], object], *, is_planned: bool = False) -> None:
        self._act, self._is_planned, self._is_done = act, is_planned, False

    def _once(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._act()

    def planned(self, plan: Plan) -> None:
        if self._is_planned:
            self._once()

    def committed(self, batch: BatchRecord) -> None:
        if not self._is_planned:
            self._once()


def run_with(lab: Lab, made: Stream, observer: Silent) -> RunRecord:
    return run_stream(lab.project, Request(lab.project.resolve(made)), session=lab.spark, observer=observer)


@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_topic_that_goes_between_batches(lab: Lab, kafka: Kafka, is_made_again: bool) -> None:  # noqa: FBT001
    """The cluster is asked before every batch: offsets of the earlier topic are not read of the new one."""
    topic = kafka.topic()
    send(kafka, topic, *range(6))
    made = stream(kafka, topic, max_offsets_per_batch=3)

    def replace_it() -> None:
        kafka.delete_topic(topic)
        if is_made_again:
            kafka.topic(name=topic)
            send(kafka, topic, *range(100, 108))

    with pytest.raises(RefusedError) as refused:
        run_with(lab, made, _Between(replace_it))

    assert refused.value.finding.code == ("KAFKA_TOPIC_REPLACED" if is_made_again else "KAFKA_TOPIC_GONE")
    assert ids(lab) == [0, 1, 2]


def test_a_topic_that_is_made_again_behind_the_plan(lab: Lab, kafka: Kafka) -> None:
    """It is not noted as the one that was read."""
    topic = kafka.topic()
    send(kafka, topic, 1)
    made = stream(kafka, topic)
    lab.run(made)
    send(kafka, topic, 2)

    def replace_it() -> None:
        kafka.delete_topic(topic)
        kafka.topic(name=topic)
        send(kafka, topic, 11, 12, 13)

    for attempt in (_Between(replace_it, is_planned=True), Silent()):
        with pytest.raises(RefusedError, match="made again"):
            run_with(lab, made, attempt)
    assert ids(lab) == [1]


def test_records_that_go_behind_the_plan(lab: Lab, kafka: Kafka) -> None:
    """The record tells what was left out, where that is declared."""
    topic = kafka.topic()
    send(kafka, topic, *range(6))
    source = sources.kafka(kafka.bootstrap, topics=[topic], fail_on_data_loss=False)
    made = stream(kafka, topic, sources={"orders": source})

    record = run_with(lab, made, _Between(lambda: kafka.trim(topic, 0, 5), is_planned=True))

    assert ids(lab) == [5]
    assert "5 offsets that were yet to be read are gone" in record.batches[0].warnings[0]


def test_past_everything_that_is_gone(lab: Lab, kafka: Kafka) -> None:
    """The remedy gets the stream on, though there is nothing to read; beside it, another partition has records."""
    topic = kafka.topic(2)
    send(kafka, topic, 1)
    made = stream(kafka, topic)
    lab.run(made)
    send(kafka, topic, 2, 3)
    kafka.trim(topic, 0, 3)
    source = sources.kafka(kafka.bootstrap, topics=[topic], fail_on_data_loss=False)

    lab.run(replace(made, sources={"orders": source}))
    send(kafka, topic, 4)
    send(kafka, topic, 5, partition=1)
    lab.run(made)

    assert ids(lab) == [1, 4, 5]


def test_a_topic_of_a_pattern_that_is_deleted(lab: Lab, kafka: Kafka) -> None:
    """Spark goes on without it, where that is declared."""
    old, new = kafka.topic(name="hourly-1"), kafka.topic(name="hourly-2")
    send(kafka, old, 1)
    send(kafka, new, 2)
    source = sources.kafka(kafka.bootstrap, pattern="hourly-.*", fail_on_data_loss=False)
    made = stream(kafka, old, sources={"orders": source})
    lab.run(made)
    kafka.delete_topic(old)
    send(kafka, new, 3)

    lab.run(made)
    send(kafka, new, 4)
    record = lab.run(made)

    assert ids(lab) == [1, 2, 3, 4]
    assert record.plan.warnings == ()


@pytest.mark.parametrize("strategy", ["exact", "drain"])
def test_a_topic_that_is_deleted_before_the_first_batch(lab: Lab, kafka: Kafka, strategy: Any) -> None:
    """Nothing of it was read: Spark is told to begin without it, and a backfill does not miss it."""
    name = uuid.uuid4().hex[:6]
    old, new = kafka.topic(name=f"{name}-1"), kafka.topic(name=f"{name}-2")
    kafka.send(new, [event(0, 0)])
    source = sources.kafka(kafka.bootstrap, pattern=f"{name}-.*", starting="latest")
    sink = sinks.delta("orders", partition_by=["day"])
    made = stream(kafka, new, "events", sources={"orders": source}, sink=sink, interval_column="day")
    lab.run(made)
    kafka.delete_topic(old)
    kafka.send(new, [event(1, 0)])

    record = lab.run(made, Limits(strategy=strategy))
    kafka.send(new, [event(2, 0)])
    later = lab.run(made)

    assert ids(lab) == [1, 2]
    assert [problem.code for problem in record.plan.warnings] == ["KAFKA_TOPIC_GONE"]
    assert later.plan.warnings == ()
    interval = Interval(NOON.replace(hour=0), NOON.replace(hour=0) + timedelta(days=1))
    backfill_stream(lab.project, BackfillRequest(lab.project.resolve(made), interval), session=lab.spark)
    assert ids(lab) == [0, 1, 2]


def test_a_drained_run_after_growth(lab: Lab, kafka: Kafka) -> None:
    """Spark wants to be told where every partition begins, also one that came after the first run looked."""
    topic = kafka.topic()
    send(kafka, topic, 1)
    made = stream(kafka, topic, starting="latest")
    lab.run(made, Limits(strategy="drain"))
    kafka.add_partitions(topic, 2)
    send(kafka, topic, 2)
    send(kafka, topic, 3, partition=1)

    lab.run(made, Limits(strategy="drain"))

    assert ids(lab) == [2, 3]


def test_beside_files(lab: Lab, kafka: Kafka) -> None:
    """Sources of two kinds, each of which may have nothing, also at first."""
    topic = kafka.topic()
    files = sources.files("in", format="json", schema="id bigint")
    for first in (True, False):
        name = f"orders{first}"
        topics = sources.kafka(kafka.bootstrap, topics=[topic])
        made = stream(kafka, topic, "both", name=name, sources={"orders": topics, "n": files})
        if first:
            write_numbers(lab.root / "in", 2)
        lab.run(made)
    send(kafka, topic, 11, 12)
    lab.run(made)
    assert ids(lab, "ordersFalse") == [0, 1, 11, 12]
    write_numbers(lab.root / "in", 1, first=2)
    send(kafka, topic, 13)
    lab.run(made)
    assert ids(lab, "ordersFalse") == [0, 1, 2, 11, 12, 13]


def test_an_outer_join_whose_sides_come_in_different_runs(lab: Lab, kafka: Kafka) -> None:
    """What no return has come for comes out once the watermark of both says so."""
    orders, returns = kafka.topic(), kafka.topic()
    topics = {"orders": orders, "returns": returns}
    declared = {name: sources.kafka(kafka.bootstrap, topics=[topic]) for name, topic in topics.items()}
    made = stream(kafka, orders, "joined", sources=declared)

    kafka.send(orders, [event(1, 0), event(2, 0), event(3, 6)])
    lab.run(made)
    kafka.send(returns, [event(1, 0.5), event(99, 6)])
    lab.run(made)
    kafka.send(orders, [event(4, 12)])
    lab.run(made)
    kafka.send(returns, [event(98, 12)])
    record = lab.run(made)

    assert {(row.id, row.order) for row in lab.table("orders").collect()} == {(1, 1), (2, None), (3, None)}
    assert {key.split(".")[0] for batch in record.batches for key in batch.watermarks} == {"orders", "returns"}


def test_watermarks_are_measured_again(lab: Lab, kafka: Kafka) -> None:
    """Of a batch that a driver died behind: on a copy that begins where the checkpoint does."""
    orders, returns = kafka.topic(), kafka.topic()
    topics = {"orders": orders, "returns": returns}
    declared = {name: sources.kafka(kafka.bootstrap, topics=[topic]) for name, topic in topics.items()}
    made = stream(kafka, orders, "joined", sources=declared)
    kafka.send(orders, [event(1, 0), event(2, 6)])
    kafka.send(returns, [event(98, 6)])
    lab.run(made)
    uncommit(lab.checkpoint(made), 1 if (lab.checkpoint(made) / "offsets" / "1").exists() else 0)

    lab.run(made)
    kafka.send(orders, [event(3, 12)])
    kafka.send(returns, [event(97, 12)])
    lab.run(made)

    assert sorted((row.id, row.order) for row in lab.table("orders").collect()) == [(1, None), (2, None)]


@pytest.mark.parametrize("transform", ["events", "distinct"])
def test_a_backfill(lab: Lab, kafka: Kafka, transform: str) -> None:
    """Of a day, from the topic; with state, as a stream of its own."""
    topic = kafka.topic()
    made = stream(kafka, topic, transform, sink=sinks.delta("orders", partition_by=["day"]), interval_column="day")
    days = [event(number, 24 * (number % 3)) for number in range(6)]
    kafka.send(topic, [*days, days[0], days[1]] if transform == "distinct" else days)
    lab.run(made)
    before = sorted(lab.table("orders").collect())
    assert len(before) == 6

    interval = Interval(NOON.replace(hour=0) + timedelta(days=1), NOON.replace(hour=0) + timedelta(days=2))
    request = BackfillRequest(lab.project.resolve(made), interval)
    record = backfill_stream(lab.project, request, session=lab.spark)

    assert record.backfill is not None
    assert record.backfill.rows_written == 2
    assert sorted(lab.table("orders").collect()) == before
    kafka.send(topic, [event(9, 96)])
    lab.run(made)
    assert 9 in ids(lab)


def test_a_backfill_of_what_is_gone(lab: Lab, kafka: Kafka) -> None:
    """Retention took all that the live stream has read, and more: no row of the interval is replaced by nothing."""
    topic = kafka.topic()
    made = stream(kafka, topic, "events", sink=sinks.delta("orders", partition_by=["day"]), interval_column="day")
    kafka.send(topic, [event(number, 24) for number in range(3)])
    lab.run(made)
    kafka.send(topic, [event(9, 48)] * 2)
    kafka.trim(topic, 0, 4)
    interval = Interval(NOON.replace(hour=0) + timedelta(days=1), NOON.replace(hour=0) + timedelta(days=2))

    with pytest.raises(RefusedError, match="retention has deleted"):
        backfill_stream(lab.project, BackfillRequest(lab.project.resolve(made), interval), session=lab.spark)
    assert ids(lab) == [0, 1, 2]


def by_arrival(kafka: Kafka, topic: str) -> Stream:
    sink = sinks.delta("orders", partition_by=["day"])
    return stream(kafka, topic, "events", sink=sink, interval_column="day", lateness="1 day")


def send_at(kafka: Kafka, topic: str, number: int, at: datetime, stamp: datetime | None = None) -> None:
    row = {"id": number, "at": at.isoformat()}
    kafka.send(topic, [row], timestamp_ms=int((stamp or at).timestamp() * 1000))


@pytest.mark.parametrize(
    "changed", [{"retention_ms": 366 * 86_400_000}, {"message_timestamp_type": "LogAppendTime"}], ids=str
)
def test_a_backfill_after_the_topic_was_set_otherwise(lab: Lab, kafka: Kafka, changed: dict[str, Any]) -> None:
    """What went by other settings is not taken for kept by those of today."""
    topic = kafka.topic()
    made = by_arrival(kafka, topic)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    send_at(kafka, topic, 1, today)
    send_at(kafka, topic, 2, today, today - timedelta(days=2))
    send_at(kafka, topic, 3, today)
    lab.run(made)
    kafka.trim(topic, 0, 1)
    kafka.configure(topic, **changed)
    interval = Interval(today, today + timedelta(days=1))

    with pytest.raises(RefusedError, match="retention has deleted") as refused:
        backfill_stream(lab.project, BackfillRequest(lab.project.resolve(made), interval), session=lab.spark)

    read_remedy(refused.value, "BACKFILL_INPUT_GONE", "an interval that begins after a run had read all that is gone")
    assert ids(lab) == [1, 2, 3]


@pytest.mark.parametrize("told_by", ["offset log", "run record"])
def test_a_backfill_behind_what_is_gone(lab: Lab, kafka: Kafka, told_by: str) -> None:
    """A batch was planned before the interval that had read all of it."""
    topic = kafka.topic(retention_ms=366 * 86_400_000)
    made = by_arrival(kafka, topic)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    before = today - timedelta(days=2)
    send_at(kafka, topic, 1, before)
    lab.run(made, clock=lambda: before)
    if told_by == "offset log":
        os.utime(lab.checkpoint(made) / "offsets" / "0", (before.timestamp(), before.timestamp()))
        shutil.rmtree(lab.root / "home" / made.name / "runs")
    send_at(kafka, topic, 2, today)
    lab.run(made)
    kafka.trim(topic, 0, 1)
    interval = Interval(today, today + timedelta(days=1))

    record = backfill_stream(lab.project, BackfillRequest(lab.project.resolve(made), interval), session=lab.spark)

    assert record.backfill is not None
    assert (record.backfill.rows_replaced, record.backfill.rows_written, ids(lab)) == (1, 1, [1, 2])
    earlier = Interval(before, before + timedelta(days=1))
    with pytest.raises(RefusedError, match="retention has deleted"):
        backfill_stream(lab.project, BackfillRequest(lab.project.resolve(made), earlier), session=lab.spark)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_backfill_of_a_topic_that_is_deleted(lab: Lab, kafka: Kafka, is_made_again: bool) -> None:  # noqa: FBT001
    """What a run went on without is in the sink: a backfill would replace it by nothing, also under the old name."""
    name = uuid.uuid4().hex[:6]
    new = kafka.topic(name=f"{name}-2")
    source = sources.kafka(kafka.bootstrap, pattern=f"{name}-.*", fail_on_data_loss=False)
    sink = sinks.delta("orders", partition_by=["day"])
    made = stream(kafka, new, "events", sources={"orders": source}, sink=sink, interval_column="day")
    interval = Interval(NOON.replace(hour=0), NOON.replace(hour=0) + timedelta(days=1))
    request = BackfillRequest(lab.project.resolve(made), interval)
    kafka.send(new, [event(3, 0)])
    lab.run(made)
    old = kafka.topic(name=f"{name}-1")
    kafka.send(old, [event(1, 0), event(2, 1)])
    lab.run(made)
    kafka.delete_topic(old)

    with pytest.raises(RefusedError, match=f"has read the topic {old}"):
        backfill_stream(lab.project, request, session=lab.spark)
    kafka.send(new, [event(4, 2)])
    lab.run(made)
    if is_made_again:
        kafka.topic(name=old)
        kafka.send(old, [event(11, 0)])
        lab.run(made)
    before = ids(lab)
    with pytest.raises(RefusedError, match=f"has read the topic {old}") as refused:
        backfill_stream(lab.project, request, session=lab.spark)

    assert refused.value.finding.code == "BACKFILL_INPUT_GONE"
    assert ids(lab) == before == [1, 2, 3, 4, *([11] if is_made_again else [])]


def read_by_pattern(lab: Lab, kafka: Kafka) -> tuple[str, str, Stream]:
    """Two topics, and a stream that has read a record of each by a pattern; it may go on without one."""
    name = uuid.uuid4().hex[:6]
    old, new = kafka.topic(name=f"{name}-1"), kafka.topic(name=f"{name}-2")
    source = sources.kafka(kafka.bootstrap, pattern=f"{name}-.*", fail_on_data_loss=False)
    made = stream(kafka, old, sources={"orders": source})
    send(kafka, old, 1)
    send(kafka, new, 2)
    lab.run(made)
    return old, new, made


def test_a_topic_of_a_pattern_that_is_made_again(lab: Lab, kafka: Kafka) -> None:
    """Once a run went on without it, it is read from its first record, as one that is new; not before."""
    old, new, made = read_by_pattern(lab, kafka)
    kafka.delete_topic(old)
    send(kafka, new, 3)
    with killed(BatchRunner, "run"):
        lab.run(made)
    kafka.topic(name=old)
    send(kafka, old, 8, 9)
    with pytest.raises(RefusedError, match="made again"):
        lab.run(made)
    kafka.delete_topic(old)
    lab.run(made)
    kafka.topic(name=old)
    send(kafka, old, 11, 12)

    lab.run(made)
    send(kafka, old, 13)
    lab.run(made)

    assert ids(lab) == [1, 2, 3, 11, 12, 13]


@pytest.mark.parametrize("is_in_sink", [True, False])
def test_a_topic_of_a_pattern_that_is_deleted_behind_a_batch(lab: Lab, kafka: Kafka, is_in_sink: bool) -> None:  # noqa: FBT001
    """What is in the sink need not be read again; what is not can't be, and Spark fails there."""
    old, new, made = read_by_pattern(lab, kafka)
    send(kafka, old, 3)
    send(kafka, new, 4)
    if is_in_sink:
        lab.run(made)
        uncommit(lab.checkpoint(made), 1)
        kafka.delete_topic(old)
        send(kafka, new, 5)

        lab.run(made)

        assert ids(lab) == [1, 2, 3, 4, 5]
        return
    with killed(QueryStarts, "start"):
        lab.run(made)
    kafka.delete_topic(old)
    with pytest.raises(RefusedError) as refused:
        lab.run(made)
    assert refused.value.finding.code == "KAFKA_TOPIC_GONE"
    assert ids(lab) == [1, 2]


def test_what_pages_tell(lab: Lab, kafka: Kafka) -> None:
    """Offsets of each partition, in the record as in the plan."""
    topic = kafka.topic(2)
    send(kafka, topic, 1)
    made = stream(kafka, topic)
    lab.run(made)

    (record,) = lab.records(made)
    (batch,) = record["plan"]["batches"]
    source = batch["sources"]["orders"]
    assert (source["start"], source["end"], source["offsets"]) == (None, {topic: {"0": 1, "1": 0}}, 1)
