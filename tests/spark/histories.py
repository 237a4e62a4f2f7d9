"""Whole histories of a stream: arrivals, runs, cuts at any write, edits, backfills, releases, other writers.

A history is drawn from a seed. The oracle is a batch computation: where each row must be, and by which transform, by
what was declared when its batch was decided. It looks at the tables after every step that is completed; a cut may
leave what the next step finishes. Files are renamed, or vanish: before they are read, and in the last moment.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sluice.auditing.release_rows import release_rows
from sluice.errors import BatchFailedError, RefusedError
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.query_starts import QueryStarts
from sluice.runs.record import RunRecord
from tests.spark.history_streams import STATIC_TABLE, Declared, Place, Shape
from tests.spark.lab import NO_LIMITS, Lab, log_of, names, offset_lines, write_files
from tests.spark.power_cuts import power_cut
from tests.unit.quality.suites import document, row

_DAYS = [date(2026, 1, day) for day in (1, 2)]
_TABLES = ("out", "out_quarantine", "elsewhere")


@dataclass
class History:
    """One stream's life."""

    lab: Lab
    draw: random.Random
    declared: Declared = Declared()
    arrived: dict[int, date] = field(default_factory=dict)
    made: int = 0
    """How many rows there ever were."""
    written: int = 0
    """How many files."""
    files: dict[str, list[int]] = field(default_factory=dict)
    """The rows of each file, by the name under which it is read."""
    versions: dict[int, list[int]] = field(default_factory=dict)
    """The rows of each version of the table that is the second source."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Files that have another name since they were read."""
    lost: set[str] = field(default_factory=set)
    """Files that vanished in the last moment: their rows came once more, in other files."""
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
        moves = [self.arrive, self.arrive, self.run, self.cut_run, self.cut_run, self.edit, self.edit, self.backfill,
                 self.cut_backfill, self.release, self.maintain, self.rename, self.vanish, self.run_short]  # fmt: skip
        self.begin()
        try:
            self.arrive()
            for _ in range(steps):
                self.draw.choice(moves)()
            self.run()
            self.check_readers()
        finally:
            self.lab.spark.conf.unset(STATIC_TABLE)

    def begin(self) -> None:
        """Draw what the stream reads."""
        self.declared = Declared(self.draw.choice(get_args(Shape)))
        self.told.append(self.declared.shape)
        self._file("").mkdir(parents=True)
        if self.declared.shape == "union":
            self._write_more([])
        if self.declared.shape == "static":
            self.lab.spark.conf.set(STATIC_TABLE, str(self.lab.root / "static"))

    def arrive(self) -> None:
        for _ in range(self.draw.randint(1, 3)):
            numbers = list(range(self.made, self.made + self.draw.randint(1, 4)))
            self.made += len(numbers)
            self.arrived |= {number: self.draw.choice(_DAYS) for number in numbers}
            if self.declared.shape == "union" and self.draw.random() < 0.5:
                self._write_more(numbers)
            else:
                self._write_file(numbers)
        self.told.append(f"arrive {self.made}")

    def _write_file(self, numbers: list[int]) -> None:
        """Each has a name and a time of its own."""
        lines = [json.dumps({"n": n, "day": self.arrived[n].isoformat()}) for n in numbers]
        self.written += 1
        name = f"{self.written:04d}.json"
        write_files(self._file(""), {name: "\n".join(lines)}, first=self.written)
        self.files[name] = numbers

    def _write_more(self, numbers: list[int]) -> None:
        days = pa.array([self.arrived[number] for number in numbers], pa.date32())
        rows = pa.table({"n": pa.array(numbers, pa.int64()), "day": days})
        write_deltalake(str(self.lab.root / "more"), rows, mode="append")
        self.versions[DeltaTable(str(self.lab.root / "more")).version()] = numbers

    def edit(self) -> None:
        changes: list[dict[str, Any]] = [
            {"transform": self.draw.randint(1, 3)},
            {"policy": self.draw.choice(["none", "warn", "drop", "quarantine", "quarantine"])},
            {"quarantine": self.draw.choice(["out_quarantine", "elsewhere"])},
        ]
        if self.declared.shape == "static":
            changes.append({"shift": self.draw.randint(0, 1)})
        self.declared = replace(self.declared, **self.draw.choice(changes))
        self.told.append(f"edit {self.declared}")

    def rename(self) -> None:
        """Give a file another name: one that was read is held back under it."""
        name = self._any_file(sorted(self.files.keys() - self.renamed.keys() - self.lost))
        if name is None:
            return
        other = f"renamed-{name}"
        self._file(name).rename(self._file(other))
        if name in self._logged():
            self.renamed[name] = other
        else:
            self.files[other] = self.files.pop(name)
        self.told.append(f"rename {name}")

    def vanish(self) -> None:
        """Take a file away that was not read: it is not missed."""
        name = self._any_file(sorted(self.files.keys() - self._logged()))
        if name is None or len(self.files) == 1:
            return
        self._file(name).unlink()
        for number in self.files.pop(name):
            del self.arrived[number]
        self.told.append(f"vanish {name}")

    def run(self) -> RunRecord:
        self._declare()
        try:
            record = self._run()
        except RefusedError as exc:
            if exc.finding.code != "INPUT_GONE" or not self.renamed:
                raise
            self.told.append("run refused")
            self._bring_back()
            record = self._run()
        self.told.append(f"run {record.status} {[batch.batch_id for batch in record.batches]}")
        self.check_run()
        return record

    def cut_run(self) -> None:
        self._bring_back()
        limits = Limits(max_batches=self.draw.choice([None, 1]))
        self._cut("run", lambda: self._run(limits))
        self.tried.append((self.declared, self._newest("offsets")))

    def run_short(self) -> None:
        """A file vanishes between the last look and Spark's: that is loud, and its batch is not committed.

        But where Delta's own writer commits before anybody can look; then its rows come in another file, as the
        remedy says.
        """
        self._bring_back()
        self._declare()
        gone: list[str] = []
        start = QueryStarts.start

        def vanishing(starts: QueryStarts, *args: Any, **how: Any) -> Any:
            present = sorted(name for name in self._newest_logged() if self._file(name).exists())
            if not gone and present:
                gone.append(self.draw.choice(present))
                self._file(gone[0]).rename(self._file(f"_{gone[0]}"))
            return start(starts, *args, **how)

        failed: BatchFailedError | None = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(QueryStarts, "start", vanishing)
            try:
                self._run()
            except BatchFailedError as exc:
                failed = exc
        self.tried.append((self.declared, self._newest("offsets")))
        self.told.append(f"run without {gone}: {failed and failed.args[0]}")
        if failed is not None:
            assert gone, self._story()
        for name in gone:
            aside = self._file(f"_{name}")
            if failed is not None and "is committed without their rows" in str(failed):
                assert self.declared.policy == "none", self._story()
                recorded = self.lab.records(self.declared.stream())[-1]["batches"]
                assert [batch["batch_id"] for batch in recorded][-1] == self._newest("commits"), self._story()
                aside.unlink()
                self.lost.add(name)
                self._write_file(self.files[name])
                self.files[name] = []
            else:
                aside.rename(self._file(name))
        self.run()

    def backfill(self) -> None:
        day = self.draw.choice(_DAYS)
        if self._newest("commits") >= 0:
            self._backfill(day)

    def cut_backfill(self) -> None:
        """It is asked for again at once, as Airflow does; what is declared may have changed since.

        Where that is refused, the first may be half done, or done: it is declared as then, as the remedy says.
        """
        begun = self.declared
        day = self.draw.choice(_DAYS)
        if self._newest("commits") < 0 or self._is_left() or self.renamed or self.lost:
            return
        self._cut("backfill", lambda: self._replace(day))
        if self.draw.random() < 0.5:
            self.edit()
        if not self._backfill(day):
            self.declared = begun
            assert self._backfill(day), self._story()

    def _backfill(self, day: date) -> bool:
        """Whether it was done, and not refused."""
        self._declare()
        gone = self.renamed.keys() | self.lost
        if self._is_left() or gone:
            try:
                self._replace(day)
            except RefusedError as exc:
                expected = {"QUARANTINE_LEFT": self._is_left(), "BACKFILL_INPUT_GONE": gone}
                if not expected.get(exc.finding.code):
                    raise
                self.told.append(f"backfill {day} refused: {exc.finding.code}")
                return False
            # It needs nothing of a batch that is not committed.
            assert not self._is_left(), self._story()
            assert not gone & self._committed_files(), self._story()
        else:
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
        return True

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

    def maintain(self) -> None:
        """Other writers compact a table, and delete what belongs to no version of it."""
        path = self.draw.choice([*_TABLES, "more"])
        if not (self.lab.root / path / "_delta_log").exists():
            return
        table = DeltaTable(str(self.lab.root / path))
        is_vacuum = path != "more" and self.draw.random() < 0.5
        if is_vacuum:
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        else:
            table.optimize.compact()
        self.told.append(f"{'vacuum' if is_vacuum else 'compact'} {path}")
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
            assert fits, self._story(*new)
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
        for path in _TABLES:
            if not (self.lab.root / path / "_delta_log").exists():
                continue
            rows = DeltaTable(str(self.lab.root / path)).to_pyarrow_table(columns=["n", "v"]).to_pylist()
            for known in rows:
                assert known["n"] not in found or self._is_pending(), self._story(known["n"])
                found[known["n"]] = (path, known["v"])
        return found

    def check_readers(self) -> None:
        """Spark reads the table that delta-rs reads."""
        by_spark = self.lab.spark_table("out").select("n", "v").collect()
        by_delta_rs = DeltaTable(str(self.lab.root / "out")).to_pyarrow_table(columns=["n", "v"]).to_pylist()
        assert sorted((row.n, row.v) for row in by_spark) == sorted((row["n"], row["v"]) for row in by_delta_rs)

    def _is_pending(self) -> bool:
        return bool(self.tried)

    def _is_left(self) -> bool:
        """Whether a former quarantine has rows, so that no interval is recomputed."""
        own = self.declared.quarantine if self.declared.policy != "none" else ""
        return any(place != own and self._count(place) for place in ("out_quarantine", "elsewhere"))

    def _count(self, path: str) -> int:
        table = self.lab.root / path
        return DeltaTable(str(table)).to_pyarrow_table().num_rows if (table / "_delta_log").exists() else 0

    def _file(self, name: str) -> Path:
        return self.lab.root / "land" / name

    def _any_file(self, found: list[str]) -> str | None:
        return self.draw.choice(found) if found else None

    def _bring_back(self) -> None:
        for name, other in self.renamed.items():
            self._file(other).rename(self._file(name))
            self.told.append(f"bring back {name}")
        self.renamed = {}

    @property
    def _checkpoint(self) -> Path:
        return self.lab.checkpoint(self.declared.stream())

    def _log(self) -> dict[int, list[str]]:
        """The names of the files that were taken, by log id."""
        found = (log_of(self._checkpoint, source) for source in (0, 1))
        return next(({log_id: names(uris) for log_id, uris in log.items()} for log in found if log), {})

    def _logged(self) -> set[str]:
        return {name for taken in self._log().values() for name in taken}

    def _newest_logged(self) -> list[str]:
        log = self._log()
        return log[max(log)] if log else []

    def _committed_files(self) -> set[str]:
        return self._files_to(offset_lines(self._checkpoint).get(self._newest("commits"), []))

    def _files_to(self, offsets: list[Any]) -> set[str]:
        last = max((offset["logOffset"] for offset in offsets if offset and "logOffset" in offset), default=-1)
        return {name for log_id, taken in self._log().items() if log_id <= last for name in taken}

    def _batches(self) -> dict[int, list[int]]:
        """The rows of every batch, by its offsets."""
        found: dict[int, list[int]] = {}
        before: set[int] = set()
        for batch_id, offsets in offset_lines(self._checkpoint).items():
            read = {number for name in self._files_to(offsets) for number in self.files[name]}
            for offset in offsets:
                if offset and "reservoirVersion" in offset:
                    assert offset["index"] < 0, self._story()
                    taken = (n for version, n in self.versions.items() if version < offset["reservoirVersion"])
                    read.update(*taken)
            found[batch_id] = sorted(read - before)
            before |= read
        return found

    def _newest(self, log: str) -> int:
        folder = self._checkpoint / log
        return max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=-1) if folder.exists() else -1

    def _declare(self) -> None:
        if self.declared.policy != "none":
            rule = row(
                "expect_column_values_to_be_in_set", policy=self.declared.policy, column="bad", value_set=[False]
            )
            (self.lab.root / "suite.json").write_bytes(document(rule))
        if self.declared.shape == "static":
            rows = pa.table(
                {"day": pa.array(_DAYS, pa.date32()), "shift": pa.array([self.declared.shift] * 2, pa.int32())}
            )
            write_deltalake(str(self.lab.root / "static"), rows, mode="overwrite")

    def _run(self, limits: Limits = NO_LIMITS) -> RunRecord:
        return self.lab.run(self.declared.stream(), limits)

    def _replace(self, day: date) -> None:
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        declared = self.lab.project.resolve(self.declared.stream())
        request = BackfillRequest(declared, Interval(start, start + timedelta(days=1)))
        backfill_stream(self.lab.project, request, session=self.lab.spark)

    def _cut(self, what: str, work: Callable[[], object]) -> None:
        """Let the power go at some write, if the work gets that far; who had the lease is dead then."""
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


def live(spark: SparkSession, root: Path, seed: int, steps: int) -> History:
    """One history, from a seed."""
    history = History(Lab(spark, root), random.Random(seed))
    history.live(steps)
    return history
