"""Ends the driver of a task that a person has marked, or whose DAG run one has.

Airflow tells a worker of it at the next heartbeat, and a trigger once that is at work. When the task has just been
deferred, there is neither, and its driver would go on. The api-server, which takes the mark, calls this at once.
Nothing in here fails the mark, and nothing holds it for long.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl

from sluice_airflow.listeners.failing_alone import failing_alone

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 5.0


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """A task has succeeded, or a person says so."""
    _end_driver(previous_state, task_instance)


@hookimpl
def on_task_instance_skipped(previous_state: Any, task_instance: Any) -> None:
    """A task was skipped, or a person says so."""
    _end_driver(previous_state, task_instance)


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any) -> None:
    """A task has failed, or a person says so."""
    _end_driver(previous_state, task_instance)


def _end_driver(previous_state: Any, task_instance: Any) -> None:
    # Airflow knows the state before only where the task itself, or the scheduler, has come to its end: after a lost
    # worker the driver goes on for the next try.
    if previous_state is not None:
        return
    with failing_alone(logger, "the driver of a task that was marked could not be asked to end"):
        from sluice_airflow.noted_runs import BY_AIRFLOW, noted_runs
        from sluice_airflow.time_limit import look_within

        noted = noted_runs(task_instance)
        if noted is not None:
            look_within(_PATIENCE_SECONDS, lambda: noted.end(f"{BY_AIRFLOW} the task was marked"))
