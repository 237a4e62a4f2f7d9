"""Dates and times that Spark holds and Python can't: before the year 1, or after 9999."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import total_ordering
from typing import Any

_MICROSECOND = timedelta(microseconds=1)
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_FIRST_MICROS = (_FIRST - datetime(1970, 1, 1, tzinfo=UTC)) // _MICROSECOND
_CYCLE_YEARS = 400
"""After so many years the calendar is the same again."""
_CYCLE_MICROS = timedelta(days=146_097) // _MICROSECOND
_SPARK = re.compile(r"([+-]?\d{4,7})(-\d\d-\d\d)(?: (\d\d:\d\d:\d\d(?:\.\d{1,6})?))?", re.ASCII)


@total_ordering
@dataclass(frozen=True)
class DistantTime:
    """A day, or a moment, that lies before or after all that Python can hold."""

    micros: int
    """Microseconds since 1970, in UTC or in no zone at all."""
    is_day: bool = False

    @classmethod
    def read(cls, text: str) -> DistantTime:
        """Read a date, or a time without a zone, as Spark casts it to a string.

        Raises:
            ValueError: It is none.
        """
        found = _SPARK.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:80]!r} is no date or time")
        cycles, year = divmod(int(found[1]) - 1, _CYCLE_YEARS)
        near = datetime.fromisoformat(f"{year + 1:04}{found[2]}T{found[3] or '00:00:00'}+00:00")
        micros = _FIRST_MICROS + cycles * _CYCLE_MICROS + (near - _FIRST) // _MICROSECOND
        return cls(micros, is_day=found[3] is None)

    def __lt__(self, other: Any) -> bool:
        if isinstance(other, DistantTime):
            return self.micros < other.micros
        if isinstance(other, date):
            return self.micros < 0
        return NotImplemented

    def isoformat(self) -> str:
        """In ISO 8601, where such a year has a sign."""
        cycles, micros = divmod(self.micros - _FIRST_MICROS, _CYCLE_MICROS)
        near = _FIRST + timedelta(microseconds=micros)
        year = near.year + cycles * _CYCLE_YEARS
        day = f"{year:+05}-{near:%m-%d}"
        return day if self.is_day else f"{day}T{near.time().isoformat()}"

    def seconds_before(self, now: datetime) -> float:
        """How many seconds it lies before a moment that has a zone; below 0 when it lies after."""
        return ((now - _FIRST) // _MICROSECOND + _FIRST_MICROS - self.micros) / 1e6
