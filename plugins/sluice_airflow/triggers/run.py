"""Follows a run whose driver was started elsewhere, until it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import anyio.to_thread
from airflow.triggers.base import BaseTrigger, TriggerEvent

from sluice.errors import SluiceError, StorageError
from sluice.home import StreamHome
from sluice.running.driver import Drivers
from sluice.running.record import RunRecord, describe_batch
from sluice.running.stop import request_stop
from sluice.storage import join
from sluice_airflow.projects import airflow_project


class RunTrigger(BaseTrigger):
    """Waits for the end of a run, and shows its batches in the task's log.

    A triggerer that dies loses nothing: the run goes on, and another triggerer follows it. A person who marks or clears
    the deferred task ends the run.

    Args:
        project: The folder of `sluice.toml`.
        stream: The stream's name.
        run_id: The run.
        poll_seconds: How often the run record is looked at.
    """

    def __init__(self, *, project: str, stream: str, run_id: str, poll_seconds: float = 1.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.project, self.stream, self.run_id, self.poll_seconds = project, stream, run_id, poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another triggerer makes this trigger from."""
        kwargs = {"project": self.project, "stream": self.stream, "run_id": self.run_id}
        return "sluice_airflow.triggers.run.RunTrigger", {**kwargs, "poll_seconds": self.poll_seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the run; yields one event, at its end, with the `run_id`."""
        shown = 0
        while True:
            try:
                record, is_over = await anyio.to_thread.run_sync(self._look)
            except StorageError as exc:
                self.log.warning("the run can't be looked at right now, and is looked at again: %s", exc)
                record, is_over = None, False
            except SluiceError:
                # Whoever resumes reads the same file, and fails with its error.
                record, is_over = None, True
            batches = record.batches if record is not None else ()
            for batch in batches[shown:]:
                self.log.info("%s", describe_batch(batch))
            shown = max(shown, len(batches))
            if is_over:
                yield TriggerEvent({"run_id": self.run_id})  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.poll_seconds)

    async def on_kill(self) -> None:
        """A person has marked or cleared the task: ask the run's driver to end."""
        await anyio.to_thread.run_sync(self._request_stop)

    @cached_property
    def _home(self) -> StreamHome:
        project = airflow_project(self.project)
        return StreamHome(join(project.home, self.stream), project.storage())

    @cached_property
    def _drivers(self) -> Drivers:
        return Drivers(self._home)

    def _look(self) -> tuple[RunRecord | None, bool]:
        return self._drivers.look(self.run_id)

    def _request_stop(self) -> None:
        by = "Airflow: the task was marked or cleared"
        request_stop(self._home, self.run_id, requested_by=by, now=datetime.now(UTC))
