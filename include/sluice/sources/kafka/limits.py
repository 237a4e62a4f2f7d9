"""Cuts what waits in partitions into batches.

Each partition gets its share, as with Spark's `maxOffsetsPerTrigger`; but where many partitions get one offset each,
Spark's batches are above the limit by as many, and these are not.
"""

from __future__ import annotations

from collections.abc import Iterator

from sluice.amounts import known
from sluice.kafka.cluster import Offsets
from sluice.sources.contract import Step
from sluice.sources.kafka.offset import write_offset


def steps(start: Offsets, end: Offsets, max_offsets: int | None) -> Iterator[Step]:
    """The batches from one offset to another; none where nothing lies between.

    Args:
        start: Where the first batch begins; a partition that it does not have is new, and begins at 0.
        end: Where the last batch ends.
        max_offsets: The most offsets of one batch, but one of each partition that has any; None for all at once.
    """
    at = {partition: start.get(partition, 0) for partition in end}
    waiting = {partition: end[partition] - at[partition] for partition in end}
    while any(waiting.values()):
        taken = _share(waiting, max_offsets)
        at = {partition: at[partition] + taken[partition] for partition in at}
        waiting = {partition: waiting[partition] - taken[partition] for partition in at}
        yield Step(write_offset(at), known(offsets=sum(taken.values())))


def _share(waiting: Offsets, limit: int | None) -> Offsets:
    """How much of each partition one batch takes: of each its share of the limit, by what waits there."""
    size = sum(waiting.values())
    if limit is None or size <= limit:
        return waiting
    taken, left = {}, limit
    for partition, count in sorted(waiting.items(), key=lambda each: (each[1], each[0])):
        # What is less than one of a partition is one, or it would wait for ever; those where more waits give it.
        taken[partition] = min(count, max(1, left * count // size))
        left, size = left - taken[partition], size - count
    return taken
