"""Random interleavings of live commits, compactions and backfills: every row is there exactly once, at every step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.stream import Replacement
from tests.lake import Interrupted, append, held, publish, wanted, write_aside

LAST_DAY = 3
STEP = st.sampled_from(["live", "late", "compact", "look", "aside", "publish", "raced", "retry"])


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(st.tuples(STEP, st.integers(0, 2), st.integers(1, LAST_DAY)), min_size=4, max_size=14))
def test_any_interleaving(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]) -> None:
    """Live commits, compactions and three backfills, which may die and be retried after every step: each row is once.

    A row comes as it is, and a backfill negates it: so it shows which rows the newest backfill has seen.
    """
    lake = _Lake(tmp_path_factory.mktemp("lake"))
    for step, who, first in steps:
        lake.take(step, who, first)
        assert held(lake.table) == Counter(
            (found, -n if (found, n) in lake.negated else n) for found, n in lake.arrived
        )


class _Lake:
    """A table, its live stream, and the backfills under way."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.arrived = [(number, n) for n in (1, 2) for number in range(1, LAST_DAY + 1)]
        self.negated: set[tuple[int, int]] = set()
        self._batch, self._runs = 1, 0
        self._under_way: dict[int, tuple[Replacement, list[tuple[int, int]]]] = {}
        # Two files a day: a compaction has something to do from the beginning.
        append(table, self.arrived[:LAST_DAY], 0)
        append(table, self.arrived[LAST_DAY:], 1)

    def take(self, step: str, who: int, first: int) -> None:
        if step in {"live", "late"}:
            self._batch += 1
            rows = [(first, 100 * self._batch), (LAST_DAY if step == "live" else 1, 100 * self._batch + 1)]
            append(self.table, rows, self._batch)
            self.arrived += rows
        elif step == "compact":
            DeltaTable(str(self.table)).optimize.compact()
        else:
            if step == "look" or who not in self._under_way:
                self._look(who, first, first + who)
            self._go_on(step, who)

    def _go_on(self, step: str, who: int) -> None:
        mine, _ = self._under_way[who]
        if step == "aside":
            self._aside(who)
        elif step == "retry":
            self._begin_again(who)
        elif step in {"publish", "raced"}:
            compact = DeltaTable(str(self.table)).optimize.compact
            self._aside(who)
            done = publish(self.table, mine, Interrupted(compact) if step == "raced" else None)
            if done is None or done.conflict is not None:
                self._begin_again(who)
            else:
                self._note(who)

    def _look(self, who: int, first: int, last: int) -> None:
        """Fix a version of the table, and what belongs to it of what arrived."""
        self._runs += 1
        version = DeltaTable(str(self.table)).version()
        mine = wanted(first, min(last, LAST_DAY), version, application=f"run-{self._runs}")
        self._under_way[who] = (mine, [row for row in self.arrived if first <= row[0] <= last])

    def _aside(self, who: int) -> None:
        mine, taken = self._under_way[who]
        if not (self.table / f"{mine.application}-0").exists():
            write_aside(self.table, mine, [(found, -n) for found, n in taken])

    def _begin_again(self, who: int) -> None:
        interval = self._under_way[who][0].interval
        self._look(who, interval.start.day, interval.end.day - 1)
        self._aside(who)
        done = publish(self.table, self._under_way[who][0])
        assert done is not None
        assert done.conflict is None
        self._note(who)

    def _note(self, who: int) -> None:
        self.negated |= set(self._under_way.pop(who)[1])
