"""Live runs of streams that read topics: Spark's continuous engine, and its real-time mode."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import QueryRefusedError
from sluice.planning.planner import Limits
from tests.kafka.topics import Kafka
from tests.spark.lab import NO_LIMITS, Lab
from tests.spark.test_live_runs import live

pytestmark = pytest.mark.spark


def values(orders: DataFrame) -> DataFrame:
    return orders.select("value").where("value IS NOT NULL")


def counted(orders: DataFrame) -> DataFrame:
    return orders.groupBy("value").count().select(F.col("count").cast("string").alias("value"))


def stream(kafka: Kafka, topic: str, into: str, **changes: Any) -> Stream:
    known: dict[str, Any] = {
        "name": "orders",
        "sources": {"orders": sources.kafka(kafka.bootstrap, topics=[topic])},
        "transform": f"{__name__}:values",
        "sink": sinks.kafka(kafka.bootstrap, topic=into),
    }
    return Stream(**known | changes)


def written(lab: Lab, kafka: Kafka, topic: str) -> list[int]:
    read = lab.spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap).option("subscribe", topic)
    return sorted(int(row["value"]) for row in read.load().select("value").collect())


def send(kafka: Kafka, topic: str, *numbers: int) -> None:
    kafka.send(topic, map(str, numbers))


def test_batches_before_and_after(lab: Lab, kafka: Kafka) -> None:
    """Planned, at work, in real time, and drained: each goes on where the one before has ended, with every row once."""
    topic, into = kafka.topic(), kafka.topic()
    made = stream(kafka, topic, into, output_mode="update")
    send(kafka, topic, 1, 2)
    lab.run(made)
    send(kafka, topic, 3, 4)
    at_work = lab.run(made, live("2s"))
    send(kafka, topic, 5, 6)
    real_time = lab.run(made, live("1s", "real-time"))
    send(kafka, topic, 7)
    lab.run(made, Limits(strategy="drain"))
    send(kafka, topic, 8)
    lab.run(made)

    assert written(lab, kafka, into) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [batch.input_rows for batch in at_work.batches] == [2]
    # A batch of the real-time mode lasts for its five seconds, though the run was over before.
    assert (real_time.status, [batch.input_rows for batch in real_time.batches]) == ("succeeded", [2])
    assert real_time.batches[0].duration_ms["addBatch"] >= 5000


def test_a_continuous_query(lab: Lab, kafka: Kafka) -> None:
    """Its epochs are in the record where they took something, and the next run goes on from them."""
    topic, into = kafka.topic(), kafka.topic()
    made = stream(kafka, topic, into)
    send(kafka, topic, 1, 2)
    first = lab.run(made, live("4s", "continuous=300ms"))
    send(kafka, topic, 3)
    second = lab.run(made, live("4s", "continuous=300ms"))
    third = lab.run(made, live("2s", "continuous=300ms"))

    assert {record.status for record in (first, second, third)} == {"succeeded"}
    assert set(written(lab, kafka, into)) == {1, 2, 3}
    assert [len(record.batches) for record in (second, third)] == [1, 0]
    assert 1 <= len(first.batches) <= 2
    assert first.batches[-1].batch_id < second.batches[0].batch_id


def test_what_the_real_time_mode_refuses(lab: Lab, kafka: Kafka) -> None:
    """A query with state is refused before the checkpoint is begun, and so runs otherwise."""
    topic, into = kafka.topic(), kafka.topic()
    made = stream(kafka, topic, into, output_mode="update", transform=f"{__name__}:counted")
    send(kafka, topic, 1, 1)
    with pytest.raises(QueryRefusedError, match="real-time mode does not support Aggregate operations"):
        lab.run(made, live("10s", "real-time=5s"))
    assert not (lab.checkpoint(made) / "metadata").exists()

    assert lab.run(made, NO_LIMITS).status == "succeeded"
    assert written(lab, kafka, into) == [2]
