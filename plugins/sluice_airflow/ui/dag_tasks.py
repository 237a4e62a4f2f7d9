"""Which DAGs run which streams, as Airflow's database knows it: no DAG file is parsed for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import func, select

_OPERATOR = "RunStreamOperator"


@dataclass(frozen=True)
class StreamTask:
    """A task that runs a stream."""

    dag_id: str
    task_id: str
    stream: str


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
    """The tasks that run streams, in a serialized DAG; a stream that only a template names is left out."""
    dag = (document or {}).get("dag")
    tasks = dag.get("tasks") if isinstance(dag, Mapping) else None
    for wrapped in tasks if isinstance(tasks, list) else []:
        task = wrapped.get("__var", wrapped) if isinstance(wrapped, Mapping) else {}
        kind, task_id = task.get("task_type") or task.get("_task_type"), task.get("task_id")
        stream = task.get("stream") or (task.get("partial_kwargs") or {}).get("stream")
        if kind == _OPERATOR and isinstance(task_id, str) and isinstance(stream, str) and "{{" not in stream:
            yield StreamTask(dag_id, task_id, stream)


def known_dags() -> frozenset[str]:
    """Every DAG that Airflow knows."""
    with create_session() as session:
        return frozenset(session.scalars(select(DagModel.dag_id)))
