"""What was known of a batch when it was stopped: whoever lets it through lets this through, and nothing else.

By the next run its file may be replaced, its transform edited, its suite stricter: those are rows that nobody has seen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec

from sluice.quality.compile import QualityPlan
from sluice.quality.gate import Judgement
from sluice.quality.measures import merge_batches
from sluice.quality.results import CheckResult

_SAME = 1e-9
"""How far, by its size, a sum of doubles may be from the same sum in another order."""
_MOST_SHOWN = 80
"""How many characters a message has of a value."""


class StoppedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was not published."""

    declared: dict[str, str]
    """What it was read and judged by, by fingerprints."""
    failing: tuple[str, ...]
    """What was asked and failed."""
    values: dict[str, Any] | None = None
    """What was measured of it; None where a row ended it before."""
    varies: bool = False
    """Whether it was measured otherwise at each of two tries, and nothing that is known had changed."""

    def other_checks(self, failing: Iterable[CheckResult]) -> str | None:
        """What fails now and did not when the batch was stopped, for people; None for nothing."""
        others = [found.type for found in failing if key_of(found) not in self.failing]
        return f"`{others[0]}` did not fail then, or was asked otherwise" if others else None

    def other_rows(self, plan: QualityPlan, values: Mapping[str, Any] | None) -> str | None:
        """What is measured otherwise of the batch by now; see `measured_otherwise`."""
        return None if self.varies else measured_otherwise(plan, self.values or {}, values)


def measured_otherwise(plan: QualityPlan, then: Mapping[str, Any], now: Mapping[str, Any] | None) -> str | None:
    """What is measured otherwise of a batch than it was, for people; None for nothing.

    Args:
        plan: What is measured.
        then: What was measured of the batch, also by another suite.
        now: What is measured of it now.
    """
    # Which of many values a sample has is nothing that people judge by.
    measures = [found for found in plan.measures if found.name in then and found.merge != "sample"]
    before, after = merge_batches(measures, [then]), merge_batches(measures, [now])
    if not _is_same(before.get(plan.rows), after.get(plan.rows)):
        return f"it had {_rows(before[plan.rows])} then, and has {_rows(after[plan.rows])}"
    other = next((found for found in measures if not _is_same(before[found.name], after[found.name])), None)
    if other is None:
        return None
    return f"`{other.sql[:_MOST_SHOWN]}` was {_shown(before[other.name])} then, and is {_shown(after[other.name])}"


def asked(kind: str, kwargs: Mapping[str, Any]) -> str:
    """What an expectation or a rule about history is known by: all that it asks for."""
    return json.dumps([kind, dict(kwargs)], sort_keys=True, default=str)


def key_of(result: CheckResult) -> str:
    """What an expectation, or a rule, is known by whose result this is; see `asked`."""
    return asked(result.type, result.kwargs)


def not_let_through(judged: Judgement, let_through: Collection[str], others: Judgement) -> tuple[CheckResult, ...]:
    """What lets a run fail, in which somebody has let batches through.

    What these were let through for is asked of the other batches; all else of all of them.

    Args:
        judged: The judgement on all batches.
        let_through: What they were let through for.
        others: The judgement on the other batches alone.
    """
    still = {key_of(found) for found in others.stopping}
    return tuple(found for found in judged.stopping if (key := key_of(found)) not in let_through or key in still)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_SAME) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def _rows(count: Any) -> str:
    return "1 row" if count == 1 else f"{_shown(count)} rows"


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)[:_MOST_SHOWN] if isinstance(value, bool | float | str | Decimal | date) else "other values"
