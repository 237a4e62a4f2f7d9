"""Measures rows as a quality plan asks for it, in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice.quality.compile import QualityPlan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def aggregates(plan: QualityPlan) -> list[Column]:
    """The measures of a plan, one column each, by their names."""
    from pyspark.sql import functions

    return [functions.expr(measure.sql).alias(measure.name) for measure in plan.measures]


def measure(frame: DataFrame, plan: QualityPlan) -> Mapping[str, Any]:
    """What a plan measures of these rows, in one pass."""
    row = frame.agg(*aggregates(plan)).first()
    return row.asDict() if row is not None else {}
