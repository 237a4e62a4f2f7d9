"""Suites for tests: from rows of type and arguments."""

import json
from typing import Any

from sluice.quality.compile import QualityPlan
from sluice.quality.suite import Suite, parse_suite


def row(kind: str, *, policy: str | None = None, meta: dict[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
    """One expectation, as Great Expectations writes it."""
    found = {"type": kind, "kwargs": kwargs, "meta": meta or {}}
    if policy is not None:
        found["meta"] = {"sluice": {"policy": policy}}
    return found


def suite(*rows: dict[str, Any], **meta: Any) -> Suite:
    """A suite of these expectations; keywords are what `meta.sluice` of the suite says."""
    return parse_suite(document(*rows, **meta), source="suite.json")


def document(*rows: dict[str, Any], **meta: Any) -> bytes:
    """The file of such a suite."""
    return json.dumps({"name": "s", "expectations": list(rows), "meta": {"sluice": meta}}).encode()


def named(plan: QualityPlan, *values: Any) -> dict[str, Any]:
    """What was observed of one batch: values by the names of a plan's measures, in their order; 0 for the last ones."""
    padded = [*values, *[0] * (len(plan.measures) - len(values))]
    return {measure.name: value for measure, value in zip(plan.measures, padded, strict=True)}
