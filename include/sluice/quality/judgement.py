"""The verdict on what a run has measured so far. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sluice.errors import QualityFailedError
from sluice.quality.compile import Check, QualityPlan
from sluice.quality.measures import Unmeasured, merge_batches
from sluice.quality.results import (
    CheckResult,
    check_results,
    history_results,
    is_between,
    verdict,
    why_unmeasured,
)
from sluice.quality.suite import Suite
from sluice.runs.record import CheckRecord, Quality

_FALLING = "expect_column_min_to_be_between"
_MONOTONE = (
    "expect_table_row_count_to_be_between",
    "expect_column_unique_value_count_to_be_between",
    "expect_column_max_to_be_between",
    _FALLING,
)


@dataclass(frozen=True)
class Judgement:
    """What became of the suite in a run, as far as it has come."""

    verdict: Quality
    results: tuple[CheckResult, ...]
    rows: int | None
    """How many rows came in; None when it was not measured."""
    removed: Mapping[str, int]
    """How many of them `drop` and `quarantine` took away, by policy."""
    stopping: tuple[CheckResult, ...] = ()
    """Those of them that let the run fail, as far as it has come."""

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that did not pass."""
        return tuple(result for result in self.results if not result.success)


def judge_run(
    plan: QualityPlan,
    batches: Sequence[Mapping[str, Any] | None],
    before: Sequence[Mapping[str, float]],
    *,
    now: datetime,
    is_last: bool = True,
    rereads: Sequence[CheckResult] = (),
    by_suite_before: Sequence[Mapping[str, Any]] = (),
) -> Judgement:
    """Judge what was observed of a run's batches.

    Args:
        plan: What was to be observed.
        batches: Of each batch what was observed; None where nothing arrived, which fails every check that needs it.
        before: Of each of the runs before, the newest last, `observed_value` by the ids of the rules about history.
        now: What freshness is measured against, with a zone.
        is_last: Whether no more batches follow: what more rows may mend fails only then.
        rereads: What Great Expectations has measured itself.
        by_suite_before: Of batches that were published before `batches`, by a suite that asked for less, what was
            observed: whatever they were not measured for is judged without them.
    """
    seen = [*by_suite_before, *batches]
    values = merge_batches(plan.measures, seen)
    results = check_results(plan, seen)
    history = history_results(plan, seen, before, now=now)
    if by_suite_before:
        own = merge_batches(plan.measures, batches)
        values = {name: own[name] if isinstance(found, Unmeasured) else found for name, found in values.items()}
        results = _where_measured(results, check_results(plan, batches))
        history = _where_measured(history, history_results(plan, batches, before, now=now))
    if not is_last:
        history = [result for result in history if _is_unmeasured(result)]
    rows = _count(values[plan.rows])
    if rows == 0:
        results = [_of_no_rows(result) for result in results]
        history = [result for result in history if "freshness" not in result.type or _is_unmeasured(result)]
    asked = {check.expectation.id: check for check in plan.checks}

    def counts(result: CheckResult) -> bool:
        return is_last or not _may_mend(result, asked[result.id], values)

    removed: dict[str, int] = {}
    for policy, name in plan.removals.items():
        if (taken := _count(values[name])) is not None:
            removed[policy] = taken
    counted = [*filter(counts, [*results, *rereads]), *history]
    stopping = tuple(found for found in counted if not found.success and found.policy == "fail")
    return Judgement(verdict(counted), (*results, *history, *rereads), rows, removed, stopping)


def _where_measured(results: Sequence[CheckResult], others: Sequence[CheckResult]) -> list[CheckResult]:
    """The results; of checks that were not measured, the other ones."""
    return [other if _is_unmeasured(result) else result for result, other in zip(results, others, strict=True)]


def _is_unmeasured(result: CheckResult) -> bool:
    return why_unmeasured(result.result) is not None


