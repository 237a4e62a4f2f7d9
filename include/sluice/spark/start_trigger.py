"""With which of Spark's triggers a query is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sluice.trigger import LiveTrigger

StartTrigger = Literal["once", "available-now"] | LiveTrigger
"""`once` runs the planned batch and stops; `available-now` stops once all is read; a live one goes on."""
_WORDS = {"processing-time": "processingTime", "continuous": "continuous", "real-time": "realTime"}


def trigger_words(trigger: StartTrigger) -> Mapping[str, bool | str]:
    """What `DataStreamWriter.trigger` takes, which is exactly one keyword."""
    if isinstance(trigger, LiveTrigger):
        return {_WORDS[trigger.kind]: f"{trigger.interval_ms} milliseconds"}
    return {"once": True} if trigger == "once" else {"availableNow": True}
