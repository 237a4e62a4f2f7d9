"""Asks a Kafka cluster for its topics and offsets, without a JVM.

Nothing is consumed, no group is joined, and nothing is committed: the checkpoint alone knows how far a stream has read.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from sluice.errors import UnansweredError
from sluice.extras import check_extra
from sluice.kafka.complaints import Complaints

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

TIMEOUT_SECONDS = 10.0
"""How long one answer of a cluster may take."""
_LOOK_SECONDS = 0.05
"""How often it is looked at what goes wrong while a connection is made."""
_NONE_SO_LATE = -1
"""What a cluster answers for a time after the last record."""
_INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
"""Topics of Kafka's own, which no expression is about."""
_SETTINGS = {
    # It writes to stderr by itself otherwise; what it says is told by our errors.
    "log_level": 0,
    "reconnect.backoff.ms": 500,
}


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


Offsets: TypeAlias = Mapping[Partition, int]
"""By partition, the offset of the record that comes next."""


@dataclass(frozen=True)
class Topic:
    """A topic that is there."""

    id: str
    """Another one where a topic was deleted and made again under its name."""
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Edges:
    """How far the partitions reach."""

    first: Offsets
    """The offset of the oldest record that retention has left; that of the next one where there is none."""
    next: Offsets
    """The offset that the next record gets; for whoever reads committed records only, of the first that is open."""
    end: Offsets
    """The offset that the next record gets, whatever is open."""


