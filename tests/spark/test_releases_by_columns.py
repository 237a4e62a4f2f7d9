"""Rows that were edited in the quarantine, released, and recomputed by another `interval_column` than that of then."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.auditing.return_rows import return_rows
from sluice.errors import RefusedError
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_files
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark


def as_delivered(visits: DataFrame) -> DataFrame:
    return visits


def day(number: int) -> Interval:
    start = datetime(2026, 1, number, tzinfo=UTC)
    return Interval(start, start + timedelta(days=1))


@dataclass(frozen=True)
class Visits:
    """Visits 1 and 2 of the same two days each; 2 was too large, and is in the quarantine."""

    lab: Lab

    def declared(self, column: str | None) -> Stream:
        return self.lab.project.resolve(
            Stream(
                name="visits",
                sources={"visits": sources.files("land", format="json", schema="n bigint, seen date, paid date")},
                transform=f"{__name__}:as_delivered",
                sink=sinks.delta("out"),
                interval_column=column,
                quality="suite.json",
            )
        )

    def allow(self, most: int) -> None:
        check = row("expect_column_values_to_be_between", policy="quarantine", column="n", max_value=most)
        (self.lab.root / "suite.json").write_bytes(document(check))

    def begin(self, column: str | None) -> None:
        self.allow(1)
        rows = [json.dumps({"n": n, "seen": "2026-01-01", "paid": "2026-01-05"}) for n in (1, 2)]
        write_files(self.lab.root / "land", {"1.json": "\n".join(rows)})
        self.lab.run(self.declared(column))

    def edit(self, column: str, number: int) -> None:
        table = DeltaTable.forPath(self.lab.spark, str(self.lab.root / "out_quarantine"))
        table.update("n = 2", {column: f"DATE'2026-01-{number:02d}'"})

    def release(self, column: str | None) -> None:
        self.allow(9)
        assert return_rows(self.lab.project, self.declared(column), None, "ada", session=self.lab.spark).returned.rows

    def backfill(self, column: str, number: int) -> None:
        request = BackfillRequest(self.declared(column), day(number))
        backfill_stream(self.lab.project, request, session=self.lab.spark)

    def held(self) -> Counter[int]:
        return Counter(found["n"] for found in self.lab.table("out").select("n").collect())


@pytest.mark.parametrize(
    ("began", "released"),
    [("seen", "seen"), ("seen", "paid"), (None, "paid"), (None, None)],
    ids=["changed_after_the_release", "changed_before_it", "declared_before_it", "declared_after_it"],
)
def test_an_edited_day(lab: Lab, began: str | None, released: str | None) -> None:
    """Somebody corrected `paid`, by which nobody counted then: recomputed by it, the row would be there twice."""
    visits = Visits(lab)
    visits.begin(began)
    visits.edit("paid", 7)
    visits.release(released)
    assert visits.held() == Counter([1, 2])

    with pytest.raises(RefusedError, match="whether their `paid` was edited, nobody knows"):
        visits.backfill("paid", 5)
    assert visits.held() == Counter([1, 2])


@pytest.mark.parametrize(("began", "number"), [("seen", 5), (None, 7), *rarely(("seen", 7), (None, 5))])
def test_an_edited_row_that_stays(lab: Lab, began: str | None, number: int) -> None:
    """Of the day that it had, it would be there twice; of the day that it has, it would be in no table."""
    visits = Visits(lab)
    visits.begin(began)
    visits.edit("paid", 7)
    with pytest.raises(RefusedError, match="whether their `paid` was edited since can't be told"):
        visits.backfill("paid", number)

    visits.release("paid")
    assert visits.held() == Counter([1, 2])


@pytest.mark.parametrize(("began", "released"), [("seen", "seen"), ("seen", "paid"), (None, "paid")])
def test_the_remedy(lab: Lab, began: str | None, released: str | None) -> None:
    """Where nobody has edited anything, the file of the release is not needed."""
    visits = Visits(lab)
    visits.begin(began)
    visits.release(released)
    with pytest.raises(RefusedError, match="nobody knows") as caught:
        visits.backfill("paid", 5)
    read_remedy(caught.value, "RELEASE_BY_ANOTHER_COLUMN", "if nobody has edited it, delete this file")

    Path(caught.value.finding.file).unlink()
    visits.backfill("paid", 5)
    assert visits.held() == Counter([1, 2])


@pytest.mark.parametrize("column", ["seen", "paid"])
def test_the_same_column(lab: Lab, column: str) -> None:
    """Where it was never another one, an interval is recomputed beside what was released."""
    visits = Visits(lab)
    visits.begin(column)
    visits.release(column)
    visits.backfill(column, 1 if column == "seen" else 5)
    assert visits.held() == Counter([1, 2])
