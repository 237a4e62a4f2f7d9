"""A plan as run records keep it, of a run of the live stream or of a backfill."""

from __future__ import annotations

from typing import Any

import msgspec

from sluice.amounts import Amount, known


class _Taken(msgspec.Struct, frozen=True):
    """An amount; see `amounts.amount_json`."""

    files: int | None = None
    offsets: int | None = None
    size_bytes: int | None = msgspec.field(default=None, name="bytes")
    rows: int | None = None

    @property
    def amount(self) -> Amount:
        """How much that is."""
        return known(files=self.files, offsets=self.offsets, bytes=self.size_bytes, rows=self.rows)


class RecordedRange(_Taken, frozen=True):
    """What a batch takes of a source; offsets are Spark's own."""

    start: Any = None
    end: Any = None


class RecordedBatch(msgspec.Struct, frozen=True):
    """One batch."""

    batch_id: int
    kind: str = ""
    timestamp: str | None = None
    sources: dict[str, RecordedRange] = {}


class RecordedSlice(_Taken, frozen=True):
    """All that a backfill reads of a source: up to an offset of Spark's, or to a version."""

    end: Any = None
    version: int | None = None


class RecordedDownstream(msgspec.Struct, frozen=True):
    """A stream that reads what a backfill replaces."""

    stream: str
    skips_changes: bool = False
    only_adds: bool = False


class RecordedProblem(msgspec.Struct, frozen=True):
    """Why a plan refuses, or what was noticed."""

    code: str
    file: str = ""
    cause: str = ""
    consequence: str = ""
    remedy: str = ""


class RecordedGate(msgspec.Struct, frozen=True):
    """Where a run is judged, how it is measured, and why so."""

    gate: str = ""
    measured: str = ""
    reason: str = ""


class RecordedPlan(msgspec.Struct, frozen=True):
    """From `version` on, only backfills have it."""

    batches: tuple[RecordedBatch, ...]
    verdict: str = ""
    reason: str = ""
    strategy: str = ""
    problem: RecordedProblem | None = None
    warnings: tuple[RecordedProblem, ...] = ()
    quality: RecordedGate | None = None
    version: int | None = None
    batch_id: int | None = None
    publish: str = ""
    watermark: str | None = None
    sources: dict[str, RecordedSlice] = {}
    downstream: tuple[RecordedDownstream, ...] = ()


def read_plan(document: dict[str, Any]) -> RecordedPlan:
    """The plan in a record.

    Raises:
        msgspec.ValidationError: It has another shape than every plan that Sluice writes.
    """
    try:
        return msgspec.convert(document, RecordedPlan)
    except RecursionError as exc:
        raise msgspec.ValidationError("it is nested too deep") from exc
