"""Suites for tests: from rows of type and arguments."""

import json
from typing import Any

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
