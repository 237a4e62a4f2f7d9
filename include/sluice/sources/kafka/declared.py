"""How topics of Kafka are declared as a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sluice.declaration_checks import check_booleans, check_limit, check_pattern, declares
from sluice.errors import DeclarationError
from sluice.kafka.cluster import Partition
from sluice.kafka.settings import check_names, check_servers, check_topic, named
from sluice.option_values import above_zero, any_text
from sluice.other_names import KAFKA_SOURCE_WORDS
from sluice.sources.contract import parse_starting
from sluice.sources.kafka.source import KafkaSource
from sluice.spark_options import spark_options

_OPTIONS = {
    "minPartitions": above_zero,
    "maxRecordsPerPartition": above_zero,
    "groupIdPrefix": any_text,
    "kafkaConsumer.pollTimeoutMs": above_zero,
    "fetchOffset.numRetries": above_zero,
    "fetchOffset.retryIntervalMs": above_zero,
}
_ITS_OWN = (
    "topics",
    "pattern",
    "partitions",
    "starting",
    "max_offsets_per_batch",
    "fail_on_data_loss",
    "include_headers",
    "settings",
)
_TOPICS = "write letters, digits, `.`, `_` and `-`; for several by one expression, give `pattern`"


@declares("sources.kafka()", KAFKA_SOURCE_WORDS)
def kafka(
    servers: str,
    *,
    topics: Sequence[str] | None = None,
    pattern: str | None = None,
    partitions: Mapping[str, Sequence[int]] | None = None,
    starting: str | datetime = "earliest",
    max_offsets_per_batch: int | None = None,
    fail_on_data_loss: bool = True,
    include_headers: bool = False,
    settings: Mapping[str, str] | None = None,
    **options: Any,
) -> KafkaSource:
    """Declare topics of Kafka as a source.

    Its columns are Spark's: `key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
    timestampType int`, and `headers` where they are asked for.

    Args:
        servers: Where the cluster is: `HOST:PORT`, several with commas between; `${NAME}` stands for a variable.
        topics: The topics to read; or
        pattern: a regular expression that their whole names match; or
        partitions: some partitions alone, by topic.
        starting: Where a first run begins: `earliest`, `latest` (what comes from then on) or a time (records that bear
            it, or a later one). A partition that is added later is read from its first record on.
        max_offsets_per_batch: The most offsets of one batch, in all partitions together.
        fail_on_data_loss: Refuse to go on where records that were yet to be read are gone. Else a run tells in its
            record what was left out.
        include_headers: Whether rows have the column `headers`.
        settings: Settings of Kafka's client by the names of the one in Java, such as `security.protocol`; `${NAME}`
            stands for a variable of the environment. The planner's client takes what it needs of them.
        options: Further options of Spark's source, in snake_case.

    Raises:
        DeclarationError: An option is unknown or its value is not what it must be.
    """
    place = named("sources.kafka", servers)
    found = check_servers(servers, place)
    read = spark_options(options, _OPTIONS, place=place, ours=_ITS_OWN, words=KAFKA_SOURCE_WORDS)
    _check_one(place, topics=topics, pattern=pattern, partitions=partitions)
    check_limit(max_offsets_per_batch, "max_offsets_per_batch", place)
    check_booleans(place, fail_on_data_loss=fail_on_data_loss, include_headers=include_headers)
    if pattern is not None:
        check_pattern(pattern, "pattern", place)
    chosen = _partitions(partitions or {}, place)
    return KafkaSource(
        servers=found,
        topics=tuple(sorted({*_topics(topics or (), place), *(one.topic for one in chosen)})),
        pattern=pattern,
        partitions=chosen,
        starting=parse_starting(starting, place),
        max_offsets_per_batch=max_offsets_per_batch,
        fail_on_data_loss=fail_on_data_loss,
        include_headers=include_headers,
        settings=check_names(settings, place),
        options=read,
    )


def _check_one(place: str, **given: object) -> None:
    found = [name for name, value in given.items() if value]
    if len(found) != 1:
        told = " and ".join(f"`{name}`" for name in found)
        raise DeclarationError(
            f"{told} are given" if found else "no topic is named",
            where=place,
            remedy='name one of them: `topics=["orders"]`, `pattern="orders-.*"` or `partitions={"orders": [0, 1]}`',
        )


def _topics(topics: Sequence[str], place: str) -> Sequence[str]:
    if isinstance(topics, str):
        raise DeclarationError(f"`topics` is {topics!r}", where=place, remedy=f'write it as `topics=["{topics}"]`')
    for topic in topics if isinstance(topics, Sequence) else (topics,):
        check_topic(topic, place, remedy=_TOPICS)
    return topics


def _partitions(partitions: Mapping[str, Sequence[int]], place: str) -> tuple[Partition, ...]:
    found = []
    if not isinstance(partitions, Mapping):
        raise DeclarationError(
            f"`partitions` is {partitions!r}", where=place, remedy='write it as `partitions={"orders": [0, 1]}`'
        )
    for topic, numbers in partitions.items():
        _topics([topic], place)
        for number in numbers if isinstance(numbers, list | tuple | range) and numbers else (None,):
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise DeclarationError(
                    f"the partitions of `{topic}` are {numbers!r}", where=place, remedy="give numbers from 0 on: [0, 1]"
                )
            found.append(Partition(topic, number))
    return tuple(sorted(set(found)))
