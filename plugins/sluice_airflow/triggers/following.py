"""What triggers have in common that wait for the end of something, for a task that was deferred."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import anyio.to_thread
from airflow.triggers.base import BaseTrigger, TriggerEvent

from sluice.errors import SluiceError, StorageError
from sluice.times import parse_time
from sluice_airflow.noted_runs import BY_AIRFLOW
from sluice_airflow.triggers.absence import Absence

DEFERRAL_SECONDS = 6.0
"""How soon after a deferral an event may come. Airflow's scheduler must have heard before that the worker has left the
task, which a worker tells within 5 seconds: else it takes that for the end of the task that has come back by then, and
fails it (apache/airflow#72716, 3.3.0)."""
POLL_SECONDS = 0.5
"""How often a triggerer looks, which follows much at once."""


class FollowingTrigger(BaseTrigger):
    """Looks again and again until something is over, and then yields one event. A home may be away meanwhile."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for a task that was deferred; yields one event, at the end."""
        deferred_at_last = time.monotonic() + DEFERRAL_SECONDS
        await self.follow()
        await asyncio.sleep(deferred_at_last - time.monotonic())
        yield TriggerEvent(self.told())  # type: ignore[no-untyped-call]

    async def follow(self, *, poll_seconds: float = POLL_SECONDS) -> None:
        """Look until it is over, or the home has been away for too long.

        Args:
            poll_seconds: How often to look: a triggerer follows much, a worker one thing.
        """
        absence = Absence(self.log, self.followed)
        while not await self._is_over(absence):  # noqa: ASYNC110 - what is in a home sends no event
            await asyncio.sleep(poll_seconds)

    async def _is_over(self, absence: Absence) -> bool:
        try:
            is_over = await anyio.to_thread.run_sync(self.look)
        except StorageError as exc:
            # Whoever resumes does not find it either, says so, and fails in a way that a retry may mend.
            return absence.goes_on(exc)
        except SluiceError:
            # Whoever resumes reads the same file, and says what is wrong with it.
            return True
        absence.is_over()
        return is_over

    @property
    @abstractmethod
    def followed(self) -> str:
        """What is looked at, as the log calls it."""

    @abstractmethod
    def look(self) -> bool:
        """Look once, and tell the log what is new; says whether it is over.

        Raises:
            StorageError: The home is away.
            SluiceError: What is there can't be read.
        """

    @abstractmethod
    def told(self) -> dict[str, Any]:
        """What the event says."""


class DriverTrigger(FollowingTrigger):
    """Follows a driver, and asks it to end when the time of its task is over, or a person ends the task.

    A triggerer that dies loses nothing: the driver goes on, and another triggerer follows it.
    """

    ends_at: str | None
    """When it is asked to end (ISO 8601); None to let it take as long as it takes."""
    _ends_at: datetime | None = None
    """The same; None once it was asked."""

    async def follow(self, *, poll_seconds: float = POLL_SECONDS) -> None:
        """See `FollowingTrigger.follow`."""
        self._ends_at = parse_time(self.ends_at, where="ends_at")
        self.log.info("following %s", self.followed)
        await super().follow(poll_seconds=poll_seconds)

    async def _is_over(self, absence: Absence) -> bool:
        if await super()._is_over(absence):
            return True
        if self._ends_at is not None and datetime.now(UTC) >= self._ends_at:
            self._ends_at = None
            await anyio.to_thread.run_sync(self.end, f"{BY_AIRFLOW} the task's execution_timeout is over")
        return False

    async def on_kill(self) -> None:
        """A person has marked or cleared the task: ask the driver to end.

        Airflow also calls this in a triggerer that wakes up after another one has taken the trigger over. To ask for
        the task's state there takes Airflow longer than a person wants to wait; so the run ends, and a retry goes on.
        """
        await anyio.to_thread.run_sync(self.end, f"{BY_AIRFLOW} the task was marked or cleared")

    @abstractmethod
    def end(self, by: str) -> None:
        """Ask the driver to end.

        Args:
            by: Who asks.
        """
