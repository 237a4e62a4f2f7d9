"""The clock of a batch, by the clock and by the batch in front of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sluice.checkpoint.offsets import OffsetFile
from sluice.planning.batch_clock import batch_clock_ms

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        (timedelta(minutes=-5), timedelta()),
        (timedelta(minutes=5), timedelta(minutes=5)),
        (timedelta(days=1), timedelta(days=1)),
        # Else every batch of ten years had the time of one whose clock was wrong.
        (timedelta(days=3652), timedelta()),
    ],
)
def test_behind_a_batch(ahead: timedelta, expected: timedelta) -> None:
    """Not before it, but where it lies too far ahead."""
    before = OffsetFile(0, 1, 0, int((NOW + ahead).timestamp() * 1000), {}, {})
    assert batch_clock_ms(NOW, before) == int((NOW + expected).timestamp() * 1000)


def test_the_first_batch() -> None:
    """It has the time of the clock."""
    assert batch_clock_ms(NOW, None) == int(NOW.timestamp() * 1000)
