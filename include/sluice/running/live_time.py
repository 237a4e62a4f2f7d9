"""The time of a live run, and what its record tells of it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from sluice.runs.record import LiveRecord
from sluice.times import Clock, iso_time, parse_time
from sluice.trigger import LiveTrigger

_TELL_AGAIN = timedelta(seconds=10)
"""How long the record says the same of a query of which nothing new is known."""
_LEAST_SECONDS = 0.01


@dataclass
class LiveTime:
    """How long the query of a run is kept at work, and what became of it so far."""

    trigger: LiveTrigger
    clock: Clock
    save: Callable[[LiveRecord], None]
    """Keeps what is told in the record of the run."""
    told: LiveRecord
    ends_at: datetime
    _told_at: datetime = field(init=False)

    def __post_init__(self) -> None:
        self._told_at = self.clock()

    @classmethod
    def begin(
        cls, trigger: LiveTrigger, before: LiveRecord | None, clock: Clock, save: Callable[[LiveRecord], None]
    ) -> LiveTime:
        """Begin the time of a run; a retry has what is left of the first try's.

        Args:
            trigger: The run's.
            before: What the tries before have told; None in the first.
            clock: Tells the time.
            save: Keeps what is told.
        """
        now = clock()
        ends_at = now + timedelta(milliseconds=trigger.run_for_ms)
        if before is not None:
            ends_at = parse_time(before.ends_at, where="the run record") or ends_at
        told = before or LiveRecord(began_at=iso_time(now), ends_at=iso_time(ends_at), seen_at=iso_time(now))
        save(told)
        return cls(trigger, clock, save, told, ends_at)

    @property
    def left_seconds(self) -> float:
        """How much of it is left; never less than a moment."""
        return max(_LEAST_SECONDS, (self.ends_at - self.clock()).total_seconds())

    def is_over(self) -> bool:
        """Whether no further batch is to begin."""
        return self.clock() >= self.ends_at

    def note_commit(self) -> None:
        """Note that a batch was committed, which is in the record by now."""
        self.told = msgspec.structs.replace(self.told, committed_at=iso_time(self.clock()))

    def note_doing(self, doing: str) -> None:
        """Note what Spark says that the query is doing; the record has it where it is new, and every ten seconds."""
        now = self.clock()
        if doing != self.told.doing or now - self._told_at >= _TELL_AGAIN:
            self.told = msgspec.structs.replace(self.told, seen_at=iso_time(now), doing=doing)
            self._told_at = now
            self.save(self.told)
