"""Values that take a while, and those that never come."""

from __future__ import annotations

import time
from threading import Event, active_count
from typing import Any

import pytest

from sluice_airflow.ui.backstage import Backstage

LONG = 30.0
"""Seconds: how long a test waits for what it expects."""


def backstage_of(keep_seconds: float, *, deadline_seconds: float = LONG, threads: int = 4) -> Backstage[Any]:
    """One whose overdue values say so."""
    return Backstage(
        keep_seconds, deadline_seconds=deadline_seconds, overdue=lambda _seconds: "overdue", threads=threads
    )


def test_what_hangs_keeps_nobody_else_waiting() -> None:
    """Ten that hang, in two threads: each is told as overdue, in a thread of its own, and the others are computed."""
    gate = Event()
    backstage = backstage_of(60, deadline_seconds=0.01, threads=2)
    jobs = {f"hangs {number}": lambda: gate.wait(LONG) and "back" for number in range(10)}
    jobs |= {f"fine {number}": lambda: "now" for number in range(5)}
    expected = {name: "overdue" if name.startswith("hangs") else "now" for name in jobs}
    before = active_count()
    try:
        deadline = time.monotonic() + LONG
        while (found := backstage.get(jobs, 0.02)) != expected:
            assert time.monotonic() < deadline, found
        for _ in range(20):
            backstage.get(jobs, 0.01)
        assert active_count() - before <= 10 + 2
    finally:
        gate.set()
    # Whose thread comes back has a value again.
    deadline = time.monotonic() + LONG
    while set(backstage.get(jobs, 0.02).values()) != {"back", "now"}:
        assert time.monotonic() < deadline
    while active_count() > before:
        assert time.monotonic() < deadline


def test_an_earlier_value_is_not_shown_for_ever() -> None:
    """While the new one is in time it is; once that is overdue, it would be shown as if it were of today."""
    gate = Event()
    backstage = backstage_of(0, deadline_seconds=0.2)
    try:
        assert backstage.get({"a": lambda: "old"}, LONG) == {"a": "old"}
        hanging = {"a": lambda: gate.wait(LONG) and "new"}
        assert backstage.get(hanging, 0) == {"a": "old"}
        deadline = time.monotonic() + LONG
        while backstage.get(hanging, 0.05) != {"a": "overdue"}:
            assert time.monotonic() < deadline
    finally:
        gate.set()


def test_what_raises_is_raised_where_it_was_asked_for() -> None:
    """And takes no thread with it."""
    backstage = backstage_of(60, threads=1)

    def end() -> str:
        raise SystemExit("a declaration ends the process")

    with pytest.raises(SystemExit):
        backstage.get({"a": end}, LONG)
    assert backstage.get({"b": lambda: "fine"}, LONG) == {"b": "fine"}


def test_what_takes_long_is_not_waited_for() -> None:
    """A value that is there is given, one that is not is left out, and given later."""
    gate = Event()
    backstage: Backstage[str] = backstage_of(60)
    jobs = {"quick": lambda: "now", "slow": lambda: "later" if gate.wait(30) else "never"}
    try:
        assert backstage.get({"quick": jobs["quick"]}, 30) == {"quick": "now"}
        assert backstage.get(jobs, 0) == {"quick": "now"}
    finally:
        gate.set()
    assert backstage.get(jobs, 30) == {"quick": "now", "slow": "later"}


def test_a_value_is_kept_for_a_while() -> None:
    """It is computed once while it is fresh, and again when it is asked for later."""
    numbers = iter(range(100))
    fresh: Backstage[int] = backstage_of(60)
    stale: Backstage[int] = backstage_of(0)

    assert [fresh.get({"a": lambda: next(numbers)}, 30) for _ in range(3)] == [{"a": 0}] * 3
    assert [stale.get({"a": lambda: next(numbers)}, 30)["a"] for _ in range(3)] == [1, 2, 3]


def test_the_former_value_is_shown_meanwhile() -> None:
    """While a new one is computed, the old one is better than none."""
    gate = Event()
    backstage: Backstage[str] = backstage_of(0)
    try:
        assert backstage.get({"a": lambda: "old"}, 30) == {"a": "old"}
        assert backstage.get({"a": lambda: "new" if gate.wait(30) else ""}, 0) == {"a": "old"}
    finally:
        gate.set()
