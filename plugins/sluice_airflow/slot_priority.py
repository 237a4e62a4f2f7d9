"""Which task gets the next slot of a pool: that of a live run, before any of a backfill.

Airflow starts the tasks with the highest weight first, and of equals those with the oldest logical date: that is the
backfill's, and the live stream would stand still until the backfill is nearly done.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.configuration import conf
from airflow.task.priority_strategy import PriorityWeightStrategy, get_airflow_priority_weight_strategies

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance

_BACKFILL = "backfill"
_BEHIND = 1_000_000
"""More than any sum of weights that a person gives to live runs, so that every one of them comes first."""


class LiveFirst(PriorityWeightStrategy):
    """Weighs tasks as Airflow's default does, but those of backfills behind all others.

    A task's own `priority_weight` counts among its like. For anything else, give the task another `weight_rule`.
    """

    def get_weight(self, ti: TaskInstance) -> int:
        """The weight of a task instance; asked when its run is made, and when it is cleared."""
        default = get_airflow_priority_weight_strategies()[conf.get("core", "default_task_weight_rule")]
        weight = default().get_weight(ti)
        return weight - _BEHIND if _is_of_backfill(ti) else weight


def _is_of_backfill(ti: TaskInstance) -> bool:
    # What is loaded, and no more: a task instance that is being made has no run yet, and is in no session.
    run: DagRun | None = ti.__dict__.get("dag_run")
    if run is None:
        return str(ti.run_id or "").startswith(f"{_BACKFILL}__")
    return run.run_type == _BACKFILL or (bool(ti.try_number) and _is_past(run))


def _is_past(run: DagRun) -> bool:
    """Whether a later run is due by now.

    A backfill clears the runs that it takes over, and calls them its own only then. A person may clear such a run, too:
    it is mostly a skip by then, and can wait.
    """
    start, end = run.data_interval_start, run.data_interval_end
    return start is not None and end is not None and end + (end - start) < datetime.now(UTC)
