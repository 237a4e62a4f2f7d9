"""Numbers, times and offsets as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluice_airflow.ui import wording

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, wording.NONE), (0, "0 ms"), (0.45, "450 ms"), (3.21, "3.2 s"), (59.9, "59.9 s"), (65, "1 min 5 s"),
        (120, "2 min"), (7800, "2 h 10 min"), (273_600, "3 d 4 h"), (-5, "0 ms"),
    ],
)  # fmt: skip
def test_spans(seconds: float | None, text: str) -> None:
    """Two units at most."""
    assert wording.span(seconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(None, wording.NONE), (0, "0 B"), (999, "999 B"), (12_345_678, "12.3 MB"), (4e15, "4,000.0 TB")],
)
def test_sizes(size_bytes: int | None, text: str) -> None:
    """In powers of 1000."""
    assert wording.size(size_bytes) == text


@pytest.mark.parametrize(
    ("after", "text"), [(0, "just now"), (90, "2 min ago"), (7200, "2 h ago"), (-3600, "in 1 h"), (864_000, "10 d ago")]
)
def test_ages(after: float, text: str) -> None:
    """Also of what lies ahead, by another machine's clock."""
    assert wording.ago(NOW - timedelta(seconds=after), NOW) == text


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (None, "start"),
        ({"logOffset": 7}, "entry 7"),
        ({"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 5, "index": -1}, "before version 5"),
        ({"reservoirVersion": 5, "index": 3}, "version 5, file 3"),
        ({"topic": {"0": 12}}, '{"topic":{"0":12}}'),
        (12, "12"),
        ("<b>", '"<b>"'),
    ],
)
def test_offsets(document: Any, text: str) -> None:
    """The kinds that have a short form; the others as they are."""
    assert wording.offset(document) == text


def test_long_offsets_are_cut() -> None:
    """Kafka's offsets of many partitions would burst a table."""
    assert len(wording.offset({"topic": {str(number): number for number in range(500)}})) <= 96


@pytest.mark.parametrize(
    "text", ["", "no time", "2026-13-01", None, 5, "9999-12-31T23:59:59-12:00", "0001-01-01T00:00+12:00"]
)
def test_what_is_no_time(text: Any) -> None:
    """A record is only a file: its times may be anything."""
    assert wording.read_moment(text) is None


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("plain", [(False, "plain")]),
        ("`a`: 3 files", [(True, "a"), (False, ": 3 files")]),
        ("set `x` to `y`", [(False, "set "), (True, "x"), (False, " to "), (True, "y")]),
        ("one ` alone", [(False, "one ` alone")]),
        ("", []),
    ],
)
def test_code_in_sentences(text: str, pieces: list[tuple[bool, str]]) -> None:
    """What stands between backticks, and nothing else."""
    assert wording.code_pieces(text) == pieces
