"""Compiling: measures that are shared, rules for rows, and what is refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.errors import DeclarationError
from sluice.quality.compile import compile_suite
from tests.unit.quality.suites import row, suite

DDL = "n INT, m BIGINT, x DOUBLE, t STRING, u STRING, d DATE, at TIMESTAMP, b BOOLEAN, a ARRAY<INT>"


def test_equal_measures_appear_once() -> None:
    """Checks share the count of rows, of nulls, and whatever else is the same."""
    plan = compile_suite(
        suite(
            row("expect_column_values_to_be_between", column="n", min_value=1),
            row("expect_column_values_to_be_between", column="n", min_value=1, mostly=0.5),
            row("expect_column_values_to_be_in_set", column="N", value_set=[1]),
            row("expect_table_row_count_to_equal", value=3),
            row("expect_column_mean_to_be_between", column="x"),
            row("expect_column_stdev_to_be_between", column="x"),
        ),
        DDL,
    )

    assert [measure.sql for measure in plan.measures] == [
        "count(1)",
        "count_if(`n` IS NOT NULL AND NOT (`n` >= 1.0D))",
        "count_if((`n` IS NULL))",
        "count_if(`n` IS NOT NULL AND NOT (`n` IN (1)))",
        "CAST(sum(`x`) AS STRING)",
        "count_if((`x` IS NOT NULL))",
        "CAST(stddev_samp(`x`) AS STRING)",
    ]
    assert len({measure.name for measure in plan.measures}) == 7
    assert plan.removed is None


def test_paths() -> None:
    """Each check says how it is measured; a sketch only when it was asked for."""
    kind = "expect_column_unique_value_count_to_be_between"
    plan = compile_suite(
        suite(
            row("expect_column_values_to_not_be_null", column="n"),
            row("expect_column_to_exist", column="n"),
            row(kind, column="n"),
            row(kind, column="m", meta={"sluice": {"approximate": True}}),
            row("expect_column_values_to_be_unique", column="n"),
        ),
        DDL,
    )

    assert [check.path for check in plan.checks] == ["exact", "schema", "reread", "sketch", "reread"]
    assert [found.type for found in plan.rereads] == [kind, "expect_column_values_to_be_unique"]
    assert plan.checks[4].measures == {}


REFUSED: list[tuple[dict[str, Any], str]] = [
    (row("expect_column_values_to_not_be_null", column="nn"), "did you mean `n`"),
    (row("expect_column_values_to_be_unique", column="gone"), "the columns are"),
    (row("expect_column_values_to_be_unique", column="n", row_condition="x", condition_parser="pandas"), "`spark`"),
    (row("expect_column_values_to_be_between", column="t", min_value=1), "numbers, dates or times"),
    (row("expect_column_values_to_be_between", column="n", min_value="2026-01-01"), "numbers"),
    (row("expect_column_values_to_be_between", column="d", min_value=5), "dates or times"),
    (row("expect_column_values_to_be_in_set", column="n", value_set=["1"]), "numbers"),
    (row("expect_column_values_to_be_in_set", column="n", value_set=[True]), "numbers"),
    (row("expect_column_values_to_be_in_set", column="n", value_set=[10**30]), "no column can hold it"),
    (row("expect_column_values_to_be_in_set", column="t", value_set=[1]), "strings"),
    (row("expect_column_values_to_be_in_set", column="d", value_set=["tomorrow"]), "dates or times"),
    (row("expect_column_values_to_be_in_set", column="d", value_set=["20260101"]), "dates or times"),
    (row("expect_column_values_to_be_in_set", column="at", value_set=["2026-W01-1"]), "dates or times"),
    (row("expect_column_values_to_be_in_set", column="at", value_set=["2026-02-30"]), "dates or times"),
    (row("expect_column_values_to_be_in_set", column="b", value_set=["true"]), "true or false"),
    (row("expect_column_values_to_be_in_set", column="a", value_set=[1]), "no single value"),
    (row("expect_column_values_to_match_regex", column="n", regex="a"), "strings"),
    (row("expect_column_values_to_match_like_pattern", column="d", like_pattern="a"), "strings"),
    (row("expect_column_value_lengths_to_equal", column="n", value=1), "strings"),
    (row("expect_column_mean_to_be_between", column="t"), "numbers"),
    (row("expect_column_stdev_to_be_between", column="at"), "numbers"),
    (row("expect_column_sum_to_be_between", column="n", min_value="2026-01-01"), "numbers"),
    (row("expect_column_max_to_be_between", column="t", max_value=1), "numbers, dates or times"),
    (row("expect_column_max_to_be_between", column="d", max_value=1), "dates or times"),
    (row("expect_column_pair_values_to_be_equal", column_A="n", column_B="t"), "columns of one kind"),
    (row("expect_column_pair_values_to_be_in_set", column_A="n", column_B="t", value_pairs_set=[[1, 2]]), "strings"),
    (row("expect_multicolumn_sum_to_equal", column_list=["n", "t"], sum_total=1), "numbers"),
    (row("expect_multicolumn_values_to_be_equal", column_list=["n", "zz"]), "the columns are"),
    (row("expect_column_type_to_be", column="n", type_="IntegrType"), "did you mean `IntegerType`"),
    (row("expect_column_values_to_be_increasing", column="n"), "remove it"),
    (row("expect_table_row_count_to_equal_other_table", other_table_name="x"), "remove it"),
    (row("expect_table_row_count_to_equal", value=1, row_condition="n > 1"), "`spark`"),
    (
        row("expect_table_row_count_to_equal", value=1, row_condition="n>1", condition_parser="great_expectations"),
        "col(",
    ),
    (row("expect_table_row_count_to_equal", value=1, row_condition={"type": "maybe"}), "comparison, nullity"),
    (
        row(
            "expect_table_row_count_to_equal",
            value=1,
            row_condition={"type": "comparison", "column": {"name": "t"}, "operator": ">", "parameter": 3},
        ),
        "strings",
    ),
]


@pytest.mark.parametrize(("wrong", "remedy"), REFUSED, ids=lambda value: str(value)[:90])
def test_refused(wrong: dict[str, Any], remedy: str) -> None:
    """What can't run is refused with the expectation and what to do."""
    with pytest.raises(DeclarationError) as caught:
        compile_suite(suite(wrong), DDL)

    assert remedy in (caught.value.remedy or "")
    assert "suite.json, expectation 1" in (caught.value.where or "")


