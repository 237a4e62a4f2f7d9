"""A Delta table grows, runs are bounded and faulty: every row of its versions is in the sink exactly once."""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice import sources
from sluice.errors import BatchFailedError, StorageError
from sluice.planning.planner import Limits
from sluice.sources.contract import Bound
from tests.unit.engine_lab import EPOCH, EVERYTHING, KilledError, Lab, make_stream, until

versions = st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(1, 3), min_size=1, max_size=3)), max_size=2)
"""Commits in turn: their time in seconds, and how many rows each of their files has."""
faults = st.tuples(st.sampled_from(["kill", "error"]), st.integers(0, 40))
stages = st.lists(
    st.tuples(versions, st.sampled_from(["none", "time", "version"]), st.integers(0, 9), st.none() | faults),
    min_size=1,
    max_size=4,
)
options = st.fixed_dictionaries(
    {},
    optional={
        "max_files_per_batch": st.integers(1, 3),
        "max_offsets_per_batch": st.integers(1, 2),
        "starting_version": st.just(0),
    },
)


@given(stages=stages, options=options)
@settings(max_examples=settings.default.max_examples // 2)
def test_every_row_of_a_growing_table_arrives_once(
    stages: list[tuple[Any, str, int, Any]], options: dict[str, int]
) -> None:
    """After each run the sink holds the versions below every bound so far, and in the end all of them."""
    with tempfile.TemporaryDirectory() as folder:
        table = Table(Path(folder, "table"))
        declared = {"table": sources.delta(str(table.path), **options)}
        lab = Lab(Path(folder), make_stream(Path(folder), declared))
        table.commit(0, [1])
        planned = 0
        for commits, kind, at, fault in stages:
            for seconds, files in commits:
                table.commit(seconds, files)
            limits, planned = table.bound(kind, at, planned)
            if fault is not None:
                lab.fault.kind, lab.fault.countdown = fault
                with contextlib.suppress(KilledError, StorageError, BatchFailedError):
                    lab.run(limits)
            lab.run(limits)
            assert lab.sink.ids() == table.rows(planned)
        lab.run()
        assert lab.sink.ids() == table.rows(len(table.times))
        assert lab.engine().available_now() == []


def test_the_rest_of_a_snapshot_keeps_the_bound(tmp_path: Path) -> None:
    """A first run that stopped within the snapshot is not continued by a run that ends before the snapshot's time."""
    table = Table(tmp_path / "table")
    table.commit(5, [1, 1, 1])
    lab = Lab(tmp_path, make_stream(tmp_path, {"table": sources.delta(str(table.path), max_files_per_batch=1)}))
    lab.run(Limits(max_batches=1))
    assert lab.run(until(5)).status == "skipped"
    lab.run(until(6))
    assert lab.sink.ids() == table.rows(1)


class Table:
    """A Delta table that is appended to, with commit times of the test's own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.times: list[int] = []
        self.ids: list[list[int]] = []
        """The rows of each version."""

    def commit(self, seconds: int, files: list[int]) -> None:
        """Append one version of these files; the log says that it was made at `seconds`."""
        first = sum(map(len, self.ids))
        parts = [part for part, rows in enumerate(files) for _ in range(rows)]
        made = list(range(first, first + len(parts)))
        data = pa.table({"id": made, "part": parts})
        write_deltalake(self.path, data, mode="append", partition_by=["part"])
        log = self.path / "_delta_log" / f"{len(self.times):020d}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = int((EPOCH.timestamp() + seconds) * 1000)
        log.write_text("\n".join(map(json.dumps, actions)))
        self.times.append(seconds)
        self.ids.append(made)

    def bound(self, kind: str, at: int, planned: int) -> tuple[Limits, int]:
        """Limits, and how many versions are read up to them when `planned` were read before."""
        if kind == "version":
            version = at % len(self.times)
            return Limits(Bound(to_version=version)), max(planned, version + 1)
        if kind == "time":
            running = itertools.accumulate(self.times[planned:], max)
            return until(at), planned + len(list(itertools.takewhile(lambda seconds: seconds < at, running)))
        return EVERYTHING, len(self.times)

    def rows(self, count: int) -> Counter[int]:
        return Counter(row for made in self.ids[:count] for row in made)
