"""The topics of a broker that runs. Whatever returns is known to the whole broker."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from demo.kafka.broker import PATIENCE_SECONDS, Broker, until


class Topics:
    """Makes topics, and lets them grow.

    Args:
        broker: Where.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def bootstrap(self) -> str:
        """Where clients find it, as `bootstrap.servers` says it."""
        return self._broker.bootstrap

    def make(self, topic: str, partitions: int, **config: str | int) -> None:
        """Make an empty topic.

        Args:
            topic: Its name.
            partitions: How many it has.
            config: Settings with underscores for dots, `max_message_bytes=1000`. Rows are kept for ever unless
                `retention_ms` says otherwise: by default Kafka drops, within seconds, rows whose time is a week ago.
        """
        settings = {key.replace("_", "."): str(value) for key, value in {"retention_ms": -1, **config}.items()}
        admin = self._broker.admin()
        new = NewTopic(topic, partitions, 1, config=settings)
        admin.create_topics([new], operation_timeout=PATIENCE_SECONDS)[topic].result(PATIENCE_SECONDS)
        self._await_partitions(admin, topic, partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have more partitions.

        Args:
            topic: The topic.
            total: How many it has then.
        """
        admin = self._broker.admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(PATIENCE_SECONDS)
        self._await_partitions(admin, topic, total)

    def _await_partitions(self, admin: AdminClient, topic: str, total: int) -> None:
        """Wait until all partitions have a leader that answers, which the broker says of them a little too early."""

        def is_led() -> bool:
            found = admin.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic]
            if found.error is not None or len(found.partitions) != total:
                return False
            try:
                ask_offsets(admin, topic, found.partitions, OffsetSpec.latest())
            except KafkaException:
                return False
            return True

        until(is_led, f"{topic} has not got {total} partitions")


def ask_offsets(
    admin: AdminClient,
    topic: str,
    partitions: Iterable[int],
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[int, int]:
    """By partition of a topic, the offset that is asked for."""
    asked = {TopicPartition(topic, partition): spec for partition in partitions}
    found = admin.list_offsets(asked, isolation_level=isolation)
    return {of.partition: answer.result(PATIENCE_SECONDS).offset for of, answer in found.items()}
