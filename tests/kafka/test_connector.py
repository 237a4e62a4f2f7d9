"""Spark reads Kafka with the pinned jars."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from tests.kafka.topics import Kafka
from tests.spark.lab import Lab, available_now, offset_lines, rows

pytestmark = pytest.mark.spark


def test_available_now(kafka: Kafka, lab: Lab) -> None:
    """A query reads what is there, and the next one goes on where it ended."""
    topic = kafka.topic(partitions=2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "4",
    }
    read = lab.spark.readStream.format("kafka").options(**options).load()
    frame = read.select("partition", "offset", F.col("value").cast("string").alias("value"))
    checkpoint, out = lab.root / "checkpoint", lab.root / "out"
    kafka.send(topic, ["a", "b", "c"], partition=0)
    kafka.send(topic, ["d", "e", "f"], partition=1)

    first = available_now(frame, checkpoint, out, sink="parquet")
    kafka.send(topic, ["g"], partition=1)
    second = available_now(frame, checkpoint, out, sink="parquet")

    assert [report["numInputRows"] for report in first + second] == [4, 2, 1]
    expected = [(0, 0, "a"), (0, 1, "b"), (0, 2, "c"), (1, 0, "d"), (1, 1, "e"), (1, 2, "f"), (1, 3, "g")]
    assert rows(lab.spark.read.parquet(str(out))) == expected
    ends = [line[0][topic] for line in offset_lines(checkpoint).values()]
    assert ends == [{"0": 2, "1": 2}, {"0": 3, "1": 3}, {"0": 3, "1": 4}]
