"""A second stream of a history, which reads the table that the first one writes and copies what is appended to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import SluiceError
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from tests.spark.lab import Lab, offset_lines

Row = tuple[int, int]
"""The number of a row, and its mark."""


def copied(rows: DataFrame) -> DataFrame:
    return rows.select("n", "day", "v")


@dataclass
class Reader:
    """The second stream: it passes over versions that take rows away, and is backfilled to have them, too."""

    lab: Lab
    days: Mapping[int, date]
    """The day of each row."""
    tell: Callable[[], str]
    table: str = "out"
    appended: dict[int, list[Row]] = field(default_factory=dict)
    """What each version of the table brought that takes nothing away."""
    at_first: list[Row] = field(default_factory=list)
    """What was in the table when it was first read."""
    expected: Counter[Row] = field(default_factory=Counter)
    """What must be in the copy, as far as it was read."""
    is_short: bool = False
    """Whether others have taken away what was yet to be read."""
    _noted: int = -1
    _done: int = -1

    @property
    def stream(self) -> Stream:
        rows = sources.delta(self.table, skip_change_commits=True, max_files_per_batch=2)
        return Stream(
            name="t",
            sources={"rows": rows},
            transform=f"{__name__}:copied",
            sink=sinks.delta("copy", partition_by=["day"]),
            interval_column="day",
        )

    def note(self, table: str) -> None:
        """Note what was appended since the last look, while it is there."""
        self.table = table
        place = self.lab.root / table
        for file in sorted((place / "_delta_log").glob("[0-9]*.json")):
            version = int(file.stem)
            if version > self._noted:
                self._noted = version
                actions = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
                if not any(action.get("remove", {}).get("dataChange") for action in actions):
                    adds = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
                    self.appended[version] = [row for add in adds for row in _rows(place / unquote(add["path"]))]

    def is_there(self) -> bool:
        """Whether there is a table to read."""
        return self._noted >= 0

    def has_begun(self) -> bool:
        """Whether its first batch is planned."""
        return bool(offset_lines(self.lab.checkpoint(self.stream)))

    def begin(self) -> None:
        """Note what the first batch reads, unless it is planned: all that is in the table."""
        if not self.has_begun():
            self.at_first = self._now()

    def read(self) -> None:
        """Read on, to the newest version: the copy has every row that was appended, once."""
        self.begin()
        if not self._may_fail(lambda: self.lab.run(self.stream)):
            return
        first = self._first_version()
        if self._done < first:
            self.expected, self._done = Counter(self.at_first), first
        for version in range(self._done + 1, self._noted + 1):
            self.expected.update(self.appended.get(version, ()))
        self._done = self._noted
        self._check("it has read on")

    def replace(self, day: date) -> None:
        """Recompute a day: the copy has it as the table has it now."""
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        declared = self.lab.project.resolve(self.stream)
        request = BackfillRequest(declared, Interval(start, start + timedelta(days=1)))
        if self._may_fail(lambda: backfill_stream(self.lab.project, request, session=self.lab.spark)):
            kept = {row: count for row, count in self.expected.items() if self.days[row[0]] != day}
            self.expected = Counter(kept) + Counter(row for row in self._now() if self.days[row[0]] == day)
            self._check(f"{day} was recomputed")

    def lose(self) -> None:
        """Others have taken away what is no part of the newest version."""
        self.is_short = self._done < self._noted

    def _may_fail(self, work: Callable[[], object]) -> bool:
        """Whether it was done; what was taken away in between may be missed, and is then for ever."""
        try:
            work()
        except SluiceError:
            if not self.is_short:
                raise
            return False
        return True

    def _first_version(self) -> int:
        """The version that was whole in the table when it was first read; none for a table without rows."""
        line = offset_lines(self.lab.checkpoint(self.stream)).get(0, [None])[0]
        if line is None:
            return -1
        is_inside = line["isStartingVersion"] or line["index"] >= 0
        return int(line["reservoirVersion"]) - (0 if is_inside else 1)

    def _now(self) -> list[Row]:
        rows = DeltaTable(str(self.lab.root / self.table)).to_pyarrow_table(columns=["n", "v"]).to_pylist()
        return [(row["n"], row["v"]) for row in rows]

    def _check(self, what: str) -> None:
        copy = self.lab.root / "copy"
        rows = DeltaTable(str(copy)).to_pyarrow_table(columns=["n", "v"]).to_pylist() if copy.exists() else []
        found = Counter((row["n"], row["v"]) for row in rows)
        lacking, more = self.expected - found, found - self.expected
        assert (lacking, more) == (Counter(), Counter()), f"the reader: {what}\n{self.tell()}"


def _rows(file: Path) -> list[Row]:
    found = pq.read_table(file, columns=["n", "v"], partitioning=None).to_pylist()
    return [(row["n"], row["v"]) for row in found]
