"""When Spark begins the batches of a run, as people write it: `once`, `processing-time=10s`, `real-time`.

Two of the words are what a run does anyway. The other three keep a query at work, which does not end by itself: a run
with one of them is told for how long it goes on.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, get_args

import msgspec

from sluice.errors import DeclarationError
from sluice.times import duration_ms

LiveKind = Literal["processing-time", "continuous", "real-time"]
ENDING = ("available-now", "once")
"""The triggers that end by themselves."""
LIVE: tuple[LiveKind, ...] = get_args(LiveKind)
SHORTEST_REAL_TIME_MS = 5000
"""What Spark takes for the least that a batch of the real-time mode may last, unless a setting says otherwise."""
_LONGEST_REAL_TIME_MS = 300_000
"""How long such a batch lasts unless it is told: Spark's own default."""
_MOST = timedelta(days=366)
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_WORD = re.compile(r"[a-z]+|[A-Z][a-z]*")


class LiveTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger that keeps the query at work, and for how long it does."""

    kind: LiveKind
    interval_ms: int
    """How far apart batches begin (`processing-time`), or epochs end (`continuous`), or how long one lasts."""
    run_for_ms: int

    @property
    def word(self) -> str:
        """As people write it, without how long it goes on."""
        return f"{self.kind}={duration(self.interval_ms)}"

    def __str__(self) -> str:
        return f"{self.word} for {duration(self.run_for_ms)}"


StartTrigger = Literal["once", "available-now"] | LiveTrigger
"""`once` runs the planned batch and stops; `available-now` stops once all is read; a live one goes on."""
_SPARK_WORDS = {"processing-time": "processingTime", "continuous": "continuous", "real-time": "realTime"}


def duration(milliseconds: int) -> str:
    """Milliseconds as `duration_ms` reads them, in the largest unit that is exact."""
    name, unit = next(((name, unit) for name, unit in _UNITS if milliseconds % unit == 0), _UNITS[-1])
    return f"{milliseconds // unit}{name}" if milliseconds else "0s"


def parse_live_trigger(text: str, run_for: str | timedelta | None, *, names: tuple[str, str]) -> LiveTrigger | None:
    """Read a trigger; None for one that ends by itself.

    Args:
        text: `available-now`, `once`, `processing-time=10s`, `continuous=1s`, `real-time` or `real-time=5s`.
        run_for: How long a live one goes on; None or an empty text where it is not told.
        names: What the two are called where they were written: `("--trigger", "--for")`.

    Raises:
        DeclarationError: There is no such trigger, an interval or a time is missing, or one of them is wrong.
    """
    trigger, box = names
    kind, given, interval = str(text).partition("=")
    if kind not in {*ENDING, *LIVE}:
        raise _unknown(kind, trigger)
    if kind in ENDING:
        if given:
            raise DeclarationError(f"`{kind}` has no interval", where=trigger, remedy=f"write `{kind}` alone")
        if run_for not in (None, ""):
            live = ", ".join(LIVE)
            raise DeclarationError(
                f"`{kind}` ends by itself, and `{box}` is for the triggers that do not: {live}",
                where=box,
                remedy="leave it out",
            )
        return None
    run_for_ms = _run_for_ms(kind, run_for, box)
    return LiveTrigger(
        kind=next(one for one in LIVE if one == kind),
        interval_ms=_interval_ms(kind, interval, run_for_ms, trigger),
        run_for_ms=run_for_ms,
    )


def trigger_words(trigger: StartTrigger) -> Mapping[str, bool | str]:
    """What Spark's `DataStreamWriter.trigger` takes, which is exactly one keyword."""
    if isinstance(trigger, LiveTrigger):
        return {_SPARK_WORDS[trigger.kind]: f"{trigger.interval_ms} milliseconds"}
    return {"once": True} if trigger == "once" else {"availableNow": True}


def _unknown(kind: str, trigger: str) -> DeclarationError:
    words = "-".join(_WORD.findall(kind.replace("_", "-"))).lower()
    near = difflib.get_close_matches(words, [*ENDING, *LIVE], n=1)
    known = "one of available-now, once, processing-time=10s, continuous=1s, real-time"
    return DeclarationError(
        f"there is no trigger {kind!r}", where=trigger, remedy=f"did you mean `{near[0]}`?" if near else f"name {known}"
    )


def _run_for_ms(kind: str, run_for: str | timedelta | None, box: str) -> int:
    if run_for in (None, ""):
        raise DeclarationError(
            f"a run with the trigger `{kind}` does not end by itself, and nothing says when it does",
            where=box,
            remedy='say how long it goes on, such as "5m"',
        )
    found = run_for // timedelta(milliseconds=1) if isinstance(run_for, timedelta) else duration_ms(run_for, box, box)
    if not 0 < found <= _MOST / timedelta(milliseconds=1):
        raise DeclarationError(
            f"a live run goes on for {run_for}", where=box, remedy=f"give more than 0, and at most {_MOST.days}d"
        )
    return found


def _interval_ms(kind: str, interval: str, run_for_ms: int, trigger: str) -> int:
    if not interval and kind == "real-time":
        return max(SHORTEST_REAL_TIME_MS, min(_LONGEST_REAL_TIME_MS, run_for_ms))
    if not interval:
        raise DeclarationError(
            f"`{kind}` lacks its interval", where=trigger, remedy=f"write it behind it: `{kind}=10s`"
        )
    found = duration_ms(interval, kind, trigger)
    if found == 0 and kind != "processing-time":
        raise DeclarationError(f"the interval of `{kind}` is 0", where=trigger, remedy="give more than 0")
    if found > run_for_ms:
        raise DeclarationError(
            f"the interval of `{kind}` is {interval}, and the run goes on for {duration(run_for_ms)}",
            where=trigger,
            remedy="give a shorter interval, or let the run go on for longer",
        )
    return found
