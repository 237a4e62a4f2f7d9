"""What quality is measured on: rows of orders, eight checks of them, and three ways to run these."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sluice import Stream, sinks, sources
from sluice.project import Project
from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.suite import parse_suite
from sluice.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Form = Literal["BOOLEAN_ONLY", "SUMMARY"]
DDL = "id bigint, code int, amount double, name string, day date"
_SQL = """
SELECT id, CAST(id % 50 AS INT) AS code, id / 7 % 1000 AS amount, concat('N', id % 99991) AS name,
    date_add(DATE'2026-01-01', CAST(id % 365 AS INT)) AS day
FROM range(0, {rows}, 1, {files})
"""
CHECKS: tuple[dict[str, Any], ...] = (
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}},
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "day", "mostly": 0.9}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "min_value": 0, "max_value": 1000}},
    {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "code", "value_set": list(range(50))}},
    {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "name", "regex": "^N[0-9]+$"}},
    {"type": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "name", "max_value": 6}},
    {"type": "expect_column_max_to_be_between", "kwargs": {"column": "amount", "max_value": 1000}},
    {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "amount", "min_value": 0, "max_value": 1000}},
)


def open_spark(root: Path, **conf: str) -> SparkSession:
    """The session that the product opens, with two cores."""
    stream = Stream(name="s", sources={"s": sources.delta("in")}, transform="none:none", sink=sinks.delta("out"))
    project = Project(str(root), "bench", str(root / "home"), (), (), spark_master="local[2]", spark_conf=conf)
    session = open_session(project, stream)
    session.sparkContext.setLogLevel("OFF")
    return session


def orders(session: SparkSession, rows: int, files: int) -> DataFrame:
    """Rows that are made up on the fly."""
    return session.sql(_SQL.format(rows=rows, files=files))


def plan_of(checks: tuple[dict[str, Any], ...], columns: str = DDL) -> QualityPlan:
    """What is measured for the checks."""
    suite = {"name": "orders", "expectations": [{**check, "severity": "warning"} for check in checks]}
    return compile_suite(parse_suite(json.dumps(suite).encode(), source="suite"), columns)


def measures(plan: QualityPlan) -> list[Column]:
    """The aggregates, as a run observes them."""
    from pyspark.sql import functions

    return [functions.expr(measure.sql).alias(measure.name) for measure in plan.measures]


def observed(frame: DataFrame, plan: QualityPlan, write: Callable[[DataFrame], None]) -> dict[str, Any]:
    """Write a frame and measure it on the way."""
    from pyspark.sql import Observation

    observation = Observation("quality")
    write(frame.observe(observation, *measures(plan)))
    return observation.get


def measured(frame: DataFrame, plan: QualityPlan) -> dict[str, Any]:
    """Measure a frame in one pass of its own."""
    return frame.agg(*measures(plan)).collect()[0].asDict()


def to_nothing(frame: DataFrame) -> None:
    """Compute every row, and keep none."""
    frame.write.format("noop").mode("overwrite").save()


class GreatExpectations:
    """The library's own Spark engine, with the same checks as one suite.

    Args:
        checks: The expectations.
        result_format: `BOOLEAN_ONLY` is its quickest, `SUMMARY` gives what our results have.
        keeps: Whether it keeps the rows in memory between its jobs, which it does unless it is told otherwise.
    """

    def __init__(self, checks: tuple[dict[str, Any], ...], result_format: Form, *, keeps: bool) -> None:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        with warnings.catch_warnings(action="ignore"):
            import great_expectations as gx
        logging.getLogger("great_expectations").setLevel(logging.ERROR)
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
        asset = context.data_sources.add_spark(name="spark", persist=keeps).add_dataframe_asset(name="orders")
        self._definition = asset.add_batch_definition_whole_dataframe("whole")
        self._suite = gx.ExpectationSuite(name="orders", expectations=list(checks))
        self._format = result_format

    def validate(self, frame: DataFrame) -> bool:
        """Whether every check passes. What the library kept in memory is let go: each batch is a new one."""
        batch = self._definition.get_batch({"dataframe": frame})
        success = bool(batch.validate(self._suite, result_format=self._format).success)
        frame.sparkSession.catalog.clearCache()
        return success
