"""Whatever arrives, whatever bounds and faults there are: every row is in the sink exactly once."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sluice.errors import BatchFailedError, StorageError
from sluice.planning.planner import Limits
from tests.engine_model import GLOB_CHARACTERS, Engine
from tests.unit.engine_lab import EPOCH, AppendingSink, KilledError, Lab, TransactionalSink, make_lab, until

AWKWARD = " aZ9é\u00a0ü%#,~<+=&'()!;@$\n\t\"|^`"
# In microseconds, close around a few whole seconds: Java cuts a file's time to milliseconds, and a bound is exclusive.
times = st.builds(lambda second, off: second * 1_000_000 + off, st.integers(1, 4), st.sampled_from([0, 0, -1, 1000]))
files = st.tuples(times, st.text(AWKWARD, max_size=8), st.sampled_from("ab"), st.integers(1, 3))
"""When each file was modified, what its name has, where it arrives, and how many rows it has."""
glob_names = st.text("*?[]{}\\a", min_size=1, max_size=3).filter(lambda name: GLOB_CHARACTERS & set(name))
faults = st.none() | st.tuples(st.sampled_from(["kill", "error"]), st.integers(0, 25))


class Arrivals(RuleBasedStateMachine):
    """Files arrive, runs are bounded, faulty and tried again, and Spark itself goes on in between."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-")
        self.arrived: dict[int, int] = {}
        """When each row's file was modified, in microseconds of the tests."""
        self.has_globs = False
        self.allowed: set[int] = set()
        """The rows that some run so far was allowed to take."""

    @initialize(
        sink=st.sampled_from([TransactionalSink, AppendingSink]),
        limits=st.sampled_from(
            [{}, {"max_files_per_batch": 1}, {"max_files_per_batch": 3}, {"max_bytes_per_batch": 70}]
        ),
        order=st.sampled_from(["a", "ab", "ba"]),
    )
    def declare(self, sink: type, limits: dict[str, int], order: str) -> None:
        self.lab = make_lab(Path(self.folder.name), names=sorted(order), lines=tuple(order), sink=sink, **limits)

    @rule(files=st.lists(files, min_size=1, max_size=4))
    def arrive(self, files: list[tuple[int, str, str, int]]) -> None:
        for at, name, source, rows in files:
            place = source if source in self.lab.lines else "a"
            first = self.lab.arrive(at / 1_000_000, f"f{name}{self.lab.rows}.json", source=place, rows=rows)
            self.arrived |= dict.fromkeys(range(first, first + rows), at)

    @rule(at=times, name=glob_names)
    def arrive_with_glob_characters(self, at: int, name: str) -> None:
        self.has_globs = True
        self.arrived[self.lab.arrive(at / 1_000_000, f"{self.lab.rows}{name}")] = at

    @rule(
        bound=st.none() | times,
        max_batches=st.sampled_from([None, None, 1, 2]),
        key=st.sampled_from([None, None, "x", "y"]),
        fault=faults,
    )
    def run(self, bound: int | None, max_batches: int | None, key: str | None, fault: tuple[Any, int] | None) -> None:
        earlier = next((found for found in self.lab.records() if key and found["run_key"] == key), None)
        if earlier is not None:
            stop_at = datetime.fromisoformat(earlier["until"] or earlier["planned_at"])
            bound, max_batches = round((stop_at - EPOCH).total_seconds() * 1_000_000), earlier["max_batches"]
        eligible = {row for row, at in self.arrived.items() if bound is None or at // 1000 < bound / 1000}
        is_done = earlier is not None and earlier["status"] == "succeeded"
        self.allowed |= set() if is_done else eligible
        if fault is not None:
            self.lab.fault.kind, self.lab.fault.countdown = fault
        try:
            record = self.lab.run(until(None if bound is None else bound / 1_000_000, max_batches=max_batches), key)
        except (KilledError, BatchFailedError, StorageError):
            assert fault is not None
            return
        assert record.status in {"succeeded", "skipped"}
        if not is_done:
            self.check(eligible if max_batches is None else set())

    @precondition(lambda self: not self.has_globs)
    @rule(trigger=st.sampled_from([Engine.once, Engine.available_now]))
    def run_spark_itself(self, trigger: Callable[[Engine], object]) -> None:
        trigger(self.lab.engine())
        self.allowed |= set(self.arrived)
        self.check(set())

    @precondition(lambda self: not self.has_globs)
    @rule(fault=faults)
    def drain(self, fault: tuple[Any, int] | None) -> None:
        self.allowed |= set(self.arrived)
        if fault is not None:
            self.lab.fault.kind, self.lab.fault.countdown = fault
        try:
            self.lab.run(Limits(strategy="drain"))
        except (KilledError, BatchFailedError, StorageError):
            assert fault is not None
            return
        self.check(set(self.arrived))

    def check(self, needed: set[int]) -> None:
        """The checkpoint is clean, and the sink holds what it must, nothing else, and nothing twice."""
        state = self.lab.state()
        assert state.problems == ()
        assert not state.is_pending
        held = rows_by_batch(self.lab)
        rows = Counter(row for batch in held.values() for row in batch)
        assert [row for row, count in rows.items() if count > 1] == []
        assert needed <= set(rows) <= self.allowed

    def teardown(self) -> None:
        """A last run without a bound takes all that is left, and leaves nothing for Spark to do."""
        with self.folder:
            if hasattr(self, "lab"):
                self.lab.run()
                self.allowed = set(self.arrived)
                self.check(self.allowed)
                assert self.lab.engine().available_now() == []


def rows_by_batch(lab: Lab) -> dict[int, list[int]]:
    """The rows that each batch wrote; a batch that ran twice must have written the same rows twice."""
    held: dict[int, list[int]] = {}
    for name, rows in lab.sink.batches().items():
        batch_id, ids = int(name.split("-")[0]), sorted(row["id"] for row in rows)
        assert held.setdefault(batch_id, ids) == ids
    return held


TestArrivals = Arrivals.TestCase
