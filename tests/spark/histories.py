"""Whole histories of a stream: arrivals, runs, cuts at any write, edits, backfills, releases, other writers.

A history is a list of steps; see `history_steps`. `history_oracle` tells where each row must be, and is asked after
every step. Files are renamed, or vanish: before they are read, and in the last moment. What a step asks for is either
done, or refused for a reason that is known beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.history_moved_rows import MovedRows
from tests.spark.history_oracle import QUARANTINES, TABLES
from tests.spark.history_steps import Step
from tests.spark.history_streams import IS_ONCE, STATIC_TABLE, Declared
from tests.spark.lab import Lab


@dataclass
class History(MovedRows):
    """One stream's life, with all that may happen in it: each step is a method."""

    def live(self) -> None:
        """Take the steps, then let everything be finished."""
        try:
            for name, how in self.steps:
                getattr(self, name)(**how)
            self._finish()
            self._check_readers()
        except BaseException as exc:
            exc.add_note(self.story())
            raise
        finally:
            for setting in (STATIC_TABLE, IS_ONCE):
                self.lab.spark.conf.unset(setting)

    def begin(self, shape: str, edit: Mapping[str, Any], *, is_partitioned: bool) -> None:
        self.declared = Declared(shape, is_partitioned=is_partitioned)  # type: ignore[arg-type]  # from a file
        self.inputs.begin(has_table=shape == "union")
        if shape == "static":
            self.lab.spark.conf.set(STATIC_TABLE, str(self.lab.root / "static"))
        if shape == "once":
            self.lab.spark.conf.set(IS_ONCE, "true")
        self.edit(**edit)

    def arrive(self, files: Sequence[Mapping[str, Any]]) -> None:
        inputs, shape = self.inputs, self.declared.shape
        for file in files:
            before = sorted(inputs.days)
            numbers = inputs.make_rows(file["days"])
            if shape == "once" and before:
                numbers = [*numbers, *{before[pick % len(before)] for pick in file["again"]}]
            if shape == "union" and file["is_in_table"]:
                inputs.write_table(numbers)
            else:
                inputs.write_file(numbers, is_same_time=file["is_same_time"])
        self.told.append(f"arrive: {inputs.made} rows")

    def rename(self, pick: int) -> None:
        self.told.append(f"rename: {self.inputs.rename(pick)}")

    def vanish(self, pick: int) -> None:
        self.told.append(f"vanish: {self.inputs.vanish(pick)}")

    def maintain(self, pick: int, *, is_vacuum: bool) -> None:
        """Other writers compact a table, and delete what belongs to no version of it."""
        found = [path for path in (*TABLES, "more") if (self.lab.root / path / "_delta_log").exists()]
        if not found:
            return
        path = found[pick % len(found)]
        table = DeltaTable(str(self.lab.root / path))
        if is_vacuum and path != "more":
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        else:
            table.optimize.compact()
        self.told.append(f"maintain {path}")
        self.look(is_complete=False)

    def write_by_others(self, what: str, pick: int) -> None:
        """Other writers delete a row, change it by a MERGE, or mend it in the quarantine."""
        tables = QUARANTINES if what == "mend" else TABLES
        found = sorted(
            n for n, place in self.oracle.known.items() if place and place[0] in tables and n not in self.oracle.loose
        )
        if not found:
            return
        number = found[pick % len(found)]
        path, mark = self.oracle.place_of(number)
        table = DeltaTable(str(self.lab.root / path))
        if what == "delete":
            table.delete(f"n = {number}")
            self.oracle.known[number] = None
        elif what == "mend":
            table.update({"bad": "false"}, predicate=f"n = {number}")
        else:
            rows = pa.table({"n": pa.array([number], pa.int64())})
            merge = table.merge(rows, "t.n = o.n", source_alias="o", target_alias="t")
            merge.when_matched_update({"v": "t.v + 100"}).execute()
            self.oracle.known[number] = path, mark + 100
        self.told.append(f"{what} of row {number} in {path} by others")
        self.look(is_complete=False)

    def _finish(self) -> None:
        """Let everything be done, as a person does who looks after the stream."""
        for _ in range(3):
            if self.run() == "done":
                return
            self.let_go()
        self.edit(policy="warn")
        assert self.run() == "done", "a suite that lets everything pass stops the stream"

    def _check_readers(self) -> None:
        """Spark reads the table that delta-rs reads."""
        table = self.declared.sink
        by_spark = self.lab.spark_table(table).select("n", "v").collect()
        by_delta_rs = self.oracle.rows(table, "n", "v")
        assert sorted((row.n, row.v) for row in by_spark) == sorted((row["n"], row["v"]) for row in by_delta_rs)


def live(spark: SparkSession, root: Path, steps: Sequence[Step]) -> History:
    """One history."""
    history = History(Lab(spark, root), steps)
    history.live()
    return history
