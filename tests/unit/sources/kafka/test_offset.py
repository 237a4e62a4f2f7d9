"""Offsets of Kafka as Spark writes them, and batches cut out of what waits."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluice.errors import RefusedError
from sluice.kafka.cluster import Partition
from sluice.sources.kafka.limits import steps
from sluice.sources.kafka.offset import read_offset, write_offset

PLACE = "kafka://here:1/orders"
partitions = st.builds(Partition, st.sampled_from(["a", "b.c", "d-e_F"]), st.integers(0, 12))
ends = st.dictionaries(partitions, st.integers(0, 2**62), max_size=20)


@given(ends)
def test_an_offset_is_read_as_it_was_written(offsets: dict[Partition, int]) -> None:
    """As Spark has it: by topic, by partition."""
    text = write_offset(offsets)

    assert read_offset(text, PLACE) == offsets
    nested = {(topic, int(number)): end for topic, found in json.loads(text).items() for number, end in found.items()}
    assert nested == offsets
    assert " " not in text


@pytest.mark.parametrize(
    "text",
    [
        '{"logOffset":3}',
        "-1",
        "7",
        "[]",
        "{",
        '{"a":{"x":1}}',
        '{"a":{"0":-2}}',
        '{"a":{"0":1.5}}',
        '{"a":{"\u0663":1}}',
    ],
)
def test_an_offset_of_another_kind(text: str) -> None:
    """That of a file source, of a generator, of nobody."""
    with pytest.raises(RefusedError, match="no Kafka offset") as refused:
        read_offset(text, PLACE)
    assert refused.value.finding.code == "OFFSET_OF_ANOTHER_KIND"


@given(
    st.dictionaries(partitions, st.tuples(st.integers(0, 1000), st.integers(0, 300)), max_size=8),
    st.none() | st.integers(1, 200),
)
@example({Partition("a", number): (0, count) for number, count in enumerate([4, 1, 1])}, 3)
def test_batches_take_everything_once(waiting: dict[Partition, tuple[int, int]], limit: int | None) -> None:
    """In order, none above the limit unless there are more partitions, none without an offset."""
    start = {one: first for one, (first, _) in waiting.items()}
    end = {one: first + count for one, (first, count) in waiting.items()}

    found = list(steps(start, end, limit))

    at = start
    for step in found:
        reached = read_offset(step.end, PLACE)
        assert reached.keys() == end.keys()
        assert all(at[one] <= reached[one] <= end[one] for one in end)
        taken = sum(reached.values()) - sum(at.values())
        assert step.amount == {"offsets": taken}
        assert 0 < taken <= max(limit or taken, len(end))
        at = reached
    assert at == end or not found
    assert bool(found) == (sum(end.values()) > sum(start.values()))


def test_each_partition_gets_its_share() -> None:
    """By what waits in it, as with Spark's own limit: a busy one does not let another wait for ever."""
    busy, calm = Partition("a", 0), Partition("a", 1)

    first = next(iter(steps({busy: 0, calm: 0}, {busy: 900, calm: 100}, 100)))

    assert read_offset(first.end, PLACE) == {busy: 90, calm: 10}


def test_a_partition_that_is_new_begins_at_its_first_record() -> None:
    """It has no place in the offset before."""
    old, new = Partition("a", 0), Partition("a", 1)

    (only,) = steps({old: 5}, {old: 5, new: 2}, None)

    assert (read_offset(only.end, PLACE), only.amount) == ({old: 5, new: 2}, {"offsets": 2})
