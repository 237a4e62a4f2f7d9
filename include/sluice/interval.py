"""The interval of a backfill: which rows it recomputes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sluice.errors import DeclarationError
from sluice.times import parse_time

KINDS = ("date", "timestamp", "timestamp_ntz")
"""Spark's types of a column by which rows can be told to lie in an interval."""


@dataclass(frozen=True)
class Interval:
    """Which rows a backfill recomputes: those whose interval column lies in `[start, end)`."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None or self.start >= self.end:
            raise DeclarationError(
                f"the interval from {self.start.isoformat()} to {self.end.isoformat()} is none",
                where="--start, --end",
                remedy="give two times with a zone, the first before the second; the end is exclusive",
            )

    @classmethod
    def parse(cls, start: str, end: str) -> Interval:
        """Read an interval as somebody wrote it; a date alone is its midnight, UTC.

        Raises:
            DeclarationError: One is missing or no time, or the end is not after the start.
        """
        first, last = parse_time(start, where="--start"), parse_time(end, where="--end")
        if first is None or last is None:
            raise DeclarationError(
                "an interval has a start and an end", where="--start, --end", remedy="give both, the end is exclusive"
            )
        return cls(first, last)

    def condition(self, column: str, kind: str) -> str:
        """The rows of the interval in SQL; `kind` is the column's type: `date`, `timestamp` or `timestamp_ntz`."""
        return f"`{column}` >= {_literal(self.start, kind)} AND `{column}` < {_literal(self.end, kind)}"

    def overlaps(self, other: Interval) -> bool:
        """Whether a moment lies in both."""
        return self.start < other.end and other.start < self.end


def _literal(moment: datetime, kind: str) -> str:
    at = moment.astimezone(UTC).replace(tzinfo=None)
    if kind == "date":
        return f"DATE'{at.date().isoformat()}'"
    zone = " UTC" if kind == "timestamp" else ""
    return f"{kind.upper()}'{at.isoformat(sep=' ', timespec='microseconds')}{zone}'"
