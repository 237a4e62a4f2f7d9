"""Which of the records that a topic has lost a backfill needs.

A topic tells how it keeps its records as it is set now; those that are gone went by what was set then. So what the
settings say is not enough: something that was written before the interval has to say that they had arrived by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sluice.errors import RefusedError
from sluice.interval import Interval
from sluice.kafka.cluster import Offsets, Partition
from sluice.sources.kafka.refusals import backfill_compacted

_CLOCKS_APART = timedelta(minutes=5)
"""By how much the clocks of brokers, producers and drivers may differ."""
Configs = Mapping[str, Mapping[str, str]]
"""By topic, its settings."""


class Lost(NamedTuple):
    """Records of a partition that were read, and that are gone."""

    first: int
    """The first offset that is there again."""
    read: int
    """Up to where the live stream has read."""
    since: int | None
    """The first record that is there, and bears the time of the interval's start or a later one; None for no such."""


def check_kept_whole(location: str, configs: Configs) -> None:
    """Make sure that topics keep their records until their time is over: a compacted one lets go of some before.

    Raises:
        RefusedError: One is compacted.
    """
    for topic, config in configs.items():
        if "compact" in config.get("cleanup.policy", ""):
            raise RefusedError(backfill_compacted(location, topic))


def shortly_before(moment: datetime) -> datetime:
    """A time that is before another one by every clock that has a say."""
    earliest = datetime.min.replace(tzinfo=UTC)
    return max(moment, earliest + _CLOCKS_APART) - _CLOCKS_APART


def needed(
    lost: Mapping[Partition, Lost], arrived: Offsets, configs: Configs, arrivals: Interval
) -> dict[Partition, int]:
    """Those partitions in which a record that is gone may bear the time of an interval, or a later one.

    Where the brokers set the times, they ascend. Where producers do, retention tells, where time is all it goes by.

    Args:
        lost: What is gone.
        arrived: Before which offset everything had arrived before the interval, as far as the stream knows.
        configs: The settings of the topics, as they are now.
        arrivals: The interval.

    Returns:
        The first offset of each that is there again.
    """
    found = {}
    for one, (first, read, since) in lost.items():
        had_arrived = min(first, read) <= arrived.get(one, 0)
        config = configs[one.topic]
        is_set_by_brokers = config.get("message.timestamp.type") == "LogAppendTime"
        is_behind = is_set_by_brokers and since is not None and first < min(read, since)
        if not had_arrived or not (is_behind or _is_kept_since(config, arrivals.start)):
            found[one] = first
    return found


def _is_kept_since(config: Mapping[str, str], moment: datetime) -> bool:
    """Whether retention, by time alone, has yet to delete records of a time; who deletes some by hand, knows of it."""
    kept_ms = config.get("retention.ms", "")
    if config.get("retention.bytes") != "-1" or not kept_ms.isdigit():
        return False
    return (datetime.now(UTC) - moment) // timedelta(milliseconds=1) < int(kept_ms)
