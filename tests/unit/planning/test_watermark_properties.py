"""Whatever arrives on whichever side, and wherever drivers die: every batch runs with the watermark that one query
which never stops would have had, and nothing is withheld that it would have let out.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sluice.errors import BatchFailedError, StorageError
from sluice.planning.planner import Limits
from tests.engine_model import HeldRows
from tests.unit.engine_lab import AppendingSink, KilledError, Lab, TransactionalSink, make_lab

DELAY_MS = 10
faults = st.none() | st.tuples(st.sampled_from(["kill", "error"]), st.integers(0, 30))
points = st.sampled_from([None, None, None, "before the sink", "before the commit", "after the commit"])


class Sides(RuleBasedStateMachine):
    """Rows arrive for two inputs, runs are limited, drained, faulty and tried again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-")
        self.at: dict[int, tuple[str, int]] = {}
        """The side and the event time of every row."""
        self.seconds = 0
        self.drained = False
        """Whether Spark has ever made batches of its own."""

    @initialize(sink=st.sampled_from([TransactionalSink, AppendingSink]), limit=st.sampled_from([None, 1]))
    def declare(self, sink: type, limit: int | None) -> None:
        root = Path(self.folder.name)
        its: dict[str, Any] = {} if limit is None else {"max_files_per_batch": limit}
        self.lab: Lab = make_lab(root, names="ab", sink=sink, operator=HeldRows(DELAY_MS), **its)

    @rule(source=st.sampled_from("ab"), at_ms=st.integers(1, 100), rows=st.integers(0, 2))
    def arrive(self, source: str, at_ms: int, rows: int) -> None:
        self.seconds += 1
        first = self.lab.arrive(self.seconds, f"{self.seconds:04d}.json", source=source, rows=rows, at_ms=at_ms)
        self.at |= dict.fromkeys(range(first, first + rows), (source, at_ms))

    @rule(
        max_batches=st.sampled_from([None, None, 1, 2]),
        strategy=st.sampled_from(["exact", "exact", "drain"]),
        fault=faults,
        dies_at=points,
    )
    def run(
        self,
        max_batches: int | None,
        strategy: Literal["exact", "drain"],
        fault: tuple[Any, int] | None,
        dies_at: str | None,
    ) -> None:
        limits = Limits(strategy="drain") if strategy == "drain" else Limits(max_batches=max_batches)
        if fault is not None:
            self.lab.fault.kind, self.lab.fault.countdown = fault
        self.lab.dies_at = dies_at
        # Also a drained run that dies leaves batches that Spark has made.
        self.drained = self.drained or strategy == "drain"
        try:
            self.lab.run(limits)
        except (KilledError, BatchFailedError, StorageError):
            assert fault is not None or dies_at is not None
            return
        self.check()

    def check(self) -> None:
        """A run that ends well leaves the watermark where a query that never stopped would have it."""
        ran_with, taken = self.batches()
        reached, newest = 0, {"a": 0, "b": 0}
        for watermark_ms, rows in zip(ran_with, taken, strict=True):
            # Within one start of its own making, Spark is on its own: it may trail, and never be ahead.
            assert watermark_ms <= reached if self.drained else watermark_ms == reached
            for row in rows:
                side, at_ms = self.at[row]
                newest[side] = max(newest[side], at_ms)
            reached = max(reached, min(newest.values()) - DELAY_MS)
        assert not ran_with or ran_with[-1] == reached
        if not self.drained:
            assert self.emitted() == self.expected(ran_with, taken)
        assert self.lab.plan(Limits(max_batches=0)).verdict == "skip"

    def batches(self) -> tuple[list[int], list[list[int]]]:
        """The watermark that each batch ran with, and the rows that it read."""
        ran_with, taken, done = [], [], [-1, -1]
        logs = [read_log(self.lab.checkpoint / "sources" / str(number)) for number in range(2)]
        for file in sorted((self.lab.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name)):
            _, metadata, *lines = file.read_text().split("\n")
            ran_with.append(json.loads(metadata)["batchWatermarkMs"])
            ends = [-1 if line == "-" else json.loads(line)["logOffset"] for line in lines]
            rows = []
            for number, end in enumerate(ends):
                files = [path for log_id in range(done[number] + 1, end + 1) for path in logs[number].get(log_id, ())]
                rows += [json.loads(line)["id"] for path in files for line in path.read_text().splitlines()]
            taken.append(rows)
            done = ends
        return ran_with, taken

    def expected(self, ran_with: list[int], taken: list[list[int]]) -> Counter[int]:
        """What comes out of these batches with these watermarks, row by row."""
        held: list[int] = []
        out: Counter[int] = Counter()
        for watermark_ms, rows in zip(ran_with, taken, strict=True):
            held += [row for row in rows if self.at[row][1] >= watermark_ms]
            out.update(row for row in held if self.at[row][1] < watermark_ms)
            held = [row for row in held if self.at[row][1] >= watermark_ms]
        return out

    def emitted(self) -> Counter[int]:
        """The rows in the sink; a batch that ran twice into a sink that appends counts once."""
        batches = {name.split("-")[0]: rows for name, rows in self.lab.sink.batches().items()}
        return Counter(row["id"] for rows in batches.values() for row in rows)

    def teardown(self) -> None:
        """A last run lets out all that is due."""
        with self.folder:
            if hasattr(self, "lab"):
                self.lab.run()
                self.check()


def read_log(folder: Path) -> dict[int, list[Path]]:
    """The files of a source's log, by log id."""
    found: dict[int, dict[Path, None]] = {}
    for file in folder.glob("[0-9]*"):
        for line in file.read_text().splitlines()[1:]:
            entry = json.loads(line)
            found.setdefault(entry["batchId"], {})[Path(entry["path"].removeprefix("file://"))] = None
    return {log_id: list(paths) for log_id, paths in found.items()}


TestSides = Sides.TestCase
