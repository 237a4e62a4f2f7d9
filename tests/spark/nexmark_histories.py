"""Histories of Nexmark's queries: their sides arrive in some order, in files, over runs of which some are cut."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Self, get_args

from deltalake import write_deltalake

from sluice.spark.left_behind import forget_state, forget_tables
from sluice.testing import Bench, Moment
from tests.spark.nexmark import Row, as_json, at_once, closing, draw, side_input
from tests.spark.nexmark_answers import ANSWERS
from tests.spark.nexmark_queries import QUERIES, declared
from tests.spark.operator_histories import run_or_die

REPOSITORY = Path(__file__).parents[2]
Arrival = tuple[str, Sequence[Row]]
"""A file of a side."""


class History:
    """One query, and everything that has arrived for it.

    Args:
        folder: Where it lives.
        name: Of the query.
        seed: What is drawn by.
        now: Where its clock begins; None for where a bench's does.
    """

    def __init__(self, folder: Path, name: str, seed: int, *, now: str | None = None) -> None:
        self.bench, self.folder, self.name, self.seed = Bench(folder), folder, name, seed
        self.chance = random.Random(f"{name} {seed}")
        self.sides = list(QUERIES[name].sides)
        limits = {side: self.chance.choice((None, 1, 2)) for side in self.sides}
        self.bench.open(declared(name, limits, side_input=folder / "side_input"), now=now)
        if name == "q13" and not (folder / "side_input").exists():
            write_deltalake(folder / "side_input", side_input())
        for source in self.bench.stream.sources.values():
            Path(source.location or "").mkdir(exist_ok=True)
        self._arrived: dict[str, list[Row]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.bench.__exit__(*exc_info)

    def live(self, events: int, *, files: int, runs: int, is_signalled: bool = False) -> None:
        """Let everything arrive over some runs, one of which is killed and others stopped, until all of it is over.

        Args:
            events: How many things happen.
            files: In how many files a side arrives.
            runs: How many there are before the last files arrive.
            is_signalled: Whether the one that is killed is a process of its own, and dies by a signal.
        """
        house = draw(self.seed, events)
        arrivals = self._in_some_order({side: house.files(side, files) for side in self.sides})
        ends = sorted(self.chance.sample(range(1, len(arrivals)), k=runs))
        killed = self.chance.randrange(runs)
        for number, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
            self._arrive(arrivals[begin:end])
            if number == killed and is_signalled:
                self._kill()
            else:
                run_or_die(self.bench, self.chance, is_killed=number == killed)
        self._arrive(arrivals[ends[-1] :])
        first, *others = self.chance.sample(self.sides, k=len(self.sides))
        self._arrive([(first, [closing(first)])])
        self.bench.run()
        for side in others:
            self._arrive([(side, [closing(side)])])
            self.bench.run()
        assert self.bench.run().status == "skipped"

    def check(self) -> None:
        """The rows are DuckDB's, and there are some."""
        expected = at_once(ANSWERS[self.name], self._arrived)
        assert expected
        self.bench.check_rows(expected)

    def _arrive(self, arrivals: Iterable[Arrival]) -> None:
        for side, rows in arrivals:
            self.bench.advance(timedelta(seconds=1))
            self.bench.add(side, as_json(rows))
            self._arrived.setdefault(side, []).extend(rows)

    def _in_some_order(self, files: dict[str, list[Sequence[Row]]]) -> list[Arrival]:
        """A side after the other, by each second seed by turns; those of a side as they come."""
        sides = self.chance.sample(self.sides, k=len(self.sides))
        turns = [side for side in sides for _ in files[side]]
        if self.seed % 2:
            self.chance.shuffle(turns)
        waiting = {side: iter(found) for side, found in files.items()}
        return [(side, next(waiting[side])) for side in turns]

    def _kill(self) -> None:
        """A run in a process of its own, which a signal kills."""
        moment = self.chance.choice(get_args(Moment))
        self.bench.advance(timedelta(seconds=1))
        told = [str(self.folder), self.name, str(self.seed), self.bench.now.isoformat(), moment]
        command = [sys.executable, "-m", "tests.spark.killed_nexmark", *told]
        here = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(command, cwd=REPOSITORY, env=here, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
        self.bench.advance(timedelta(seconds=1))
        forget_state(self.bench.spark)
        forget_tables(self.bench.spark)
