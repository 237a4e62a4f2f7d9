"""Follows the runs that share a driver, until it is done with all of them."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import anyio.to_thread

from sluice.errors import SluiceError, StorageError
from sluice.runs.driver import START_PATIENCE, Drivers
from sluice.runs.record import RunRecord, describe_batch
from sluice.times import parse_time
from sluice_airflow.noted_runs import BY_AIRFLOW, NotedRuns
from sluice_airflow.projects import airflow_project
from sluice_airflow.triggers.absence import Absence
from sluice_airflow.triggers.following import POLL_SECONDS, FollowingTrigger

_OPEN = {"planned", "running"}


class TogetherTrigger(FollowingTrigger):
    """Waits for the end of a driver of several streams, and shows in the task's log which batches are done.

    A triggerer that dies loses nothing: the driver goes on, and another triggerer follows it. A person who marks or
    clears the deferred task ends the driver.

    Args:
        project: The folder of `sluice.toml`.
        runs: By stream, the id of its run.
        shown: By stream, how many of its run's batches the log has already.
        ends_at: When the driver is asked to end (ISO 8601); None to let it take as long as it takes.
    """

    def __init__(
        self,
        *,
        project: str,
        runs: dict[str, str],
        shown: dict[str, int] | None = None,
        ends_at: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.project, self.runs, self.ends_at = project, runs, ends_at
        self.shown = dict(shown or {})
        self._drivers: dict[str, Drivers] = {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another triggerer makes this trigger from."""
        kwargs = {"project": self.project, "runs": self.runs, "shown": self.shown, "ends_at": self.ends_at}
        return "sluice_airflow.triggers.together.TogetherTrigger", kwargs

    def told(self) -> dict[str, Any]:
        """Which runs they were."""
        return {"runs": self.runs}

    async def follow(self, *, poll_seconds: float = POLL_SECONDS) -> None:
        """Show what the runs do until all of them are over, or the home has been away for too long."""
        ends_at = parse_time(self.ends_at, where="ends_at")
        self.log.info("following the runs of %s", ", ".join(self.runs))
        absence, seen_at = Absence(self.log, "the runs"), time.monotonic()
        while True:
            try:
                is_at_work, is_elsewhere = await anyio.to_thread.run_sync(self._look)
            except StorageError as exc:
                if absence.goes_on(exc):
                    return
            except SluiceError:
                # Whoever resumes reads the same file, and leaves the stream to its own task.
                return
            else:
                absence.is_over()
                seen_at = time.monotonic() if is_at_work else seen_at
                # On another machine, a driver gives no sign of life between two runs.
                patience = START_PATIENCE.total_seconds() if is_elsewhere else 0.0
                if not is_at_work and time.monotonic() - seen_at >= patience:
                    return
            if ends_at is not None and datetime.now(UTC) >= ends_at:
                ends_at = None
                await anyio.to_thread.run_sync(self._end, f"{BY_AIRFLOW} the task's execution_timeout is over")
            await asyncio.sleep(poll_seconds)

    async def on_kill(self) -> None:
        """A person has marked or cleared the task: ask the driver to end; see `RunTrigger.on_kill`."""
        await anyio.to_thread.run_sync(self._end, f"{BY_AIRFLOW} the task was marked or cleared")

    def _look(self) -> tuple[bool, bool]:
        """Whether one of the runs is at work, and whether one that is not done has a driver on another machine."""
        is_elsewhere = False
        for stream, run_id in self.runs.items():
            drivers = self._of(stream)
            record, is_over = drivers.look(run_id)
            self._show(stream, record)
            if not is_over:
                return True, False
            if record is not None and record.status in _OPEN:
                is_elsewhere = is_elsewhere or drivers.is_elsewhere(run_id)
        return False, is_elsewhere

    def _show(self, stream: str, record: RunRecord | None) -> None:
        batches = record.batches if record is not None else ()
        for batch in batches[self.shown.get(stream, 0) :]:
            self.log.info("%s: %s", stream, describe_batch(batch))
        self.shown[stream] = max(self.shown.get(stream, 0), len(batches))

    def _of(self, stream: str) -> Drivers:
        if stream not in self._drivers:
            self._drivers[stream] = Drivers(airflow_project(self.project).home_named(stream))
        return self._drivers[stream]

    def _end(self, by: str) -> None:
        NotedRuns(self.project, self.runs).end(by)
