"""The same rows through our compiled aggregates and through Great Expectations' own Spark engine: equal results.

`make campaign` compares 2,400 cases in place of 210.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.results import CheckResult, check_results
from sluice.quality.suite import parse_suite
from tests.campaign import CAMPAIGN
from tests.spark.quality_cases import DDL, rows, suite

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]

SUITES = 8 * CAMPAIGN or 4
PER_SUITE = 30


@pytest.fixture(scope="module", autouse=True)
def _utc() -> Iterator[None]:
    """Great Expectations makes times of the process's zone; ours are UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


@pytest.fixture(scope="module")
def gx() -> ModuleType:
    """Great Expectations, which imports deprecated modules and takes seconds."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with warnings.catch_warnings(action="ignore"):
        import great_expectations
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return great_expectations


@pytest.fixture(scope="module")
def context(gx: ModuleType) -> Any:
    """One context in memory."""
    found = gx.get_context(mode="ephemeral")
    found.variables.progress_bars = {"globally": False}
    return found


def ours(plan: QualityPlan, frames: list[DataFrame]) -> list[CheckResult]:
    """What our aggregates give, with what was observed sent through JSON as Spark's progress is."""
    aggregates = [F.expr(measure.sql).alias(measure.name) for measure in plan.measures]
    observed = [json.loads(json.dumps(frame.agg(*aggregates).collect()[0].asDict())) for frame in frames]
    return check_results(plan, observed)


def theirs(gx: ModuleType, context: Any, frame: DataFrame, described: dict[str, Any]) -> list[dict[str, Any]]:
    """What Great Expectations gives, in the order of the suite."""
    name = f"s{time.monotonic_ns()}"
    definition = context.data_sources.add_spark(name=name).add_dataframe_asset(name="a")
    batch = definition.add_batch_definition_whole_dataframe("w").get_batch({"dataframe": frame})
    expectations = [
        getattr(gx.expectations, "".join(map(str.capitalize, row["type"].split("_"))))(
            **_comparable(row["type"], row["kwargs"]), meta=row["meta"]
        )
        for row in described["expectations"]
    ]
    found = batch.validate(
        gx.ExpectationSuite(name=name, expectations=expectations),
        result_format={"result_format": "BASIC", "partial_unexpected_count": 0},
    ).to_json_dict()
    return sorted(found["results"], key=lambda row: row["expectation_config"]["meta"]["number"])


def _comparable(kind: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Great Expectations raises an error where a bound of an extreme has a zone: it gets that moment without one."""
    if kind not in {"expect_column_max_to_be_between", "expect_column_min_to_be_between"}:
        return kwargs
    found = dict(kwargs)
    for name in ("min_value", "max_value"):
        if isinstance(bound := kwargs.get(name), str) and "T" in bound:
            moment = datetime.fromisoformat(bound)
            found[name] = (moment.astimezone(UTC) if moment.tzinfo else moment).replace(tzinfo=None).isoformat()
    return found


def differences(one: CheckResult, other: dict[str, Any]) -> dict[str, Any]:
    """What is not the same in two results of one expectation; floats may differ in their last digits."""
    found: dict[str, Any] = {}
    if one.success != other["success"]:
        found["success"] = (one.success, other["success"])
    for key, value in other["result"].items():
        if key.startswith("partial_") or key == "details":
            continue
        # Great Expectations counts by a sum, which is null over no rows at all.
        is_sum_of_nothing = key == "unexpected_count" and value is None and other["result"]["element_count"] == 0
        mine, wanted = one.result.get(key, "absent"), 0 if is_sum_of_nothing else value
        if not _same(mine, wanted):
            found[key] = (mine, wanted)
    return found


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9) or one == other
    return bool(one == other)


@pytest.mark.parametrize("seed", range(SUITES))
def test_results_are_equal(spark: SparkSession, gx: ModuleType, context: Any, seed: int) -> None:
    """Success and every count of random expectations over random rows, in one batch and merged from three."""
    draw = random.Random(seed)
    described = suite(draw, PER_SUITE)
    frame = spark.createDataFrame(rows(draw, 60), DDL).coalesce(2).cache()
    parsed = json.loads(json.dumps(described))
    for row in parsed["expectations"]:
        if "unique" in row["type"] and row["type"].startswith("expect_column_"):
            row["meta"]["sluice"] = {"approximate": True}
    plan = compile_suite(parse_suite(json.dumps(parsed).encode(), source="random.json"), dict(frame.dtypes))

    expected = theirs(gx, context, frame, described)
    whole = ours(plan, [frame])
    merged = ours(plan, [frame.where(f"id % 7 IN ({part})") for part in ("0, 1", "2", "3, 4, 5, 6")])
    frame.unpersist()

    assert plan.rereads == ()
    failed = [row["exception_info"] for row in expected if "'raised_exception': True" in str(row["exception_info"])]
    assert failed == []
    for found in (whole, merged):
        assert [
            (row.type, dict(row.kwargs), unlike)
            for row, other in zip(found, expected, strict=True)
            if (unlike := differences(row, other))
        ] == []
