"""Follows a run whose driver was started elsewhere, until it is over."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import anyio.to_thread

from sluice.errors import SluiceError, StorageError
from sluice.home import StreamHome
from sluice.runs.driver import Drivers
from sluice.runs.record import RunRecord, describe_batch
from sluice.runs.stop import request_stop
from sluice.times import parse_time
from sluice_airflow.noted_runs import BY_AIRFLOW
from sluice_airflow.projects import airflow_project
from sluice_airflow.triggers.absence import Absence
from sluice_airflow.triggers.following import POLL_SECONDS, FollowingTrigger


class RunTrigger(FollowingTrigger):
    """Waits for the end of a run, and shows its batches, or a backfill's phases, in the task's log.

    A triggerer that dies loses nothing: the run goes on, and another triggerer follows it. A person who marks or clears
    the deferred task ends the run.

    Args:
        project: The folder of `sluice.toml`.
        stream: The stream's name.
        run_id: The run.
        shown: How many of its batches the log has already.
        shown_phases: How many of its phases.
        ends_at: When the run is asked to end (ISO 8601); None to let it take as long as it takes.
    """

    def __init__(
        self,
        *,
        project: str,
        stream: str,
        run_id: str,
        shown: int = 0,
        shown_phases: int = 0,
        ends_at: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.project, self.stream, self.run_id = project, stream, run_id
        self.shown, self.shown_phases, self.ends_at = shown, shown_phases, ends_at

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another triggerer makes this trigger from."""
        kwargs = {"project": self.project, "stream": self.stream, "run_id": self.run_id}
        shown = {"shown": self.shown, "shown_phases": self.shown_phases}
        return "sluice_airflow.triggers.run.RunTrigger", {**kwargs, **shown, "ends_at": self.ends_at}

    def told(self) -> dict[str, Any]:
        """Which run it was."""
        return {"run_id": self.run_id}

    async def follow(self, *, poll_seconds: float = POLL_SECONDS) -> None:
        """Show what the run does in the log until it is over, or its home has been away for too long."""
        ends_at = parse_time(self.ends_at, where="ends_at")
        self.log.info("following run %s of stream %s", self.run_id, self.stream)
        absence = Absence(self.log, "the run")
        while True:
            record, is_over = None, False
            try:
                record, is_over = await anyio.to_thread.run_sync(self._look)
            except StorageError as exc:
                # Whoever resumes does not find it either, says so, and fails in a way that a retry may mend.
                is_over = absence.goes_on(exc)
            except SluiceError:
                # Whoever resumes reads the same file, and fails with its error.
                is_over = True
            else:
                absence.is_over()
            if record is not None:
                self._show(record)
            if is_over:
                return
            if ends_at is not None and datetime.now(UTC) >= ends_at:
                ends_at = None
                await anyio.to_thread.run_sync(self._request_stop, f"{BY_AIRFLOW} the task's execution_timeout is over")
            await asyncio.sleep(poll_seconds)

    def _show(self, record: RunRecord) -> None:
        for phase in record.phases[self.shown_phases :]:
            self.log.info("%s", phase.text)
        for batch in record.batches[self.shown :]:
            self.log.info("%s", describe_batch(batch))
        self.shown_phases = max(self.shown_phases, len(record.phases))
        self.shown = max(self.shown, len(record.batches))

    async def on_kill(self) -> None:
        """A person has marked or cleared the task: ask the run's driver to end.

        Airflow also calls this in a triggerer that wakes up after another one has taken the trigger over. To ask for
        the task's state there takes Airflow longer than a person wants to wait; so the run ends, and a retry goes on.
        """
        await anyio.to_thread.run_sync(self._request_stop, f"{BY_AIRFLOW} the task was marked or cleared")

    @cached_property
    def _home(self) -> StreamHome:
        project = airflow_project(self.project)
        return project.home_named(self.stream)

    @cached_property
    def _drivers(self) -> Drivers:
        return Drivers(self._home)

    def _look(self) -> tuple[RunRecord | None, bool]:
        return self._drivers.look(self.run_id)

    def _request_stop(self, by: str) -> None:
        request_stop(self._home, self.run_id, requested_by=by, now=datetime.now(UTC))
