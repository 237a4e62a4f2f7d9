"""When the next time-out or timer in processing time is due: the planner and the runner ask here."""

from __future__ import annotations

from sluice.checkpoint.reader import CheckpointState
from sluice.generation_notes import KnownTimers
from sluice.home import Generation
from sluice.times import iso_millis

NEVER_ENDS = "AvailableNow never ends on processing-time timers"
"""Why a query that has some is not drained."""


def is_timer_due(checkpoint: CheckpointState, known: Generation | None, clock_ms: int) -> bool:
    """Whether a batch with this clock would fire one, data or not; also where nobody has looked since the last batch.

    Args:
        checkpoint: The stream's.
        known: What is known of the generation.
        clock_ms: Milliseconds since the epoch.
    """
    if known is None or not known.has_timers or checkpoint.planned is None:
        return False
    timers = _timers_at(checkpoint, known)
    # Spark fires what is due before the clock of a batch.
    return timers is None or (timers.due_ms is not None and timers.due_ms < clock_ms)


def due_timers(checkpoint: CheckpointState, known: Generation | None) -> str:
    """What is due of them, for people, where `is_timer_due` says so."""
    timers = _timers_at(checkpoint, known)
    if timers is None:
        return "time-outs may be due: nobody has looked since the last batch"
    return f"a time-out is due since {iso_millis(timers.due_ms)}"


def later_timers(checkpoint: CheckpointState, known: Generation | None) -> str:
    """When the next one is due, for people; empty where none waits, or nobody knows."""
    timers = _timers_at(checkpoint, known)
    if timers is None or timers.due_ms is None:
        return ""
    return f"; the next time-out is due at {iso_millis(timers.due_ms)}"


def _timers_at(checkpoint: CheckpointState, known: Generation | None) -> KnownTimers | None:
    """What is known of them behind the newest batch; None where nobody has looked, and where there are none."""
    planned, timers = checkpoint.planned, known.timers if known is not None and known.has_timers else None
    if planned is None or timers is None:
        return None
    return timers if (timers.batch_id, timers.timestamp_ms) == (planned.batch_id, planned.timestamp_ms) else None
