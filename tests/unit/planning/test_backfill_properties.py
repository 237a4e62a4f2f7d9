"""Random interleavings of live commits, compactions and backfills: every row is there exactly once, at every step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice import sinks
from sluice.checkpoint.source_log import LogEntry
from sluice.home import Generation, SourceLine, StreamHome
from sluice.interval import Interval
from sluice.planning.backfill import BackfillPlan, build_backfill_plan, survey_backfill
from sluice.sinks.replaceable import Replacement
from sluice.storage import Storage
from tests.builders import (
    NOW_MS,
    commit_bytes,
    make_entry,
    make_files_source,
    make_source_log,
    make_stream,
    offsets_bytes,
    put,
)
from tests.lake import QUERY, Interrupted, append, day, held, publish, wanted, write_aside

LAST_DAY = 3
STEP = st.sampled_from(["live", "late", "part", "compact", "look", "aside", "publish", "raced", "retry"])


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(st.tuples(STEP, st.integers(0, 2), st.integers(1, LAST_DAY)), min_size=4, max_size=14))
def test_any_interleaving(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]) -> None:
    """Live commits, compactions and three backfills, which may die and be retried after every step: each row is once.

    The live stream may stand between its offsets, the sink and its commit, when a backfill looks what belongs together.
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
        self.table = table / "lake"
        self._live = _Live(table)
        self.arrived = [(number, n) for n in (1, 2) for number in range(1, LAST_DAY + 1)]
        self.negated: set[tuple[int, int]] = set()
        self._runs = 0
        self._under_way: dict[int, tuple[Replacement, list[tuple[int, int]]]] = {}
        # Two files a day: a compaction has something to do from the beginning.
        for rows in (self.arrived[:LAST_DAY], self.arrived[LAST_DAY:]):
            self._live.plan(rows)
            self._live.finish()

    def take(self, step: str, who: int, first: int) -> None:
        if step in {"live", "late"}:
            self.arrived += self._live.finish()
            self._live.plan(self._next(first, is_late=step == "late"))
            self.arrived += self._live.finish()
        elif step == "part":
            if self._live.is_done:
                self._live.plan(self._next(first, is_late=False))
            else:
                self.arrived += self._live.go_on()
        elif step == "compact":
            DeltaTable(str(self.table)).optimize.compact()
        else:
            if step == "look" or who not in self._under_way:
                self._look(who, first, first + who)
            self._go_on(step, who)

    def _next(self, first: int, *, is_late: bool) -> list[tuple[int, int]]:
        batch = len(self._live.batches)
        return [(first, 100 * batch), (1 if is_late else LAST_DAY, 100 * batch + 1)]

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
        """Let the plan fix a version of the table, and what belongs to it of what the live stream reads."""
        self._runs += 1
        last = min(last, LAST_DAY)
        plan = self._live.look(Interval(day(first), day(last + 1)))
        assert plan.version is not None
        assert plan.batch_id is not None
        assert plan.slices["visits"].amount["files"] == plan.batch_id + 1
        mine = wanted(first, last, plan.version, application=f"run-{self._runs}")
        read = [row for rows in self._live.batches[: plan.batch_id + 1] for row in rows]
        self._under_way[who] = (mine, [row for row in read if first <= row[0] <= last])

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


class _Live:
    """The live stream: a file for each batch, in its checkpoint and in the table, written one after the other."""

    def __init__(self, root: Path) -> None:
        self.batches: list[list[tuple[int, int]]] = []
        self._root, self._checkpoint = root, root / "home" / "generations" / "0001"
        self._entries: list[LogEntry] = []
        self._done = {"sink": 0, "commits": 0}
        self._home = StreamHome(str(root / "home"), Storage())
        put(self._checkpoint / "metadata", f'{{"id":"{QUERY}"}}')
        lines = (SourceLine("visits", "0"),)
        self._home.keep_generation(
            Generation(generation=1, query_id=QUERY, created_at="2026-01-01", lines=lines, declared=("visits",))
        )

    @property
    def is_done(self) -> bool:
        return self._done["commits"] == len(self.batches)

    def plan(self, rows: list[tuple[int, int]]) -> None:
        """Write the offsets of a batch."""
        batch = len(self.batches)
        self.batches.append(rows)
        file = put(self._root / "landing" / f"{batch}.json", mtime_ms=NOW_MS + batch)
        self._entries.append(make_entry(file, batch))
        make_source_log(self._checkpoint / "sources" / "0", self._entries)
        put(self._checkpoint / "offsets" / str(batch), offsets_bytes(f'{{"logOffset":{batch}}}'))

    def go_on(self) -> list[tuple[int, int]]:
        """Write the batch under way to the sink, or its commit after that; gives the rows that came to the sink."""
        batch = self._done["commits"]
        if self._done["sink"] > batch:
            put(self._checkpoint / "commits" / str(batch), commit_bytes())
            self._done["commits"] += 1
            return []
        append(self._root / "lake", self.batches[batch], batch)
        self._done["sink"] += 1
        return self.batches[batch]

    def finish(self) -> list[tuple[int, int]]:
        rows = []
        while not self.is_done:
            rows += self.go_on()
        return rows

    def look(self, interval: Interval) -> BackfillPlan:
        stream = make_stream(
            sources={"visits": make_files_source(self._root / "landing")},
            sink=sinks.delta(str(self._root / "lake"), partition_by=["day"]),
            interval_column="day",
        )
        return build_backfill_plan(survey_backfill(stream, self._home, interval, {}))