class Cluster:
    """The brokers that some settings lead to; one connection of this process serves all who ask with these."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._servers = settings["bootstrap.servers"]
        self._complaints = Complaints()
        self._settings: dict[str, Any] = {**_SETTINGS, **settings, "error_cb": self._complaints.hear}
        self._client: AdminClient | None = None
        self._asked = threading.local()
        """Of each thread, the client that it has asked: answers of one that is gone never come."""

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of some topics that are there.

        Raises:
            UnansweredError: The cluster can't be reached, or does not answer.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        wanted = sorted(set(names))
        if not wanted:
            return {}
        asked = self._ask(
            lambda client: client.describe_topics(TopicCollection(wanted), request_timeout=TIMEOUT_SECONDS)
        )
        self._wait(asked.values())
        found = {}
        for name, answer in asked.items():
            try:
                told = answer.result()
            except KafkaException as exc:
                if exc.args[0].code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION}:
                    continue
                raise self._failed(exc) from exc
            partitions = tuple(sorted(Partition(name, one.id) for one in told.partitions))
            found[name] = Topic(str(told.topic_id), partitions)
        return found

    def topic_names(self) -> Sequence[str]:
        """The topics that there are, but those of Kafka's own.

        Raises:
            UnansweredError: The cluster can't be reached, or does not answer.
        """
        found = self._ask(lambda client: client.list_topics(timeout=TIMEOUT_SECONDS)).topics
        return sorted(found.keys() - _INTERNAL)

    def edges(self, partitions: Sequence[Partition], *, committed_only: bool) -> Edges:
        """How far some partitions reach.

        Raises:
            UnansweredError: The cluster can't be reached, or does not answer.
        """
        if not partitions:
            return Edges({}, {}, {})
        first = _offsets(partitions, "earliest", committed_only=committed_only)
        after = _offsets(partitions, "latest", committed_only=committed_only)
        questions = [first, after, *([_offsets(partitions, "latest", committed_only=False)] if committed_only else [])]
        # All of them are on their way, to one client, before any answer is waited for.
        asked = self._ask(lambda client: [question(client) for question in questions])
        told = [self._told(answers) for answers in asked]
        return Edges(told[0], told[1], told[-1])

    def first_since(self, partitions: Sequence[Partition], time_ms: int) -> dict[Partition, int | None]:
        """The first record of each partition that bears a time, or a later one; None where none is so late.

        Args:
            partitions: Where to look.
            time_ms: In milliseconds since the epoch; Kafka knows none before it.

        Raises:
            UnansweredError: The cluster can't be reached, or does not answer.
        """
        if not partitions:
            return {}
        found = self._told(self._ask(_offsets(partitions, "for_timestamp", max(time_ms, 0), committed_only=False)))
        return {partition: None if offset == _NONE_SO_LATE else offset for partition, offset in found.items()}

    def configs(self, topics: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """The settings of some topics.

        Raises:
            UnansweredError: The cluster can't be reached, or does not tell them to this user.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        if not topics:
            return {}
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        answers = self._ask(lambda client: client.describe_configs(asked, request_timeout=TIMEOUT_SECONDS))
        try:
            self._wait(answers.values())
            told = {resource.name: answer.result() for resource, answer in answers.items()}
        except KafkaException as exc:
            raise self._failed(exc) from exc
        return {name: {key: str(entry.value) for key, entry in found.items()} for name, found in told.items()}

    def _told(self, asked: Mapping[TopicPartition, Future[Any]]) -> dict[Partition, int]:
        """What was answered about each partition.

        Raises:
            UnansweredError: One answer is that there is none.
        """
        from confluent_kafka import KafkaException

        try:
            self._wait(asked.values())
            return {Partition(at.topic, at.partition): answer.result().offset for at, answer in asked.items()}
        except KafkaException as exc:
            raise self._failed(exc) from exc

    def _ask(self, question: Callable[[AdminClient], T]) -> T:
        from confluent_kafka import KafkaException

        client = self._client
        if client is not None:
            # What was said since the last question is not about this one.
            client.poll(0)
        self._complaints.clear()
        try:
            # Not by its truth: a client has a length, that of its queue.
            self._asked.client = self._client = self._connected() if client is None else client
            return question(self._asked.client)
        except (KafkaException, FutureTimeoutError) as exc:
            raise self._failed(exc) from exc

    def _connected(self) -> AdminClient:
        """A client that the cluster has answered; one that it refuses is not waited for as long as one that is lost."""
        from confluent_kafka.admin import AdminClient

        check_extra("kafka", "a source of Kafka")
        self._asked.client = client = AdminClient(self._settings)
        answer = client.describe_cluster(request_timeout=TIMEOUT_SECONDS)
        self._wait([answer])
        answer.result()
        return client

    def _wait(self, answers: Iterable[Future[Any]]) -> None:
        """Wait until a question is answered, or failed.

        Raises:
            UnansweredError: It is not, for too long; or the cluster refuses us.
        """
        # The library ends it by itself before; this is for whatever keeps it from that.
        deadline = time.monotonic() + 2 * TIMEOUT_SECONDS
        try:
            while wait(answers, _LOOK_SECONDS).not_done:
                # What goes wrong meanwhile is heard in here.
                self._asked.client.poll(0)
                if self._complaints.is_refused or time.monotonic() > deadline:
                    raise FutureTimeoutError
        except FutureTimeoutError as exc:
            raise self._failed(exc) from exc

    def _failed(self, exc: Exception) -> UnansweredError:
        """The error for what did not work; the next question is asked over a new connection."""
        client = getattr(self._asked, "client", None)
        if client is not None:
            client.poll(0)
        if self._client is client:
            self._client = None
        return self._complaints.error(exc, self._servers)


def _offsets(
    partitions: Sequence[Partition], which: str, *time_ms: int, committed_only: bool
) -> Callable[[AdminClient], Mapping[TopicPartition, Future[Any]]]:
    """The question for an offset of each of some partitions."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    request = {TopicPartition(*one): getattr(OffsetSpec, which)(*time_ms) for one in partitions}

    def ask(client: AdminClient) -> Mapping[TopicPartition, Future[Any]]:
        answers: Mapping[TopicPartition, Future[Any]] = client.list_offsets(
            request, isolation_level=level, request_timeout=TIMEOUT_SECONDS
        )
        return answers

    return ask


def cluster(settings: Mapping[str, str]) -> Cluster:
    """The cluster that some settings of the client lead to."""
    # A connection does not outlive a fork: the child would wait for threads that it does not have.
    return _cluster(os.getpid(), tuple(sorted(settings.items())))


@functools.lru_cache(maxsize=32)
def _cluster(_process: int, settings: tuple[tuple[str, str], ...]) -> Cluster:
    return Cluster(dict(settings))
