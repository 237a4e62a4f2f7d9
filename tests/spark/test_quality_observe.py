"""Compiled measures in Spark itself: observed while a stream or a batch is written, whatever columns are called."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.measures import merge_batches
from sluice.quality.results import CheckResult, check_results, verdict
from tests.unit.quality.suites import row, suite

pytestmark = pytest.mark.spark


def aggregates(plan: QualityPlan) -> list[Any]:
    return [F.expr(measure.sql).alias(measure.name) for measure in plan.measures]


def observed(plan: QualityPlan, frame: DataFrame) -> dict[str, Any]:
    """What an observation sees of a frame that is written."""
    observation = Observation()
    frame.observe(observation, *aggregates(plan)).write.format("noop").mode("append").save()
    return observation.get


def results(plan: QualityPlan, *frames: DataFrame) -> list[CheckResult]:
    return check_results(plan, [observed(plan, frame) for frame in frames])


def test_every_compiled_expectation_is_observed(spark: SparkSession) -> None:
    """Spark takes every kind of measure as an observed metric, and changes none by it."""
    checks = suite(
        row("expect_column_values_to_be_between", column="n", min_value=2),
        row("expect_column_distinct_values_to_equal_set", column="n", value_set=[1, 9]),
        row("expect_column_unique_value_count_to_be_between", column="n", meta={"sluice": {"approximate": True}}),
        row("expect_column_stdev_to_be_between", column="n", row_condition="n > 1", condition_parser="spark"),
        row("expect_column_max_to_be_between", column="at"),
        row("expect_multicolumn_sum_to_equal", column_list=["n", "m"], sum_total=3),
        row("expect_column_values_to_not_be_null", column="text"),
    )
    frame = spark.createDataFrame(
        [(1, 2, "a", "2026-01-01 05:00:00.000001"), (2, 2, None, None), (3, None, "b", None)],
        "n INT, m INT, text STRING, at STRING",
    ).withColumn("at", F.to_timestamp("at"))
    plan = compile_suite(checks, dict(frame.dtypes), sample=5)

    seen = observed(plan, frame)

    assert seen == frame.agg(*aggregates(plan)).collect()[0].asDict()
    assert [(found.success, found.result.get("observed_value")) for found in check_results(plan, [seen])] == [
        (False, None),
        (False, None),
        (True, 3),
        (True, pytest.approx(0.5**0.5)),
        (True, "2026-01-01T05:00:00.000001"),
        (False, None),
        (False, None),
    ]


def test_samples(spark: SparkSession) -> None:
    """Unexpected values are the smallest ones, in their own types, also merged over batches; pairs stay together."""
    checks = suite(
        row("expect_column_values_to_be_between", column="n", min_value=100),
        row("expect_column_values_to_be_in_set", column="t", value_set=["x"]),
        row("expect_column_pair_values_to_be_equal", column_A="n", column_B="d"),
        row("expect_multicolumn_values_to_be_equal", column_list=["n", "d"]),
        row("expect_column_values_to_not_be_null", column="d"),
    )
    frame = spark.range(10).selectExpr("id AS n", "concat('t\"', id) AS t", "IF(id > 2, NULL, id + 0.5) AS d")
    plan = compile_suite(checks, dict(frame.dtypes), sample=2)

    found = results(plan, frame.where("n > 4"), frame.where("n <= 4"))

    assert [one.result["partial_unexpected_list"] for one in found] == [
        [0, 1],
        ['t"0', 't"1'],
        [[0, 0.5], [1, 1.5]],
        [{"n": 0, "d": 0.5}, {"n": 1, "d": 1.5}],
        [None, None],
    ]
    assert [one.result["unexpected_count"] for one in found] == [10, 10, 10, 10, 7]
    assert found[0].result["partial_unexpected_counts"] == [{"value": 0, "count": 1}, {"value": 1, "count": 1}]


def test_long_texts(spark: SparkSession) -> None:
    """Only their beginning is kept: records, reports and pages have it."""
    checks = suite(
        row("expect_column_values_to_be_in_set", column="t", value_set=["x"]),
        row("expect_column_values_to_be_in_set", column="b", value_set=["x"]),
        row("expect_column_values_to_be_between", column="n", min_value=100),
    )
    text = "repeat(CAST(id AS STRING), 1000000)"
    frame = spark.range(3).selectExpr(f"{text} AS t", "repeat('z', 500) AS b", "CAST(id AS DECIMAL(38, 3)) AS n")
    plan = compile_suite(checks, dict(frame.dtypes), sample=2)
    kept = [one.result["partial_unexpected_list"] for one in results(plan, frame)]
    assert kept == [["0" * 500 + "...", "1" * 500 + "..."], ["z" * 500] * 2, [Decimal("0.000"), Decimal("1.000")]]


def test_times_that_python_can_t_hold(spark: SparkSession) -> None:
    """Milliseconds that were taken for seconds: one such row fails no more than it should."""
    kinds = {"at": "TIMESTAMP", "local": "TIMESTAMP_NTZ", "day": "DATE"}
    frame = spark.createDataFrame([(-90_000_000_000,), (0,), (1_767_261_600_000,)], "seconds LONG").selectExpr(
        *(f"CAST(timestamp_seconds(seconds) AS {kind}) AS {name}" for name, kind in kinds.items())
    )
    checks = [
        row(kind, column=name, max_value="2026-01-01")
        for name in kinds
        for kind in ("expect_column_max_to_be_between", "expect_column_min_to_be_between",
                     "expect_column_values_to_be_between")
    ]  # fmt: skip
    plan = compile_suite(suite(*checks), dict(frame.dtypes), sample=3)

    found = results(plan, frame.where("year(at) > 1970"), frame.where("year(at) <= 1970"))

    told = [(one.success, one.result.get("observed_value", one.result.get("partial_unexpected_list"))) for one in found]
    for at, (last, first) in {
        0: ("+57972-04-16T16:00:00", "-0882-01-06T08:00:00"),
        3: ("+57972-04-16T16:00:00", "-0882-01-06T08:00:00"),
        6: ("+57972-04-16", "-0882-01-06"),
    }.items():
        assert told[at : at + 3] == [(False, last), (True, first), (False, [last])]


@pytest.mark.parametrize("name", ["with space", "a.b", "back`tick", "quote'", "ünï", "$x", "semi;--"])
def test_odd_names(spark: SparkSession, name: str) -> None:
    """A column may be called anything."""
    frame = spark.range(4).withColumnRenamed("id", name)
    plan = compile_suite(suite(row("expect_column_values_to_be_between", column=name, max_value=1)), dict(frame.dtypes))

    (found,) = results(plan, frame)

    assert found.result["unexpected_count"] == 2


def test_nested_fields_and_case(spark: SparkSession) -> None:
    """A path leads into structs, whatever the case."""
    frame = spark.range(4).selectExpr("named_struct('Inner', named_struct('odd name', id)) AS Outer")
    check = row("expect_column_values_to_be_between", column="outer.inner.`odd name`", max_value=1)
    plan = compile_suite(suite(check), dict(frame.dtypes), sample=1)

    (found,) = results(plan, frame)

    assert found.result["partial_unexpected_list"] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "it's",
        'say "so"',
        "back\\slash",
        "${spark.sql.ansi.enabled}",
        "a\nb",
        "tab\t",
        "日本",
        "😀",
        "--",
        "%_",
        "\\u0041",
        "\\'",
    ],
)
def test_odd_values(spark: SparkSession, text: str) -> None:
    """A value of a suite reaches Spark as it is, as a string, in a pattern, and in a row condition."""
    condition = {"type": "comparison", "column": {"name": "t"}, "operator": "==", "parameter": text}
    checks = suite(
        row("expect_column_values_to_be_in_set", column="t", value_set=[text]),
        row("expect_column_values_to_match_regex", column="t", regex=r"^\Q" + text + r"\E$"),
        row("expect_table_row_count_to_equal", value=1, row_condition=condition),
    )
    frame = spark.createDataFrame([(text,)], "t STRING")
    plan = compile_suite(checks, dict(frame.dtypes))

    assert [found.success for found in results(plan, frame)] == [True, True, True]


def test_removed_rows_leave_table_checks(spark: SparkSession) -> None:
    """Row-level checks see every row; checks of the table see those that `drop` and `quarantine` leave."""
    checks = suite(
        row("expect_column_values_to_be_between", column="n", max_value=7, policy="drop", mostly=0.5),
        row("expect_column_values_to_not_be_in_set", column="n", value_set=[0], policy="quarantine"),
        row("expect_column_max_to_be_between", column="n", max_value=7),
        row("expect_column_min_to_be_between", column="n", min_value=1),
        row("expect_table_row_count_to_equal", value=7),
    )
    frame = spark.range(10).withColumnRenamed("id", "n")
    plan = compile_suite(checks, dict(frame.dtypes))

    found = results(plan, frame)

    assert [one.success for one in found] == [True, False, True, True, True]
    assert [one.result["element_count"] for one in found[:2]] == [10, 10]
    assert verdict(found) == "warn"
    assert frame.where(f"NOT {plan.removed}").count() == 7
    assert [frame.where(check.unexpected or "").count() for check in plan.row_checks("drop", "quarantine")] == [2, 1]


def test_sketches_count_and_merge(spark: SparkSession) -> None:
    """Sketches count exactly up to 4,096 values, empty strings included, and within 3.2 % above; batches overlap."""
    kind = "expect_column_unique_value_count_to_be_between"
    meta = {"sluice": {"approximate": True}}
    checks = suite(*(row(kind, column=name, meta=meta) for name in ("many", "few", "one", "none")))
    frame = spark.range(200_000).selectExpr(
        "id AS n",
        "id % 50000 AS many",
        "IF(id % 4000 = 0, '', string(id % 4000)) AS few",
        "1.5D AS one",
        "CAST(NULL AS DATE) AS none",
    )
    plan = compile_suite(checks, dict(frame.dtypes))

    found = results(plan, frame.where("n < 120000"), frame.where("n >= 90000"), frame.where("n < 0"))

    counts = [one.result["observed_value"] for one in found]
    assert counts[1:] == [4000, 1, 0]
    assert counts[0] == pytest.approx(50_000, rel=0.064)


def test_nothing_raises_under_ansi(spark: SparkSession) -> None:
    """Values that would overflow or not cast do not end the run."""
    checks = suite(
        row("expect_column_sum_to_be_between", column="big", max_value=0),
        row("expect_column_sum_to_be_between", column="dec", max_value=0),
        row("expect_column_mean_to_be_between", column="dec", max_value=0),
        row("expect_multicolumn_sum_to_equal", column_list=["big", "big"], sum_total=0),
        row("expect_multicolumn_sum_to_equal", column_list=["dec", "dec"], sum_total=0),
        row("expect_column_values_to_be_in_set", column="day", value_set=["2026-01-01"]),
    )
    frame = spark.range(20).selectExpr(
        "9223372036854775807L AS big", "CAST(repeat('9', 38) AS DECIMAL(38,0)) AS dec", "DATE'2026-01-01' AS day"
    )
    plan = compile_suite(checks, dict(frame.dtypes))

    assert [found.success for found in results(plan, frame)] == [False, False, False, False, True, True]


@pytest.mark.parametrize(
    ("pattern", "escape", "matches"),
    [
        ("a%", None, ["a", "ab"]),
        ("_", None, ["a", "%", "\\"]),
        ("\\%", None, ["%"]),
        ("!%", "!", ["%"]),
        ("\\\\", None, ["\\"]),
    ],
)
def test_like(spark: SparkSession, pattern: str, escape: str | None, matches: list[str]) -> None:
    """LIKE patterns, which Great Expectations does not measure on Spark, mean what SQL says."""
    values = ["a", "ab", "%", "\\", "ba"]
    kwargs = {"column": "t", "like_pattern": pattern} | ({"escape": escape} if escape else {})
    checks = suite(
        row("expect_column_values_to_match_like_pattern", **kwargs),
        row("expect_column_values_to_not_match_like_pattern", **kwargs),
    )
    plan = compile_suite(checks, "t STRING")

    counts = [
        one.result["unexpected_count"]
        for one in results(plan, spark.createDataFrame([(v,) for v in values], "t STRING"))
    ]

    assert counts == [len(values) - len(matches), len(matches)]


def test_in_a_stream(spark: SparkSession, tmp_path: Any) -> None:
    """The progress of a streaming query has the measures of its batch, in JSON, and they are read from there."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text('{"n": 1, "x": 1.5}\n{"n": 9, "x": null}\n{"n": 20, "x": "NaN"}\n')
    checks = suite(
        row("expect_column_values_to_be_between", column="n", max_value=10),
        row("expect_column_mean_to_be_between", column="x"),
        row("expect_column_sum_to_be_between", column="n", min_value=30),
    )
    schema = "n INT, x DOUBLE"
    plan = compile_suite(checks, schema, sample=3)
    frame = spark.readStream.schema(schema).json(str(folder)).observe("quality", *aggregates(plan))
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    seen = json.loads(query.lastProgress.json)["observedMetrics"]["quality"]
    found = check_results(plan, [seen])

    assert found[0].result["partial_unexpected_list"] == [20]
    assert found[1].result == {"observed_value": None}
    assert found[2].result == {"observed_value": 30.0}
    assert merge_batches(plan.measures, [seen, seen])[plan.checks[2].measures["value"]] == 60.0
