"""`@task.stream`: a task that runs a stream up to where a function says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, _TaskDecorator, determine_kwargs
from airflow.sdk.definitions.context import context_merge
from airflow.sdk.exceptions import AirflowFailException

from sluice_airflow.listeners.drivers_pool import POOL
from sluice_airflow.operators.driver_task import RETRIES
from sluice_airflow.operators.run_stream import RunStreamOperator

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions.xcom_arg import XComArg

_BOUNDS = ("until", "to_version", "max_batches")


class StreamDecoratedOperator(DecoratedOperator, RunStreamOperator):
    """Runs a stream; the decorated function returns its bounds.

    Args:
        python_callable: Returns a dict with any of `until`, `to_version` and `max_batches`, or None for no more bounds
            than the decorator was given.
        op_args: What the function is called with.
        op_kwargs: What the function is called with, by name; the task's context is added.
        kwargs: What `RunStreamOperator` takes.
    """

    template_fields: Sequence[str] = (*DecoratedOperator.template_fields, *RunStreamOperator.template_fields)
    custom_operator_name = "@task.stream"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask the function, then run the stream; see `RunStreamOperator.execute`."""
        context_merge(context, self.op_kwargs)
        given = self.python_callable(*self.op_args, **determine_kwargs(self.python_callable, self.op_args, context))
        self._take(given)
        return RunStreamOperator.execute(self, context)

    def _take(self, given: Any) -> None:
        if given is None:
            return
        if not isinstance(given, Mapping) or not set(given) <= set(_BOUNDS):
            raise AirflowFailException(
                f"the function of task `{self.task_id}` returned {given!r};"
                f" return None, or a dict with any of {', '.join(_BOUNDS)}"
            )
        until = given.get("until", self.until)
        self.until = until.isoformat() if isinstance(until, datetime) else until
        self.to_version = given.get("to_version", self.to_version)
        self.max_batches = given.get("max_batches", self.max_batches)
        self.is_default_bound &= not {"until", "to_version"} & set(given)


class _StreamTask(_TaskDecorator[Any, Any, StreamDecoratedOperator]):
    def _expand(self, *args: Any, **kwargs: Any) -> XComArg:
        expanded: Any = super()._expand(*args, **kwargs)
        # Airflow fills in its own defaults, not the operator's; the scheduler must count with the worker's retries.
        for name, default in (("retries", RETRIES), ("pool", POOL)):
            expanded.operator.partial_kwargs.setdefault(name, default)
        return cast("XComArg", expanded)


def stream_task(
    python_callable: Callable[..., Any] | None = None, *, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Make a task of a function: `@task.stream(stream="departures")`.

    Args:
        python_callable: See `StreamDecoratedOperator`.
        multiple_outputs: As in Airflow's own `@task`.
        kwargs: What `RunStreamOperator` takes.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        outputs: dict[str, Any] = {} if multiple_outputs is None else {"multiple_outputs": multiple_outputs}
        return _StreamTask(function=function, operator_class=StreamDecoratedOperator, kwargs=kwargs, **outputs)

    return cast("TaskDecorator", decorate if python_callable is None else decorate(python_callable))
