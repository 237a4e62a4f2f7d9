"""Whole histories of live, planned and drained runs, with kills in the midst: no row is lost, none is there twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.planning.planner import Limits
from sluice.spark.left_behind import forget_tables
from tests.campaign import CAMPAIGN
from tests.spark.lab import NO_LIMITS, Lab, append_outside, log_files, write_numbers
from tests.spark.power_cuts import Cut, Moment, let_leases_run_out, power_cut
from tests.spark.test_live_runs import live, run_live

pytestmark = pytest.mark.spark

SEEDS = range(max(1, CAMPAIGN))
MOMENTS: tuple[Moment, ...] = ("before", "middle", "after")
WRITES = ("home/s/runs/", "home/s/watermarks", "home/s/taken", "Spark's parquet", "commit out")
"""Writes at which the power goes: what a run notes, what it writes aside, and what publishes that."""


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def per_window(numbers: DataFrame) -> DataFrame:
    timed = numbers.select(F.timestamp_seconds("id").alias("at")).withWatermark("at", "0 seconds")
    counts = timed.groupBy(F.window("at", "5 seconds")).count()
    return counts.select(F.unix_timestamp("window.start").alias("id"), "count")


def distinct(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["id"])


@dataclass
class History:
    """One stream, what has arrived for it, and what was done."""

    lab: Lab
    stream: Stream
    random: random.Random
    arrived: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    @property
    def is_table(self) -> bool:
        return self.stream.sources["numbers"].kind == "delta"

    def arrive(self) -> None:
        first = len(self.arrived)
        if self.is_table:
            append_outside(self.lab.root / "in", range(first, first + 2))
        else:
            write_numbers(self.lab.root / "in", 1, first=first // 2, rows=2)
        self.arrived += [first, first + 1]

    def live(self) -> None:
        run_live(self.lab, self.stream, live("700ms", "processing-time=100ms"), after_1=self.arrive)

    def exact(self) -> None:
        self.lab.run(self.stream)

    def drain(self) -> None:
        self.lab.run(self.stream, Limits(strategy="drain"))

    def stopped(self) -> None:
        self.lab.run(self.stream, live("1m", "processing-time=100ms"), stop_after=1)

    def killed(self) -> None:
        """The power goes at a write of a live run; who had the lease is dead."""
        moment = self.random.choice(MOMENTS)
        cut = Cut(self.random.choice(WRITES), self.random.randint(1, 2 + 2 * self.random.randint(0, 1)), moment)
        with power_cut(cut, self.lab.root) as writes:
            try:
                self.lab.run(self.stream, live("1s", "processing-time=0s"))
            except BaseException:
                if writes.at is None:
                    raise
        for query in self.lab.spark.streams.active:
            query.stop()
        let_leases_run_out(self.lab.root / "home")
        forget_tables(self.lab.spark)
        self.told[-1] += f" at {writes.at}"

    def play(self) -> None:
        others: list[Callable[[], None]] = [self.live, self.exact, self.drain, self.stopped]
        for step in (self.random.choice(others), self.killed, self.random.choice(others), self.killed):
            for _ in range(self.random.randint(1, 3)):
                self.arrive()
            self.told.append(step.__name__)
            step()
        self.exact()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("source", "transform"), [("files", "same"), ("files", "per_window"), ("delta", "distinct")])
def test_rows_are_those_of_a_batch(lab: Lab, source: str, transform: str, seed: int) -> None:
    """Whatever strategy a run has, and whatever kills one in between."""
    files = sources.files("in", format="json", schema="id bigint", max_files_per_batch=1)
    numbers: Any = files if source == "files" else sources.delta("in", max_files_per_batch=1)
    stream = Stream(
        name="s",
        sources={"numbers": numbers},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out"),
    )
    history = History(lab, stream, random.Random(f"{seed} {source} {transform}"))
    history.arrive()

    history.play()

    found = Counter(tuple(row) for row in lab.table("out").collect())
    if transform == "per_window":
        newest = history.arrived[-1]
        closed = Counter(number // 5 * 5 for number in history.arrived if number // 5 * 5 + 5 <= newest)
        expected = Counter(closed.items())
    else:
        expected = Counter((number,) for number in history.arrived)
    assert found == expected, history.told
    offsets, commits = (
        [int(file.name) for file in log_files(lab.checkpoint(stream) / name)] for name in ("offsets", "commits")
    )
    assert offsets == commits == list(range(len(commits))), history.told
    recorded = Counter(batch["batch_id"] for record in lab.records(stream) for batch in record["batches"])
    # A batch that was recorded is in one record; one whose driver died before that is in none, or in its retry's.
    assert max(recorded.values()) == 1, history.told
    assert lab.run(stream, NO_LIMITS).status == "skipped"
