"""Follows a run whose driver was started elsewhere, until it is over."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from sluice.home import StreamHome
from sluice.runs.driver import Drivers
from sluice.runs.record import RunRecord, describe_batch
from sluice.runs.stop import request_stop
from sluice_airflow.projects import airflow_project
from sluice_airflow.triggers.following import DriverTrigger


class RunTrigger(DriverTrigger):
    """Waits for the end of a run, and shows its batches, or a backfill's phases, in the task's log.

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

    @property
    def followed(self) -> str:
        """The run and its stream."""
        return f"run {self.run_id} of stream {self.stream}"

    def look(self) -> bool:
        """Whether the run is over."""
        record, is_over = self._drivers.look(self.run_id)
        if record is not None:
            self._show(record)
        return is_over

    def end(self, by: str) -> None:
        """Ask the run to end."""
        request_stop(self._home, self.run_id, requested_by=by, now=datetime.now(UTC))

    def _show(self, record: RunRecord) -> None:
        for phase in record.phases[self.shown_phases :]:
            self.log.info("%s", phase.text)
        for batch in record.batches[self.shown :]:
            self.log.info("%s", describe_batch(batch))
        self.shown_phases = max(self.shown_phases, len(record.phases))
        self.shown = max(self.shown, len(record.batches))

    @cached_property
    def _home(self) -> StreamHome:
        project = airflow_project(self.project)
        return project.home_named(self.stream)

    @cached_property
    def _drivers(self) -> Drivers:
        return Drivers(self._home)
