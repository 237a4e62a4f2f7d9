"""Which DAGs run which streams, as Airflow's database knows it: no DAG file is parsed for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import func, select

from sluice_airflow.noted_runs import noted_generations
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.operators.run_together import RunTogetherOperator
from sluice_airflow.run_keys import RunKey

_FIELDS = frozenset(RunStreamOperator.template_fields)
"""What every operator that runs a stream has, also `@task.stream` and those that a project derives: Airflow writes the
name of the class, which may be any, and the fields."""
_FIELDS_TOGETHER = frozenset(RunTogetherOperator.template_fields)


@dataclass(frozen=True)
class StreamTask:
    """A task that runs a stream."""

    dag_id: str
    task_id: str
    stream: str | None
    """None where only a template names it."""
    project_folder: str = ""
    """Where its project is looked for: what the task gives as `project`, else the folder of the DAG's file. Empty where
    that is not known."""
    is_together: bool = False
    """Whether it runs the stream under the key of the stream's own task, which has the stream's name."""

    @property
    def key_task_id(self) -> str:
        """The task whose keys its runs bear."""
        return self.stream if self.is_together and self.stream is not None else self.task_id


class DagTasks:
    """The tasks that run streams, of every DAG; read anew only for the DAGs that changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, tuple[StreamTask, ...]]] = {}
        self._lock = Lock()

    def all(self) -> tuple[StreamTask, ...]:
        """Every task that runs a stream."""
        with self._lock, create_session() as session:
            newest = select(
                SerializedDagModel.dag_id,
                func.max(SerializedDagModel.created_at),
                func.max(SerializedDagModel.last_updated),
            ).group_by(SerializedDagModel.dag_id)
            stamps = {dag_id: (created, updated) for dag_id, created, updated in session.execute(newest)}
            changed = [dag_id for dag_id, stamp in stamps.items() if self._known.get(dag_id, (None,))[0] != stamp]
            if changed:
                for dag in SerializedDagModel.get_latest_serialized_dags(dag_ids=changed, session=session):
                    self._known[dag.dag_id] = (stamps[dag.dag_id], tuple(stream_tasks(dag.dag_id, dag.data)))
            self._known = {dag_id: known for dag_id, known in self._known.items() if dag_id in stamps}
            return tuple(task for _, tasks in self._known.values() for task in tasks)


def stream_tasks(dag_id: str, document: Mapping[str, Any] | None) -> Iterator[StreamTask]:
    """The tasks that run streams, in a serialized DAG; one for every stream that a task is expanded to."""
    dag = (document or {}).get("dag")
    tasks = dag.get("tasks") if isinstance(dag, Mapping) else None
    file = dag.get("fileloc") if isinstance(dag, Mapping) else None
    folder = os.path.dirname(file) if isinstance(file, str) else ""
    for wrapped in tasks if isinstance(tasks, list) else []:
        task = _unwrapped(wrapped)
        task_id = task.get("task_id") if isinstance(task, Mapping) else None
        if not isinstance(task_id, str):
            continue
        if _has_fields(task.get("template_fields"), _FIELDS):
            for stream in _streams(task):
                if isinstance(stream, str):
                    yield StreamTask(dag_id, task_id, None if "{{" in stream else stream, _given(task, folder))
        elif _has_fields(task.get("template_fields"), _FIELDS_TOGETHER):
            streams = _unwrapped(task.get("streams"))
            for stream in streams if isinstance(streams, list) else []:
                if isinstance(stream, str):
                    yield StreamTask(dag_id, task_id, stream, _given(task, folder), is_together=True)


def _has_fields(template_fields: Any, ours: frozenset[str]) -> bool:
    return isinstance(template_fields, list) and set(template_fields) >= ours


def _given(task: Mapping[str, Any], folder: str) -> str:
    """The folder of a task's project; a relative one is another one in another process, and so is a template."""
    given = task.get("project") or (task.get("partial_kwargs") or {}).get("project") or folder
    return given if isinstance(given, str) and os.path.isabs(given) and "{{" not in given else ""


def _streams(task: Mapping[str, Any]) -> Iterator[Any]:
    """What a task gives as `stream`: one, or one for each that it is expanded to."""
    yield task.get("stream")
    yield (task.get("partial_kwargs") or {}).get("stream")
    expanded = _unwrapped((task.get("expand_input") or {}).get("value"))
    for given in expanded if isinstance(expanded, list) else [expanded]:
        arguments = _unwrapped(given)
        streams = _unwrapped(arguments.get("stream")) if isinstance(arguments, Mapping) else None
        yield from streams if isinstance(streams, list) else [streams]


def _unwrapped(value: Any) -> Any:
    """A value as Airflow serializes it, without the note of its type."""
    return value["__var"] if isinstance(value, Mapping) and "__var" in value else value


def run_keys(dag_id: str, run_id: str, task_id: str | None, map_index: int | None) -> frozenset[RunKey]:
    """The keys that the runs of a DAG run's task instances may bear.

    Args:
        dag_id: The DAG.
        run_id: The DAG run.
        task_id: One of its tasks; None for all of them.
        map_index: One of the instances of a mapped task; None for all of them.
    """
    wanted = select(TaskInstance.task_id, TaskInstance.map_index, TaskInstance.max_tries).where(
        TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id
    )
    if task_id is not None:
        wanted = wanted.where(TaskInstance.task_id == task_id)
    if map_index is not None:
        wanted = wanted.where(TaskInstance.map_index == map_index)
    with create_session() as session:
        # A generation is what clears have added to `max_tries`; how many retries were in it, only the task knew. A
        # backfill that has taken over a run of the live stream has one more, and a DAG run that was deleted before may
        # have left any number: what the task has noted tells.
        noted = noted_generations(dag_id, run_id, session)
        return frozenset(
            RunKey(dag_id, run_id, task, index, generation)
            for task, index, max_tries in session.execute(wanted)
            for generation in range(max(max_tries + 2, noted.get((task, index), 0) + 1))
        )


def known_dags() -> frozenset[str]:
    """Every DAG that Airflow knows."""
    with create_session() as session:
        return frozenset(session.scalars(select(DagModel.dag_id)))
