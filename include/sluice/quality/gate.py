"""The gate: the verdict on what a run has measured so far. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sluice.errors import QualityFailedError, RunError
from sluice.quality.compile import Check, QualityPlan
from sluice.quality.history import TYPE, check_id
from sluice.quality.measures import merge_batches
from sluice.quality.results import (
    CheckResult,
    Verdict,
    check_results,
    history_results,
    unmeasured,
    verdict,
    why_unmeasured,
)
from sluice.quality.suite import Policy, Suite

_COUNTS = ("expect_table_row_count_to_be_between", "expect_column_unique_value_count_to_be_between")


@dataclass(frozen=True)
class Judgement:
    """What became of the suite in a run, as far as it has come."""

    verdict: Verdict
    results: tuple[CheckResult, ...]
    rows: int | None
    """How many rows came in; None when it was not measured."""
    removed: Mapping[str, int]
    """How many of them `drop` and `quarantine` took away, by policy."""

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that did not pass."""
        return tuple(result for result in self.results if not result.success)


def judge_run(
    plan: QualityPlan,
    batches: Sequence[Mapping[str, Any] | None],
    former: Sequence[Mapping[str, float]],
    *,
    now: datetime,
    is_last: bool = True,
    rereads: Sequence[CheckResult] = (),
) -> Judgement:
    """Judge what was observed of a run's batches.

    Args:
        plan: What was to be observed.
        batches: Of each batch what was observed; None where nothing arrived, which fails every check that needs it.
        former: Of each former run, the newest last, `observed_value` by the ids of the rules about history.
        now: What freshness is measured against, with a zone.
        is_last: Whether no more batches follow: what more rows may mend fails only then.
        rereads: What Great Expectations has measured itself.
    """
    seen = [batch for batch in batches if batch is not None]
    try:
        if len(seen) < len(batches):
            raise RunError(f"{len(batches) - len(seen)} of {len(batches)} batches were not measured")
        values = merge_batches(plan.measures, seen)
        results = [*check_results(plan, seen)]
        history = history_results(plan, seen, former, now=now) if is_last else []
    except RunError as exc:
        return _unmeasured(plan, exc, rereads)
    if not values[plan.rows]:
        results = [_of_no_rows(result) for result in results]
        history = [result for result in history if "freshness" not in result.type]
    judged = results if is_last else [r for r, c in zip(results, _measured(plan), strict=True) if not _may_mend(r, c)]
    removed: dict[str, int] = {policy: values[name] for policy, name in plan.removals.items()}
    asked = {check.expectation.id: check for check in plan.checks}
    reread = [result for result in rereads if is_last or not _may_mend(result, asked[result.id])]
    told = verdict([*judged, *history, *reread])
    return Judgement(told, (*results, *history, *rereads), values[plan.rows], removed)


def former_values(checks: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """`observed_value` by id, of the rules about history in a run record."""
    return {
        check["id"]: value
        for check in checks
        if check["type"].endswith("_against_history")
        and isinstance(value := check["result"].get("observed_value"), int | float)
    }


def describe_failed(results: Sequence[CheckResult]) -> str:
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


def _columns(result: CheckResult) -> str:
    named = [result.kwargs.get(name) for name in ("column", "column_A", "column_B")] + list(
        result.kwargs.get("column_list") or ()
    )
    columns = [f"`{name}`" for name in named if name]
    return f" of {', '.join(columns)}" if columns else ""


def _figures(result: CheckResult) -> str:
    found = result.result
    if (count := found.get("unexpected_count")) is not None:
        rows = found.get("element_count")
        return f": {count:,} unexpected" + (f" in {rows:,} rows" if rows is not None else "")
    if (why := why_unmeasured(found)) is not None:
        return f": {why}"
    return f": {found['observed_value']}" if found.get("observed_value") is not None else ""


def _measured(plan: QualityPlan) -> tuple[Check, ...]:
    return tuple(check for check in plan.checks if check.path != "reread")


def _unmeasured(plan: QualityPlan, exc: RunError, rereads: Sequence[CheckResult]) -> Judgement:
    """Nothing can be said: every check fails that needs measures."""
    results = []
    for check in _measured(plan):
        if check.schema_result is not None:
            success, result = check.schema_result.success, check.schema_result.result
        else:
            success, result = False, unmeasured(str(exc))
        results.append(CheckResult.of(check.expectation, check.path, success=success, result=result))
    for rule in (check.rule for check in plan.history):
        policy: Policy = rule.policy
        name, kind, told = check_id(rule), TYPE.format(rule.metric), unmeasured(str(exc))
        results.append(CheckResult(name, kind, {}, policy, success=False, result=told, path="exact"))
    results += rereads
    return Judgement(verdict(results), tuple(results), None, {})


def _of_no_rows(result: CheckResult) -> CheckResult:
    """A stream without news is no failure: only what counts rows, or looks at the columns, says something of it."""
    if result.path == "schema" or result.type.startswith("expect_table_"):
        return result
    return replace(result, success=True)


def _may_mend(result: CheckResult, check: Check) -> bool:
    """Whether more rows may still let a failed check pass, for it counts what only grows."""
    if result.success:
        return False
    value, arguments = result.result.get("observed_value"), check.expectation.arguments
    if value is None:
        return result.type == "expect_column_distinct_values_to_contain_set"
    if result.type == "expect_table_row_count_to_equal":
        return bool(value < arguments["value"])
    if result.type in _COUNTS:
        return arguments["min_value"] is not None and bool(value < arguments["min_value"])
    return False
