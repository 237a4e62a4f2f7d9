"""What a suite has found, as OpenLineage tells it: assertions, and what was measured of columns; no value of a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from openlineage.client.facet_v2 import data_quality_assertions_dataset as assertions
from openlineage.client.facet_v2 import data_quality_metrics_dataset as metrics
from openlineage.client.facet_v2 import data_quality_metrics_input_dataset as input_metrics
from openlineage.client.facet_v2 import test_run

from sluice.quality.sentences import rule
from sluice.runs.record import CheckRecord, QualityRecord

_STATISTICS = {
    "expect_column_sum_to_be_between": "sum",
    "expect_column_unique_value_count_to_be_between": "distinctCount",
}
"""Expectations that measure a column, and what OpenLineage calls the number."""
_OF_ONE_ROW = {"expect_column_min_to_be_between", "expect_column_max_to_be_between"}
"""What these measure is a value that some row has."""
_NOT_NULL = "expect_column_values_to_not_be_null"

M = TypeVar("M", metrics.ColumnMetrics, input_metrics.ColumnMetrics)


def assertions_facet(quality: QualityRecord) -> assertions.DataQualityAssertionsDatasetFacet:
    """Each check, with what became of it."""
    return assertions.DataQualityAssertionsDatasetFacet(
        [
            assertions.Assertion(
                check.type,
                check.success,
                column=_column(check),
                severity=_severity(check),
                name=check.id or None,
                description=_rule(check),
                actual=_actual(check),
            )
            for check in quality.checks
        ]
    )


def checks_facet(quality: QualityRecord | None) -> test_run.TestRunFacet | None:
    """The same for the run; None where none was judged."""
    if quality is None:
        return None
    return test_run.TestRunFacet(
        [
            test_run.TestExecution(
                check.id or check.type,
                "pass" if check.success else "fail",
                severity=_severity(check),
                type=check.type,
                description=_rule(check),
                actual=_actual(check),
            )
            for check in quality.checks
        ]
    )


def metrics_facet(quality: QualityRecord) -> metrics.DataQualityMetricsDatasetFacet:
    """What was measured of the rows that were written."""
    columns = dict(_columns(quality, metrics.ColumnMetrics))
    return metrics.DataQualityMetricsDatasetFacet(columns, rowCount=quality.rows)


def input_metrics_facet(quality: QualityRecord) -> input_metrics.DataQualityMetricsInputDatasetFacet:
    """What was measured of a table that was only read."""
    columns = dict(_columns(quality, input_metrics.ColumnMetrics))
    return input_metrics.DataQualityMetricsInputDatasetFacet(columns, rowCount=quality.rows)


def _columns(quality: QualityRecord, make: type[M]) -> Iterator[tuple[str, M]]:
    found: dict[str, M] = {}
    for check in quality.checks:
        column = _column(check)
        if column is None:
            continue
        known = found.setdefault(column, make())
        count = check.result.get("element_count")
        if isinstance(count, int):
            known.count = float(count)
        value = check.result.get("unexpected_count" if check.type == _NOT_NULL else "observed_value")
        name = "nullCount" if check.type == _NOT_NULL else _STATISTICS.get(check.type)
        if name is not None and _is_number(value):
            setattr(known, name, value)
    yield from found.items()


def _column(check: CheckRecord) -> str | None:
    column = check.kwargs.get("column")
    return column if isinstance(column, str) else None


def _rule(check: CheckRecord) -> str:
    return rule(check.type, check.kwargs).replace("`", "")


def _severity(check: CheckRecord) -> str:
    return "error" if check.policy == "fail" else "warn"


def _actual(check: CheckRecord) -> str | None:
    """What was counted or measured, where that is a number and of many rows: all else may be a value of one."""
    if check.type in _OF_ONE_ROW:
        return None
    for name in ("unexpected_count", "observed_value"):
        if _is_number(check.result.get(name)):
            return str(check.result[name])
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
