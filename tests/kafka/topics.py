"""What tests do with a Kafka: make topics, write, and harm them. Whatever returns is known to the whole broker."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from confluent_kafka import IsolationLevel, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from demo.kafka.broker import PATIENCE_SECONDS, Broker, until
from demo.kafka.topics import Topics, ask_offsets

Text: TypeAlias = str | bytes | None
Row: TypeAlias = Text | Mapping[str, Any] | tuple[Text, Text | Mapping[str, Any]]
"""A value, or a key and a value; a mapping is written as JSON, and None is a value that is none (a tombstone)."""


class Kafka(Topics):
    """The topics of a broker that runs."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._numbers = itertools.count(1)

    def topic(self, partitions: int = 1, *, name: str | None = None, **config: str | int) -> str:
        """Make an empty topic, and give its name.

        Args:
            partitions: How many it has.
            name: A name of its own, as that of a topic that was deleted; one that is new unless told.
            config: As for `make`.
        """
        topic = name or f"topic-{next(self._numbers):04d}"
        self.make(topic, partitions, **config)
        return topic

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with all of its rows."""
        admin = self._broker.admin()
        admin.delete_topics([topic], operation_timeout=PATIENCE_SECONDS)[topic].result(PATIENCE_SECONDS)

        def is_gone() -> bool:
            error = admin.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].error
            return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART

        until(is_gone, f"{topic} is still there")

    def configure(self, topic: str, **config: str | int) -> None:
        """Give a topic other settings, with underscores for dots."""
        admin = self._broker.admin()
        entries = [
            ConfigEntry(key.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        (changed,) = admin.incremental_alter_configs([resource]).values()
        changed.result(PATIENCE_SECONDS)
        asked = ConfigResource(ResourceType.TOPIC, topic)

        def is_set() -> bool:
            (found,) = admin.describe_configs([asked]).values()
            told = found.result(PATIENCE_SECONDS)
            return all(told[entry.name].value == entry.value for entry in entries)

        until(is_set, f"{topic} has not got {config}")

    def trim(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete the rows of a partition before an offset, as retention does."""
        admin = self._broker.admin()
        position = TopicPartition(topic, partition, before_offset)
        (deleted,) = admin.delete_records([position]).values()
        deleted.result(PATIENCE_SECONDS)
        until(
            lambda: self.offsets(topic, OffsetSpec.earliest())[partition] == before_offset,
            f"{topic} still has rows before {before_offset}",
        )

    def offsets(
        self, topic: str, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[int, int]:
        """The offset of each partition: for `OffsetSpec.earliest()`, `.latest()` or `.for_timestamp(milliseconds)`."""
        admin = self._broker.admin()
        partitions = admin.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].partitions
        return ask_offsets(admin, topic, partitions, spec, isolation)

    def send(
        self, topic: str, rows: Iterable[Row], *, partition: int = 0, timestamp_ms: int | None = None
    ) -> list[int]:
        """Write rows in their order; gives their offsets.

        Args:
            topic: A topic that is there.
            rows: See `Row`.
            partition: The partition of all of them.
            timestamp_ms: The time of all of them; now unless told.
        """
        return _send(Producer(self._producer_conf()), topic, rows, partition, timestamp_ms)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction, open until it is committed or aborted; aborted with the context otherwise."""
        own = {"transactional.id": f"tests-{uuid.uuid4()}", "transaction.timeout.ms": PATIENCE_SECONDS * 3000}
        opened = Transaction(self, Producer(self._producer_conf() | own))
        try:
            yield opened
        finally:
            if opened.is_open:
                opened.abort()

    def _producer_conf(self) -> dict[str, Any]:
        milliseconds = PATIENCE_SECONDS * 1000
        return self._broker.client_conf() | {
            "linger.ms": 0,
            "message.timeout.ms": milliseconds,
            # Rows whose answer is late are not sent again, and so are never there twice. An idempotent producer would
            # promise it too, and wait for half a second before its first row.
            "socket.timeout.ms": milliseconds * 2,
            "request.timeout.ms": milliseconds * 2,
            "max.in.flight.requests.per.connection": 1,
        }


class Transaction:
    """Rows that readers of committed rows see together, or never."""

    def __init__(self, kafka: Kafka, producer: Producer) -> None:
        self._kafka, self._producer = kafka, producer
        self._topics: dict[str, set[int]] = {}
        self._producer.init_transactions(PATIENCE_SECONDS)
        self._producer.begin_transaction()
        self.is_open = True

    def send(
        self, topic: str, rows: Iterable[Row], *, partition: int = 0, timestamp_ms: int | None = None
    ) -> list[int]:
        """As `Kafka.send`: the rows are there, and are neither committed nor aborted."""
        self._topics.setdefault(topic, set()).add(partition)
        return _send(self._producer, topic, rows, partition, timestamp_ms)

    def commit(self) -> None:
        """Let readers of committed rows see them."""
        self._end(is_committed=True)

    def abort(self) -> None:
        """Let no reader of committed rows ever see them."""
        self._end(is_committed=False)

    def _end(self, *, is_committed: bool) -> None:
        before = {topic: self._kafka.offsets(topic, OffsetSpec.latest()) for topic in self._topics}
        end = self._producer.commit_transaction if is_committed else self._producer.abort_transaction
        end(PATIENCE_SECONDS)
        self.is_open = False
        # The broker promises at once, and marks the end in each partition later.
        for topic, partitions in self._topics.items():
            for partition in partitions:
                self._await_marker(topic, partition, before[topic][partition])

    def _await_marker(self, topic: str, partition: int, end: int) -> None:
        until(
            lambda: self._kafka.offsets(topic, OffsetSpec.latest())[partition] > end,
            f"the transaction's end is not in {topic}",
        )


def _send(producer: Producer, topic: str, rows: Iterable[Row], partition: int, timestamp_ms: int | None) -> list[int]:
    offsets: list[int] = []

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        assert offset is not None
        offsets.append(offset)

    time: dict[str, Any] = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
    for row in rows:
        key, value = row if isinstance(row, tuple) else (None, row)
        written = json.dumps(value) if isinstance(value, Mapping) else value
        producer.produce(topic, written, key, partition=partition, on_delivery=note, **time)
        producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0, f"rows are not in {topic}"
    return offsets
