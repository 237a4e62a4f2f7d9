"""What a person has let through, told from what the batch is by the next run."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.gate.stopped_batch import StoppedBatch, asked, key_of, measured_otherwise, not_let_through
from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.gate import Judgement
from sluice.quality.results import CheckResult
from tests.unit.quality.suites import row, suite

LARGEST = row("expect_column_max_to_be_between", policy="fail", column="at", max_value=5)
TOTAL = row("expect_column_sum_to_be_between", policy="fail", column="at", max_value=5)
NAMED = row("expect_column_values_to_be_in_set", policy="fail", column="name", value_set=["a"])


def plan_of(*rows: dict[str, Any]) -> QualityPlan:
    return compile_suite(suite(*rows), "id bigint, at double, name string", sample=3)


def values_of(plan: QualityPlan, **known: Any) -> dict[str, Any]:
    """What was measured, by what is measured: `rows`, the `largest`, the `total`, and the `sample` of what fails."""
    parts = {"largest": "max(", "total": "sum(", "sample": "to_json("}
    found = {name: measure.name for name, part in parts.items() for measure in plan.measures if part in measure.sql}
    values: dict[str, Any] = {measure.name: 0 for measure in plan.measures}
    return values | {(found | {"rows": plan.rows})[name]: value for name, value in known.items()}


def failing(plan: QualityPlan) -> list[CheckResult]:
    return [CheckResult.of(check.expectation, check.path, success=False, result={}) for check in plan.checks]


BEFORE = {"rows": 3, "largest": "7.0", "total": "0.30000000000000004", "sample": '[["b"]]'}


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({}, None),
        ({"total": "0.3"}, None),
        ({"sample": '[["c"]]'}, None),
        ({"rows": 4}, "it had 3 rows then, and has 4 rows"),
        ({"largest": "7.5"}, "was 7.0 then, and is 7.5"),
        ({"largest": None}, "was 7.0 then, and is null"),
        ({"total": "0.31"}, "was 0.30000000000000004 then, and is 0.31"),
    ],
)
def test_what_was_measured(now: dict[str, Any], told: str | None) -> None:
    """A sum in another order is the same sum, and which of many values a sample has tells nothing."""
    plan = plan_of(LARGEST, TOTAL, NAMED)
    found = measured_otherwise(plan, values_of(plan, **BEFORE), values_of(plan, **BEFORE | now))
    assert (found is None) == (told is None)
    assert (told or "") in (found or "")


def test_what_was_not_measured_then_tells_nothing() -> None:
    """A suite that asks for more has measures that nobody can compare; what it asks is told by the checks."""
    then, now = plan_of(LARGEST), plan_of(LARGEST, TOTAL)
    before = {name: value for name, value in BEFORE.items() if name in {"rows", "largest"}}
    after = BEFORE | {"total": "9.0"}
    del after["sample"]
    assert measured_otherwise(now, values_of(then, **before), values_of(now, **after)) is None


def test_what_was_not_measured_now_is_another() -> None:
    plan = plan_of(LARGEST)
    assert measured_otherwise(plan, values_of(plan, rows=3, largest="7.0"), None) is not None


def test_what_varies_is_not_compared() -> None:
    plan = plan_of(LARGEST)
    values = values_of(plan, rows=3, largest="7.0")
    stopped = StoppedBatch(declared={}, failing=(), values=values)
    assert stopped.other_rows(plan, values | {plan.rows: 4}) == "it had 3 rows then, and has 4 rows"
    assert StoppedBatch(declared={}, failing=(), values=values, varies=True).other_rows(plan, {}) is None


def judged(*results: CheckResult) -> Judgement:
    return Judgement("fail" if results else "pass", results, None, {}, results)


def test_what_was_let_through_is_asked_of_the_others() -> None:
    largest, named = failing(plan_of(LARGEST, NAMED))
    let_through = {key_of(largest)}
    assert not_let_through(judged(largest), let_through, judged()) == ()
    assert not_let_through(judged(largest), let_through, judged(largest)) == (largest,)
    assert not_let_through(judged(largest, named), let_through, judged()) == (named,)
    assert not_let_through(judged(largest), (), judged()) == (largest,)


def test_what_fails() -> None:
    """Whatever failed then may fail; what passed, or was asked otherwise, may not."""
    stopped = StoppedBatch(declared={}, failing=(asked(LARGEST["type"], LARGEST["kwargs"]),))
    assert stopped.other_checks(failing(plan_of(LARGEST))) is None
    assert stopped.other_checks([]) is None
    other = {**LARGEST, "kwargs": {**LARGEST["kwargs"], "max_value": 4}}
    told = "`expect_column_max_to_be_between` did not fail then, or was asked otherwise"
    assert stopped.other_checks(failing(plan_of(other))) == told
    assert stopped.other_checks(failing(plan_of(LARGEST, NAMED))) == told.replace("max_to", "values_to").replace(
        "between", "in_set"
    )
