"""Spark's offsets of a Kafka source: by topic and partition, the offset of the record that comes next.

`{"orders":{"0":7,"1":5}}` means: of partition 0 everything before offset 7 is read, of partition 1 before 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sluice.datasets import Dataset
from sluice.errors import RefusedError
from sluice.kafka.cluster import Offsets, Partition
from sluice.kafka.settings import topic_dataset
from sluice.sources.contract import offset_of_another_kind
from sluice.typed_json import decode_as

_Offset = dict[str, dict[str, int]]


def read_offset(text: str, location: str) -> dict[Partition, int]:
    """What an offset of a checkpoint says.

    Raises:
        RefusedError: It is none of a Kafka source's.
    """
    try:
        found = decode_as(text, _Offset)
        offsets = {
            Partition(topic, _number(key)): offset for topic, ends in found.items() for key, offset in ends.items()
        }
        if any(offset < 0 for offset in offsets.values()):
            raise ValueError(text)
    except (msgspec.DecodeError, ValueError) as exc:
        raise RefusedError(offset_of_another_kind(text, "Kafka", location)) from exc
    return offsets


def write_offset(offsets: Offsets) -> str:
    """An offset as Spark takes it, the topics and partitions in order."""
    found: _Offset = {}
    for (topic, number), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return msgspec.json.encode(found).decode()


def topic_datasets(servers: str, end: Any, declared: Iterable[str]) -> tuple[Dataset, ...]:
    """The topics that were read, as other tools name them.

    Args:
        servers: Where the cluster is.
        end: The newest offset, decoded: a pattern is no topic, and there were those that it has.
        declared: The topics to name where no offset is known.
    """
    topics = tuple(end) if isinstance(end, Mapping) and end else declared
    return tuple(topic_dataset(servers, topic) for topic in topics)


def _number(key: str) -> int:
    if not (key.isascii() and key.isdecimal()):
        raise ValueError(key)
    return int(key)
