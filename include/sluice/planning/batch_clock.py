"""The clock of a batch: what `current_timestamp()` and time-outs in processing time go by."""

from __future__ import annotations

from datetime import datetime

from sluice.checkpoint.offsets import OffsetFile

_MOST_AHEAD_MS = 24 * 3600 * 1000
"""How far a batch may lie ahead of the clock: further, the clock that it was planned by was wrong."""


def batch_clock_ms(now: datetime, before: OffsetFile | None) -> int:
    """The time of a batch: never before that of the batch in front of it, unless that one's was plainly wrong.

    Args:
        now: What the clock says.
        before: The batch in front of it; None for the first.

    Returns:
        Milliseconds since the epoch.
    """
    now_ms = int(now.timestamp() * 1000)
    if before is None or before.timestamp_ms > now_ms + _MOST_AHEAD_MS:
        return now_ms
    return max(now_ms, before.timestamp_ms)
