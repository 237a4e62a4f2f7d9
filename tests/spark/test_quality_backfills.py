"""Backfills of streams with a suite: judged before they replace, and parted as the live stream parts its rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, QualityFailedError
from sluice.gate.state import read_gate
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
from sluice.runs.record import RunRecord
from tests.campaign import in_campaigns, rarely
from tests.spark.lab import Lab, write_files
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark


def as_delivered(days: DataFrame) -> DataFrame:
    return days


def times_ten(days: DataFrame) -> DataFrame:
    return days.withColumn("n", F.col("n") * 10)


def once_each(days: DataFrame) -> DataFrame:
    timed = times_ten(days).withColumn("at", F.col("day").cast("timestamp")).withWatermark("at", "9 days")
    return timed.dropDuplicatesWithinWatermark(["n", "day"]).drop("at")


def up_to(most: int, policy: str) -> dict[str, Any]:
    return row("expect_column_values_to_be_between", policy=policy, column="n", max_value=most)


@dataclass(frozen=True)
class Days:
    """A live stream of two days, whose numbers 1 to 8 alternate between them."""

    lab: Lab

    def stream(self, transform: str = "as_delivered", **changes: Any) -> Stream:
        known: dict[str, Any] = {
            "name": "s",
            "sources": {"days": sources.files("land", format="json", schema="n bigint, day date")},
            "transform": f"{__name__}:{transform}",
            "sink": sinks.delta("out", partition_by=["day"]),
            "interval_column": "day",
            "quality": "suite.json",
        }
        return Stream(**known | changes)

    def declare(self, *rows: dict[str, Any], **meta: Any) -> None:
        (self.lab.root / "suite.json").write_bytes(document(*rows, **meta))

    def arrive(self, first: int, last: int) -> None:
        rows = [json.dumps({"n": n, "day": f"2026-01-{1 + n % 2:02d}"}) for n in range(first, last + 1)]
        write_files(self.lab.root / "land", {f"{first:04d}.json": "\n".join(rows)}, first=first)

    def backfill(self, transform: str = "times_ten", **changes: Any) -> RunRecord:
        """Recompute the second day, which has the odd numbers."""
        interval = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
        declared = self.lab.project.resolve(self.stream(transform, **changes))
        request = BackfillRequest(declared, interval)
        return backfill_stream(self.lab.project, request, session=self.lab.spark)

    def numbers(self, path: str = "out") -> list[int]:
        return sorted(found["n"] for found in self.lab.table(path).select("n").collect())

    @property
    def last_record(self) -> dict[str, Any]:
        return self.lab.records(self.stream())[-1]


@pytest.fixture
def days(lab: Lab) -> Days:
    return Days(lab)


@pytest.mark.parametrize(
    ("partitions", "transform"),
    [(["day"], "once_each"), *rarely(([], "once_each"), (["day"], "times_ten"), ([], "times_ten"))],
)
def test_rows_that_fail_leave_for_the_quarantine(days: Days, partitions: list[str], transform: str) -> None:
    """Those of the interval take the place of what has failed there before; a second backfill changes no row."""
    sink = sinks.delta("out", partition_by=partitions)
    days.declare(up_to(6, "quarantine"), row("expect_table_row_count_to_be_between", policy="warn", min_value=1))
    days.arrive(1, 8)
    days.lab.run(days.stream(sink=sink))
    assert (days.numbers(), days.numbers("out_quarantine")) == ([1, 2, 3, 4, 5, 6], [7, 8])
    days.declare(up_to(40, "quarantine"))

    record = days.backfill(transform, sink=sink)

    assert days.numbers() == [2, 4, 6, 10, 30]
    assert days.numbers("out_quarantine") == [8, 50, 70]
    assert record.quality is not None
    assert (record.quality.verdict, record.quality.rows, record.quality.quarantined) == ("warn", 4, 2)
    assert record.quality.checks[0].result["unexpected_count"] == 2
    assert record.plan.quality is not None
    assert record.plan.quality.checks == 1
    assert record.backfill is not None
    assert record.backfill.rows_written == 2
    days.backfill(transform, sink=sink)
    assert (days.numbers(), days.numbers("out_quarantine")) == ([2, 4, 6, 10, 30], [8, 50, 70])


@pytest.mark.parametrize("partitions", [["day"], []], ids=["by metadata", "by Spark"])
def test_the_runner_takes_what_the_plan_says(
    days: Days, monkeypatch: pytest.MonkeyPatch, partitions: list[str]
) -> None:
    """Stage by stage, once it has the lease of the interval."""
    from sluice.running import backfill

    taken, take = [], backfill._Backfill._take

    def spy(work: Any, stage: Any) -> None:
        taken.append(stage.kind)
        take(work, stage)

    monkeypatch.setattr(backfill._Backfill, "_take", spy)
    sink = sinks.delta("out", partition_by=partitions)
    days.declare(up_to(6, "quarantine"))
    days.arrive(1, 8)
    days.lab.run(days.stream(sink=sink))

    record = days.backfill(sink=sink)

    stages = [stage.kind for stage in record.plan.stages or ()]
    assert stages == ["lease", *taken]
    alone = [] if partitions else ["live_lease"]
    assert taken == [*alone, "session", "begin", "compute", "audit", "replace", "quarantine", "record"]


def test_rows_come_back_from_the_quarantine(days: Days) -> None:
    """Once the suite lets them pass, a backfill publishes them, and the quarantine has them no more."""
    days.declare(up_to(6, "quarantine"))
    days.arrive(1, 8)
    days.lab.run(days.stream())
    days.declare(up_to(6, "warn"))

    days.backfill("as_delivered")

    assert (days.numbers(), days.numbers("out_quarantine")) == ([1, 2, 3, 4, 5, 6, 7], [8])


@in_campaigns
def test_what_the_live_stream_quarantines_meanwhile_stays(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that the backfill has not read keeps its rows in the quarantine, as in the table."""
    days.declare(up_to(6, "quarantine"))
    days.arrive(1, 8)
    days.lab.run(days.stream())
    from sluice.running import backfill

    audit = backfill.audit_interval

    def with_the_live_stream_at_work(*args: Any, **kwargs: Any) -> Any:
        days.arrive(9, 12)
        days.lab.run(days.stream())
        return audit(*args, **kwargs)

    monkeypatch.setattr(backfill, "audit_interval", with_the_live_stream_at_work)
    days.backfill("as_delivered")

    assert (days.numbers(), days.numbers("out_quarantine")) == ([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12])


