"""Times as people write them, and as our files and commands do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import DeclarationError
from sluice.times import epoch_micros, iso_millis, iso_time, parse_time

NEW_YORK_WINTER = timezone(timedelta(hours=-5))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:30", datetime(2026, 1, 31, 12, 30, tzinfo=UTC)),
        ("2026-01-31T12:30:15.250Z", datetime(2026, 1, 31, 12, 30, 15, 250_000, tzinfo=UTC)),
        ("2026-01-31T12:30:15-05:00", datetime(2026, 1, 31, 17, 30, 15, tzinfo=UTC)),
    ],
)
def test_parse_time(text: str, moment: datetime) -> None:
    """A date is its midnight, a time without a zone is UTC, and a zone is kept."""
    assert parse_time(text) == moment


@pytest.mark.parametrize("text", ["", None])
def test_parse_nothing(text: str | None) -> None:
    """An empty text is no time, as Airflow's templates render an absent one."""
    assert parse_time(text) is None


@pytest.mark.parametrize("text", ["yesterday", " ", "2026-13-01", "2026-01-31T25:00", "0001-01-01T00:00:00+14:00"])
def test_parse_refuses(text: str) -> None:
    """What is no time, or lies before the calendar, is refused with the text in the message."""
    with pytest.raises(DeclarationError, match="is no time") as caught:
        parse_time(text)

    assert repr(text) in caught.value.problem


@given(st.text(max_size=40))
def test_parse_any_text(text: str) -> None:
    """Any text is a time with a zone, no time, or refused."""
    try:
        moment = parse_time(text)
    except DeclarationError:
        return
    assert moment is None if not text else moment is not None and moment.tzinfo is not None


def test_iso_time() -> None:
    """Our files say UTC, milliseconds and `Z`."""
    moment = datetime(2026, 1, 31, 7, 30, 15, 250_999, tzinfo=NEW_YORK_WINTER)

    assert iso_time(moment) == "2026-01-31T12:30:15.250Z"


def test_iso_millis() -> None:
    """Milliseconds since the epoch print exactly, none prints none."""
    assert iso_millis(1_769_860_800_009) == "2026-01-31T12:00:00.009Z"
    assert iso_millis(0) == "1970-01-01T00:00:00.000Z"
    assert iso_millis(None) is None


def test_iso_millis_beyond_the_calendar() -> None:
    """A watermark that a broken clock set to the year 11476 is shown as the last moment there is."""
    assert iso_millis(300_000_000_000_000) == "9999-12-31T23:59:59.999Z"
    assert iso_millis(9 * 10**18) == "9999-12-31T23:59:59.999Z"
    assert iso_millis(-(9 * 10**18)) == "0001-01-01T00:00:00.000Z"


@given(st.integers(0, 4_000_000_000_000))
def test_iso_millis_round_trip(milliseconds: int) -> None:
    """What is printed reads back as the same millisecond."""
    moment = parse_time(iso_millis(milliseconds))

    assert moment is not None
    assert epoch_micros(moment) == milliseconds * 1000


def test_epoch_micros_is_exact() -> None:
    """Every millisecond of a second is its own number, where `timestamp() * 1000` misses some by a hair."""
    start = datetime(2039, 7, 2, 3, 4, 5, tzinfo=UTC)
    moments = [start + timedelta(milliseconds=count) for count in range(1000)]

    assert any(moment.timestamp() * 1000 != round(moment.timestamp() * 1000) for moment in moments)
    assert [epoch_micros(moment) - epoch_micros(start) for moment in moments] == [1000 * n for n in range(1000)]
