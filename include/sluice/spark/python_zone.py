"""The time zone of a session, and of the Pythons that run its functions: the system tells them by the variable `TZ`."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME_ZONE = "spark.sql.session.timeZone"
PYTHON_ZONE = "spark.executorEnv.TZ"
"""What Python functions take for the time zone: with local tasks, each function brings it along."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?(?P<sign>[+-])(\d{1,2})(?::?(\d{1,2}))?(?::?(\d{2}))?")
_OF_OLD: Mapping[str, str] = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "UT": "UTC", "Z": "UTC",
}  # fmt: skip
"""Java's `ZoneId.SHORT_IDS`, which Spark takes: the time zone database does not know them."""


def system_zone(zone: str) -> str | None:
    """What `TZ` must be for a zone of the session; None where the system has no such zone.

    Args:
        zone: As `spark.sql.session.timeZone` has it: a name, or an offset.
    """
    offset = _OFFSET.fullmatch(zone)
    if offset is not None:
        # POSIX counts the other way round: what is to be added for UTC.
        away = "-" if offset["sign"] == "+" else "+"
        parts = [part.zfill(2) for part in offset.groups()[1:] if part is not None]
        return f"<{offset['sign']}{''.join(parts)}>{away}{':'.join(parts)}"
    name = _OF_OLD.get(zone, zone)
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return None
    return name


def set_python_zone(session: SparkSession, zone: str | None) -> None:
    """Let Python functions of local tasks take a zone for theirs; None for the machine's."""
    context: Any = session.sparkContext
    if zone is None:
        context.environment.pop("TZ", None)
    else:
        context.environment["TZ"] = zone
