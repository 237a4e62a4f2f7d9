"""Follows the runs that share a driver, until it is done with all of them."""

from __future__ import annotations

import time
from typing import Any

from sluice.runs.driver import START_PATIENCE, Drivers
from sluice.runs.record import RunRecord, describe_batch
from sluice_airflow.noted_runs import NotedRuns
from sluice_airflow.projects import airflow_project
from sluice_airflow.triggers.following import DriverTrigger

_OPEN = {"planned", "running"}


class TogetherTrigger(DriverTrigger):
    """Waits for the end of a driver of several streams, and shows in the task's log which batches are done.

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
        self._seen_at = time.monotonic()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another triggerer makes this trigger from."""
        kwargs = {"project": self.project, "runs": self.runs, "shown": self.shown, "ends_at": self.ends_at}
        return "sluice_airflow.triggers.together.TogetherTrigger", kwargs

    def told(self) -> dict[str, Any]:
        """Which runs they were."""
        return {"runs": self.runs}

    @property
    def followed(self) -> str:
        """The streams."""
        return f"the runs of {', '.join(self.runs)}"

    def look(self) -> bool:
        """Whether the driver is done with all of the runs."""
        is_at_work, is_elsewhere = self._look()
        if is_at_work:
            self._seen_at = time.monotonic()
            return False
        # On another machine, a driver gives no sign of life between two runs.
        patience = START_PATIENCE.total_seconds() if is_elsewhere else 0.0
        return time.monotonic() - self._seen_at >= patience

    def end(self, by: str) -> None:
        """Ask each of the runs to end, those whose turn has not come, too."""
        NotedRuns(self.project, self.runs).end(by)

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
