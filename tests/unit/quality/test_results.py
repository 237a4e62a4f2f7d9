"""Results and merging: Great Expectations' numbers, over any number of batches."""

from __future__ import annotations

import json
import math
import statistics
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.quality.compile import compile_suite
from sluice.quality.measures import Measure, merge_batches
from sluice.quality.results import CheckResult, check_results, history_results, verdict
from tests.unit.quality.suites import named, row, suite

BETWEEN = compile_suite(suite(row("expect_column_values_to_be_between", column="n", min_value=1, mostly=0.75)), "n INT")
MEAN = (
    Measure("n", "count(x)", "add"),
    Measure("sum", "sum(x)", "add", ("double",)),
    Measure("sd", "stddev_samp(x)", "deviation", ("double",), ("n", "sum")),
)


def counted(rows: int, unexpected: int, missing: int) -> dict[str, Any]:
    roles = BETWEEN.checks[0].measures
    return {**named(BETWEEN), roles["rows"]: rows, roles["unexpected"]: unexpected, roles["missing"]: missing}


@pytest.mark.parametrize(
    ("batches", "success", "percent"),
    [
        ([counted(10, 2, 2)], True, 25.0),
        ([counted(10, 3, 2)], False, 37.5),
        ([counted(5, 0, 1), counted(5, 2, 1)], True, 25.0),
        ([counted(4, 0, 4)], True, None),
        ([counted(0, 0, 0)], True, None),
        ([], True, None),
    ],
)
def test_mostly(batches: list[dict[str, Any]], *, success: bool, percent: float | None) -> None:
    """Nulls don't count, `mostly` is of the run, and nothing at all is as expected."""
    (found,) = check_results(BETWEEN, batches)

    assert (found.success, found.result["unexpected_percent"]) == (success, percent)


def test_what_a_result_says() -> None:
    """Its numbers, as in Great Expectations; all of it goes into JSON."""
    (found,) = check_results(BETWEEN, [counted(10, 2, 2)])

    assert json.loads(json.dumps(msgspec.to_builtins(found.record)))["result"] == {
        "element_count": 10,
        "unexpected_count": 2,
        "unexpected_percent": 25.0,
        "missing_count": 2,
        "missing_percent": 20.0,
        "unexpected_percent_total": 20.0,
        "unexpected_percent_nonmissing": 25.0,
    }


@pytest.mark.parametrize("changes", [{}, {0: "x"}, {0: []}, {0: 2**70}])
def test_unreadable_measures(changes: dict[int, Any]) -> None:
    """A measure that never arrived, or is something else, fails what needs it, and is no zero."""
    observed = named(BETWEEN, 1, 1, 1)
    for index, value in changes.items():
        observed[BETWEEN.measures[index].name] = value
    if not changes:
        del observed[BETWEEN.measures[2].name]

    (found,) = check_results(BETWEEN, [observed])

    assert not found.success
    assert "quality measure" in found.result["details"]["not_measured"]


@pytest.mark.parametrize(
    ("failed", "expected"), [([], "pass"), (["warn"], "warn"), (["drop"], "warn"), (["quarantine", "fail"], "fail")]
)
def test_verdict(failed: list[str], expected: str) -> None:
    """Only a failed check with the policy `fail` fails the run."""
    found = [CheckResult("1", "t", {}, "fail", success=True, result={}, path="exact")]
    found += [CheckResult("2", "t", {}, policy, success=False, result={}, path="exact") for policy in failed]  # type: ignore[arg-type]

    assert verdict(found) == expected


def observe(values: list[float]) -> dict[str, Any]:
    return {
        "n": len(values),
        "sum": str(math.fsum(values)) if values else None,
        "sd": str(statistics.stdev(values)) if len(values) > 1 else None,
    }


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=5), max_size=6))
def test_moments_merge(batches: list[list[float]]) -> None:
    """Sum and deviation of a run are those of all of its values, however they were cut, also with empty batches."""
    values = [value for batch in batches for value in batch]

    merged = merge_batches(MEAN, [observe(batch) for batch in batches])

    assert merged["n"] == len(values)
    expected = observe(values)
    for name in ("sum", "sd"):
        assert (merged[name] is None) == (expected[name] is None)
        if expected[name] is not None:
            assert merged[name] == pytest.approx(float(expected[name]), rel=1e-6, abs=1e-5)


