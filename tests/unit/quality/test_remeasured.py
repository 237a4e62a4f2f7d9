"""Whether a batch that is measured again is the one that it was."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.remeasured import measured_otherwise
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
