"""A Delta source that is brought back: by `RESTORE`, whose files are no new ones, or from an older copy of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.planning.triggers import triggered
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
from sluice.spark.left_behind import forget_tables
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, bounded
from tests.spark.power_cuts import Cut
from tests.spark.test_expired_transactions import cut_run

pytestmark = pytest.mark.spark

DAYS = Interval.parse("1970-01-01", "1970-01-10")
SAYS = (
    r"up to the version before \(`--to-version (\d+)`\), then once with `exclude_regex`: (\S+); and take that out again"
)


def dated(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("n", "date_add(DATE'1970-01-01', CAST(n AS int)) AS day")


MEANWHILE: list[Callable[[], None]] = []
"""What happens between the plan of a run and its start."""


def disturbed(numbers: DataFrame) -> DataFrame:
    while MEANWHILE:
        MEANWHILE.pop()()
    return dated(numbers)


def stream(transform: str = "dated", **options: Any) -> Stream:
    return Stream(
        name="numbers",
        sources={"numbers": sources.delta("src", **options)},
        transform=f"{__name__}:{transform}",
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


@pytest.mark.parametrize(
    ("by", "option"),
    [
        ("Spark", "skip_change_commits"),
        ("delta-rs", "ignore_deletes"),
        *rarely(("Spark", "ignore_deletes"), ("delta-rs", "skip_change_commits")),
    ],
)
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


@pytest.mark.parametrize("later", [(), (6,)])
def test_a_delete_that_is_undone_while_a_drain_starts(lab: Lab, later: tuple[int, ...]) -> None:
    """AvailableNow takes what came after the plan; the run says that rows may be there twice, and so does its batch."""
    declared = stream("disturbed", ignore_deletes=True)
    add(lab, 1, 2)
    add(lab, 3, 4)
    lab.run(declared)
    add(lab, 5)

    def restore() -> None:
        undo(lab, "delta-rs")
        if later:
            add(lab, *later)

    MEANWHILE.append(restore)
    record = lab.run(declared, bounded(strategy="drain"))

    assert numbers(lab) == [1, 1, 2, 2, 3, 4, 5, *later]
    warned = [warning for batch in record.batches for warning in batch.warnings]
    assert len(warned) == 1
    assert re.search(r"RESTORE\) adds 1 files again .*may be there twice .*0004\.json\]; delete the second", warned[0])
    add(lab, 7)
    assert not lab.run(declared, bounded(strategy="drain")).batches[-1].warnings


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


@pytest.mark.parametrize("is_pending", [False, True])
def test_an_older_copy_that_was_written_on(lab: Lab, *, is_pending: bool) -> None:
    """It has the table's id, and versions with the numbers of those that were read, of other rows."""
    source, copy = lab.root / "src", lab.root / "copy"
    add(lab, 1, 2)
    lab.run(stream())
    shutil.copytree(source, copy)
    add(lab, 3)
    if is_pending:
        cut_run(lab, stream(), Cut("commit out"))
    else:
        lab.run(stream())
    shutil.copytree(source, lab.root / "whole")
    shutil.rmtree(source)
    copy.rename(source)
    assert getattr(lab.plan(stream()).problem, "code", None) == "SOURCE_TABLE_ROLLED_BACK"

    for number in (4, 5):
        add(lab, number)
        forget_tables(lab.spark)
        with pytest.raises(
            RefusedError, match="version 1, which the checkpoint has read, is another one now"
        ) as refused:
            lab.run(stream())
        assert refused.value.finding.code == "SOURCE_TABLE_ROLLED_BACK"
    resolved = lab.project.resolve(stream())
    if not is_pending:
        found = plan_backfill(lab.project, BackfillRequest(resolved, DAYS)).problem
        assert found == refused.value.finding

    shutil.rmtree(source)
    (lab.root / "whole").rename(source)
    forget_tables(lab.spark)
    add(lab, 6)
    lab.run(stream())
    assert numbers(lab) == [1, 2, 3, 6]


