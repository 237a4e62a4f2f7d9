"""Waits until a stream is free: for tasks that find another run at work on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import anyio.to_thread
from airflow.triggers.base import BaseTrigger, TriggerEvent

from sluice.errors import LeaseTakenError, SluiceError, StorageError
from sluice.runs.lease import check_not_taken
from sluice_airflow.projects import airflow_project
from sluice_airflow.triggers.absence import Absence
from sluice_airflow.triggers.run import DEFERRAL_SECONDS

_POLL_SECONDS = 2.0


class LeaseTrigger(BaseTrigger):
    """Waits until no run that may be at work has a lease, however long that takes.

    Several tasks may wait for one lease: all of them go on when it is free, and those that come too late wait again.

    Args:
        project: The folder of `sluice.toml`.
        folder: Where the leases are.
    """

    def __init__(self, *, project: str, folder: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.project, self.folder = project, folder

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another triggerer makes this trigger from."""
        return "sluice_airflow.triggers.lease.LeaseTrigger", {"project": self.project, "folder": self.folder}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for a task that was deferred; yields one event, when the lease is free."""
        deferred_at_last = time.monotonic() + DEFERRAL_SECONDS
        await self.follow()
        await asyncio.sleep(deferred_at_last - time.monotonic())
        yield TriggerEvent({"folder": self.folder})  # type: ignore[no-untyped-call]

    async def follow(self) -> None:
        """Wait until the lease is free, or its home has been away for too long."""
        absence = Absence(self.log, "the lease")
        while True:
            try:
                if await anyio.to_thread.run_sync(self._is_free):
                    return
                absence.is_over()
            except StorageError as exc:
                if absence.goes_on(exc):
                    return
            except SluiceError:
                # Whoever goes on reads the same file, and fails with its error.
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _is_free(self) -> bool:
        try:
            check_not_taken(airflow_project(self.project).storage(), self.folder, datetime.now(UTC))
        except LeaseTakenError:
            return False
        return True
