"""This run against the last ones: bounds, relative change, z-score, and rules that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.errors import DeclarationError
from sluice.quality.history import HistoryRule, history_rules, judge
from tests.unit.quality.suites import suite


@pytest.mark.parametrize(
    ("limits", "value", "before", "success"),
    [
        ({"min_value": 1}, 0, [], False),
        ({"min_value": 1}, 1, [], True),
        ({"max_value": 10}, 11, [5.0] * 9, False),
        ({"max_relative_change": 0.5}, 150, [100.0] * 3, True),
        ({"max_relative_change": 0.5}, 151, [100.0] * 3, False),
        ({"max_relative_change": 0.5}, 49, [100.0] * 3, False),
        ({"max_relative_change": 0.5}, 1000, [100.0] * 2, True),
        ({"max_relative_change": 0.5}, 1, [0.0] * 3, False),
        ({"max_relative_change": 0.5}, 0, [0.0] * 3, True),
        ({"max_z_score": 2}, 14, [8.0, 10.0, 12.0], True),
        ({"max_z_score": 2}, 14.1, [8.0, 10.0, 12.0], False),
        ({"max_z_score": 2}, 11, [10.0] * 5, False),
        ({"max_z_score": 2}, 10, [10.0] * 5, True),
        ({"max_z_score": 2, "last": 3}, 14, [1000.0, 8.0, 10.0, 12.0], True),
        ({"max_relative_change": 0.5}, None, [1.0] * 3, False),
    ],
)
def test_judge(limits: dict[str, Any], value: float | None, before: list[float], *, success: bool) -> None:
    """A number passes when it keeps all limits; few runs before limit nothing, nothing observed fails."""
    found = judge(HistoryRule(metric="row_count", **limits), value, before)

    assert found.success is success
    assert found.result["observed_value"] == value


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("x", "does not parse"),
        ([{"metric": "rows"}], "does not parse"),
        ([{"metric": "row_count", "max": 3}], "does not parse"),
        ([{"metric": "row_count"}], "no limit"),
        ([{"metric": "row_count", "column": "a", "min_value": 1}], "has a `column`"),
        ([{"metric": "freshness", "max_value": 1}], "no `column`"),
        ([{"metric": "row_count", "min_value": 1, "last": 0}], "`last` is 0"),
        ([{"metric": "row_count", "max_z_score": -1}], "below 0"),
        ([{"metric": "row_count", "min_value": 2, "max_value": 1}], "greater"),
        ([{"metric": "row_count", "policy": "drop", "min_value": 1}], "does not parse"),
        ([{"metric": "row_count", "min_value": 1}, {"metric": "row_count", "max_value": 1}], "same number"),
    ],
)
def test_wrong_rules(rules: Any, problem: str) -> None:
    """A rule that is none is refused, with the suite."""
    with pytest.raises(DeclarationError, match=problem) as caught:
        history_rules(suite(history=rules))

    assert caught.value.where == "suite.json, meta.sluice.history"
