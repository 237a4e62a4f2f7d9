"""What a stream of a history declares from time to time, and where each of its rows may be by that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame, functions

from sluice import Stream, sinks, sources

Policy = Literal["none", "warn", "drop", "quarantine"]
Shape = Literal["files", "union", "static"]
"""What a stream reads: files; files and a Delta table; or files, joined with a table that is no stream."""
Place = tuple[str, int]
"""A table, and the mark of what made the row."""

STATIC_TABLE = "sluice.tests.histories.static"
"""The setting that tells transforms where the table lies that they join."""


def first(numbers: DataFrame, **more: DataFrame) -> DataFrame:
    return _marked(numbers, more, 1, "(n + shift) % 4 = 3")


def second(numbers: DataFrame, **more: DataFrame) -> DataFrame:
    """Corrected: other rows are bad."""
    return _marked(numbers, more, 2, "(n + shift) % 4 = 2")


def by_chance(numbers: DataFrame, **more: DataFrame) -> DataFrame:
    """Any row may be bad, at any try."""
    return _marked(numbers, more, 3, "rand() < 0.5")


def _marked(numbers: DataFrame, more: dict[str, DataFrame], mark: int, bad: str) -> DataFrame:
    session = numbers.sparkSession
    for others in more.values():
        numbers = numbers.unionByName(others)
    static = session.conf.get(STATIC_TABLE, "")
    if static:
        rows = numbers.join(session.read.format("delta").load(static), "day")
    else:
        rows = numbers.withColumn("shift", functions.lit(0))
    return rows.select("n", "day", functions.expr(f"{mark} + 10 * shift").alias("v"), functions.expr(bad).alias("bad"))


_TRANSFORMS: list[Callable[..., DataFrame]] = [first, second, by_chance]


@dataclass(frozen=True)
class Declared:
    """What a stream declares at a moment, and what its transform joins then."""

    shape: Shape = "files"
    transform: int = 1
    policy: Policy = "quarantine"
    quarantine: str = "out_quarantine"
    shift: int = 0
    """What the static table says."""

    def stream(self) -> Stream:
        numbers = sources.files("land", format="json", schema="n bigint, day date", max_files_per_batch=2)
        has_suite = self.policy != "none"
        return Stream(
            name="s",
            sources={"numbers": numbers} | ({"more": sources.delta("more")} if self.shape == "union" else {}),
            transform=f"{__name__}:{_TRANSFORMS[self.transform - 1].__name__}",
            sink=sinks.delta("out"),
            interval_column="day",
            quality="suite.json" if has_suite else None,
            quarantine=sinks.delta(self.quarantine) if has_suite else None,
        )

    def allowed(self, number: int) -> set[Place | None]:
        """Where a row may be; None for a row that was dropped."""
        rest = (number + self.shift) % 4
        bad = {1: {rest == 3}, 2: {rest == 2}, 3: {True, False}}[self.transform]
        return {self._place(is_bad=is_bad) for is_bad in bad}

    def _place(self, *, is_bad: bool) -> Place | None:
        mark = self.transform + 10 * self.shift
        if not is_bad or self.policy in {"none", "warn"}:
            return "out", mark
        return None if self.policy == "drop" else (self.quarantine, mark)
