"""Checks as people say them."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.quality.expectations import EXPECTATIONS
from sluice.quality.sentences import finding, rule


def _compared(operator: str, parameter: Any) -> dict[str, Any]:
    """A comparison, as Great Expectations writes conditions that are made with `Column`."""
    return {"type": "comparison", "column": {"name": "x"}, "operator": operator, "parameter": parameter}


@pytest.mark.parametrize(
    ("kind", "kwargs", "said"),
    [
        ("expect_column_values_to_be_between", {"column": "d", "min_value": -60, "max_value": 1440},
         "`d` must lie between -60 and 1440"),
        ("expect_column_values_to_be_between", {"column": "d", "min_value": 0.5}, "`d` must be at least 0.5"),
        ("expect_column_values_to_be_between", {"column": "d", "max_value": 12345, "strict_max": True},
         "`d` must be less than 12,345"),
        ("expect_column_values_to_be_between", {"column": "d", "min_value": 1, "max_value": 2, "strict_min": True},
         "`d` must be more than 1 and at most 2"),
        ("expect_column_values_to_not_be_null", {"column": "d", "mostly": 0.995},
         "`d` must have a value, in at least 99.5 % of the rows"),
        ("expect_column_values_to_be_in_set", {"column": "a`b", "value_set": list("abcdefghij")},
         "`a'b` must be one of `a`, `b`, `c`, `d`, `e`, `f`, `g`, `h` and 2 more"),
        ("expect_column_values_to_match_regex", {"column": "d", "regex": "^a", "row_condition": "x > 1"},
         "`d` must match `^a`, where `x > 1`"),
        *(
            ("expect_column_values_to_not_be_null", {"column": "d", "row_condition": condition},
             f"`d` must have a value, where {said}")
            for condition, said in [
                (_compared(">", 3), "`x` > 3"),
                (_compared("==", "a"), "`x` is a"),
                (_compared("NOT_IN", ["a", "b"]), "`x` is none of `a`, `b`"),
                ({"type": "nullity", "column": {"name": "y"}, "is_null": False}, "`y` has a value"),
                ({"type": "pass_through", "pass_through_filter": "x > 1"}, "`x > 1`"),
                ({"type": "or", "conditions": [_compared("<", 1), {"type": "and", "conditions": [
                    _compared(">", 5), {"type": "nullity", "column": {"name": "y"}, "is_null": True}]}]},
                 "`x` < 1 or (`x` > 5 and `y` has no value)"),
                ({"type": "or", "conditions": [3]}, "`{'type': 'or', 'conditions': [3]}`"),
            ]
        ),
        ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "a", "column_B": "b", "or_equal": True},
         "`a` must be greater than or equal to `b`"),
        ("expect_multicolumn_sum_to_equal", {"column_list": ["a", "b", "c"], "sum_total": 1},
         "`a`, `b` and `c` must add up to 1"),
        ("expect_column_mean_to_be_between", {"column": "d"}, "the mean of `d` may be anything"),
        ("sluice_row_count_against_history", {"min_value": 1, "max_relative_change": 0.5, "last": 7},
         "the number of rows must be at least 1 and lie within 50 % of the mean of the last 7 runs"),
        ("expect_column_values_to_be_json_parseable", {"column": "d"}, "`d`: values must be json parseable"),
        ("expect_column_values_to_be_between", {}, "values must be between"),
    ],
)  # fmt: skip
def test_rules(kind: str, kwargs: dict[str, Any], said: str) -> None:
    """What must hold, with what it is about as code; what a record lacks is no error."""
    assert rule(kind, kwargs) == said


@pytest.mark.parametrize(
    ("result", "success", "said"),
    [
        ({"element_count": 10000, "unexpected_count": 12, "missing_count": 0}, False,
         "12 of 10,000 rows do not (0.12 %)"),
        ({"element_count": 4, "unexpected_count": 1, "missing_count": 2}, False,
         "1 of 4 rows does not (50.0 %); 2 have no value"),
        ({"element_count": 4, "unexpected_count": 0}, True, "all 4 rows do"),
        ({"element_count": 0, "unexpected_count": 0}, True, "there were no rows"),
        ({"observed_value": 3.25}, False, "it is 3.25"),
        ({"observed_value": 90000, "details": {"former_runs": 5, "mean": 80000.5}}, False,
         "it is 90,000; the mean of the last 5 runs is 80,000.5"),
        ({"observed_value": None, "unexpected_count": 2, "missing_count": 1, "partial_missing_list": ["a"]}, False,
         "2 other values were seen; 1 of them were not seen: `a`"),
        ({"details": {"not_measured": "1 of 2 batches were not measured"}}, False, "1 of 2 batches were not measured"),
        ({"details": {"sluice": "a row ended the batch"}}, False, "a row ended the batch"),
        ({}, True, "it does"),
        ({"observed_value": ["a", "b"]}, True, "it is `a`, `b`"),
        ({"missing_count": 3, "partial_missing_list": 7}, False, "the record does not tell"),
    ],
)  # fmt: skip
def test_findings(result: dict[str, Any], *, success: bool, said: str) -> None:
    """What was seen, with the figures that matter."""
    assert finding(result, success=success) == said


def test_most_expectations_have_a_sentence() -> None:
    """All that are measured while the stream writes have one of their own."""
    from sluice.quality.sentences import _RULES

    measured = {kind for kind, found in EXPECTATIONS.items() if found.path in {"exact", "schema", "sketch"}}
    assert measured <= set(_RULES)
