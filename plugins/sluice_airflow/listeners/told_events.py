"""Keeps in the home which runs the events of a task have told of, once it has succeeded.

Airflow calls this in the worker, after it was told of the outcome. Nothing in here fails the task: what is not kept is
told of once more.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl

from sluice_airflow.listeners.failing_alone import failing_alone

logger = logging.getLogger(__name__)


@hookimpl
def on_task_instance_success(task_instance: Any) -> None:
    """The task has succeeded; one that a person marks comes from the database, and has told of nothing."""
    telling = getattr(getattr(task_instance, "task", None), "telling", None)
    if telling is not None:
        with failing_alone(logger, "what the events of a task have told of could not be kept"):
            telling.keep()
