"""What a task notes of the runs that it starts, where Airflow keeps it: so the api-server can end its driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice.home import StreamHome
from sluice.runs.driver import Drivers
from sluice.runs.record import RunRecords
from sluice.runs.stop import request_stop
from sluice_airflow.arguments import TOGETHER
from sluice_airflow.projects import airflow_project
from sluice_airflow.run_keys import RunKey, run_key

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from airflow.sdk import Context
    from sqlalchemy.orm import Session

BY_AIRFLOW = "Airflow:"
"""How it begins who has asked a run to end, where that was a task, or somebody who ended the task."""
_KEY = "sluice_run"
_SHARED = "sluice_runs"
"""Under which a task tells those behind it which runs it has planned."""
_TOGETHER = "RunTogetherOperator"
"""As Airflow's database calls the kind of a task."""
_OPEN = {"planned", "running"}


@dataclass(frozen=True)
class NotedRuns:
    """The runs that a task has started."""

    project: str
    """The folder of `sluice.toml`, as the worker knows it."""
    runs: dict[str, str]
    """By stream, the id of its run; empty where the task has taken a key, and has yet to plan."""
    idle: list[str] = field(default_factory=list)
    """The streams that the task has planned, too, and that had nothing to do."""
    left: list[str] = field(default_factory=list)
    """The ids of the runs that it has planned, and left to the tasks of their streams."""
    generation: int = 0
    """That of the run key of the try that has noted this."""
    max_tries: int | None = None
    """What Airflow allowed that try's task then: only a clear changes it."""
    first: int = 0
    """The generation with which this life of the DAG run has begun: those before are of one that was deleted."""

    @property
    def planned(self) -> list[str]:
        """The ids of all runs that it has planned."""
        return [*self.runs.values(), *self.left]

    def end(self, requested_by: str) -> None:
        """Ask their driver to end those of them that are not over.

        Raises:
            SluiceError: The project, or the home, can't be read.
        """
        project = airflow_project(self.project)
        for stream, run_id in self.runs.items():
            home = project.home_named(stream)
            record = RunRecords(home).read(run_id)
            if record is not None and record.status in _OPEN and not self._is_retried(home, run_id):
                request_stop(home, run_id, requested_by=requested_by, now=datetime.now(UTC))

    def _is_retried(self, home: StreamHome, run_id: str) -> bool:
        """Whether one of several runs is done by its stream's own task by now, with a driver of its own."""
        if len(self.runs) == 1:
            return False
        driver = Drivers(home).find(run_id)
        return driver is not None and not driver.is_shared


def note_runs(context: Context, runs: NotedRuns) -> None:
    """Note what a task is about to start; a later try of it notes its own."""
    context["task_state_store"].set(_KEY, asdict(replace(runs, max_tries=context["ti"].max_tries)))


def forget_runs(context: Context) -> None:
    """Forget what a task has noted, and could not start."""
    context["task_state_store"].delete(_KEY)


def tell_runs(context: Context, run_ids: Iterable[str]) -> None:
    """Tell the tasks behind this one which runs it has planned for them: what it notes, they can't read."""
    context["ti"].xcom_push(key=_SHARED, value=list(run_ids))


def told_runs(context: Context, task_ids: Iterable[str]) -> set[str]:
    """The ids of the runs that the tasks before this one have planned for it, in this life of the DAG run.

    Args:
        context: The task's.
        task_ids: The tasks before it.
    """
    told = (context["ti"].xcom_pull(task_ids=task_id, key=_SHARED) for task_id in task_ids)
    return {run_id for run_ids in told if isinstance(run_ids, list) for run_id in run_ids}


def runs_of_try(context: Context) -> NotedRuns | None:
    """What a try of a task in its worker has started before; None when nothing."""
    return _read(context["task_state_store"].get(_KEY))


def key_of_try(context: Context, retries: int) -> RunKey:
    """The key of what a try of a task in its worker runs, also where `retries` was edited since the try before.

    Args:
        context: The task's.
        retries: How often the task may be retried.
    """
    key, noted = run_key(context["ti"], retries), runs_of_try(context)
    if noted is None:
        return key
    if noted.max_tries == context["ti"].max_tries:
        return replace(key, generation=noted.generation)
    return replace(key, generation=max(key.generation, noted.generation + 1))


def noted_runs(ti: TaskInstance) -> NotedRuns | None:
    """What a task instance, as the database has it, has started last; None when nothing, or nobody can tell.

    A task of a stream that has started nothing may have its run done by the driver of the task before it.
    """
    own = _read_of(ti, ti.task_id, ti.map_index)
    if own is not None and own.runs:
        return own
    for task_id in _tasks_together(ti):
        shared = _read_of(ti, task_id, -1)
        if shared is not None and ti.task_id in shared.runs:
            return NotedRuns(shared.project, {ti.task_id: shared.runs[ti.task_id]})
    return None


def noted_generations(dag_id: str, run_id: str, session: Session) -> dict[tuple[str, int], int]:
    """By task and map index, the generation that a task of a DAG run has noted; as far as Airflow's database tells."""
    from airflow.models.task_state_store import TaskStateStoreModel as Kept
    from sqlalchemy import select

    wanted = select(Kept.task_id, Kept.map_index, Kept.value).where(
        Kept.dag_id == dag_id, Kept.run_id == run_id, Kept.key == _KEY
    )
    noted = {(task_id, index): _read(json.loads(value)) for task_id, index, value in session.execute(wanted)}
    return {place: found.generation for place, found in noted.items() if found is not None}


def _tasks_together(ti: TaskInstance) -> Sequence[str]:
    """The tasks of its DAG run that start drivers of several streams, whatever they are called there."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import or_, select
    from sqlalchemy.orm import object_session

    of_run = TaskInstance.dag_id == ti.dag_id, TaskInstance.run_id == ti.run_id
    # A class of somebody's own bears another name; most call the task as `stream_dag` does.
    is_one = or_(TaskInstance.operator == _TOGETHER, TaskInstance.task_id == TOGETHER)
    wanted = select(TaskInstance.task_id).where(*of_run, is_one)
    session = object_session(ti)
    return [] if session is None else session.scalars(wanted).all()


def _read_of(ti: TaskInstance, task_id: str, map_index: int) -> NotedRuns | None:
    from airflow.state import TaskScope, get_state_backend
    from sqlalchemy.orm import object_session

    scope = TaskScope(dag_id=ti.dag_id, run_id=ti.run_id, task_id=task_id, map_index=map_index)
    kept = get_state_backend().get(scope, _KEY, session=object_session(ti))
    return _read(None if kept is None else json.loads(kept))


def _read(noted: Any) -> NotedRuns | None:
    # A backend of somebody's own keeps it elsewhere, where workers find it.
    known = NotedRuns.__dataclass_fields__
    is_ours = isinstance(noted, dict) and {"project", "runs"} <= noted.keys() <= known.keys()
    return NotedRuns(**noted) if is_ours else None
