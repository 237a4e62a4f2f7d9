"""Triggers as limits of a run: two are what a run does anyway, the others keep its query at work for a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sluice.errors import DeclarationError
from sluice.planning.planner import Limits
from sluice.trigger import parse_live_trigger


def triggered(
    limits: Limits, trigger: str | None, run_for: str | timedelta | None, *, names: tuple[str, str]
) -> Limits:
    """The limits of a run with a trigger; without one, as they are.

    `available-now` is a run that Spark drains, `once` one of a single planned batch, and the others are live.

    Args:
        limits: What else was asked for.
        trigger: As people write it; None or an empty text for none.
        run_for: How long a live run goes on; None or an empty text where it is not told.
        names: What the two are called where they were written.

    Raises:
        DeclarationError: The trigger is wrong, or does not go with the rest.
    """
    if not trigger:
        if run_for not in (None, ""):
            raise DeclarationError(
                f"`{names[1]}` is given without a trigger", where=names[1], remedy=f"add `{names[0]}`, or leave it out"
            )
        return limits
    live = parse_live_trigger(trigger, run_for, names=names)
    if limits.strategy is not None:
        raise DeclarationError(
            f"both a trigger, {trigger!r}, and a strategy, {limits.strategy!r}, are given",
            where=names[0],
            remedy="leave one of them out: a trigger says who decides the batches",
        )
    if live is not None:
        return replace(limits, strategy="live", trigger=live)
    if trigger == "available-now":
        return replace(limits, strategy="drain")
    if limits.max_batches is not None:
        raise DeclarationError(
            "`once` is a run of one batch, and `max_batches` is given, too",
            where=names[0],
            remedy="leave one of them out",
        )
    return replace(limits, max_batches=1)
