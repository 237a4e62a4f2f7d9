"""What is said of topics that can't be read as a checkpoint has begun to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sluice.errors import Problem
from sluice.kafka.cluster import Offsets, Partition

_MOST_NAMES = 5
_NEW_STREAM = "declare a new stream with a sink of its own for the new one"


def topics_gone(location: str, names: Sequence[str], *, is_declared: bool) -> Problem:
    """Topics, or partitions of some, that a checkpoint has begun to read are away.

    Args:
        location: The source.
        names: What is away.
        is_declared: Whether the stream may go on without them.
    """
    cause = f"the checkpoint has begun to read {_listed(names)}, which the cluster does not have"
    if is_declared:
        return Problem(
            code="KAFKA_TOPIC_GONE",
            file=location,
            cause=cause,
            consequence="what was not read of it is in no table, for `fail_on_data_loss=False` is declared",
            remedy="delete a topic once a run has read all of it",
            is_blocking=False,
        )
    return Problem(
        code="KAFKA_TOPIC_GONE",
        file=location,
        cause=cause,
        consequence="Spark waits for it until a time-out, and fails",
        remedy=f"check `settings` and the servers, or bring the topic back; if it was deleted, {_NEW_STREAM}. Of topics"
        " that a `pattern` names, some may be deleted where `fail_on_data_loss=False` is declared",
    )


def topics_gone_unread(location: str, names: Sequence[str]) -> Problem:
    """Topics that a pattern named when an earlier run looked were deleted before the first batch."""
    return Problem(
        code="KAFKA_TOPIC_GONE",
        file=location,
        cause=f"an earlier run has found {_listed(names)}, which was deleted before anything of it was read",
        consequence="what came into it since is in no table",
        remedy="delete a topic once a run has read all of it",
        is_blocking=False,
    )


def topic_replaced(location: str, cause: str) -> Problem:
    """Another topic has the name of one that was read."""
    return Problem(
        code="KAFKA_TOPIC_REPLACED",
        file=location,
        cause=cause,
        consequence="its first records would be passed over, for offsets that were read already",
        remedy=_NEW_STREAM,
    )


def beyond_end(location: str, at: Offsets, after: Offsets) -> Problem:
    """What was read reaches further than the topic does."""
    told = [f"{one} up to offset {at[one]:,}, which ends at {after[one]:,}" for one in sorted(at)]
    return topic_replaced(
        location, f"the checkpoint has read {_listed(told)}: the topic is another one, or lost records"
    )


def other_topics(location: str, then: Mapping[str, str], now: Mapping[str, str]) -> Problem:
    """Topics whose id is another one than when they were read."""
    told = [f"{name} had the id {then[name]}, and has {now[name]}" for name in sorted(then)]
    return topic_replaced(location, f"a topic was deleted and made again: {_listed(told)}")


def records_gone(location: str, gone: Mapping[Partition, tuple[int, int]], *, is_declared: bool) -> Problem:
    """Records that were yet to be read, which retention has deleted.

    Args:
        location: The source.
        gone: By partition, the first offset that is gone, and the first that is there again.
        is_declared: Whether they may be passed over.
    """
    count = sum(after - first for first, after in gone.values())
    return Problem(
        code="KAFKA_RECORDS_GONE",
        file=location,
        cause=f"{count:,} offsets that were yet to be read are gone, by retention or by hand: {_ranges(gone)}",
        consequence="their records are in no table"
        + (", for `fail_on_data_loss=False` is declared" if is_declared else ""),
        remedy="run the stream more often than retention deletes"
        if is_declared
        else "keep records for longer than runs are apart; to go on without these, declare `fail_on_data_loss=False`,"
        " run the stream once, whose record tells what was left out, and take it out again",
        is_blocking=not is_declared,
    )


def records_gone_meanwhile(
    location: str, gone: Mapping[Partition, tuple[int, int]], rows: int | None, promised: int
) -> Problem:
    """Records that went while a batch read the topic: Spark passes over them without a word.

    Args:
        location: The source.
        gone: By partition, the first offset that is gone, and the first that is there again.
        rows: How many records Spark has read; None where that is not known.
        promised: How many offsets the batch has.
    """
    read = "nobody knows how many" if rows is None else f"{rows:,}"
    return Problem(
        code="KAFKA_RECORDS_GONE",
        file=location,
        cause=f"records went while the batch was read: {_ranges(gone)}; of {promised:,} offsets Spark has read {read}",
        consequence="what it did not find any more is in no table, for `fail_on_data_loss=False` is declared",
        remedy="run the stream more often than retention deletes",
        is_blocking=False,
    )


def transaction_open(location: str, at: Offsets) -> Problem:
    """A batch that was planned beyond what is committed."""
    told = [f"{one} from {at[one]:,} on" for one in sorted(at)]
    return Problem(
        code="KAFKA_TRANSACTION_OPEN",
        file=location,
        cause=f"a transaction is open among what the batch is to read: {_listed(told)}; it was planned by another"
        " `isolation.level`",
        consequence="Spark would wait for its records, and fail",
        remedy="wait until the transaction is over; or set `isolation.level` back until the stream has run once",
    )


def backfill_compacted(location: str, topic: str) -> Problem:
    """A topic of which some records are deleted once there are newer ones of their keys."""
    return Problem(
        code="BACKFILL_INPUT_GONE",
        file=location,
        cause=f"the topic {topic} is compacted: of records that the live stream has read, some may be deleted",
        consequence="the backfill would replace their rows by nothing",
        remedy="backfill from what keeps every record, such as a table that a stream without state has made of them",
    )


def backfill_records_gone(location: str, gone: Mapping[Partition, int]) -> Problem:
    """Records that the live stream has read, which a backfill can't read again."""
    told = [f"{one} before {first:,}" for one, first in sorted(gone.items())]
    return Problem(
        code="BACKFILL_INPUT_GONE",
        file=location,
        cause=f"the live stream has read records that retention has deleted: {_listed(told)}",
        consequence="the backfill would replace their rows by nothing",
        remedy="backfill only what the topic still has: with a declared `lateness`, an interval that begins after a run"
        " had read all that is gone; where brokers set the times (`message.timestamp.type`), or retention deletes by"
        " time alone",
    )


def backfill_topics_gone(location: str, names: Sequence[str]) -> Problem:
    """Topics that the live stream has read, which a backfill can't read again."""
    return Problem(
        code="BACKFILL_INPUT_GONE",
        file=location,
        cause=f"the live stream has read {_listed(names)}, which was deleted since",
        consequence="the backfill would replace its rows by nothing",
        remedy="backfill an interval that begins after the first run without it, with a declared `lateness`; or from"
        " what keeps every record, such as a table that a stream without state has made of them",
    )


def _ranges(gone: Mapping[Partition, tuple[int, int]]) -> str:
    """Offsets by partition: the first, and the one behind the last."""
    return _listed([f"{one} from {first:,} to {after - 1:,}" for one, (first, after) in sorted(gone.items())])


def _listed(found: Sequence[str]) -> str:
    rest = len(found) - _MOST_NAMES
    return ", ".join(found[:_MOST_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")
