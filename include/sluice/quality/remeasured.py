"""Whether a batch that is measured again is the one that it was. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from sluice.quality.compile import QualityPlan
from sluice.quality.measures import merge_batches

_SAME = 1e-9
"""How far, by its size, a sum of doubles may be from the same sum in another order."""
_MOST_SHOWN = 80
"""How many characters a message has of a value."""


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
