"""What a task notes of the run that it starts, where Airflow keeps it: so the api-server can end its driver."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice.runs.record import RunRecords
from sluice.runs.stop import request_stop
from sluice_airflow.projects import airflow_project

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from airflow.sdk import Context

_KEY = "sluice_run"
_OPEN = {"planned", "running"}


@dataclass(frozen=True)
class NotedRun:
    """A run that a task has started."""

    project: str
    """The folder of `sluice.toml`, as the worker knows it."""
    stream: str
    run_id: str

    def end(self, requested_by: str) -> None:
        """Ask its driver to end, unless it is over.

        Raises:
            SluiceError: The project, or the home, can't be read.
        """
        project = airflow_project(self.project)
        home = project.home_named(self.stream)
        record = RunRecords(home).read(self.run_id)
        if record is not None and record.status in _OPEN:
            request_stop(home, self.run_id, requested_by=requested_by, now=datetime.now(UTC))


def note_run(context: Context, run: NotedRun) -> None:
    """Note what a task is about to start; a later try of it notes its own."""
    context["task_state_store"].set(_KEY, asdict(run))


def noted_run(ti: TaskInstance) -> NotedRun | None:
    """What a task instance, as the database has it, has started last; None when nothing, or nobody can tell."""
    from airflow.state import TaskScope, get_state_backend
    from sqlalchemy.orm import object_session

    scope = TaskScope(dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, map_index=ti.map_index)
    kept = get_state_backend().get(scope, _KEY, session=object_session(ti))
    noted: Any = None if kept is None else json.loads(kept)
    # A backend of somebody's own keeps it elsewhere, where workers find it.
    is_ours = isinstance(noted, dict) and noted.keys() == NotedRun.__dataclass_fields__.keys()
    return NotedRun(**noted) if is_ours else None
