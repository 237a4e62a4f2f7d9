"""What a stream of a history declares from time to time, and where each of its rows may be by that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, functions

from sluice import Stream, sinks, sources
from tests.unit.quality.suites import document, row

Policy = Literal["none", "warn", "drop", "quarantine", "fail", "hold"]
"""What becomes of a bad row. `fail` stops its batch before any of it counts; `hold` holds the stream once it counts."""
Shape = Literal["files", "union", "static", "once", "late"]
"""What a stream reads: files; files and a Delta table; files, joined with a table that is no stream; or files some of
whose rows have come before, and are dropped by what the stream keeps in its state: for good, or until the watermark
has passed, behind which rows are late and dropped, too."""
DROPS_DUPLICATES = ("once", "late")
Place = tuple[str, int]
"""A table, and the mark of what made the row."""

STATIC_TABLE = "sluice.tests.histories.static"
"""The setting that tells transforms where the table lies that they join."""
DELAY_HOURS = 16
"""How far behind the newest a row may come where the stream has a watermark."""
IS_ONCE = "sluice.tests.histories.once"
"""The setting that lets transforms drop what came before: `once`, or `late` for what came before the watermark."""
BY_CHANCE, WIDE = 3, 4
"""The transforms that are not like the others: any row may be bad; and the result has a column more."""


def first(numbers: DataFrame, **more: DataFrame) -> DataFrame:
    return _marked(numbers, more, 1, "(n + shift) % 4 = 3")


def second(numbers: DataFrame, **more: DataFrame) -> DataFrame:
    """Corrected: other rows are bad."""
    return _marked(numbers, more, 2, "(n + shift) % 4 = 2")


def by_chance(numbers: DataFrame, **more: DataFrame) -> DataFrame:
    """Any row may be bad, at any try."""
    return _marked(numbers, more, BY_CHANCE, "rand() < 0.5")


def wide(numbers: DataFrame, **more: DataFrame) -> DataFrame:
    """With a column that the others do not have."""
    return _marked(numbers, more, WIDE, "(n + shift) % 4 = 1").withColumn("extra", functions.col("n"))


def _marked(numbers: DataFrame, more: dict[str, DataFrame], mark: int, bad: str) -> DataFrame:
    session = numbers.sparkSession
    for others in more.values():
        numbers = numbers.unionByName(others)
    dropping = session.conf.get(IS_ONCE, "")
    if dropping == "once":
        numbers = numbers.dropDuplicates(["n", "day"])
    elif dropping == "late":
        # So that the plan tells that a row is as late as its day.
        dated = numbers.withColumn("day", functions.to_date("at"))
        numbers = dated.withWatermark("at", f"{DELAY_HOURS} hours").dropDuplicatesWithinWatermark(["n", "day"])
    static = session.conf.get(STATIC_TABLE, "")
    if static:
        rows = numbers.join(session.read.format("delta").load(static), "day")
    else:
        rows = numbers.withColumn("shift", functions.lit(0))
    return rows.select("n", "day", functions.expr(f"{mark} + 10 * shift").alias("v"), functions.expr(bad).alias("bad"))


_TRANSFORMS: list[Callable[..., DataFrame]] = [first, second, by_chance, wide]


@dataclass(frozen=True)
class Declared:
    """What a stream declares at a moment, and what its transform joins then."""

    shape: Shape = "files"
    transform: int = 1
    policy: Policy = "quarantine"
    quarantine: str = "out_quarantine"
    shift: int = 0
    """What the static table says."""
    sink: str = "out"
    is_partitioned: bool = False
    is_let_through: bool = False
    """Whether somebody has released the batch that this is about, whatever is bad in it."""

    def stream(self) -> Stream:
        schema = "n bigint, day date" + (", at timestamp" if self.shape == "late" else "")
        numbers = sources.files("land", format="json", schema=schema, max_files_per_batch=2)
        has_suite = self.policy != "none"
        # Delta's own writer alone heeds it, and writes these batches then.
        columns = {"optimize_write": False} if self.is_wide else {}
        return Stream(
            name="s",
            sources={"numbers": numbers} | ({"more": sources.delta("more")} if self.shape == "union" else {}),
            transform=f"{__name__}:{_TRANSFORMS[self.transform - 1].__name__}",
            sink=sinks.delta(self.sink, partition_by=["day"] if self.is_partitioned else [], **columns),
            interval_column="day",
            quality="suite.json" if has_suite else None,
            quarantine=sinks.delta(self.quarantine, **columns) if has_suite else None,
        )

    def write_suite(self, file: Path) -> None:
        """Write the suite that is declared."""
        kind, of = "expect_column_values_to_be_in_set", {"column": "bad", "value_set": [False]}
        how: dict[str, Any] = {}
        if self.policy == "hold":
            # It is judged when the rows are in the sink.
            of, how = of | {"mostly": 0.99}, {"gate": "write"}
        policy = "fail" if self.is_stopping else self.policy
        file.write_bytes(document(row(kind, policy=policy, **of), **how))

    @property
    def is_wide(self) -> bool:
        """Whether the result has a column more than that of other transforms."""
        return self.transform == WIDE

    @property
    def is_stopping(self) -> bool:
        """Whether a bad row ends a run."""
        return self.policy in {"fail", "hold"}

    def may_be_bad(self, number: int) -> set[bool]:
        """What the transform may say of a row."""
        rest = (number + self.shift) % 4
        return {1: {rest == 3}, 2: {rest == 2}, BY_CHANCE: {True, False}, WIDE: {rest == 1}}[self.transform]

    def allowed(self, number: int) -> set[Place | None]:
        """Where a row may be; None for a row that was dropped. Nowhere, where it must not get past the gate."""
        return set().union(*(self._places(is_bad=is_bad) for is_bad in self.may_be_bad(number)))

    def _places(self, *, is_bad: bool) -> set[Place | None]:
        mark = self.transform + 10 * self.shift
        if not is_bad or self.policy in {"none", "warn", "hold"} or (self.policy == "fail" and self.is_let_through):
            return {(self.sink, mark)}
        if self.policy == "fail":
            return set()
        return {None if self.policy == "drop" else (self.quarantine, mark)}