def test_rows_are_dropped(days: Days) -> None:
    """They are counted, and go nowhere; there is no quarantine then."""
    days.declare(up_to(40, "drop"))
    days.arrive(1, 8)
    days.lab.run(days.stream())

    record = days.backfill()

    assert days.numbers() == [2, 4, 6, 8, 10, 30]
    assert record.quality is not None
    assert (record.quality.dropped, record.quality.rows) == (2, 4)
    assert not Path(days.lab.root / "out_quarantine").exists()


@in_campaigns
@pytest.mark.parametrize("partitions", [["day"], []], ids=["by metadata", "by Spark"])
def test_nothing_is_replaced_when_the_suite_fails(days: Days, partitions: list[str]) -> None:
    """The record has the verdict; the live stream goes on, and the retry after a correction replaces."""
    sink = sinks.delta("out", partition_by=partitions)
    days.declare(up_to(40, "fail"), up_to(30, "quarantine"))
    days.arrive(1, 8)
    days.lab.run(days.stream(sink=sink))
    version = days.lab.table("out").sparkSession.sql(f"DESCRIBE HISTORY delta.`{days.lab.root}/out`").count()

    with pytest.raises(QualityFailedError, match="nothing was replaced") as failed:
        days.backfill(sink=sink)

    assert failed.value.exit_code == 4
    assert days.numbers() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert days.numbers("out_quarantine") == []
    assert days.lab.spark.sql(f"DESCRIBE HISTORY delta.`{days.lab.root}/out`").count() == version
    record = days.last_record
    assert (record["status"], record["error"]["type"]) == ("failed", "QualityFailedError")
    assert (record["quality"]["verdict"], record["quality"]["rows"]) == ("fail", 4)
    assert read_gate(days.lab.project.stream_home(days.stream())) is None
    days.arrive(9, 10)
    days.lab.run(days.stream(sink=sink))
    days.declare(up_to(100, "fail"))
    days.backfill(sink=sink)
    assert days.numbers() == [2, 4, 6, 8, 10, 10, 30, 50, 70, 90]


def test_history_does_not_apply(days: Days) -> None:
    """A backfill brings what it brings: its rows say nothing about the live stream's pace, nor count for it."""
    days.declare(up_to(100, "fail"), history=[{"metric": "row_count", "min_value": 5, "policy": "fail"}])
    days.arrive(1, 8)
    days.lab.run(days.stream())

    record = days.backfill()

    assert record.quality is not None
    assert [check.type for check in record.quality.checks] == ["expect_column_values_to_be_between"]
    assert days.numbers() == [2, 4, 6, 8, 10, 30, 50, 70]


def test_a_wrong_suite_is_refused_before_spark(days: Days) -> None:
    """Nothing is begun: there is no record."""
    days.declare(up_to(100, "fail"))
    days.arrive(1, 8)
    days.lab.run(days.stream())
    records = days.lab.records(days.stream())
    days.declare(row("expect_column_values_to_be_even", column="n"))

    stream = days.lab.project.resolve(days.stream())
    interval = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    for work in (days.backfill, lambda: plan_backfill(days.lab.project, BackfillRequest(stream, interval))):
        with pytest.raises(DeclarationError, match="no expectation `expect_column_values_to_be_even`"):
            work()
    assert days.lab.records(days.stream()) == records
