"""The gate: what fails, what may still mend, and what can't be said."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.judgement import Judgement, describe_failed, judge_run
from sluice.runs.record import CheckRecord
from tests.unit.quality.suites import row, suite

COLUMNS = "n INT, x DOUBLE, d DATE, at TIMESTAMP, local TIMESTAMP_NTZ, word STRING"
NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)
APPROXIMATE = {"sluice": {"approximate": True, "policy": "fail"}}
SKETCH_OF_TWO = "AQQDPwEazJMCsGrys7Yc2K6cPqQbE9WsMA=="
"""As Spark 4.2 wrote it."""


def judge(plan: QualityPlan, observed: dict[str, Any], *, is_last: bool = True) -> Judgement:
    """The judgement on one batch of 5 rows; measures that are not given are 0."""
    values = dict.fromkeys([measure.name for measure in plan.measures], 0)
    return judge_run(plan, [values | {plan.rows: 5} | observed], [], now=NOW, is_last=is_last)


def test_a_value_that_can_t_be_read_fails_only_what_needs_it() -> None:
    """Other checks keep their results, and rows are counted."""
    plan = compile_suite(
        suite(
            row("expect_column_max_to_be_between", column="at", policy="warn"),
            row("expect_column_max_to_be_between", column="n", policy="fail", max_value=9),
            history=[{"metric": "freshness", "column": "at", "max_value": 60, "policy": "warn"},
                     {"metric": "row_count", "min_value": 1, "policy": "fail"}],
        ),
        COLUMNS,
    )  # fmt: skip
    newest, largest = (check.measures["value"] for check in plan.checks)
    rows = plan.history[1].measure

    judged = judge(plan, {newest: "soon", largest: "7", rows: 5})

    assert (judged.verdict, judged.rows) == ("warn", 5)
    assert [result.success for result in judged.results] == [False, True, False, True]
    for lost in judged.failed:
        assert "'soon'" in lost.result["details"]["not_measured"]


@pytest.mark.parametrize("missing", ["rows", "value", "everything"])
@pytest.mark.parametrize("is_last", [True, False])
def test_what_was_not_observed_fails(missing: str, *, is_last: bool) -> None:
    """Also where more rows could mend the check, and where no rows came: the gate stays closed."""
    plan = compile_suite(
        suite(
            row("expect_column_distinct_values_to_contain_set", column="n", policy="fail", value_set=[1]),
            history=[{"metric": "row_count", "min_value": 1, "policy": "fail"}],
        ),
        COLUMNS,
    )
    lost = {"rows": plan.rows, "value": plan.checks[0].measures["seen"]}.get(missing)
    observed: dict[str, Any] | None = {measure.name: 0 for measure in plan.measures if measure.name != lost}
    if missing == "everything":
        observed = None

    judged = judge_run(
        plan, [observed, {measure.name: None for measure in plan.measures}], [], now=NOW, is_last=is_last
    )

    assert judged.verdict == "fail"
    assert any("not_measured" in result.result.get("details", {}) for result in judged.failed)
    assert (judged.rows is None) == (missing != "value")


EXTREME = {
    "n": ("1", "5", "9"),
    "d": ("2026-01-01", "2026-01-05", "2026-01-09"),
    "local": ("2026-01-01 00:00:00", "2026-01-05 00:00:00", "2026-01-09 00:00:00"),
}
"""Of a column a low, a middle and a high value, as Spark observes them."""


@pytest.mark.parametrize("column", EXTREME)
@pytest.mark.parametrize(
    ("extreme", "value", "bounds", "mends"),
    [
        ("max", 0, {"min_value": 1}, True),
        ("max", 1, {"min_value": 1, "strict_min": True}, True),
        ("max", None, {"min_value": 1}, True),
        ("max", 2, {"max_value": 1}, False),
        ("max", 1, {"max_value": 1, "strict_max": True}, False),
        ("max", 0, {"min_value": 1, "max_value": 2}, True),
        ("max", 2, {"min_value": 0, "max_value": 1}, False),
        ("min", 2, {"max_value": 1}, True),
        ("min", 1, {"max_value": 1, "strict_max": True}, True),
        ("min", None, {"max_value": 1}, True),
        ("min", 0, {"min_value": 1}, False),
        ("min", 1, {"min_value": 1, "strict_min": True}, False),
    ],
)
def test_extremes_that_more_rows_may_mend(
    column: str, extreme: str, value: int | None, bounds: dict[str, Any], *, mends: bool
) -> None:
    """A maximum only grows and a minimum only falls: what can't be mended fails with the batch that breaks it."""
    scale = EXTREME[column]
    given = {name: v if isinstance(v, bool) else scale[v].replace(" ", "T") for name, v in bounds.items()}
    if column == "n":
        given = {name: float(v) if isinstance(v, str) else v for name, v in given.items()}
    check = row(f"expect_column_{extreme}_to_be_between", column=column, policy="fail", **given)
    plan = compile_suite(suite(check), COLUMNS)
    observed = {plan.checks[0].measures["value"]: None if value is None else scale[value]}

    assert judge(plan, observed, is_last=False).verdict == ("pass" if mends else "fail")
    assert judge(plan, observed).verdict == "fail"


