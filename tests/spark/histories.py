"""Whole histories of a stream: arrivals, runs, cuts at any write, edits, backfills, releases, other writers.

A history is a list of steps; see `history_steps`. `history_oracle` tells where each row must be, and is asked after
every step. Files are renamed, rotated, or vanish: before they are read, and in the last moment. What a step asks for is
either done, or refused for a reason that is known beforehand. A second stream reads what the first one writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sluice.spark.left_behind import forget_tables
from tests.spark.history_inputs import DAYS
from tests.spark.history_moved_rows import MovedRows
from tests.spark.history_steps import Step
from tests.spark.history_streams import DROPS_DUPLICATES, IS_ONCE, STATIC_TABLE, Declared
from tests.spark.lab import Lab
from tests.spark.power_cuts import Cut, Moment


@dataclass
class History(MovedRows):
    """One stream's life, with all that may happen in it: each step is a method."""

    def live(self) -> None:
        """Take the steps, then let everything be finished."""
        try:
            for name, how in self.steps:
                getattr(self, name)(**how)
            self._finish()
            if self.reader.has_begun():
                self.reader.read()
            self._check_readers()
        except BaseException as exc:
            exc.add_note(self.story())
            raise
        finally:
            for setting in (STATIC_TABLE, IS_ONCE):
                self.lab.spark.conf.unset(setting)
            forget_tables(self.lab.spark)

    def begin(self, shape: str, edit: Mapping[str, Any], *, is_partitioned: bool) -> None:
        self.declared = Declared(shape, is_partitioned=is_partitioned)  # type: ignore[arg-type]  # from a file
        self.inputs.begin(has_table=shape == "union", has_watermark=shape == "late")
        if shape == "static":
            self.lab.spark.conf.set(STATIC_TABLE, str(self.lab.root / "static"))
        if shape in DROPS_DUPLICATES:
            self.lab.spark.conf.set(IS_ONCE, shape)
        self.edit(**edit)

    def arrive(self, files: Sequence[Mapping[str, Any]]) -> None:
        inputs, shape = self.inputs, self.declared.shape
        for file in files:
            before = sorted(inputs.days)
            numbers = inputs.make_rows(file["days"])
            if shape in DROPS_DUPLICATES and before:
                numbers = [*numbers, *{before[pick % len(before)] for pick in file["again"]}]
            if shape == "union" and file["is_in_table"]:
                inputs.write_table(numbers)
            else:
                inputs.write_file(numbers, is_same_time=file["is_same_time"], hours=file.get("hours", ()))
        self.told.append(f"arrive: {inputs.made} rows")

    def rename(self, pick: int) -> None:
        self.told.append(f"rename: {self.inputs.rename(pick)}")

    def rotate(self, pick: int, days: Sequence[int], *, is_same_size: bool) -> None:
        """A file that was read has another name, and a new one has its name: the plan says so."""
        name = self.inputs.rotate(pick, days, is_same_size=is_same_size)
        self.told.append(f"rotate: {name}, {is_same_size=}")

    def vanish(self, pick: int) -> None:
        self.told.append(f"vanish: {self.inputs.vanish(pick)}")

    def read(self, day: int | None) -> None:
        """Let the second stream read on, and recompute a day."""
        if self.reader.is_there():
            self.reader.read()
            if day is not None:
                self.reader.replace(DAYS[day])
            self.told.append(f"read, and recompute {day}")

    def cut_read(self, *, match: str, nth: int, moment: Moment) -> None:
        """Cut the second stream."""
        if self.reader.is_there() and not self.reader.is_short:
            self.reader.begin()
            self.cut("read", Cut(match, nth, moment), lambda: self.lab.run(self.reader.stream))

    def _finish(self) -> None:
        """Let everything be done, as a person does who looks after the stream."""
        if self.inputs.rotated:
            self.bring_back()
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