@pytest.mark.parametrize(
    ("condition", "parser", "sql"),
    [
        ('col("n") >= 5', "great_expectations", "coalesce(`n` >= 5, false)"),
        ('col("x") < 1.5', "great_expectations", "coalesce(`x` < 1.5, false)"),
        ("col(\"t\") == 'it is'", "great_expectations", "coalesce(`t` == 'it is', false)"),
        ('col("d") > date("2026-01-01")', "great_expectations__experimental__", "coalesce(`d` > '2026-01-01', false)"),
        ('col("t").notnull()', "great_expectations", "coalesce(`t` IS NOT NULL, false)"),
        ("n % 2 = 0", "spark", "coalesce((n % 2 = 0), false)"),
        ({"type": "pass_through", "pass_through_filter": "n = 1"}, None, "coalesce((n = 1), false)"),
        ({"type": "nullity", "column": {"name": "n"}, "is_null": True}, None, "coalesce(`n` IS NULL, false)"),
        (
            {
                "type": "or",
                "conditions": [
                    {"type": "comparison", "column": {"name": "t"}, "operator": "NOT_IN", "parameter": ["a", "b"]},
                    {"type": "comparison", "column": {"name": "n"}, "operator": "IN", "parameter": []},
                ],
            },
            None,
            "coalesce((`t` NOT IN ('a', 'b') OR false), false)",
        ),
    ],
)
def test_row_conditions(condition: Any, parser: str | None, sql: str) -> None:
    """Every form of a row condition becomes SQL that is never null."""
    check = row("expect_table_row_count_to_equal", value=1, row_condition=condition, condition_parser=parser)
    plan = compile_suite(suite(check), DDL)

    assert plan.measures[0].sql == f"count_if({sql})"


def test_deep_conditions() -> None:
    """Conditions inside of conditions end somewhere."""
    condition: dict[str, Any] = {"type": "nullity", "column": {"name": "n"}, "is_null": True}
    for _ in range(50):
        condition = {"type": "and", "conditions": [condition]}

    with pytest.raises(DeclarationError, match="is none"):
        compile_suite(suite(row("expect_table_row_count_to_equal", value=1, row_condition=condition)), DDL)


def test_sample_is_limited() -> None:
    """Nobody keeps a thousand values in a record."""
    with pytest.raises(DeclarationError, match="sample"):
        compile_suite(suite(), DDL, sample=1000)
