"""Reads what templates have rendered: one that finds nothing gives an empty text or `None` as a word."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sluice.errors import DeclarationError
from sluice.planning.planner import Limits
from sluice.planning.triggers import triggered
from sluice.sources.contract import Bound
from sluice.times import parse_time

if TYPE_CHECKING:
    from airflow.sdk import Context


def limits_of(
    *,
    until: str | None,
    to_version: str | int | None = None,
    max_batches: str | int | None = None,
    trigger: str | None = None,
    run_for: str | timedelta | None = None,
    is_default_bound: bool = False,
) -> Limits:
    """What an operator's arguments say of how far a run goes.

    Args:
        until: See `RunStreamOperator`, as these are: rendered.
        to_version: See there.
        max_batches: See there.
        trigger: See there.
        run_for: See there.
        is_default_bound: Whether nobody has typed the bound.

    Raises:
        DeclarationError: `until` is no time, or one of the others no whole number; or the trigger is wrong, or does
            not go with them.
    """
    bound = Bound(until=parse_time(until, where="until"), to_version=number("to_version", to_version))
    limits = Limits(bound, number("max_batches", max_batches, least=1), is_default_bound=is_default_bound)
    time = run_for if isinstance(run_for, timedelta) else text(run_for)
    return triggered(limits, text(trigger), time, names=("trigger", "run_for"))


def is_given(context: Context, parameter: str | None) -> bool:
    """Whether who started a DAG run has given its parameter a value.

    Args:
        context: Of a task.
        parameter: The name of the parameter; None for none.
    """
    return parameter is not None and text(context["params"].get(parameter)) is not None


def text(value: str | None) -> str | None:
    """A text; None when there is none."""
    return None if value is None or value in {"", "None"} else value


def number(name: str, value: str | int | None, *, least: int = 0) -> int | None:
    """A whole number; None when there is none.

    Raises:
        DeclarationError: It is something else, or below `least`; the error names the argument.
    """
    found = text(None if value is None else str(value))
    if found is not None and not found.isdecimal():
        raise DeclarationError(f"{found!r} is no whole number", where=name, remedy="give one, or leave it empty")
    if found is not None and int(found) < least:
        raise DeclarationError(f"it is {found}", where=name, remedy=f"give {least} or more, or leave it empty")
    return None if found is None else int(found)
