"""The clock of a bench."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from sluice.errors import DeclarationError
from sluice.testing.clock import BenchClock, duration, moment


def test_it_stands_still_between_runs_but_for_a_tick() -> None:
    """Two runs of one time have ids of their own, and the time that is set is met exactly."""
    clock = BenchClock()
    before = clock()
    clock.tick()
    assert (clock.now, clock() - before) == (before, timedelta(milliseconds=1))
    clock.set(before + timedelta(minutes=1))
    assert clock() == clock.now == before + timedelta(minutes=1)


def test_it_never_goes_back() -> None:
    """Not even to where it stood before the last run."""
    clock = BenchClock()
    clock.tick()
    with pytest.raises(DeclarationError, match="set back"):
        clock.set(clock.now)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("10 minutes", timedelta(minutes=10)),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("2days", timedelta(days=2)),
        (" 1 week ", timedelta(weeks=1)),
        (timedelta(seconds=1), timedelta(seconds=1)),
    ],
)
def test_durations(given: str | timedelta, expected: timedelta) -> None:
    """Spark's words for them."""
    assert duration(given, "here") == expected


@pytest.mark.parametrize("given", ["", "10", "minutes", "10 minutes and", "0 seconds", "-1 hour", 5, timedelta(0)])
def test_no_durations(given: object) -> None:
    """What is none is refused, also one that does not pass."""
    with pytest.raises(DeclarationError, match="no time that passes"):
        duration(given, "here")  # type: ignore[arg-type]


def test_moments() -> None:
    """Without a zone they are UTC."""
    berlin = datetime(2026, 1, 1, 10, tzinfo=timezone(timedelta(hours=1)))
    given = ("2026-01-01T09:00", datetime(2026, 1, 1, 9), berlin)  # noqa: DTZ001 - as people write it
    assert {moment(found, "here") for found in given} == {datetime(2026, 1, 1, 9, tzinfo=UTC)}


@pytest.mark.parametrize("given", ["", "now", 5, None])
def test_no_moments(given: object) -> None:
    """What is none is refused."""
    with pytest.raises(DeclarationError, match="is no time"):
        moment(given, "here")  # type: ignore[arg-type]
