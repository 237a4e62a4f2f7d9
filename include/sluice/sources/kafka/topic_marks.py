"""What a stream notes of the topics that it reads: their ids, and which of them it has read that are gone.

A topic that is made again bears the old name, and offsets of the old one; its id alone tells them apart. One that is
gone leaves the offsets, and after a while the checkpoint: that its rows are in the sink, only the note tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from sluice.kafka.cluster import Topic
from sluice.times import epoch_micros


class GoneTopic(NamedTuple):
    """A topic that was there when a run began, and was gone, or was another one, when the next did."""

    id: str
    since: int
    """When that next run began: microseconds since 1970."""


def marked(topics: Mapping[str, Topic]) -> str | None:
    """The ids of topics, by their names; None for no topic."""
    return ", ".join(f"{name} {topic.id}" for name, topic in sorted(topics.items())) or None


def present(mark: str | None) -> dict[str, str]:
    """By name, the ids of the topics that were there."""
    return {name: found[0] for name, *found in _entries(mark) if len(found) == 1}


def gone(mark: str | None) -> dict[str, GoneTopic]:
    """By name, the topics that were there before; of several that bore a name, the newest."""
    entries = [entry for entry in _entries(mark) if len(entry) > 2 and entry[2].isdecimal()]
    found = [(name, GoneTopic(topic_id, int(since))) for name, topic_id, since, *_ in entries]
    return dict(sorted(found, key=lambda each: each[1].since))


def mark_after(before: str | None, mark: str, now: datetime) -> str:
    """A mark, with those topics of the one before that are gone, or are others by now.

    Args:
        before: What was noted until now.
        mark: The topics as they are.
        now: When these were looked at.
    """
    there, then = present(mark), present(before)
    left = {
        name: GoneTopic(before_id, epoch_micros(now))
        for name, before_id in then.items()
        if there.get(name) != before_id
    }
    told = [f"{name} {found.id} {found.since}" for name, found in (gone(before) | left).items()]
    return ", ".join([mark, *told])


def _entries(mark: str | None) -> list[list[str]]:
    return [entry.split(" ") for entry in (mark or "").split(", ") if " " in entry]
