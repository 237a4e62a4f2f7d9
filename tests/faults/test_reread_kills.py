"""Kill -9 just before a run's rows are read again: whoever comes next reads those rows, and judges them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from quality_project import Checked, make_checked

from sluice.errors import HeldError
from sluice.runs.record import RunRecord
from tests.campaign import in_campaigns

pytestmark = [pytest.mark.spark, in_campaigns]


@pytest.fixture
def checked(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Checked:
    """Eight numbers in two batches, of which every fourth is bad; a driver that died when all were in the sink."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = make_checked(tmp_path, "write")
    declare(made, "warn")
    made.arrive(2)
    made.crash("before", "finish", run_key="first")
    assert made.sink(spark) == list(range(8))
    assert made.gate().state == "open"
    return made


def declare(checked: Checked, policy: str) -> None:
    """One check that is read again, which fails: `bad` has two values; and one that is measured in the write."""
    distinct = {"column": "bad", "min_value": 3}
    row = {"type": "expect_column_unique_value_count_to_be_between", "kwargs": distinct}
    largest = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "n", "max_value": 100}}
    suite = {"name": "numbers", "expectations": [{**row, "meta": {"sluice": {"policy": policy}}}, largest]}
    (checked.root / "suite.json").write_text(json.dumps(suite))


def test_another_run_judges_the_one_that_died(checked: Checked, spark: SparkSession) -> None:
    """In the dead run's own record; what has arrived since is not counted among its rows."""
    checked.arrive(1)

    checked.run(spark, "second")

    died = next(record for record in checked.records() if record.run_key == "first")
    assert died.quality is not None
    assert (died.quality.verdict, died.quality.rows) == ("warn", 8)
    assert values(died) == {
        "expect_column_max_to_be_between": 7,
        "expect_column_unique_value_count_to_be_between": 2,
    }
    assert checked.gate() is None


def test_a_retry_judges_its_own_rows(checked: Checked, spark: SparkSession) -> None:
    """It keeps to its plan: what has arrived since is for the next run."""
    checked.arrive(1)

    record = checked.run(spark, "first")

    assert record.quality is not None
    assert (record.status, record.quality.verdict, record.quality.rows) == ("succeeded", "warn", 8)
    assert values(record)["expect_column_unique_value_count_to_be_between"] == 2
    assert checked.gate() is None


def test_rows_that_fail_hold_the_stream(checked: Checked, spark: SparkSession) -> None:
    """Before the next run has written one."""
    declare(checked, "fail")
    checked.arrive(1)

    with pytest.raises(HeldError, match="expect_column_unique_value_count_to_be_between"):
        checked.run(spark, "second")

    assert checked.sink(spark) == list(range(8))
    assert checked.gate().state == "failed"


def values(record: RunRecord) -> dict[str, Any]:
    assert record.quality is not None
    return {check.type: check.result["observed_value"] for check in record.quality.checks}