@pytest.mark.parametrize(("extreme", "mends"), [("max", False), ("min", True)])
def test_nan_is_above_all_numbers(extreme: str, *, mends: bool) -> None:
    """So a minimum may still fall below it, and a maximum stays."""
    check = row(f"expect_column_{extreme}_to_be_between", column="x", policy="fail", min_value=0)
    plan = compile_suite(suite(check), COLUMNS)
    observed = {plan.checks[0].measures["value"]: "NaN"}

    assert judge(plan, observed, is_last=False).verdict == ("pass" if mends else "fail")
    assert judge(plan, observed).verdict == "fail"


@pytest.mark.parametrize(
    ("outside", "seen", "mends"), [(0, '["1"]', True), (1, '["1"]', False), (1, '["1","2"]', False)]
)
def test_a_set_that_more_rows_may_complete(outside: int, seen: str, *, mends: bool) -> None:
    """Missing values may come; one that is too many stays."""
    check = row("expect_column_distinct_values_to_equal_set", column="n", policy="fail", value_set=[1, 2])
    plan = compile_suite(suite(check), COLUMNS)
    roles = plan.checks[0].measures
    sketch = SKETCH_OF_TWO if outside else None
    observed = {roles["outside"]: outside, roles["seen"]: seen, roles["outside_values"]: sketch}

    assert judge(plan, observed, is_last=False).verdict == ("pass" if mends else "fail")
    assert judge(plan, observed).verdict == "fail"


@pytest.mark.parametrize(
    ("kind", "bounds", "mends"),
    [
        ("expect_table_row_count_to_be_between", {"min_value": 6}, True),
        ("expect_table_row_count_to_be_between", {"min_value": 5, "strict_min": True}, True),
        ("expect_table_row_count_to_be_between", {"max_value": 5, "strict_max": True}, False),
        ("expect_table_row_count_to_equal", {"value": 6}, True),
        ("expect_table_row_count_to_equal", {"value": 4}, False),
        ("expect_column_unique_value_count_to_be_between", {"min_value": 3}, True),
        ("expect_column_unique_value_count_to_be_between", {"min_value": 2, "strict_min": True}, True),
        ("expect_column_unique_value_count_to_be_between", {"max_value": 1}, False),
        ("expect_column_sum_to_be_between", {"min_value": 9}, False),
        ("expect_column_proportion_of_non_null_values_to_be_between", {"min_value": 0.5}, False),
    ],
)
def test_counts_that_more_rows_may_mend(kind: str, bounds: dict[str, Any], *, mends: bool) -> None:
    """Counts only grow; of sums and shares nobody knows."""
    named = {"column": "n"} if kind.startswith("expect_column") else {}
    meta = APPROXIMATE if "unique" in kind else {"sluice": {"policy": "fail"}}
    plan = compile_suite(suite(row(kind, meta=meta, **named, **bounds)), COLUMNS)
    roles = plan.checks[0].measures
    observed = {
        roles[role]: value for role, value in {"distinct": SKETCH_OF_TWO, "value": "1"}.items() if role in roles
    }

    assert judge(plan, observed, is_last=False).verdict == ("pass" if mends else "fail")
    assert judge(plan, observed).verdict == "fail"


@pytest.mark.parametrize(("largest", "verdict"), [("9", "pass"), ("10", "fail")])
@pytest.mark.parametrize("rows", [4, 5])
def test_what_an_earlier_suite_did_not_measure_is_judged_without_it(largest: str, verdict: str, rows: int) -> None:
    """All that it measured still counts."""
    total = {"type": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 9}}
    total |= {"meta": {"sluice": {"policy": "fail"}}}
    most = row("expect_column_max_to_be_between", column="n", policy="fail", max_value=9)
    plan = compile_suite(suite(most, total), COLUMNS)
    measured = dict.fromkeys([measure.name for measure in plan.measures], 0) | {plan.rows: rows}
    measured |= {plan.checks[0].measures["value"]: largest}
    before = {name: value for name, value in measured.items() if name != plan.checks[0].measures["value"]}

    judged = judge_run(plan, [measured], [], now=NOW, by_suite_before=[before])

    assert judged.rows == 2 * rows
    assert [result.success for result in judged.results] == [verdict == "pass", rows == 4]
    assert judge_run(plan, [before, measured], [], now=NOW).verdict == "fail"
    assert judge_run(plan, [measured], [], now=NOW, is_last=False, by_suite_before=[before]).rows == 2 * rows


@pytest.mark.parametrize("anything", [3, "text", {"a": 1}, [None], True, 1.5])
def test_what_a_record_says_of_a_failed_check_may_be_anything(anything: Any) -> None:
    """A sensor reads it, and a plan: the check is named all the same."""
    names = ("column", "column_A", "column_B", "column_list")
    found = ("unexpected_count", "element_count", "observed_value", "details")
    check = CheckRecord(type="expect_it", kwargs=dict.fromkeys(names, anything), result=dict.fromkeys(found, anything))
    assert describe_failed([check]).startswith("`expect_it`")
