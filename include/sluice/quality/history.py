"""This run against the last ones: row counts and freshness. Pure functions over the values of the runs before.

Declared in the suite's own `meta`, beside its expectations:

    {"sluice": {"history": [
        {"metric": "row_count", "last": 20, "min_value": 1, "max_relative_change": 0.5, "max_z_score": 3},
        {"metric": "freshness", "column": "event_time", "max_value": 3600, "policy": "warn"}]}}
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal

import msgspec

from sluice.errors import DeclarationError
from sluice.quality.distant_times import DistantTime
from sluice.quality.suite import Policy, Suite
from sluice.typed_json import decode_as

Metric = Literal["row_count", "freshness"]

TYPE = "sluice_{}_against_history"
"""What such a check is called in a run record."""
MIN_RUNS_BEFORE = 3
"""How many runs before a relative change or a z-score needs; with fewer, only the bounds count."""


class HistoryRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one number of a run must lie to those of the runs before."""

    metric: Metric
    """`row_count`: rows that would be published. `freshness`: seconds from the newest value of `column` to now."""
    column: str | None = None
    """Freshness only: a date or time column."""
    last: int = 20
    """How many runs before count, 1 to 1,000."""
    min_value: float | None = None
    max_value: float | None = None
    max_relative_change: float | None = None
    """How far it may lie from the mean of the runs before, as a share of it: 0.5 allows half to one and a half."""
    max_z_score: float | None = None
    """How many standard deviations of the runs before it may lie from their mean."""
    policy: Literal["warn", "fail"] = "warn"


@dataclass(frozen=True)
class HistoryResult:
    """How a number of this run lies to those of the runs before."""

    type: str
    kwargs: Mapping[str, Any]
    policy: Policy
    success: bool
    result: Mapping[str, Any]
    """`observed_value` and, in `details`, how many runs before counted, their mean, the change and the z-score."""


def history_rules(suite: Suite) -> tuple[HistoryRule, ...]:
    """The rules that a suite declares.

    Raises:
        DeclarationError: One is wrong.
    """
    ours = suite.meta.get("sluice", {})
    declared = ours.get("history", []) if isinstance(ours, Mapping) else None
    where = f"{suite.source}, meta.sluice.history"
    try:
        rules = tuple(decode_as(msgspec.json.encode(declared), list[HistoryRule]))
    except msgspec.ValidationError as exc:
        raise DeclarationError(
            f"a rule about history does not parse: {exc}", where=where, remedy="see docs/quality.md for what it takes"
        ) from exc
    for rule in rules:
        _check(rule, where)
    if len({check_id(rule) for rule in rules}) < len(rules):
        raise DeclarationError("two rules are about the same number", where=where, remedy="make one of them")
    return rules


def check_id(rule: HistoryRule) -> str:
    """What a rule is known by over runs: its number, not its limits, so that they may be changed."""
    return f"{rule.metric}:{rule.column}" if rule.column else rule.metric


def judge(rule: HistoryRule, value: float | None, before: Sequence[float]) -> HistoryResult:
    """Judge a number of this run.

    Args:
        rule: What it must be.
        value: Rows, or seconds; None when there is none, which fails.
        before: The same number of the runs before, the newest last; only the rule's `last` ones count.
    """
    counted = [number for number in before[-rule.last :] if math.isfinite(number)]
    mean = statistics.fmean(counted) if counted else None
    details: dict[str, Any] = {"former_runs": len(counted), "mean": mean}
    success = value is not None
    if value is not None:
        success = (rule.min_value is None or value >= rule.min_value) and (
            rule.max_value is None or value <= rule.max_value
        )
        if mean is not None and len(counted) >= MIN_RUNS_BEFORE:
            details["relative_change"] = _relative_change(value, mean)
            details["z_score"] = _z_score(value, mean, statistics.stdev(counted))
            success = (
                success
                and _is_within(details["relative_change"], rule.max_relative_change)
                and _is_within(details["z_score"], rule.max_z_score)
            )
    kwargs = {name: found for name, found in msgspec.structs.asdict(rule).items() if found is not None}
    del kwargs["metric"], kwargs["policy"]
    return HistoryResult(
        TYPE.format(rule.metric), kwargs, rule.policy, success, {"observed_value": value, "details": details}
    )


def freshness_seconds(newest: date | DistantTime | None, now: datetime) -> float | None:
    """How old the newest row is, in seconds; None when there was none. Times without a zone are UTC."""
    match newest:
        case None:
            return None
        case DistantTime():
            return newest.seconds_before(now)
        case datetime():
            moment = newest if newest.tzinfo else newest.replace(tzinfo=UTC)
        case _:
            moment = datetime(newest.year, newest.month, newest.day, tzinfo=UTC)
    return (now - moment).total_seconds()


def _relative_change(value: float, mean: float) -> float | None:
    """None where the mean is 0 and the value is not: the change is beyond any share."""
    if mean == 0:
        return 0.0 if value == 0 else None
    return (value - mean) / abs(mean)


def _z_score(value: float, mean: float, deviation: float) -> float | None:
    """None where the runs before were all alike and this one is not: the score is beyond any limit."""
    if deviation == 0:
        return 0.0 if value == mean else None
    return (value - mean) / deviation


def _is_within(found: float | None, limit: float | None) -> bool:
    return limit is None or (found is not None and abs(found) <= limit)


def _check(rule: HistoryRule, where: str) -> None:
    problem, remedy = None, "correct it"
    limits = (rule.min_value, rule.max_value, rule.max_relative_change, rule.max_z_score)
    if rule.metric == "freshness" and not rule.column:
        problem, remedy = "`freshness` has no `column`", "name a date or time column of the result"
    elif rule.metric == "row_count" and rule.column is not None:
        problem, remedy = "`row_count` has a `column`", "leave it out: rows are counted, not values"
    elif not 1 <= rule.last <= 1000:
        problem, remedy = f"`last` is {rule.last}", "give 1 to 1,000 runs"
    elif all(limit is None for limit in limits):
        problem, remedy = f"`{rule.metric}` has no limit", "give a bound, a relative change or a z-score"
    elif any(limit is not None and limit < 0 for limit in limits[2:]):
        problem, remedy = "a limit is below 0", "give how far it may lie on either side"
    elif rule.min_value is not None and rule.max_value is not None and rule.min_value > rule.max_value:
        problem, remedy = "`min_value` is greater than `max_value`", "exchange them"
    if problem:
        raise DeclarationError(problem, where=where, remedy=remedy)
