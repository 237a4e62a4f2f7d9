"""Times that partition a table or a folder: their values are names of folders, with the hour of the session's zone.

Where a clock is put back, one hour comes twice, and both have one name: Spark reads the second as the first.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache

from sluice.errors import DeclarationError
from sluice.spark.python_zone import TIME_ZONE

_FIXED = re.compile(
    r"(?:UTC|GMT|UT)?[+-]\d{1,2}(?::?\d{2}){0,2}|Z|Zulu|UTC|GMT0?|UT|UCT|Universal|Greenwich|Etc/.*|GMT[+-]0",
    re.IGNORECASE,
)
"""The zones that have one offset from UTC, and never had another."""
_KNOWN_SINCE, _KNOWN_UNTIL = datetime(1970, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
"""The database of zones vouches for no time before; the rules that hold now say all of the times after."""
_STEP = timedelta(days=1)


def is_fixed(zone: str) -> bool:
    """Whether a zone, named as Spark does, has one offset from UTC."""
    return _FIXED.fullmatch(zone.strip()) is not None


@cache
def has_hours_twice(zone: str) -> bool:
    """Whether clocks of a zone, named as Spark does, were put back since 1970, or will be; also where nobody knows."""
    if is_fixed(zone):
        return False
    try:
        clocks = zoneinfo.ZoneInfo(zone.strip())
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        # One of Java's own names, say.
        return True
    at, offset = _KNOWN_SINCE, timedelta.min
    while at < _KNOWN_UNTIL:
        later = at.astimezone(clocks).utcoffset()
        if later is None or later < offset:
            return True
        at, offset = at + _STEP, later
    return False


def check_times(partitions: Mapping[str, str], zone: str, *, place: str) -> None:
    """Make sure that each time of a partition is read as it was written.

    Args:
        partitions: The columns that partition what is written, with their types as Spark names them.
        zone: The time zone of the session.
        place: For messages.

    Raises:
        DeclarationError: One of them is a time, and the zone has hours that come twice.
    """
    name = next((name for name, kind in partitions.items() if kind == "timestamp"), None)
    if name is not None and has_hours_twice(zone):
        raise DeclarationError(
            f"the sink is partitioned by `{name}`, of type timestamp, and the session's time zone is {zone}: of an hour"
            " that comes twice there, Spark would write the second as the first",
            where=place,
            remedy=f'let the stream run with `conf={{"{TIME_ZONE}": "UTC"}}`; or partition by a date, or by the text of'
            " the time in UTC, which the transform makes",
        )
