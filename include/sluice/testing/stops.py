"""Asks a run to stop once it has done some batches."""

from __future__ import annotations

from sluice.plan import Plan
from sluice.running.observers import Silent
from sluice.runs.record import BatchRecord
from sluice.runs.stop import StopEvent


class StopAfter(Silent):
    """An observer that sets a stop, as a request from outside does.

    Args:
        stop: What it sets.
        batches: After how many batches; None for never.
    """

    def __init__(self, stop: StopEvent, batches: int | None) -> None:
        self._stop, self._left = stop, batches

    def planned(self, plan: Plan) -> None:
        if self._left == 0:
            self._stop.set()

    def committed(self, batch: BatchRecord) -> None:
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self._stop.set()
