"""The plan in a run record, as far as it has the known form: a record is only a file."""

from __future__ import annotations

from typing import Any

import msgspec


class PlannedRange(msgspec.Struct):
    """What a batch takes of a source; offsets are Spark's own."""

    start: Any = None
    end: Any = None
    files: int | None = None
    size_bytes: int | None = msgspec.field(default=None, name="bytes")
    rows: int | None = None


class PlannedBatch(msgspec.Struct):
    """One batch."""

    batch_id: int
    kind: str = "data"
    timestamp: str | None = None
    sources: dict[str, PlannedRange] = {}


class PlannedSlice(msgspec.Struct):
    """All that a backfill reads of a source: up to an offset of Spark's, or to a version."""

    end: Any = None
    version: int | None = None
    files: int | None = None
    size_bytes: int | None = msgspec.field(default=None, name="bytes")


class PlannedDownstream(msgspec.Struct):
    """A stream that reads what a backfill replaces."""

    stream: str
    skips_changes: bool = False
    only_adds: bool = False


class PlannedProblem(msgspec.Struct):
    """Why a plan refuses, or what was noticed."""

    code: str
    file: str = ""
    cause: str = ""
    consequence: str = ""
    remedy: str = ""


class PlannedGate(msgspec.Struct):
    """Where a run is judged, how it is measured, and why so."""

    gate: str = ""
    measured: str = ""
    reason: str = ""


class PlanDocument(msgspec.Struct):
    """A plan as records keep it. A record is only a file: what of it has another shape is not shown.

    From `version` on, only backfills have it.
    """

    verdict: str = ""
    reason: str = ""
    strategy: str = ""
    batches: list[PlannedBatch] = []
    problem: PlannedProblem | None = None
    warnings: list[PlannedProblem] = []
    quality: PlannedGate | None = None
    version: int | None = None
    batch_id: int | None = None
    publish: str = ""
    watermark: str | None = None
    sources: dict[str, PlannedSlice] = {}
    downstream: list[PlannedDownstream] = []


def read_plan(document: dict[str, Any]) -> PlanDocument | None:
    """The plan in a record; None when it has another shape."""
    try:
        return msgspec.convert(document, PlanDocument)
    except (msgspec.ValidationError, RecursionError):
        return None
