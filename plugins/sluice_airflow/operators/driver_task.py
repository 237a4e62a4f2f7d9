"""What tasks have in common that follow a driver which outlives their worker."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from airflow.configuration import conf
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from sluice.runs.driver import Driver
from sluice.spark.shown_log import shown_lines
from sluice_airflow.deferring import default_deferrable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice.spark.query_words import QueryWords
    from sluice_airflow.triggers.following import FollowingTrigger

_MOST_LOG_BYTES = 1024 * 1024
_STAY_SECONDS = 30.0
"""How long a task stays with its driver before it leaves its worker. A small run is over by then; to come back costs
a scheduling gap, and the time that Airflow needs to hear that the worker has left."""
_POLL_SECONDS = 0.1
"""How often a task that stays with its driver looks whether the run is over."""
RETRIES = max(2, conf.getint("core", "default_task_retries", fallback=0))
"""A lost worker leads back to its run by a retry only, and Airflow's own default is none."""
LIVE_FIRST = "sluice_airflow.slot_priority.LiveFirst"
_LOG_SHOWN = "driver_log_shown"
"""Where Airflow keeps for the next try which driver's log is in the task's log."""
_EXECUTORS_THAT_END_DRIVERS = ("Kubernetes", "Ecs", "Batch", "Lambda")
"""What runs each task in a container of its own, by parts of their names."""


class DriverTask(BaseOperator):
    """A task with a driver: stays with it for some seconds, then leaves its worker, unless it must stay."""

    deferrable: bool | None
    _is_killed = False

    def check_alive(self) -> None:
        """Begin nothing more after a kill: Airflow tells of that, and lets the task go on for some seconds.

        Raises:
            AirflowException: The task was killed.
        """
        if self._is_killed:
            raise AirflowException("the task was killed")

    @property
    def stays(self) -> bool:
        """Whether the task keeps its worker while it waits."""
        return not (self.deferrable or (self.deferrable is None and not self._ends_with_its_driver()))

    def follow(self, trigger: FollowingTrigger) -> None:
        """Wait until a driver is over: here for a while, then away from the worker, to come back by `resume`."""
        if not asyncio.run(_follow_for(trigger, None if self.stays else _STAY_SECONDS)):
            self.defer(trigger=trigger, method_name="resume")

    def ends_at(self, context: Context) -> str | None:
        """When `execution_timeout` is over; Airflow itself does not heed it while a task is deferred."""
        started = context["ti"].start_date
        if self.execution_timeout is None or started is None:
            return None
        return (started + self.execution_timeout).isoformat()

    def show_log(self, context: Context, driver: Driver, words: QueryWords) -> None:
        """Show what a driver said, and note that it is shown.

        Args:
            context: The task's.
            driver: The driver.
            words: What is known of the words of its queries.
        """
        try:
            with open(driver.log, "rb") as file:
                length = file.seek(0, os.SEEK_END)
                file.seek(max(driver.log_start, length - _MOST_LOG_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            self.log.info("the driver's log is on another machine: %s", driver.log)
            return
        self.log.info("::group::Driver log (%s)", driver.log)
        for line in shown_lines(lines, words):
            self.log.info("%s", line)
        self.log.info("::endgroup::")
        context["task_state_store"].set(_LOG_SHOWN, _name_of(driver))

    def has_shown(self, context: Context, driver: Driver) -> bool:
        """Whether a try of this task has shown what a driver said."""
        return bool(context["task_state_store"].get(_LOG_SHOWN) == _name_of(driver))

    def _ends_with_its_driver(self) -> bool:
        executor = self.executor or conf.get("core", "executor").partition(",")[0]
        return any(part in executor for part in _EXECUTORS_THAT_END_DRIVERS)


def wanted_deferrable(*, given: bool | None) -> bool | None:
    """Whether a task is to be deferred: None where only its executor tells."""
    # Where it is set to true, a driver that would end with its task still keeps the task with it.
    return False if given is None and default_deferrable() is False else given


def _name_of(driver: Driver) -> str:
    """Tells a driver from those of other tries."""
    return f"{driver.run_id} {driver.submitted_at.isoformat()}"


async def _follow_for(trigger: FollowingTrigger, seconds: float | None) -> bool:
    """Follow a driver; says whether it was over in time."""
    try:
        await asyncio.wait_for(trigger.follow(poll_seconds=_POLL_SECONDS), seconds)
    except TimeoutError:
        return False
    return True
