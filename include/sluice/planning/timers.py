"""When the next time-out or timer in processing time is due: the planner and the runner ask here."""

from __future__ import annotations

from sluice.checkpoint.reader import CheckpointState
from sluice.home import Generation
from sluice.times import iso_millis


def is_timer_due(checkpoint: CheckpointState, known: Generation | None, clock_ms: int) -> bool:
    """Whether a batch with this clock would fire one, data or not; also where nobody has looked since the last batch.

    Args:
        checkpoint: The stream's.
        known: What is known of the generation.
        clock_ms: Milliseconds since the epoch.
    """
    planned = checkpoint.planned
    if known is None or not known.has_timers or planned is None:
        return False
    if not _is_known(checkpoint, known):
        return True
    # Spark fires what is due before the clock of a batch.
    return known.timers is not None and known.timers.due_ms is not None and known.timers.due_ms < clock_ms


def due_timers(checkpoint: CheckpointState, known: Generation | None) -> str:
    """What is due of them, for people, where `is_timer_due` says so."""
    if known is None or not _is_known(checkpoint, known) or known.timers is None or known.timers.due_ms is None:
        return "time-outs may be due: nobody has looked since the last batch"
    return f"a time-out is due since {iso_millis(known.timers.due_ms)}"


def later_timers(checkpoint: CheckpointState, known: Generation | None) -> str:
    """When the next one is due, for people; empty where none waits, or nobody knows."""
    if known is None or not known.has_timers or not _is_known(checkpoint, known):
        return ""
    if known.timers is None or known.timers.due_ms is None:
        return ""
    return f"; the next time-out is due at {iso_millis(known.timers.due_ms)}"


def _is_known(checkpoint: CheckpointState, known: Generation) -> bool:
    planned, timers = checkpoint.planned, known.timers
    found = None if planned is None else (planned.batch_id, planned.timestamp_ms)
    return timers is not None and (timers.batch_id, timers.timestamp_ms) == found
