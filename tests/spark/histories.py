"""Whole histories of a stream: arrivals, runs, cuts at any write, edits, backfills, releases, other writers.

A history is drawn from a seed. The oracle is a batch computation: where each row must be, and by which transform, by
what was declared when its batch was decided. It looks at the tables after every step that is completed; a cut may
leave what the next step finishes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from sluice.planning.planner import Limits
from sluice.running.auditing.release_rows import release_rows
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.sinks.delta import DeltaSink
from sluice.storage import Storage
from sluice.stream import Interval
from tests.spark.lab import Lab, write_files
from tests.unit.quality.suites import document, row

Policy = Literal["none", "warn", "drop", "quarantine"]
Place = tuple[str, int]
"""A table, and the transform that made the row."""

_DAYS = [date(2026, 1, day) for day in (1, 2)]
_STORAGE_WRITES = ("put_if_absent", "replace", "delete", "delete_folder")
_SINK_WRITES = ("write_batch", "write_batch_aside", "publish_batch", "replace_where", "publish", "write_aside")


def first(numbers: DataFrame) -> DataFrame:
    return numbers.select("n", "day", functions.lit(1).alias("v"), functions.expr("n % 4 = 3").alias("bad"))


def second(numbers: DataFrame) -> DataFrame:
    """Corrected: other rows are bad."""
    return numbers.select("n", "day", functions.lit(2).alias("v"), functions.expr("n % 4 = 2").alias("bad"))


def by_chance(numbers: DataFrame) -> DataFrame:
    """Any row may be bad, at any try."""
    return numbers.select("n", "day", functions.lit(3).alias("v"), functions.expr("rand() < 0.5").alias("bad"))


_TRANSFORMS: list[Callable[..., DataFrame]] = [first, second, by_chance]


@dataclass(frozen=True)
class Declared:
    """What a stream declares at a moment."""

    transform: int = 1
    policy: Policy = "quarantine"
    quarantine: str = "out_quarantine"

    def stream(self) -> Stream:
        numbers = sources.files("land", format="json", schema="n bigint, day date", max_files_per_batch=2)
        has_suite = self.policy != "none"
        return Stream(
            name="s",
            sources={"numbers": numbers},
            transform=f"{__name__}:{_TRANSFORMS[self.transform - 1].__name__}",
            sink=sinks.delta("out"),
            interval_column="day",
            quality="suite.json" if has_suite else None,
            quarantine=sinks.delta(self.quarantine) if has_suite else None,
        )

    def allowed(self, number: int) -> set[Place | None]:
        """Where a row may be; None for a row that was dropped."""
        bad = {1: {number % 4 == 3}, 2: {number % 4 == 2}, 3: {True, False}}[self.transform]
        return {self._place(is_bad=is_bad) for is_bad in bad}

    def _place(self, *, is_bad: bool) -> Place | None:
        if not is_bad or self.policy in {"none", "warn"}:
            return "out", self.transform
        return None if self.policy == "drop" else (self.quarantine, self.transform)


class PowerCutError(Exception):
    """Nothing is written from here on."""


@dataclass
class History:
    """One stream's life."""

    lab: Lab
    draw: random.Random
    declared: Declared = Declared()
    arrived: dict[int, date] = field(default_factory=dict)
    files: dict[str, list[int]] = field(default_factory=dict)
    known: dict[int, Place | None] = field(default_factory=dict)
    """Where each row was when a run was last completed."""
    tried: list[tuple[Declared, int]] = field(default_factory=list)
    """What was declared at each cut since then, and the newest batch that was planned by then."""
    replaced: list[tuple[Declared, date]] = field(default_factory=list)
    """The backfills since then, with a cut before them."""
    released: set[str] = field(default_factory=set)
    """The quarantines of which rows were released since then."""
    told: list[str] = field(default_factory=list)

    def live(self, steps: int) -> None:
        """Take steps, then let everything be finished."""
        moves = [self.arrive, self.arrive, self.run, self.cut_run, self.cut_run, self.edit, self.edit,
                 self.backfill, self.cut_backfill, self.release, self.compact]  # fmt: skip
        self.arrive()
        for _ in range(steps):
            self.draw.choice(moves)()
        self.run()

    def arrive(self) -> None:
        for _ in range(self.draw.randint(1, 3)):
            start = len(self.arrived)
            numbers = range(start, start + self.draw.randint(1, 4))
            name = f"{len(self.files):04d}.json"
            for number in numbers:
                self.arrived[number] = self.draw.choice(_DAYS)
            lines = [json.dumps({"n": n, "day": self.arrived[n].isoformat()}) for n in numbers]
            write_files(self.lab.root / "land", {name: "\n".join(lines)}, first=len(self.files))
            self.files[name] = list(numbers)
        self.told.append(f"arrive {len(self.arrived)}")

    def edit(self) -> None:
        changes: list[dict[str, Any]] = [
            {"transform": self.draw.randint(1, 3)},
            {"policy": self.draw.choice(["none", "warn", "drop", "quarantine", "quarantine"])},
            {"quarantine": self.draw.choice(["out_quarantine", "elsewhere"])},
        ]
        self.declared = replace(self.declared, **self.draw.choice(changes))
        self.told.append(f"edit {self.declared}")

    def run(self) -> None:
        self._declare()
        record = self.lab.run(self.declared.stream())
        self.told.append(f"run {record.status} {[batch.batch_id for batch in record.batches]}")
        self.check_run()

    def cut_run(self) -> None:
        limits = Limits(max_batches=self.draw.choice([None, 1]))
        self._cut("run", lambda: self.lab.run(self.declared.stream(), limits))
        self.tried.append((self.declared, self._newest("offsets")))

    def backfill(self) -> None:
        self._backfill(self.draw.choice(_DAYS))

    def _is_left(self) -> bool:
        """Whether a former quarantine has rows, so that no interval is recomputed."""
        own = self.declared.quarantine if self.declared.policy != "none" else ""
        return any(place != own and self._count(place) for place in ("out_quarantine", "elsewhere"))

    def _count(self, path: str) -> int:
        table = self.lab.root / path
        return DeltaTable(str(table)).to_pyarrow_table().num_rows if (table / "_delta_log").exists() else 0

    def cut_backfill(self) -> None:
        """It is asked for again at once, as Airflow does; what is declared may have changed since."""
        day = self.draw.choice(_DAYS)
        if self._newest("commits") < 0 or self._is_left():
            return
        self._cut("backfill", lambda: self._replace(day))
        if self.draw.random() < 0.5:
            self.edit()
        self._backfill(day)

    def _backfill(self, day: date) -> None:
        if self._newest("commits") < 0:
            return
        self._declare()
        if self._is_left():
            with pytest.raises(RefusedError, match="former quarantine"):
                self._replace(day)
            self.told.append(f"backfill {day} refused")
            return
        self._replace(day)
        self.told.append(f"backfill {day}")
        found = self.tables()
        for number, place in self.known.items():
            if self.arrived[number] == day:
                assert found.get(number) in self.declared.allowed(number), self._story(number)
                self.known[number] = found.get(number)
            else:
                assert found.get(number) == place, self._story(number)
        self.replaced.append((self.declared, day))

    def release(self) -> None:
        if self.declared.policy in {"none", "drop"} or self._newest("commits") < 0:
            return
        self._declare()
        project = self.lab.project
        declared = project.resolve(self.declared.stream())
        release_rows(project, declared, where=None, released_by="somebody", session=self.lab.spark)
        self.told.append("release")
        found = self.tables()
        for number, place in self.known.items():
            goes = place is not None and place[0] == self.declared.quarantine and self.declared.policy == "warn"
            expected = ("out", place[1]) if goes and place is not None else place
            assert found.get(number) == expected, self._story(number)
            self.known[number] = expected
        if self.declared.policy == "warn":
            self.released.add(self.declared.quarantine)

    def compact(self) -> None:
        """Another writer's maintenance."""
        for path in ("out", "out_quarantine", "elsewhere"):
            if (self.lab.root / path / "_delta_log").exists():
                DeltaTable(str(self.lab.root / path)).optimize.compact()
        self.told.append("compact")
        self.tables()

    def check_run(self) -> None:
        """After a completed run every row has its place, by what was declared when its batch was decided."""
        found = self.tables()
        for number, place in self.known.items():
            assert found.get(number) == place, self._story(number)
        for batch_id, numbers in self._batches().items():
            new = [number for number in numbers if number not in self.known]
            tries = [self.declared, *(declared for declared, newest in self.tried if newest >= batch_id)]
            fits = [
                declared
                for declared in tries
                if all(found.get(number) in self._may_be(declared, number) for number in new)
            ]
            assert fits, "; ".join(self._story(number) for number in new)
            self.known |= {number: found.get(number) for number in new}
        assert self.known.keys() == self.arrived.keys(), self._story(*(self.arrived.keys() - self.known.keys()))
        self.tried, self.replaced, self.released = [], [], set()

    def _may_be(self, declared: Declared, number: int) -> set[Place | None]:
        by = [declared, *(other for other, day in self.replaced if day == self.arrived[number])]
        places = set().union(*(found.allowed(number) for found in by))
        return places | {("out", place[1]) for place in places if place is not None and place[0] in self.released}

    def tables(self) -> dict[int, Place]:
        """Where each row is; no row is in two places, or in one twice."""
        found: dict[int, Place] = {}
        for path in ("out", "out_quarantine", "elsewhere"):
            if not (self.lab.root / path / "_delta_log").exists():
                continue
            rows = DeltaTable(str(self.lab.root / path)).to_pyarrow_table(columns=["n", "v"]).to_pylist()
            for known in rows:
                assert known["n"] not in found or self._is_pending(), self._story(known["n"])
                found[known["n"]] = (path, known["v"])
        return found

    def _is_pending(self) -> bool:
        return bool(self.tried)

    def _batches(self) -> dict[int, list[int]]:
        """The rows of every batch, by Spark's own log of files."""
        log = self.lab.checkpoint(self.declared.stream()) / "sources" / "0"
        found: dict[int, list[int]] = {}
        for file in log.iterdir() if log.exists() else ():
            if file.name.startswith("."):
                continue
            for line in file.read_text().splitlines()[1:]:
                entry = json.loads(line)
                found.setdefault(entry["batchId"], []).extend(self.files[Path(entry["path"]).name])
        return {batch_id: sorted(set(numbers)) for batch_id, numbers in sorted(found.items())}

    def _newest(self, log: str) -> int:
        folder = self.lab.checkpoint(self.declared.stream()) / log
        return max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=-1) if folder.exists() else -1

    def _declare(self) -> None:
        if self.declared.policy != "none":
            rule = row(
                "expect_column_values_to_be_in_set", policy=self.declared.policy, column="bad", value_set=[False]
            )
            (self.lab.root / "suite.json").write_bytes(document(rule))

    def _replace(self, day: date) -> None:
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        declared = self.lab.project.resolve(self.declared.stream())
        request = BackfillRequest(declared, Interval(start, start + timedelta(days=1)))
        backfill_stream(self.lab.project, request, session=self.lab.spark)

    def _cut(self, what: str, work: Callable[[], object]) -> None:
        """Let the power go at some write, if the work gets that far; who held the lease is dead then."""
        self._declare()
        at, moment = self.draw.randint(1, 30), self.draw.choice(["before", "after"])
        with power_cut(at, moment) as cut:
            try:
                work()
            except Exception:
                if not cut:
                    raise
        self.told.append(f"{what} cut {moment} {cut[0]}" if cut else f"{what} not cut")
        for lease in (self.lab.root / "home" / "s" / "leases").rglob("*.json"):
            document_ = json.loads(lease.read_bytes())
            lease.write_text(json.dumps(document_ | {"expires_at": "2026-01-01T00:00:00Z"}))

    def _story(self, *numbers: int) -> str:
        return f"rows {numbers} after {self.told}; known {[self.known.get(number) for number in numbers]}"


@contextmanager
def power_cut(at: int, moment: str) -> Iterator[list[str]]:
    """From the so-manyth write on nothing is written; tells which one that was."""
    cut: list[str] = []
    seen = [0]

    def dying(name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            if cut:
                raise PowerCutError(name)
            is_lease = bool(args) and isinstance(args[0], str) and "/leases/" in args[0]
            seen[0] += not is_lease
            is_it = seen[0] == at and not is_lease
            if is_it and moment == "before":
                cut.append(f"{name} {args[0] if isinstance(args[0], str) else self}")
                raise PowerCutError(name)
            done = write(self, *args, **kwargs)
            if is_it:
                cut.append(f"{name} {args[0] if isinstance(args[0], str) else self}")
                raise PowerCutError(name)
            return done

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for name in _STORAGE_WRITES:
            patch.setattr(Storage, name, dying(name, getattr(Storage, name)))
        for name in _SINK_WRITES:
            patch.setattr(DeltaSink, name, dying(name, getattr(DeltaSink, name)))
        yield cut


def live(spark: SparkSession, root: Path, seed: int, steps: int) -> History:
    """One history, from a seed."""
    history = History(Lab(spark, root), random.Random(seed))
    history.live(steps)
    return history
