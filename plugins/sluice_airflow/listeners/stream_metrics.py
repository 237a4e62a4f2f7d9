"""Sends metrics of a stream, through Airflow's own, when a task that ran it is over.

Airflow calls this in the worker, after the task's outcome is decided. Nothing in here fails the task, and nothing holds
it for long. Whoever has no metrics configured pays nothing.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl

from sluice_airflow.listeners.failing_alone import failing_alone

logger = logging.getLogger(__name__)

_OPERATOR = "sluice_airflow.operators.run_stream"
_TOGETHER = "sluice_airflow.operators.run_together"


@hookimpl
def on_task_instance_success(task_instance: Any) -> None:
    """The task has succeeded."""
    _send(task_instance, "succeeded")


@hookimpl
def on_task_instance_skipped(task_instance: Any) -> None:
    """The task has skipped itself: there was nothing to do."""
    _send(task_instance, "skipped")


@hookimpl
def on_task_instance_failed(task_instance: Any) -> None:
    """The task has failed, for good or until its next try."""
    # No enum of Airflow's: its values are texts, and this module is loaded in every process.
    _send(task_instance, "retried" if task_instance.state == "up_for_retry" else "failed")


def _send(task_instance: Any, outcome: str) -> None:
    with failing_alone(logger, "metrics of a stream could not be sent"):
        task = getattr(task_instance, "task", None)
        # A task that a person marks in the UI comes from the database, without its operator: it measured nothing.
        modules = {kind.__module__ for kind in type(task).__mro__}
        if _OPERATOR in modules:
            from sluice_airflow.run_metrics import send_metrics

            send_metrics(task_instance, outcome)
        if _TOGETHER in modules and outcome == "succeeded":
            from sluice_airflow.run_metrics import send_idle_metrics

            send_idle_metrics(task_instance)
