"""Pictures as numbers: where the bars and lines of a chart are, in units of its own. Templates draw them as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

PHASES = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "commitBatch")
"""Spark's phases of a batch, in the order in which they happen."""
_WHOLE = "triggerExecution"
OTHER = "other"


@dataclass(frozen=True)
class Bar:
    """A rectangle; `label` tells what it is."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    label: str


@dataclass(frozen=True)
class Chart:
    """Bars, and perhaps a line over them."""

    width: int
    height: int
    bars: tuple[Bar, ...]
    line: str = ""
    """The points of a line, as SVG writes them."""
    top: str = ""
    """What the upper edge stands for."""
    first: str = ""
    last: str = ""
    summary: str = ""
    """The picture in words, for those who can't see it."""


@dataclass(frozen=True)
class Value:
    """One value of a chart; None for unknown."""

    amount: float | None
    tone: str
    label: str


@dataclass(frozen=True)
class Band:
    """How one batch spent its time."""

    name: str
    bars: tuple[Bar, ...]
    total: str


@dataclass(frozen=True)
class Share:
    """How much of a run's time went into one phase."""

    tone: str
    name: str
    seconds: float
    percent: float


@dataclass(frozen=True)
class Phases:
    """Where the time of a run's batches went."""

    bands: tuple[Band, ...]
    shares: tuple[Share, ...]
    width: int


def sparkline(values: Sequence[Value], *, slots: int = 20) -> Chart:
    """One thin bar per value, newest on the right; heights by square root, so that small ones stay visible."""
    width, height, pitch = slots * 6, 24, 6
    shown = list(values)[-slots:]
    largest = max((value.amount or 0 for value in shown), default=0)
    bars = []
    for index, value in enumerate(shown):
        tall = 3 + (height - 3) * sqrt(max(0.0, value.amount or 0) / largest) if largest > 0 else 3.0
        x = width - (len(shown) - index) * pitch
        bars.append(Bar(x, round(height - tall, 2), pitch - 2, round(tall, 2), value.tone, value.label))
    return Chart(width, height, tuple(bars))


def bar_chart(values: Sequence[Value], *, top: str, first: str = "", last: str = "", summary: str = "") -> Chart:
    """One bar per value over the whole width."""
    width, height = 480, 96
    largest = max((value.amount or 0 for value in values), default=0)
    pitch = min(width / max(1, len(values)), 28.0)
    gap = min(2.0, pitch / 4)
    bars = []
    for index, value in enumerate(values):
        amount = max(0.0, value.amount or 0)
        tall = max(1.5, height * amount / largest) if largest > 0 and amount > 0 else 1.0
        x = round(index * pitch, 2)
        tone = value.tone if value.amount is not None else "unknown"
        bars.append(Bar(x, round(height - tall, 2), round(pitch - gap, 2), round(tall, 2), tone, value.label))
    return Chart(width, height, tuple(bars), top=top, first=first, last=last, summary=summary)


def line_chart(values: Sequence[Value], *, top: str, first: str = "", last: str = "", summary: str = "") -> Chart:
    """A line through the known values, each with a slim invisible bar that tells what it is."""
    width, height, room = 480, 96, 4
    largest = max((value.amount or 0 for value in values), default=0)
    pitch = width / max(1, len(values))
    points, bars = [], []
    for index, value in enumerate(values):
        bars.append(Bar(round(index * pitch, 2), 0, round(pitch, 2), height, "bare", value.label))
        if value.amount is not None:
            level = max(0.0, value.amount) / largest if largest > 0 else 0.0
            points.append(f"{index * pitch + pitch / 2:.1f},{height - room - (height - 2 * room) * level:.1f}")
    if len(points) == 1:
        # A line of one point is invisible.
        points = [f"0,{points[0].partition(',')[2]}", f"{width},{points[0].partition(',')[2]}"]
    return Chart(width, height, tuple(bars), " ".join(points), top, first, last, summary)


def phases(batches: Sequence[tuple[str, Mapping[str, int]]]) -> Phases:
    """Where the time of batches went, phase by phase.

    Args:
        batches: Each batch's name and Spark's `durationMs`: milliseconds by phase, and the whole.
    """
    width = 640
    spent = [(name, _spent(duration_ms)) for name, duration_ms in batches]
    longest = max((sum(parts.values()) for _, parts in spent), default=0) or 1
    bands = []
    for name, parts in spent:
        x, bars = 0.0, []
        for phase, milliseconds in parts.items():
            wide = width * milliseconds / longest
            if wide > 0:
                bars.append(Bar(round(x, 2), 0, round(wide, 2), 14, phase, f"{phase} {milliseconds:,} ms"))
            x += wide
        bands.append(Band(name, tuple(bars), f"{sum(parts.values()) / 1000:,.1f} s"))
    whole = sum(sum(parts.values()) for _, parts in spent) or 1
    sums = {phase: sum(parts.get(phase, 0) for _, parts in spent) for phase in (*PHASES, OTHER)}
    shares = [Share(phase, phase, ms / 1000, 100 * ms / whole) for phase, ms in sums.items() if ms > 0]
    return Phases(tuple(bands), tuple(sorted(shares, key=lambda share: -share.seconds)), width)


def _spent(duration_ms: Mapping[str, int]) -> dict[str, int]:
    parts = {phase: max(0, duration_ms.get(phase, 0)) for phase in PHASES}
    parts[OTHER] = max(0, duration_ms.get(_WHOLE, 0) - sum(parts.values()))
    return parts
