"""From the measures of a run to Great Expectations' own results, and to the run's verdict. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from sluice.quality.compile import Check, QualityPlan
from sluice.quality.distant_times import DistantTime
from sluice.quality.expectations import Path
from sluice.quality.history import TYPE, check_id, freshness_seconds, judge
from sluice.quality.measures import Unmeasured, merge_batches
from sluice.quality.suite import Expectation, Policy
from sluice.runs.record import CheckRecord, Quality

_MAX_DISTINCT = 20


@dataclass(frozen=True)
class CheckResult:
    """What became of one expectation in a run."""

    id: str
    type: str
    kwargs: Mapping[str, Any]
    policy: Policy
    success: bool
    result: Mapping[str, Any]
    """Great Expectations' own result, ready for JSON."""
    path: Path
    """How it was measured."""

    @classmethod
    def of(cls, expectation: Expectation, path: Path, *, success: bool, result: Mapping[str, Any]) -> CheckResult:
        """A result, also of an expectation that Great Expectations measured itself."""
        return cls(
            expectation.id, expectation.type, expectation.kwargs, expectation.policy, success, _jsonable(result), path
        )

    @property
    def record(self) -> CheckRecord:
        """As the run record has it."""
        return CheckRecord(
            id=self.id,
            type=self.type,
            kwargs=dict(self.kwargs),
            policy=self.policy,
            success=self.success,
            result=dict(self.result),
            path=self.path,
        )


def check_results(plan: QualityPlan, batches: Sequence[Mapping[str, Any] | None]) -> list[CheckResult]:
    """The results of all that is not to be re-read, over the batches of a run.

    A check fails that needs a measure which is missing or can't be read, and says so in `details.not_measured`.

    Args:
        plan: What was observed.
        batches: What `observedMetrics` holds for each batch of the run, None where nothing arrived; batches that were
            skipped are left out.

    Returns:
        As much of each as Great Expectations' format `SUMMARY` says.
    """
    values = merge_batches(plan.measures, batches)
    return [_result(check, values) for check in plan.checks if check.path != "reread"]


def history_results(
    plan: QualityPlan,
    batches: Sequence[Mapping[str, Any] | None],
    before: Sequence[Mapping[str, float]],
    *,
    now: datetime,
) -> list[CheckResult]:
    """The results of the rules about history; a rule fails whose measure is missing or can't be read.

    Args:
        plan: What was observed.
        batches: What `observedMetrics` holds for each batch of the run.
        before: Of each of the runs before, the newest last, `observed_value` by `id` of these very results.
        now: What freshness is measured against, with a zone.
    """
    values = merge_batches(plan.measures, batches)
    results = []
    for check in plan.history:
        found, name = values[check.measure], check_id(check.rule)
        if isinstance(found, Unmeasured):
            kind, told = TYPE.format(check.rule.metric), unmeasured(found.why)
            results.append(CheckResult(name, kind, {}, check.rule.policy, success=False, result=told, path="exact"))
            continue
        if check.rule.metric == "freshness":
            found = freshness_seconds(found, now)
        judged = judge(check.rule, found, [run[name] for run in before if name in run])
        results.append(
            CheckResult(name, judged.type, judged.kwargs, judged.policy, judged.success, judged.result, "exact")
        )
    return results


def unmeasured(why: str) -> dict[str, Any]:
    """The result of a check that could not be measured."""
    return {"details": {"not_measured": why}}


def why_unmeasured(result: Mapping[str, Any]) -> str | None:
    """Why a check could not be measured, by its result; None when it was."""
    details = result.get("details")
    return details.get("not_measured") if isinstance(details, Mapping) else None


def verdict(results: Iterable[CheckResult]) -> Quality:
    """`fail` when an expectation with policy `fail` failed, `warn` when any other did, else `pass`."""
    failed = {result.policy for result in results if not result.success}
    if "fail" in failed:
        return "fail"
    return "warn" if failed else "pass"


def _result(check: Check, values: Mapping[str, Any]) -> CheckResult:
    expectation = check.expectation
    found = {role: values[name] for role, name in check.measures.items()}
    lost = next((value for value in found.values() if isinstance(value, Unmeasured)), None)
    if check.schema_result is not None:
        success, result = check.schema_result.success, check.schema_result.result
    elif lost is not None:
        success, result = False, unmeasured(lost.why)
    elif check.unexpected is not None:
        success, result = _row_result(check, found)
    else:
        success, result = _table_result(check, found)
    return CheckResult.of(expectation, check.path, success=success, result=result)