def test_an_older_copy_of_what_was_planned_and_not_read(lab: Lab) -> None:
    """A run that is stopped before it comes to a version has not read it: another one under its number is as good."""
    source, copy = lab.root / "src", lab.root / "copy"
    declared = stream(max_files_per_batch=1)
    add(lab, 1)
    add(lab, 2)
    shutil.copytree(source, copy)
    add(lab, 3)
    lab.run(declared, bounded(to_version=0))
    assert lab.run(declared, stop_after=1).status == "stopped"
    shutil.rmtree(source)
    copy.rename(source)
    forget_tables(lab.spark)
    add(lab, 4)

    lab.run(declared)

    assert numbers(lab) == [1, 2, 4]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_an_older_copy_within_a_run_of_several_batches(lab: Lab, how: str) -> None:
    """A run that ends between its first batch and its last has read what it was in between."""
    source, copy = lab.root / "src", lab.root / "copy"
    declared = stream(max_offsets_per_batch=1)
    add(lab, 1)
    lab.run(declared)
    shutil.copytree(source, copy)
    for number in (2, 3, 4, 5):
        add(lab, number)
    if how == "stopped":
        assert lab.run(declared, stop_after=2).status == "stopped"
    else:
        cut_run(lab, declared, Cut("commit out", nth=3))
    assert numbers(lab) == [1, 2, 3]
    shutil.rmtree(source)
    copy.rename(source)
    forget_tables(lab.spark)

    for number in (20, 30, 40, 50):
        add(lab, number)
    assert getattr(lab.plan(declared).problem, "code", None) == "SOURCE_TABLE_ROLLED_BACK"
    with pytest.raises(RefusedError, match="which the checkpoint has read, is another one now"):
        lab.run(declared)


SPARK_DECIDES: dict[str, tuple[dict[str, Any], Limits]] = {
    "event time order": ({"with_event_time_order": True}, Limits()),
    "tracked schema": ({"schema_tracking_location": "home/numbers/generations/0001/schema"}, Limits()),
    "drain": ({}, Limits(strategy="drain")),
    "live": ({}, triggered(Limits(), "processing-time=200ms", "4s", names=("", ""))),
}
"""How Spark comes to decide the batches."""


@pytest.mark.parametrize("how", ["event time order", "drain", "live", *rarely("tracked schema")])
def test_an_older_copy_of_what_spark_decided(lab: Lab, how: str) -> None:
    """What Spark has read by itself is noted, also what came after the plan: other rows may bear its numbers."""
    options, limits = SPARK_DECIDES[how]
    source, copy = lab.root / "src", lab.root / "copy"
    declared = stream("disturbed", **options)

    def copy_and_add() -> None:
        shutil.copytree(source, copy)
        add(lab, 4)

    rows = pa.table({"n": pa.array([1], pa.int64())})
    write_deltalake(str(source), rows)
    add(lab, 2)
    lab.run(declared, limits)
    add(lab, 3)
    MEANWHILE.append(copy_and_add)
    lab.run(declared, limits)
    assert numbers(lab) == [1, 2, 3, 4]
    shutil.rmtree(source)
    copy.rename(source)
    forget_tables(lab.spark)

    for number in (20, 30, 40):
        add(lab, number)
    assert getattr(lab.plan(declared, limits).problem, "code", None) == "SOURCE_TABLE_ROLLED_BACK"
    with pytest.raises(RefusedError, match="which the checkpoint has read, is another one now"):
        lab.run(declared, limits)


def test_an_older_copy_of_what_a_release_before_has_read(lab: Lab) -> None:
    """Where nothing is noted of what Spark has read, the next run notes it as it begins."""
    source, copy = lab.root / "src", lab.root / "copy"
    declared = stream(with_event_time_order=True)
    write_deltalake(str(source), pa.table({"n": pa.array([1], pa.int64())}))
    shutil.copytree(source, copy)
    add(lab, 2)
    lab.run(declared)
    home = lab.project.stream_home(lab.project.resolve(declared))
    known = home.generation(1)
    assert known is not None
    assert known.marks
    home.keep_generation(msgspec.structs.replace(known, marks={}))
    lab.run(declared)
    shutil.rmtree(source)
    copy.rename(source)
    forget_tables(lab.spark)
    add(lab, 20)
    add(lab, 30)
    assert getattr(lab.plan(declared).problem, "code", None) == "SOURCE_TABLE_ROLLED_BACK"
