"""Types that have every value of another one as it is, by the names that Delta's log and Spark's JSON give them."""

from __future__ import annotations

from sluice.delta_log.types import DIGITS, places

_EXACT_IN = {"float": ("byte", "short"), "double": ("byte", "short", "integer", "float")}
"""The numbers of which every one is one of these, too."""
_TIMES = ("timestamp", "timestamp_ntz")
_ATOMIC = {*DIGITS, *_EXACT_IN, *_TIMES, "boolean", "binary", "date", "string"}
NOTHING = "void"
"""The type of a column that is always null, as Spark names it."""


def is_exact(was: str, to: str) -> bool:
    """Whether every value of an atomic type is the same in another one."""
    if was in (to, NOTHING):
        return True
    if was not in _ATOMIC and places(was) is None:
        return False
    if to == "string":
        return was != "binary"
    if was in _EXACT_IN.get(to, ()) or (was == "string" and to == "binary") or (was == "date" and to in _TIMES):
        return True
    before, after = places(was), places(to)
    return before is not None and after is not None and before[0] <= after[0] and before[1] <= after[1]
