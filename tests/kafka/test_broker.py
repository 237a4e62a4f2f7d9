"""The broker of these tests, and what they do with it, as the client sees it that planning uses."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from demo.kafka import broker as broker_module
from demo.kafka.broker import Broker
from tests.kafka.topics import Kafka

pytestmark = pytest.mark.spark  # it is a JVM

FIRST_MS = 1_500_000_000_000
"""Long ago: Kafka would drop it, if it kept its rows for a week only."""


def test_offsets(kafka: Kafka) -> None:
    """Of each partition the first offset, the next one, and the first one since a time."""
    topic = kafka.topic(partitions=2)
    for number in range(4):
        assert kafka.send(topic, [f"row {number}"], timestamp_ms=FIRST_MS + number) == [number]
    kafka.send(topic, [("key", {"id": 1}), None], partition=1, timestamp_ms=FIRST_MS + 9)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def ask(spec: OffsetSpec) -> dict[int, int]:
        answers = client.list_offsets({TopicPartition(topic, partition): spec for partition in (0, 1)})
        return {of.partition: answer.result(60).offset for of, answer in answers.items()}

    assert ask(OffsetSpec.earliest()) == {0: 0, 1: 0}
    assert ask(OffsetSpec.latest()) == {0: 4, 1: 2}
    assert ask(OffsetSpec.for_timestamp(FIRST_MS + 2)) == {0: 2, 1: 0}
    # Past its last row a partition has none.
    assert ask(OffsetSpec.for_timestamp(FIRST_MS + 5)) == {0: -1, 1: 0}


def test_rows(kafka: Kafka) -> None:
    """Keys, values, JSON and times are written as given."""
    topic = kafka.topic()
    kafka.send(topic, ["text", b"\x00", ("key", {"id": 1}), (b"gone", None)], timestamp_ms=FIRST_MS)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])

    messages = consumer.consume(4, 60)
    consumer.close()

    rows = [(message.key(), message.value()) for message in messages]
    assert rows == [(None, b"text"), (None, b"\x00"), (b"key", b'{"id": 1}'), (b"gone", None)]
    assert {message.timestamp()[1] for message in messages} == {FIRST_MS}


def test_more_partitions(kafka: Kafka) -> None:
    """A partition that was added takes rows at once."""
    topic = kafka.topic()
    kafka.add_partitions(topic, 3)
    kafka.send(topic, ["row"], partition=2)

    assert kafka.offsets(topic, OffsetSpec.latest()) == {0: 0, 1: 0, 2: 1}


def test_trimmed(kafka: Kafka) -> None:
    """What was trimmed is before the first offset."""
    topic = kafka.topic()
    kafka.send(topic, ["a", "b", "c"])
    kafka.trim(topic, 0, 2)

    assert kafka.offsets(topic, OffsetSpec.earliest()) == {0: 2}


def test_made_again(kafka: Kafka) -> None:
    """A topic of the name of one that was deleted is empty."""
    topic = kafka.topic(max_message_bytes=1000)
    kafka.send(topic, ["a", "b"])
    kafka.delete_topic(topic)
    kafka.topic(2, name=topic)

    assert kafka.offsets(topic, OffsetSpec.latest()) == {0: 0, 1: 0}


def test_transactions(kafka: Kafka) -> None:
    """Readers of committed rows stop before the first transaction that is open."""
    topic = kafka.topic()

    def committed_end() -> int:
        return kafka.offsets(topic, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)[0]

    with kafka.transaction() as transaction:
        assert transaction.send(topic, ["a", "b"]) == [0, 1]
        assert (committed_end(), kafka.offsets(topic, OffsetSpec.latest())) == (0, {0: 2})
        transaction.commit()
    assert committed_end() == 3  # the end of a transaction has an offset of its own

    with kafka.transaction() as transaction:
        transaction.send(topic, ["c"])
    assert committed_end() == 5


def test_taken_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker whose port somebody takes before it does takes another one."""
    free_ports = broker_module._free_ports
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        offers = iter([(taken, *free_ports(1))])
        monkeypatch.setattr(broker_module, "_free_ports", lambda count: next(offers, None) or free_ports(count))
        with Broker(tmp_path) as broker:
            assert broker.bootstrap != f"127.0.0.1:{taken}"


def test_end(tmp_path: Path) -> None:
    """A broker that was stopped keeps neither its port nor its rows, only what it said."""
    with Broker(tmp_path) as broker:
        host, port = broker.bootstrap.split(":")
        assert host == "127.0.0.1"

    with socket.socket() as client:
        assert client.connect_ex((host, int(port))) != 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["broker.log", "log4j2.properties", "server.properties"]
