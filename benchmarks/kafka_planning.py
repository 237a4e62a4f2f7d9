"""What it costs to ask a Kafka cluster what waits, without a JVM: of one wide topic, and of many."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka.admin import NewTopic

from benchmarks.measure import Figure
from demo.kafka.broker import PATIENCE_SECONDS, Broker, until
from sluice import sources
from sluice.errors import StorageError
from sluice.sources.contract import Bound, Position
from sluice.sources.kafka.source import KafkaSource
from sluice.storage import Storage
from tests.kafka.topics import Kafka

PARTITIONS = 100
TOPICS = 1_000
BAR_MS = 20.0
ROUNDS = 21


def measure() -> list[Figure]:
    """Milliseconds of a plan over a connection that is there, and of the lag of many topics in one look."""
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder)) as broker:
        kafka = Kafka(broker)
        wide = kafka.topic(PARTITIONS)
        for partition in range(PARTITIONS):
            kafka.send(wide, "ab", partition=partition)
        _make_topics(broker)
        of_one = _milliseconds(_look(sources.kafka(kafka.bootstrap, topics=[wide]), 2 * PARTITIONS))
        of_many = _milliseconds(_look(sources.kafka(kafka.bootstrap, pattern="many-.*"), 0))
    return [
        _figure(f"planning a Kafka topic of {PARTITIONS} partitions, ms", of_one, BAR_MS),
        _figure(f"the lag of {TOPICS:,} Kafka topics by one look, ms", of_many, None),
    ]


def _make_topics(broker: Broker) -> None:
    admin = broker.admin()
    new = [NewTopic(f"many-{number}", 1, 1) for number in range(TOPICS)]
    for made in admin.create_topics(new, operation_timeout=PATIENCE_SECONDS).values():
        made.result(PATIENCE_SECONDS)


def _look(source: KafkaSource, offsets: int) -> Callable[[], None]:
    def look() -> None:
        found = source.available(Position(None), Bound(), storage=Storage(), now=datetime.now(UTC))
        assert source.waiting(found)["offsets"] == offsets

    def is_led() -> bool:
        """A broker tells of new topics before all of their partitions have a leader."""
        try:
            look()
        except StorageError:
            return False
        return True

    until(is_led, "the topics have no leaders")
    return look


def _milliseconds(look: Callable[[], None]) -> list[float]:
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        look()
        found.append(1000 * (time.perf_counter() - began))
    return found


def _figure(name: str, found: list[float], bar: float | None) -> Figure:
    return Figure(name, statistics.median(found), bar, (min(found), max(found)), f"{ROUNDS} looks, a broker beside")
