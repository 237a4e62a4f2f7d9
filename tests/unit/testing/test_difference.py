"""How rows are compared, and how what differs is told."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from sluice.testing.difference import MapValue, described, difference


def test_order_does_not_count_and_number_does() -> None:
    """Rows are compared as a bag."""
    assert not difference([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}])
    found = difference([{"a": 1}, {"a": 1}], [{"a": 1}])
    assert (found.missing, found.unexpected) == ([{"a": 1}], [])


def test_only_named_columns_count() -> None:
    """Also within structs."""
    rows = [{"a": 1, "b": {"x": 1, "y": 2}}]
    assert not difference([{"b": {"x": 1}}], rows)
    assert difference([{"b": {"z": None}}], rows)
    assert difference([{"c": None}], rows)


def test_all_keys_of_a_map_count() -> None:
    """Unlike the fields of a struct: whoever writes a map means all of it."""
    rows = [{"m": MapValue({"a": 1, "b": 2})}]
    assert not difference([{"m": MapValue({"b": 2, "a": 1})}], rows)
    assert difference([{"m": MapValue({"a": 1})}], rows)
    assert difference([{"m": MapValue()}], rows)
    assert difference([{"m": MapValue({"a": {"x": 1}})}], [{"m": MapValue({"a": {"x": 2}})}])
    assert not difference([{"m": MapValue({"a": {"x": 1}})}], [{"m": MapValue({"a": {"x": 1, "y": 2}})}])


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        (float("nan"), float("nan"), True),
        (Decimal("1.5"), Decimal("1.50"), True),
        (pytest.approx(0.3), 0.1 + 0.2, True),
        ([1, None], [1, None], True),
        ([1], [1, 1], False),
        ({"k": 1}, {"k": 1}, True),
        (None, 0, False),
        ("1", 1, False),
    ],
)
def test_values(one: object, other: object, is_same: object) -> None:
    """As Python has it, but that truth is no number and NaN is itself."""
    assert bool(difference([{"a": one}], [{"a": other}])) is not is_same


def test_a_vague_row_leaves_what_a_strict_one_needs() -> None:
    """Whatever order they are expected in, each row finds one that is left."""
    rows = [{"a": 1, "b": 1}, {"a": 1, "b": 2}]
    assert not difference([{"a": 1}, {"a": 1, "b": 1}], rows)
    assert not difference([{"a": 1}, {"b": 1}], [{"a": 1, "b": 1}, {"a": 1, "b": 2}])
    assert not difference([{"b": pytest.approx(1.5, abs=1)}, {"b": pytest.approx(1, abs=0.1)}], rows)


def test_bags_at_random() -> None:
    """Of plain rows, what is missing and what is too much are what a multiset says."""
    chance = random.Random(5)
    for _ in range(200):
        one, other = ([chance.randrange(4) for _ in range(chance.randrange(7))] for _ in range(2))
        found = difference([{"a": number} for number in one], [{"a": number} for number in other])
        assert Counter(row["a"] for row in found.missing) == Counter(one) - Counter(other)
        assert Counter(row["a"] for row in found.unexpected) == Counter(other) - Counter(one)


def test_what_is_alike_stands_together() -> None:
    """A reader sees the value that differs."""
    found = difference(
        [{"id": 1, "n": 1}, {"id": 2, "n": 2}], [{"id": 2, "n": 3}, {"id": 1, "n": 0}, {"id": 9, "n": 9}]
    )
    assert found.lines() == ["  - id=1, n=1", "  + id=1, n=0", "  - id=2, n=2", "  + id=2, n=3", "  + id=9, n=9"]


def test_a_thousand_rows_are_not_all_told() -> None:
    """A message is for people; how many it leaves out, it says."""
    rows = [{"id": number} for number in range(1000)]
    assert difference(rows, [])
    assert difference(rows, []).lines()[-1] == "  ... and 980 missing, 0 unexpected"
    assert len(difference([], rows).lines()) == 21
    assert difference([], rows).lines()[-1] == "  ... and 0 missing, 980 unexpected"


def test_values_in_a_line() -> None:
    """Times as they are written in tests."""
    row = {"at": datetime(2026, 1, 1, 9, tzinfo=UTC), "w": {"start": None}, "l": ["a", 1]}
    assert described(row) == "at=2026-01-01T09:00:00Z, w={start=None}, l=['a', 1]"
