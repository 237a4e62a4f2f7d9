"""The clock of a bench: it stands still until a test moves it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from sluice.errors import DeclarationError
from sluice.times import parse_time

START = datetime(2026, 1, 1, tzinfo=UTC)
_PART = re.compile(r"(\d+) *(millisecond|second|minute|hour|day|week)s?\b *")
_TICK = timedelta(milliseconds=1)


class BenchClock:
    """What tells the time to everything that a bench runs: plans, batches, records, leases.

    Two runs never have the same time, by which records are told apart: each is a millisecond after the one before,
    unless the clock was moved in between.
    """

    def __init__(self) -> None:
        self.now = START
        """The time as the test has set it."""
        self._ticks = timedelta()

    def __call__(self) -> datetime:
        return self.now + self._ticks

    def tick(self) -> None:
        """Let the next run be later than this one."""
        self._ticks += _TICK

    def set(self, moment: datetime) -> None:
        """Set the time.

        Raises:
            DeclarationError: It lies before what it is now: batches would go back in time.
        """
        if moment < self():
            raise DeclarationError(
                f"the clock is set back, from {self().isoformat()} to {moment.isoformat()}",
                where="bench.advance()",
                remedy="set it forward; `bench.open(..., now=...)` says where it begins",
            )
        self.now, self._ticks = moment, timedelta()

    def begin(self, moment: datetime) -> None:
        """Let the time begin, before anything has happened."""
        self.now, self._ticks = moment, timedelta()


def duration(given: str | timedelta, where: str) -> timedelta:
    """How long something lasts, as people and Spark write it: `"10 minutes"`, `"1 hour 30 minutes"`.

    Args:
        given: A text, or a time.
        where: What it was given to, for messages.

    Raises:
        DeclarationError: It is neither, or not above zero.
    """
    found = given if isinstance(given, timedelta) else _parsed(given)
    if found is None or found <= timedelta():
        raise DeclarationError(
            f"{given!r} is no time that passes", where=where, remedy='give "10 minutes", "1 hour 30 minutes" or such'
        )
    return found


def moment(given: str | datetime, where: str) -> datetime:
    """A time, in UTC: a text as in `sluice run --until`, or a `datetime`, which is UTC unless it has a zone.

    Raises:
        DeclarationError: It is none.
    """
    if isinstance(given, datetime):
        return (given if given.tzinfo else given.replace(tzinfo=UTC)).astimezone(UTC)
    found = parse_time(given if isinstance(given, str) and given else repr(given), where=where)
    return START if found is None else found.astimezone(UTC)


def _parsed(given: object) -> timedelta | None:
    text = given.strip() if isinstance(given, str) else ""
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        return None
    return sum((timedelta(**{f"{part[2]}s": int(part[1])}) for part in parts), timedelta())
