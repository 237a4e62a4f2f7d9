"""Run keys: how the record of a run names the Airflow task that asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol


_BACKFILL = "backfill"


@dataclass(frozen=True)
class RunKey:
    """A task instance of Airflow, and which attempt generation of it."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    """-1 for a task that is not mapped."""
    generation: int
    """Raised by every clear, not by a retry."""

    def __str__(self) -> str:
        return f"{self.dag_id}/{self.run_id}/{self.task_id}/{self.map_index}/{self.generation}"


def run_key(ti: RuntimeTaskInstanceProtocol, retries: int) -> RunKey:
    """The key of what a task instance runs: retries share it, a clear makes another.

    Args:
        ti: The task instance.
        retries: How often its task may be retried.
    """
    # Every clear raises max_tries by the tries used so far, a retry does not: this tells them apart. Where `retries`
    # was edited since, it may say more than there were tries before, or less than none.
    generation = max(0, min(ti.max_tries - retries, ti.try_number - 1))
    return RunKey(ti.dag_id, ti.run_id, ti.task_id, -1 if ti.map_index is None else ti.map_index, generation)


def is_backfill(context: Context) -> bool:
    """Whether a task is of a run of a backfill, which recomputes the rows of its interval."""
    return bool(context["dag_run"].run_type == _BACKFILL)


def parse_run_key(text: str | None) -> RunKey | None:
    """Read the key that `RunStreamOperator` gives to its runs; None for keys that others gave."""
    parts = (text or "").split("/")
    if len(parts) < 5 or not all(parts):
        return None
    # Ids of DAGs and tasks have no slash; those of DAG runs may.
    dag_id, *run_id, task_id, map_index, generation = parts
    try:
        return RunKey(dag_id, "/".join(run_id), task_id, int(map_index), int(generation))
    except ValueError:
        return None
