"""What was known of a batch when it was stopped: whoever lets it through lets this through, and nothing else.

By the next run its file may be replaced, its transform edited, its suite stricter: those are rows that nobody has seen.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from sluice.quality.compile import QualityPlan
from sluice.quality.judgement import Judgement
from sluice.quality.remeasured import measured_otherwise
from sluice.quality.results import CheckResult
from sluice.quality.suite import Expectation


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


def key_of(asked: CheckResult | Expectation) -> str:
    """What an expectation, or a rule about history, is known by: all that it asks for."""
    return json.dumps([asked.type, dict(asked.kwargs)], sort_keys=True, default=str)


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