def test_decimals_stay_exact() -> None:
    """Sums and means of decimals don't pass through doubles."""
    checks = suite(
        row("expect_column_sum_to_be_between", column="d"), row("expect_column_mean_to_be_between", column="d")
    )
    plan = compile_suite(checks, "d DECIMAL(20,2)")
    batches = [named(plan, "99999999999999.01", 1), named(plan, "0.09", 3)]

    total, mean = check_results(plan, batches)

    assert merge_batches(plan.measures, batches)[plan.measures[0].name] == Decimal("99999999999999.10")
    assert (total.result["observed_value"], mean.result["observed_value"]) == (99999999999999.10, 24999999999999.775)


def test_mean_of_decimals_is_spark_s() -> None:
    """It has four digits more than its values, the last one rounded half up."""
    plan = compile_suite(suite(row("expect_column_mean_to_be_between", column="d")), "d DECIMAL(5,1)")

    (found,) = check_results(plan, [named(plan, "2.0", 3)])

    assert found.result["observed_value"] == 0.66667


def test_extremes_follow_spark() -> None:
    """NaN is above all numbers, and an empty batch changes nothing."""
    measures = (Measure("low", "", "least", ("double",)), Measure("high", "", "greatest", ("double",)))

    merged = merge_batches(
        measures, [{"low": "1.0", "high": "1.0"}, {"low": None, "high": None}, {"low": "NaN", "high": "NaN"}]
    )

    assert merged["low"] == 1.0
    assert math.isnan(merged["high"])


@pytest.mark.parametrize(
    ("column", "bounds", "value", "success", "shown"),
    [
        ("x", {"min_value": 1}, "1.0", True, 1.0),
        ("x", {"min_value": 1, "strict_min": True}, "1.0", False, 1.0),
        ("x", {"max_value": 1}, "Infinity", False, math.inf),
        ("x", {}, "NaN", False, None),
        ("x", {}, None, False, None),
        ("d", {"max_value": "2026-01-02"}, "2026-01-02", True, "2026-01-02"),
        ("d", {"max_value": "2026-01-01T23:00:00"}, "2026-01-02", False, "2026-01-02"),
        ("at", {"max_value": "2026-01-01"}, "1767311999000000", True, "2026-01-01T23:59:59"),
        ("at", {"max_value": "2026-01-01T12:00:00+02:00"}, "1767261600000001", False, "2026-01-01T10:00:00.000001"),
        ("at", {"max_value": "2026-01-01T10:00:00"}, "1767261600000000", True, "2026-01-01T10:00:00"),
        ("local", {"min_value": "2026-01-01T10:00:00"}, "2026-01-01 10:00:00", True, "2026-01-01T10:00:00"),
        ("local", {"min_value": "2026-01-01T10:00:00Z"}, "2026-01-01 10:00:00", True, "2026-01-01T10:00:00"),
        ("local", {"max_value": "2026-01-01T10:00:00+02:00"}, "2026-01-01 09:00:00", False, "2026-01-01T09:00:00"),
        ("d", {"max_value": "2026-01-02T01:00:00+02:00"}, "2026-01-02", False, "2026-01-02"),
        ("d", {"min_value": "2026-01-01"}, "+10000-01-01", True, "+10000-01-01"),
        ("d", {"max_value": "2026-01-01T00:00:00Z"}, "+10000-01-01", False, "+10000-01-01"),
        ("d", {"max_value": "0001-01-01"}, "-0001-11-28", True, "-0001-11-28"),
        ("d", {"max_value": "0001-01-01"}, "0000-12-31", True, "+0000-12-31"),
        ("at", {"max_value": "9999-12-31T23:59:59Z"}, "1767261600000000000", False, "+57972-04-16T16:00:00"),
        ("at", {"max_value": "2026-01-01"}, "-90000000000000000", True, "-0882-01-06T08:00:00"),
        ("at", {"min_value": "2026-01-01"}, str(2**63 - 1), True, "+294247-01-10T04:00:54.775807"),
        ("local", {"max_value": "2026-01-01"}, "+57972-04-16 16:00:00.000001", False, "+57972-04-16T16:00:00.000001"),
        ("local", {"min_value": "2026-01-01T00:00:00"}, "-0882-01-06 08:00:00", False, "-0882-01-06T08:00:00"),
    ],
)
def test_bounds(column: str, bounds: dict[str, Any], value: str | None, *, success: bool, shown: Any) -> None:
    """A maximum against its bounds: numbers, days, moments; nothing observed fails."""
    check = row("expect_column_max_to_be_between", column=column, **bounds)
    plan = compile_suite(suite(check), "x DOUBLE, d DATE, at TIMESTAMP, local TIMESTAMP_NTZ")

    (found,) = check_results(plan, [named(plan, value)])

    assert (found.success, found.result["observed_value"]) == (success, shown)


