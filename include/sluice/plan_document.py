"""The plan as a document: what `sluice plan --json` prints, run records keep, and pages show. Data, never behaviour.

Plans of the live stream and plans of backfills have the same keys where they mean the same; what only one of the two
has is left out of the other.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from sluice.amounts import Amount, known
from sluice.errors import Problem
from sluice.trigger import LiveTrigger


class _Taken(msgspec.Struct, frozen=True, kw_only=True):
    """An amount: null for what is not known of it."""

    files: int | None = None
    size_bytes: int | None = msgspec.field(default=None, name="bytes")
    rows: int | None = None
    offsets: int | UnsetType = UNSET

    @property
    def amount(self) -> Amount:
        """How much that is."""
        offsets = self.offsets if self.offsets is not UNSET else None
        return known(files=self.files, offsets=offsets, bytes=self.size_bytes, rows=self.rows)


class RangeDocument(_Taken, frozen=True, kw_only=True):
    """What a batch takes of a source; offsets are Spark's own."""

    start: Any = None
    end: Any = None


class BatchDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One batch."""

    batch_id: int
    kind: str = ""
    timestamp: str | None = None
    sources: dict[str, RangeDocument] = {}


class SliceDocument(_Taken, frozen=True, kw_only=True):
    """All that a backfill reads of a source: up to an offset of Spark's, or to a version."""

    end: Any = None
    version: int | None = None


class DownstreamDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that reads what a backfill replaces."""

    stream: str
    skips_changes: bool = False
    only_adds: bool = False


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Why a plan refuses, or what was noticed."""

    code: str
    file: str = ""
    cause: str = ""
    consequence: str = ""
    remedy: str = ""

    @classmethod
    def of(cls, problem: Problem) -> ProblemDocument:
        """The document of a problem."""
        return cls(**problem.as_json())


class JudgingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is judged, how it is measured, and why so; see `plan.Judging`."""

    suite: str = ""
    checks: int = 0
    where: str = msgspec.field(default="", name="gate")
    measured: str = ""
    """`observe`, or `pass`: afterwards."""
    rereads: int = 0
    reason: str = ""


class InputDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One `withWatermark`; see `watermarks.InputWatermark`."""

    input: str
    watermark: str | None = None
    newest_event: str | None = None
    delay_seconds: float = 0
    since: int | None = None
    holds_back: bool = False


class WatermarksDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The watermark of the next batch, and each input's."""

    next: str | None = None
    policy: str = ""
    unmeasured_batches: int = 0
    inputs: tuple[InputDocument, ...] = ()


class IntervalDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that a backfill recomputes: from `start` to `end`, exclusive."""

    start: str = ""
    end: str = ""


class StageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a run."""

    kind: str
    text: str = ""
    batch_id: int | None = None


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a run will do, or was to do, and why. What an older Sluice did not write has a default."""

    stream: str = ""
    generation: int = 0
    interval: IntervalDocument | UnsetType = UNSET
    """Of a backfill."""
    verdict: str = ""
    reason: str = ""
    strategy: str = ""
    trigger: LiveTrigger | UnsetType = UNSET
    """Of a live run."""
    until: str | UnsetType | None = UNSET
    """Of a run of the live stream."""
    unbounded: tuple[str, ...] | UnsetType = UNSET
    """Of a run whose bound, the end of a data interval, was left out: the sources; see `plan.Plan`."""
    version: int | UnsetType | None = UNSET
    """This and the next five are of a backfill; see `planning.backfill.BackfillPlan`."""
    batch_id: int | UnsetType | None = UNSET
    publish: str | UnsetType = UNSET
    watermark: str | UnsetType | None = UNSET
    sources: dict[str, SliceDocument] | UnsetType = UNSET
    downstream: tuple[DownstreamDocument, ...] | UnsetType = UNSET
    batches: tuple[BatchDocument, ...] = ()
    problem: ProblemDocument | None = None
    warnings: tuple[ProblemDocument, ...] = ()
    quality: JudgingDocument | None = None
    watermarks: WatermarksDocument | UnsetType | None = UNSET
    """Of a run of the live stream."""
    stages: tuple[StageDocument, ...] | UnsetType = UNSET
    left_to_spark: tuple[str, ...] | UnsetType = UNSET
    """Of a backfill."""
