"""Operations on one sink, one of them taken step by step and another done between two of its steps."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import delta.tables
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.auditing.return_rows import RowsReturned, return_rows
from sluice.auditing.table_audit import TableAuditRequest, audit_table
from sluice.errors import SluiceError
from sluice.interval import Interval
from sluice.running import backfill_preparation
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.runs import journal
from sluice.sinks.delta.sink import DeltaSink
from sluice.spark.left_behind import forget_tables
from tests.builders import put
from tests.spark.lab import Lab, write_files
from tests.unit.quality.suites import document, row

FIRST = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
SECOND = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
"""The day that has the odd numbers."""
OTHER_QUERY = "8d3f8f3e-0000-4000-8000-000000000000"


def as_delivered(days: DataFrame) -> DataFrame:
    return days


def with_a_column(days: DataFrame) -> DataFrame:
    return days.withColumn("extra", F.lit(None).cast("string"))


def times_ten(days: DataFrame) -> DataFrame:
    return days.withColumn("n", F.col("n") * 10)


@dataclass(frozen=True)
class Numbers:
    """A stream of the numbers 1 to 8 on two days; 7 and 8 went to the quarantine, and pass by now."""

    lab: Lab
    partitions: tuple[str, ...] = ("day",)
    policy: str = "quarantine"
    """What the suite says by now of too large a number: none is. With `fail`, a batch is published by a commit
    of metadata."""
    edited: Mapping[str, Any] = field(default_factory=dict)
    """What is declared otherwise by now."""

    @property
    def stream(self) -> Stream:
        declared: dict[str, Any] = {
            "name": "s",
            "sources": {"days": sources.files("land", format="json", schema="n bigint, day date")},
            "transform": f"{__name__}:as_delivered",
            "sink": sinks.delta("out", partition_by=self.partitions),
            "interval_column": "day",
            "quality": "suite.json",
        }
        return self.lab.project.resolve(Stream(**declared | dict(self.edited)))

    def editing(self, **changes: Any) -> Numbers:
        """The same with an edited declaration."""
        return replace(self, edited={**self.edited, **changes})

    def allow(self, most: int, policy: str = "quarantine") -> None:
        check = row("expect_column_values_to_be_between", policy=policy, column="n", max_value=most)
        (self.lab.root / "suite.json").write_bytes(document(check))

    def arrive(self, first: int, last: int) -> None:
        rows = [json.dumps({"n": n, "day": f"2026-01-{1 + n % 2:02d}"}) for n in range(first, last + 1)]
        write_files(self.lab.root / "land", {f"{first:04d}.json": "\n".join(rows)}, first=first)

    def begin(self) -> None:
        self.allow(6)
        self.arrive(1, 8)
        self.lab.run(self.stream)
        self.allow(100, self.policy)

    @contextmanager
    def starting_over(self) -> Iterator[Callable[[], None]]:
        """Gives what makes everything on disk what it is now: that costs less than to begin anew."""
        root, kept = self.lab.root, self.lab.root.with_name(f"{self.lab.root.name}-kept")
        shutil.copytree(root, kept)

        def start_over() -> None:
            shutil.rmtree(root)
            shutil.copytree(kept, root)
            forget_tables(self.lab.spark)

        yield start_over
        shutil.rmtree(kept)

    def table(self, path: str = "out") -> str:
        return str(self.lab.root / path)

    def held(self, path: str) -> Counter[int]:
        return Counter(found["n"] for found in self.lab.table(path).select("n").collect())

    def live(self) -> None:
        """One more batch of the live stream: 9 and 10."""
        if not (self.lab.root / "land" / "0009.json").exists():
            self.arrive(9, 10)
        self.lab.run(self.stream)

    def backfill(self, run_key: str | None = None) -> None:
        backfill_stream(self.lab.project, BackfillRequest(self.stream, SECOND, run_key), session=self.lab.spark)

    def backfill_other_day(self) -> None:
        """The first day, which has the even numbers."""
        backfill_stream(self.lab.project, BackfillRequest(self.stream, FIRST), session=self.lab.spark)

    def release(self, where: str | None = None) -> RowsReturned:
        return return_rows(self.lab.project, self.stream, where, "ada", session=self.lab.spark)

    def audit(self) -> None:
        audit_table(self.lab.project, TableAuditRequest(self.stream), session=self.lab.spark)

    def compact(self) -> None:
        for path in ("out", "out_quarantine"):
            DeltaTable(self.table(path)).optimize.compact()

    def vacuum(self) -> None:
        for path in ("out", "out_quarantine"):
            table = DeltaTable(self.table(path))
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)

    def delete(self) -> None:
        """Somebody deletes 5, of the second day."""
        DeltaTable(self.table()).delete("n = 5")

    def update(self) -> None:
        """Somebody makes 105 of 5, of the second day."""
        DeltaTable(self.table()).update(predicate="n = 5", updates={"n": "105"})

    def merge(self) -> None:
        """Somebody merges 6, which becomes 106, and 200, which is new, into the first day."""
        rows = pa.table({"n": pa.array([6, 200], pa.int64()), "day": pa.array([date(2026, 1, 1)] * 2)})
        merging = DeltaTable(self.table()).merge(rows, "t.n = s.n", source_alias="s", target_alias="t")
        merging.when_matched_update({"n": "s.n + 100"}).when_not_matched_insert_all().execute()

    def add_column(self) -> None:
        """Somebody gives the table one more column."""
        if len(DeltaTable(self.table()).schema().fields) == 2:
            DeltaTable(self.table()).alter.add_columns([Field("extra", PrimitiveType("string"))])

    def restore(self) -> None:
        """Somebody takes the table back to what it was first."""
        if DeltaTable(self.table()).version():
            DeltaTable(self.table()).restore(0)

    def forbid(self) -> None:
        """Somebody gives the table a rule, which all of its rows keep."""
        if not DeltaTable(self.table()).metadata().configuration:
            DeltaTable(self.table()).alter.add_constraint({"small": "n < 1000"})

    def write_otherwise(self) -> None:
        """Another streaming query writes 100 on the second day."""
        write_deltalake(
            self.table(),
            pa.table({"n": pa.array([100], pa.int64()), "day": pa.array([date(2026, 1, 2)])}),
            mode="append",
            partition_by=list(self.partitions) or None,
            commit_properties=CommitProperties(app_transactions=[Transaction(OTHER_QUERY, 0)]),
        )

    def run_another_stream(self) -> None:
        """Another stream of the project writes 100 on the second day."""
        write_files(self.lab.root / "other", {"0100.json": json.dumps({"n": 100, "day": "2026-01-02"})}, first=100)
        # No file declares the first one: as far as anybody can tell, this one could be that one under another name.
        put(self.lab.root / "home" / "t" / "first-run", "")
        self.lab.run(
            Stream(
                name="t",
                sources={"days": sources.files("other", format="json", schema="n bigint, day date")},
                transform=f"{__name__}:as_delivered",
                sink=sinks.delta("out", partition_by=self.partitions),
            )
        )


@dataclass
class Meanwhile:
    """Does something just before a step of those that an operation takes: that of a number, or the first of a name."""

    step: int | str
    act: Callable[[], object]
    taken: list[str] = field(default_factory=list)
    """The steps so far."""
    refused: SluiceError | None = None
    """Why it was not done there."""

    @property
    def is_done(self) -> bool:
        """Whether there was such a step."""
        return self.step in self.taken if isinstance(self.step, str) else len(self.taken) > self.step

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Count the steps: whatever fixes a version of a table or writes one, and every lease.

        Nobody waits for a lease: who has it is the one in the middle of which this is done.
        """
        patch.setattr(backfill_preparation, "_LIVE_LEASE_PATIENCE", timedelta(0))
        table = ("update", "delete")
        sink = ("snapshot", "write_batch_aside", "publish_batch", "write_batch", "write_aside", "publish")
        sink += ("replace_rows", "replace_where", "read_table")
        for owner, names in ((DeltaSink, sink), (delta.tables.DeltaTable, table), (journal, ("acquire",))):
            for name in names:
                patch.setattr(owner, name, self._stepping(name, getattr(owner, name)))

    def _stepping(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **kwargs: Any) -> Any:
            is_it = self.step == len(self.taken) or (self.step == name and not self.is_done)
            self.taken.append(name)
            if is_it:
                try:
                    self.act()
                except SluiceError as exc:
                    self.refused = exc
            return function(*args, **kwargs)

        return stepping


class Killed(BaseException):
    """A kill at a certain place."""


@contextmanager
def killed(owner: object, name: str, *, call: int = 1) -> Iterator[None]:
    """Be killed at a call of a function."""
    calls, earlier = itertools.count(1), getattr(owner, name)

    def function(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return earlier(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, function)
        with pytest.raises(Killed):
            yield
