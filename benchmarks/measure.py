"""Measuring: whole processes with everything they start, in turn, and medians of at least five."""

from __future__ import annotations

import ctypes
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

ROUNDS = 5
SCRIPTS = Path(sys.executable).parent
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Cost:
    """What one run took."""

    wall_seconds: float
    cpu_seconds: float
    """User and system time of the process and everything that it started, Spark's JVMs included."""


@dataclass(frozen=True)
class Figure:
    """One figure with its bar."""

    name: str
    value: float
    bar: float | None
    spread: tuple[float, float]
    """Smallest and largest of the rounds."""
    detail: str

    @property
    def verdict(self) -> str:
        """Whether the bar is met."""
        return "" if self.bar is None else ("met" if self.value <= self.bar else "missed")

    def as_json(self) -> dict[str, object]:
        """The figure, for the file of results."""
        return asdict(self) | {"verdict": self.verdict}


def run(command: Sequence[str], *, cwd: Path) -> Cost:
    """Run a command of this environment to its end, and wait for everything that it leaves behind.

    Raises:
        RuntimeError: It failed; the message has the end of its output.
    """
    # A JVM outlives the Python that started it by a moment: adopted here, its time is counted too.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    environment = os.environ | {"PATH": f"{SCRIPTS}:{os.environ['PATH']}"}  # spark-submit asks `python3` for pyspark
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(list(command), cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {(done.stderr + done.stdout)[-2000:]}")
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def timed(action: Callable[[], object]) -> float:
    """How long an action takes, in seconds."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def alternately(
    ours: Callable[[int], object], theirs: Callable[[int], object], *, warming: int, rounds: int = ROUNDS
) -> tuple[list[float], list[float]]:
    """How long two sides take, in seconds, in the rounds that follow so many to warm up; each is told the round.

    In turn first and second: what one side leaves to be collected, the other would pay for.
    """
    seconds: dict[Callable[[int], object], list[float]] = {ours: [], theirs: []}
    for number in range(warming + rounds):
        for side in (ours, theirs) if number % 2 else (theirs, ours):
            seconds[side].append(timed(partial(side, number)))
    return seconds[ours][warming:], seconds[theirs][warming:]


def ratio(name: str, ours: Sequence[float], theirs: Sequence[float], bar: float | None, unit: str) -> Figure:
    """The ratio of two series that were measured in turn: the median of the pairs' ratios."""
    pairs = [a / b for a, b in zip(ours, theirs, strict=True)]
    detail = f"{statistics.median(ours):.3g} {unit} against {statistics.median(theirs):.3g} {unit}, {len(pairs)} pairs"
    return Figure(name, statistics.median(pairs), bar, (min(pairs), max(pairs)), detail)


def added(name: str, ours: Sequence[float], theirs: Sequence[float], bar: float | None, told: str) -> Figure:
    """The ratio of two series of added seconds: of the medians, for differences of single rounds are mostly noise."""
    value = statistics.median(ours) / statistics.median(theirs)
    pairs = [a / b for a, b in zip(ours, theirs, strict=True)]
    detail = f"{statistics.median(ours):.3g} s against {statistics.median(theirs):.3g} s added, {len(pairs)} rounds"
    return Figure(name, value, bar, (min(pairs), max(pairs)), f"{detail}; {told}; load {os.getloadavg()[0]:.1f}")