def test_distant_times_merge() -> None:
    """What Python can't hold is compared with what it can, and with its like, over batches and in samples."""
    columns = "at TIMESTAMP, d DATE"
    plan = compile_suite(
        suite(
            row("expect_column_max_to_be_between", column="at"),
            row("expect_column_min_to_be_between", column="d"),
            row("expect_column_values_to_be_null", column="d"),
        ),
        columns,
        sample=4,
    )
    sample = next(measure.name for measure in plan.measures if measure.merge == "sample")
    batches = [
        named(plan, "1767261600000000", "0000-12-31") | {sample: '[["+10001-01-01"]]'},
        named(plan, "1767261600000000001", "2026-01-01") | {sample: '[["2026-01-01"],["+10000-02-29"]]'},
        named(plan, "1767261600000000000", "-0001-11-28") | {sample: '[["-0001-11-28"],["0000-12-31"]]'},
    ]

    high, low, null = check_results(plan, batches)

    assert high.result["observed_value"] == "+57972-04-16T16:00:00.000001"
    assert low.result["observed_value"] == "-0001-11-28"
    assert null.result["partial_unexpected_list"] == ["-0001-11-28", "+0000-12-31", "2026-01-01", "+10000-02-29"]


def test_freshness_of_distant_times() -> None:
    """Seconds become what was meant as milliseconds: newer than everything, and still a number."""
    rules = [{"metric": "freshness", "column": name, "min_value": 0} for name in ("at", "d", "local")]
    plan = compile_suite(suite(history=rules), "at TIMESTAMP, d DATE, local TIMESTAMP_NTZ")
    observed = named(plan, "1767261600000000000", "+57972-04-16", "+57972-04-16 16:00:00")

    found = history_results(plan, [observed], [], now=datetime(2026, 1, 1, 10, tzinfo=UTC))

    seconds = 1_767_261_600.0 - 1_767_261_600_000.0
    assert [result.result["observed_value"] for result in found] == [seconds, seconds + 16 * 3600, seconds]
    assert not any(result.success for result in found)


def test_sums_of_many_digits() -> None:
    """A sum of decimals keeps all of its 38 digits over batches."""
    plan = compile_suite(suite(row("expect_column_sum_to_be_between", column="d")), "d DECIMAL(38,0)")
    most = "9" * 37

    merged = merge_batches(plan.measures, [named(plan, most), named(plan, "2")])

    assert merged[plan.measures[0].name] == int(most) + 2


def test_sets() -> None:
    """Missing values are named, also dates, which suites write as strings."""
    check = row("expect_column_distinct_values_to_contain_set", column="d", value_set=["2026-01-01", "2026-01-02"])
    plan = compile_suite(suite(check), "d DATE")

    (found,) = check_results(plan, [named(plan, '["2026-01-02"]'), named(plan, "[]")])

    assert found.result == {"observed_value": None, "missing_count": 1, "partial_missing_list": ["2026-01-01"]}


def test_history() -> None:
    """Rows and freshness of a run are judged against those before, by the ids of these very checks."""
    plan = compile_suite(
        suite(
            history=[
                {"metric": "row_count", "max_relative_change": 0.5},
                {"metric": "freshness", "column": "at", "max_value": 60, "policy": "fail"},
            ]
        ),
        "at TIMESTAMP",
    )
    now = datetime(2026, 1, 1, 10, 1, 1, tzinfo=UTC)
    batches = [named(plan, 20, "1767261600000000"), named(plan, 20, "0")]

    rows, fresh = history_results(plan, batches, [{"row_count": 100.0}] * 3, now=now)

    assert (rows.id, rows.success, rows.result["details"]["relative_change"]) == ("row_count", False, -0.6)
    assert (fresh.id, fresh.success, fresh.result["observed_value"]) == ("freshness:at", False, 61.0)
    assert verdict([rows]) == "warn"
    assert verdict([rows, fresh]) == "fail"