def _row_result(check: Check, found: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    rows, unexpected = found["rows"], found["unexpected"]
    # Great Expectations says nothing about missing values only where it checks for null itself.
    missing = found.get("missing", None if "column" in check.expectation.arguments else 0)
    considered = rows - (missing or 0)
    success = considered == 0 or (float(considered) - float(unexpected)) / float(considered) >= check.expectation.mostly
    result: dict[str, Any] = {
        "element_count": rows,
        "unexpected_count": unexpected,
        "unexpected_percent": unexpected / considered * 100 if considered else None,
    }
    sample = _sample(check, found)
    if sample is not None:
        result["partial_unexpected_list"] = sample
    if missing is not None:
        result["missing_count"] = missing
        result["missing_percent"] = missing / rows * 100 if rows else None
        result["unexpected_percent_total"] = unexpected / rows * 100 if rows else None
        result["unexpected_percent_nonmissing"] = result["unexpected_percent"]
    if sample is not None:
        counts = Counter(_hashable(_jsonable(value)) for value in sample)
        result["partial_unexpected_counts"] = [
            {"value": value, "count": count}
            for value, count in sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
        ]
    return success, result


def _sample(check: Check, found: Mapping[str, Any]) -> list[Any] | None:
    if "sample" not in found:
        return None
    rows = found["sample"]
    if "column_list" in check.expectation.arguments:
        return [dict(zip((c.name for c in check.columns), row, strict=True)) for row in rows]
    return [row[0] if len(row) == 1 else row for row in rows]


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value.values())
    return tuple(value) if isinstance(value, list) else value


def _table_result(check: Check, found: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    arguments, kind = check.expectation.arguments, check.expectation.type
    if "seen" in found or "outside" in found:
        return _set_result(check, found)
    if kind == "expect_table_row_count_to_equal":
        return found["rows"] == arguments["value"], {"observed_value": found["rows"]}
    if kind == "expect_column_unique_value_count_to_be_between":
        value: Any = found["distinct"].count
    elif kind == "expect_column_proportion_of_unique_values_to_be_between":
        value = min(found["distinct"].count / found["present"], 1.0) if found["present"] else 0
    elif kind == "expect_column_proportion_of_non_null_values_to_be_between":
        value = found["present"] / found["rows"] if found["rows"] else 0
    elif kind == "expect_column_mean_to_be_between":
        value = _mean(found["sum"], found["count"])
    else:
        value = found["value"] if "value" in found else found["rows"]
    return is_between(value, arguments), {"observed_value": None if _is_nan(value) else value}


def _mean(total: Any, count: int) -> Any:
    """As Spark's `avg` gives it: that of decimals has four digits more than they have."""
    if total is None or not count:
        return None
    if not isinstance(total, Decimal):
        return total / count
    digit = Decimal(1).scaleb(int(total.as_tuple().exponent) - 4)
    with localcontext(prec=80, rounding=ROUND_HALF_UP):
        return (total / count).quantize(digit)


def is_between(value: Any, arguments: Mapping[str, Any]) -> bool:
    """Great Expectations' rule: nothing observed, or NaN, fails; a date as bound compares days."""
    if isinstance(value, Decimal):
        value = float(value)
    if value is None or _is_nan(value):
        return False
    for bound, is_strict, is_low in (
        (arguments["min_value"], arguments["strict_min"], True),
        (arguments["max_value"], arguments["strict_max"], False),
    ):
        if bound is None:
            continue
        one, other = _alike(value, bound)
        if one == other:
            if is_strict:
                return False
        elif (one < other) == is_low:
            return False
    return True


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _alike(value: Any, bound: Any) -> tuple[Any, Any]:
    if not isinstance(value, date):
        return value, bound
    if not isinstance(bound, datetime):
        return (value.date() if isinstance(value, datetime) else value), bound
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    # Times without a zone are UTC, in a suite and in a column.
    return value if value.tzinfo else value.replace(tzinfo=UTC), bound if bound.tzinfo else bound.replace(tzinfo=UTC)


def _set_result(check: Check, found: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    values = check.expectation.arguments["value_set"]
    result: dict[str, Any] = {"observed_value": None}
    success = True
    if "outside" in found:
        distinct = found["outside_values"]
        result["unexpected_count"] = distinct.count
        success = found["outside"] == 0
        if "sample" in found:
            unique = list(dict.fromkeys(row[0] for row in found["sample"]))
            result["partial_unexpected_list"] = unique[:_MAX_DISTINCT]
    if "seen" in found:
        result["missing_count"] = len(values) - len(found["seen"])
        success = success and result["missing_count"] == 0
        seen = {_jsonable(value) for value in found["seen"]}
        unseen = [value for value in values if value is not None and _as_seen(value, found["seen"]) not in seen]
        result["partial_missing_list"] = unseen[:_MAX_DISTINCT]
    return success, result


def _as_seen(value: Any, seen: Iterable[Any]) -> Any:
    """A value of a suite as a seen one is written: dates and times are strings in suites."""
    sample = next(iter(seen), None)
    if isinstance(value, str) and isinstance(sample, date):
        moment = datetime.fromisoformat(value)
        if not isinstance(sample, datetime):
            return moment.date().isoformat()
        if sample.tzinfo and not moment.tzinfo:
            moment = moment.replace(tzinfo=sample.tzinfo)
        return _jsonable(moment.astimezone(sample.tzinfo) if sample.tzinfo else moment)
    return value


def _jsonable(value: Any) -> Any:
    """A value as Great Expectations puts it into JSON: decimals are floats, NaN is null, times have no zone (UTC)."""
    match value:
        case float() if math.isnan(value):
            return None
        case Decimal():
            return float(value)
        case datetime():
            return value.replace(tzinfo=None).isoformat()
        case date() | DistantTime():
            return value.isoformat()
        case Mapping():
            return {name: _jsonable(item) for name, item in value.items()}
        case list() | tuple():
            return [_jsonable(item) for item in value]
    return value