def _count(value: int | Unmeasured) -> int | None:
    return None if isinstance(value, Unmeasured) else value


def history_values(checks: Sequence[CheckRecord]) -> dict[str, float]:
    """`observed_value` by id, of the rules about history in a run record."""
    return {
        check.id: value
        for check in checks
        if check.type.endswith("_against_history")
        and isinstance(value := check.result.get("observed_value"), int | float)
    }


def describe_failed(results: Sequence[CheckResult | CheckRecord]) -> str:
    """Failed checks in one line: how many, and the first of them with their figures."""
    said = [f"`{result.type}`{_columns(result)}{_figures(result)}" for result in results]
    return "; ".join(said[:3]) + (f"; and {len(said) - 3} more" if len(said) > 3 else "")


def quality_failed(judged: Judgement, suite: Suite, remedy: str) -> QualityFailedError:
    """The error about a judgement that failed."""
    failing = failing_results(judged)
    figures = f"{len(failing)} of {len(judged.results)} checks of the suite `{suite.name}` failed"
    return QualityFailedError(
        f"{figures}: {describe_failed(failing)}",
        where=suite.source,
        remedy=remedy,
    )


def failing_columns(plan: QualityPlan) -> Judgement | None:
    """The judgement when the columns alone let every run fail; None when they don't."""
    results = tuple(
        CheckResult.of(check.expectation, check.path, success=found.success, result=found.result)
        for check in plan.checks
        if (found := check.schema_result) is not None and not found.success and check.expectation.policy == "fail"
    )
    return Judgement("fail", results, None, {}) if results else None


def failing_results(judged: Judgement) -> list[CheckResult]:
    """The checks that let the run fail."""
    return [result for result in judged.failed if result.policy == "fail"]


def _columns(result: CheckResult | CheckRecord) -> str:
    listed = result.kwargs.get("column_list")
    named = [result.kwargs.get(name) for name in ("column", "column_A", "column_B")]
    # A record is a file: what it says of a check may be anything.
    columns = [f"`{name}`" for name in [*named, *(listed if isinstance(listed, list | tuple) else ())] if name]
    return f" of {', '.join(columns)}" if columns else ""


def _figures(result: CheckResult | CheckRecord) -> str:
    found = result.result
    count, rows = found.get("unexpected_count"), found.get("element_count")
    if isinstance(count, int):
        return f": {count:,} unexpected" + (f" in {rows:,} rows" if isinstance(rows, int) else "")
    if (why := why_unmeasured(found)) is not None:
        return f": {why}"
    return f": {found['observed_value']}" if found.get("observed_value") is not None else ""


def _of_no_rows(result: CheckResult) -> CheckResult:
    """A stream without news is no failure: only what counts rows, or looks at the columns, says something of it."""
    if result.path == "schema" or result.type.startswith("expect_table_") or why_unmeasured(result.result):
        return result
    return replace(result, success=True)


def _may_mend(result: CheckResult, check: Check, values: Mapping[str, Any]) -> bool:
    """Whether more rows may still let a failed check pass: counts and maxima only grow, minima only fall."""
    if result.success or why_unmeasured(result.result) is not None:
        return False
    arguments, told = check.expectation.arguments, result.result
    if result.type == "expect_column_distinct_values_to_contain_set":
        return True
    if result.type == "expect_column_distinct_values_to_equal_set":
        return bool(told["unexpected_count"] == 0)
    if result.type == "expect_table_row_count_to_equal":
        return bool(told["observed_value"] < arguments["value"])
    if result.type not in _MONOTONE:
        return False
    value = values[check.measures["value"]] if "value" in check.measures else told.get("observed_value")
    is_falling = result.type == _FALLING
    # Spark's NaN is above all numbers: a minimum is NaN only until there is another one.
    if value is None or (is_falling and value != value):  # noqa: PLR0124 - so says NaN
        return True
    return is_between(value, {**arguments, "max_value" if is_falling else "min_value": None})
