"""Spark's offsets of a Kafka source: by topic and partition, the offset of the record that comes next.

`{"orders":{"0":7,"1":5}}` means: of partition 0 everything before offset 7 is read, of partition 1 before 5.
"""

from __future__ import annotations

import msgspec

from sluice.errors import RefusedError
from sluice.kafka.cluster import Offsets, Partition
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


def _number(key: str) -> int:
    if not (key.isascii() and key.isdecimal()):
        raise ValueError(key)
    return int(key)
