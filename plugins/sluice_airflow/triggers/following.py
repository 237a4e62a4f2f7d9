"""What triggers have in common that wait for the end of something, for a task that was deferred."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

DEFERRAL_SECONDS = 6.0
"""How soon after a deferral an event may come. Airflow's scheduler must have heard before that the worker has left the
task, which a worker tells within 5 seconds: else it takes that for the end of the task that has come back by then, and
fails it (apache/airflow#72716, 3.3.0)."""
POLL_SECONDS = 0.5
"""How often a triggerer looks, which follows much at once."""


class FollowingTrigger(BaseTrigger):
    """Waits for an end, and then yields one event."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for a task that was deferred; yields one event, at the end."""
        deferred_at_last = time.monotonic() + DEFERRAL_SECONDS
        await self.follow()
        await asyncio.sleep(deferred_at_last - time.monotonic())
        yield TriggerEvent(self.told())  # type: ignore[no-untyped-call]

    @abstractmethod
    async def follow(self, *, poll_seconds: float = POLL_SECONDS) -> None:
        """Wait for the end.

        Args:
            poll_seconds: How often to look: a triggerer follows much, a worker one thing.
        """

    @abstractmethod
    def told(self) -> dict[str, Any]:
        """What the event says."""
