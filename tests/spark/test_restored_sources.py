"""A `DELETE` in a Delta source that is undone by `RESTORE`: the files that are back are no new ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
from tests.remedies import read_remedy
from tests.spark.lab import Lab, bounded, forget_tables

pytestmark = pytest.mark.spark

DAYS = Interval.parse("1970-01-01", "1970-01-10")
SAYS = (
    r"up to the version before \(`--to-version (\d+)`\), then once with `exclude_regex`: (\S+); and take that out again"
)


def dated(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("n", "date_add(DATE'1970-01-01', CAST(n AS int)) AS day")


def stream(**options: Any) -> Stream:
    return Stream(
        name="numbers",
        sources={"numbers": sources.delta("src", **options)},
        transform=f"{__name__}:dated",
        sink=sinks.delta("out"),
        interval_column="day",
    )


def add(lab: Lab, *numbers: int) -> None:
    write_deltalake(str(lab.root / "src"), pa.table({"n": pa.array(numbers, pa.int64())}), mode="append")


def undo(lab: Lab, by: str) -> None:
    """Delete the rows 1 and 2, and bring them back."""
    table = DeltaTable(str(lab.root / "src"))
    version = table.version()
    table.delete("n <= 2")
    if by == "delta-rs":
        table.restore(version)
    else:
        lab.spark.sql(f"RESTORE TABLE delta.`{lab.root / 'src'}` TO VERSION AS OF {version}")
    forget_tables(lab.spark)


def numbers(lab: Lab) -> list[int]:
    return sorted(found.n for found in lab.table("out").collect())


@pytest.mark.parametrize("option", ["skip_change_commits", "ignore_deletes"])
@pytest.mark.parametrize("by", ["Spark", "delta-rs"])
def test_a_delete_that_is_undone(lab: Lab, option: str, by: str) -> None:
    """Refused by plans, runs, drains and backfills; passed over as the remedy says, every row is there once."""
    add(lab, 1, 2)
    add(lab, 3, 4)
    lab.run(stream())
    undo(lab, by)
    add(lab, 5)
    assert getattr(lab.plan(stream()).problem, "code", None) == "SOURCE_NOT_APPEND_ONLY"

    declared = stream(**{option: True})
    plan = lab.plan(declared)
    resolved = lab.project.resolve(declared)
    assert plan_backfill(lab.project, BackfillRequest(resolved, DAYS)).problem == plan.problem
    for limits in (Limits(), Limits(strategy="drain")):
        with pytest.raises(RefusedError) as refused:
            lab.run(declared, limits)
        assert refused.value.finding == plan.problem

    found = re.search(SAYS, read_remedy(plan.problem, "SOURCE_RESTORED", SAYS).remedy)
    assert found is not None
    lab.run(declared, bounded(to_version=int(found[1])))
    lab.run(stream(**{option: True, "exclude_regex": found[2]}))
    assert numbers(lab) == [1, 2, 3, 4, 5]

    add(lab, 6)
    lab.run(declared)
    backfill_stream(lab.project, BackfillRequest(resolved, DAYS), session=lab.spark)
    assert numbers(lab) == [1, 2, 3, 4, 5, 6]


def test_a_restore_that_takes_rows_out_as_well(lab: Lab) -> None:
    """It is a change as any other, and passed over whole."""
    add(lab, 1, 2)
    add(lab, 3, 4)
    lab.run(stream())
    table = DeltaTable(str(lab.root / "src"))
    table.delete("n <= 2")
    add(lab, 5)
    declared = stream(skip_change_commits=True)
    lab.run(declared)
    DeltaTable(str(lab.root / "src")).restore(1)
    forget_tables(lab.spark)
    add(lab, 6)
    lab.run(declared)
    assert numbers(lab) == [1, 2, 3, 4, 5, 6]


def test_a_stream_that_begins_later(lab: Lab) -> None:
    """The table as it is has each row once."""
    add(lab, 1, 2)
    undo(lab, "delta-rs")
    lab.run(replace(stream(skip_change_commits=True), name="later"))
    assert numbers(lab) == [1, 2]
