"""Amounts: sums, words and documents; what is not known is not zero."""

from __future__ import annotations

import pytest

from sluice.amounts import Amount, amount_json, count_in, describe, describe_count, is_nothing, known, least_in, total


def test_what_is_not_known_is_left_out() -> None:
    assert known(files=2, bytes=276, rows=None) == {"files": 2, "bytes": 276}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], {}),
        ([{"files": 2, "bytes": 5}, {"files": 1, "bytes": 6}], {"files": 3, "bytes": 11}),
        ([{"files": 2, "bytes": 5}, {"offsets": 7}], {"files": 2, "offsets": 7}),
        ([{"files": 2, "rows": 5}, {"offsets": 0, "bytes": 0}], {"files": 2, "offsets": 0, "rows": 5}),
        ([{"files": 2, "bytes": 5}, {}], {"files": 2}),
        ([{"files": 2, "bytes": 5}, {"files": 1}], {"files": 3}),
    ],
    ids=["none", "alike", "of two kinds", "of two kinds, one without anything", "one unknown", "one of unknown size"],
)
def test_sums(parts: list[Amount], expected: Amount) -> None:
    """Bytes and rows only where every part that has anything is known in them."""
    assert total(parts) == expected


@pytest.mark.parametrize(
    ("parts", "files"),
    [([], 0), ([{"files": 2}, {"files": 0}], 2), ([{"offsets": 0}], 0), ([{"offsets": 1}], None), ([{}], None)],
)
def test_how_many_of_a_unit(parts: list[Amount], files: int | None) -> None:
    assert count_in(parts, "files") == files


@pytest.mark.parametrize(
    ("parts", "size"), [([], 0), ([{"bytes": 2}, {"bytes": 3}], 5), ([{"bytes": 2}, {"offsets": 9}, {}], 2)]
)
def test_how_many_of_a_unit_at_least(parts: list[Amount], size: int) -> None:
    assert least_in(parts, "bytes") == size


def test_nothing_is_known_to_be_empty() -> None:
    assert is_nothing({"files": 0, "bytes": 0})
    assert not is_nothing({"files": 0, "rows": 1})
    assert not is_nothing({})


def test_words() -> None:
    assert describe({"rows": 1204, "files": 1, "bytes": 276}) == "1 file, 276 bytes, 1,204 rows"
    assert describe_count({"offsets": 1, "bytes": 3}, "new") == "1 new offset"
    assert describe_count({"rows": 20}, "new") == "20 new rows"
    assert (describe({}), describe_count({})) == ("", "")


def test_documents_have_three_keys_and_whatever_else_is_known() -> None:
    assert amount_json({"offsets": 100}) == {"files": None, "bytes": None, "rows": None, "offsets": 100}
    assert amount_json({"files": 2, "bytes": 3}) == {"files": 2, "bytes": 3, "rows": None}
