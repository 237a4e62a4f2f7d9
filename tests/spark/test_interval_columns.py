"""A declared interval column that the result does not have, or that no interval can be compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from tests.spark.lab import Lab, rows, write_files

pytestmark = pytest.mark.spark


def same(visits: DataFrame) -> DataFrame:
    return visits.selectExpr("id", "at", "CAST(at AS date) AS visit_date", "CAST(at AS string) AS day")


def declared(column: str, **sink: Any) -> Stream:
    return Stream(
        name="visits",
        sources={"visits": sources.files("land", format="json", schema="id bigint, at timestamp")},
        transform=f"{__name__}:same",
        sink=sinks.delta("lake", **sink),
        interval_column=column,
    )


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("visit_dte", r"which is no column of the result.*did you mean `visit_date`\?"),
        ("VISIT_DATE", r"which is no column of the result.*did you mean `visit_date`\?"),
        ("day", "which is of type string"),
        ("id", "which is of type bigint"),
    ],
)
def test_the_first_run_is_refused(lab: Lab, column: str, said: str) -> None:
    """It is known before the first batch: nothing is planned, and the right column reads everything."""
    write_files(lab.root / "land", {"a": '{"id":1,"at":"2026-01-01T10:00:00Z"}'})
    with pytest.raises(DeclarationError, match=f"`interval_column` is `{column}`, {said}"):
        lab.run(declared(column))

    assert not Path(lab.checkpoint(declared(column))).exists()
    assert not (lab.root / "lake").exists()
    assert lab.run(declared("visit_date")).status == "succeeded"
    assert [row[0] for row in rows(lab.table("lake"))] == [1]


@pytest.mark.parametrize("column", ["visit_date", "at"])
def test_dates_and_times_are_taken(lab: Lab, column: str) -> None:
    """A date and a time are columns that an interval can be compared with."""
    write_files(lab.root / "land", {"a": '{"id":1,"at":"2026-01-01T10:00:00Z"}'})
    assert lab.run(declared(column)).status == "succeeded"


def test_a_column_that_is_new_to_the_table(lab: Lab) -> None:
    """Where a batch may bring the column to a table, it has to bring it."""
    write_files(lab.root / "land", {"a": '{"id":1,"at":"2026-01-01T10:00:00Z"}'})
    lab.run(declared("at"))
    write_files(lab.root / "land", {"b": '{"id":2,"at":"2026-01-02T10:00:00Z"}'}, first=1)
    with pytest.raises(DeclarationError, match="`interval_column` is `visit_dte`, which is no column of the result"):
        lab.run(declared("visit_dte", schema_evolution="add"))
    assert lab.run(declared("at")).plan.reason.startswith("`visits`: 1 new file")
