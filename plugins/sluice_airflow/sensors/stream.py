"""What the sensors of a stream share: each waits for what its trigger waits for, in a worker or in the triggerer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import StartTriggerArgs

from sluice.errors import SluiceError
from sluice_airflow.arguments import check_task_arguments
from sluice_airflow.deferring import default_deferrable
from sluice_airflow.outcomes import airflow_error
from sluice_airflow.projects import project_for_others
from sluice_airflow.triggers.stream import StreamTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class StreamSensor(BaseSensorOperator):
    """Waits for something about a stream; needs no JVM, and no worker while it waits.

    Whatever passes by itself is waited for: a home that does not exist yet, a disk that is away. What only a person
    can end fails the task for good: a stream that is not declared, a damaged file, one of a newer Sluice.

    Args:
        stream: The stream's name.
        project: The folder of `sluice.toml`; when not given, `$SLUICE_PROJECT`, else the folder above the DAGs.
        deferrable: Wait in the triggerer. Else in a worker, looking every `poke_interval`. When not given, Airflow's
            `[operators] default_deferrable` says, where it is set; else it waits in the triggerer.
        start_from_trigger: Begin in the triggerer, without a worker first; only with `deferrable`.
        kwargs: Passed on to `BaseSensorOperator`; `timeout` holds in all modes.
    """

    template_fields: Sequence[str] = ("stream", "project")
    ui_color = "#d8ecf3"

    def __init__(
        self,
        *,
        stream: str,
        project: str | None = None,
        deferrable: bool | None = None,
        start_from_trigger: bool = False,
        **kwargs: Any,
    ) -> None:
        check_task_arguments(type(self), kwargs)
        super().__init__(**kwargs)
        self.stream = stream
        self.project = project
        self.deferrable = default_deferrable() is not False if deferrable is None else deferrable
        self.start_from_trigger = start_from_trigger and self.deferrable

    @abstractmethod
    def trigger(self) -> StreamTrigger[Any]:
        """The trigger that waits for the same."""

    def execute(self, context: Context) -> Any:
        """Look once, then wait; returns what was seen when the condition was met.

        Raises:
            AirflowFailException: Waiting longer would not help.
            AirflowSensorTimeout: It took longer than `timeout`.
        """
        self.project = project_for_others(self.project)
        if not self.deferrable:
            return super().execute(context)
        met = self.poke(context)
        if isinstance(met, PokeReturnValue):
            return met.xcom_value
        timeout = timedelta(seconds=float(self.timeout))
        return self.defer(trigger=self.trigger(), method_name="execute_complete", timeout=timeout)

    def looked(self, context: Context) -> Any:
        """What is there now, for the trigger's condition."""
        return self.trigger().look()

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Look once.

        Raises:
            AirflowFailException: Waiting would not help.
        """
        try:
            seen = self.looked(context)
            met = self.trigger().met(seen)
        except SluiceError as exc:
            if not exc.retryable:
                raise airflow_error(str(exc), is_retryable=exc.retryable) from exc
            self.log.warning("stream %s can't be looked at now, and is waited for: %s", self.stream, exc)
            return False
        return False if met is None else PokeReturnValue(is_done=True, xcom_value=met)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Take what the trigger saw.

        Raises:
            AirflowFailException: Waiting longer would not have helped.
        """
        if "met" not in event:
            raise AirflowFailException(str(event.get("problem", event)))
        return event["met"]

    def _let_trigger_start(self) -> None:
        """Give the scheduler what it needs to begin in the triggerer; called when every argument is in place."""
        if self.start_from_trigger:
            path, arguments = self.trigger().serialize()
            arguments["project"] = project_for_others(self.project)
            self.start_trigger_args = StartTriggerArgs(
                trigger_cls=path,
                trigger_kwargs=arguments,
                next_method="execute_complete",
                timeout=timedelta(seconds=float(self.timeout)),
            )
