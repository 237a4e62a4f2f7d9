"""Times as people write them, and as our files and commands do: ISO 8601, UTC unless a zone is given."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sluice.errors import DeclarationError

Clock = Callable[[], datetime]
"""Tells the time, in UTC."""
_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)\s*")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def system_clock() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def parse_time(text: str | None, *, where: str = "--until") -> datetime | None:
    """Read a time; a date alone is its midnight, without a zone it is UTC, an empty text is None.

    Args:
        text: What somebody wrote.
        where: Where they wrote it.

    Raises:
        DeclarationError: It is no ISO 8601 time.
    """
    if not text:
        return None
    try:
        given = datetime.fromisoformat(text)
        moment = given if given.tzinfo else given.replace(tzinfo=UTC)
        moment.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise DeclarationError(
            f"{text!r} is no time", where=where, remedy="write ISO 8601: 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from exc
    return moment


def duration_ms(text: object, name: str, place: str) -> int:
    """Read how long something lasts, in milliseconds: `7d`, `12h` or `30min`.

    Args:
        text: What somebody wrote.
        name: What they gave it to.
        place: Where they did.

    Raises:
        DeclarationError: It is no such text.
    """
    match = _DURATION.fullmatch(str(text))
    if match is None:
        raise DeclarationError(
            f"`{name}` is {text!r}", where=place, remedy='give a number and a unit, such as "7d", "12h" or "30min"'
        )
    return int(match[1]) * _UNIT_MS[match[2]]


def iso_time(moment: datetime) -> str:
    """A time as our files and commands write it: ISO 8601, UTC, milliseconds, `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_millis(milliseconds: int | None) -> str | None:
    """Milliseconds since the epoch as `iso_time` writes them; None for none.

    Times beyond the calendar's years 1 to 9999, as broken clocks make them, become its first or last moment.
    """
    if milliseconds is None:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        moment = datetime.max.replace(tzinfo=UTC) if milliseconds > 0 else datetime.min.replace(tzinfo=UTC)
    return iso_time(moment)


def epoch_micros(moment: datetime) -> int:
    """Microseconds since the epoch, exactly: `timestamp() * 1000` may miss a millisecond's edge."""
    return (moment - _EPOCH) // timedelta(microseconds=1)
