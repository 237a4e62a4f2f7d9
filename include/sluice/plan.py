"""A plan: the frozen outcome of planning. Data, never behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import msgspec

from sluice.amounts import Amount, count_in, in_document
from sluice.checkpoint.offsets import decoded_offset
from sluice.checkpoint.source_log import LogAddition
from sluice.errors import Problem
from sluice.plan_document import (
    BatchDocument,
    InputDocument,
    JudgingDocument,
    PlanDocument,
    ProblemDocument,
    RangeDocument,
    StageDocument,
    WatermarksDocument,
)
from sluice.times import iso_millis, iso_time
from sluice.trigger import LiveTrigger
from sluice.watermarks import WatermarkOutlook

Verdict = Literal["skip", "resume", "run", "refuse"]
Strategy = Literal["exact", "drain", "live"]
BatchKind = Literal["data", "no_data", "uncommitted"]
JudgedAt = Literal["publish", "cache", "write"]
Measured = Literal["observe", "afterwards"]


@dataclass(frozen=True)
class SourceRange:
    """What one batch reads of one source. Offsets are Spark's own JSON, byte for byte; None for none."""

    start: str | None
    end: str | None
    amount: Amount = field(default_factory=dict)
    added: LogAddition = LogAddition()
    """What the source's own log in the checkpoint has to say of it."""

    @property
    def is_empty(self) -> bool:
        """Whether the batch takes nothing from this source."""
        return self.start == self.end

    @property
    def document(self) -> RangeDocument:
        """As documents have it."""
        return RangeDocument(start=decoded_offset(self.start), end=decoded_offset(self.end), **in_document(self.amount))


@dataclass(frozen=True)
class PlannedBatch:
    """One batch."""

    batch_id: int
    kind: BatchKind
    timestamp_ms: int
    """What `current_timestamp()` returns in the batch, in milliseconds since the epoch."""
    sources: Mapping[str, SourceRange]

    @property
    def rows(self) -> int | None:
        """How many rows the sources' logs promise; None when one does not know."""
        return count_in((source.amount for source in self.sources.values() if not source.is_empty), "rows")

    @property
    def document(self) -> BatchDocument:
        """As documents have it."""
        return BatchDocument(
            batch_id=self.batch_id,
            kind=self.kind,
            timestamp=iso_millis(self.timestamp_ms),
            sources={name: source.document for name, source in self.sources.items()},
        )


@dataclass(frozen=True)
class Judging:
    """Where and how a run is judged, and why so."""

    suite: str
    """The name of the suite."""
    checks: int
    where: JudgedAt
    """`publish`: a batch is written aside, audited, then published by a commit of metadata. `cache`: it is kept by
    Spark, audited, then written. `write`: it is written, and audited afterwards."""
    measured: Measured
    """`observe`: while the batch is written. `afterwards`: by reading what was kept or written once more."""
    rereads: int
    """How many expectations Great Expectations measures itself, on the rows that the run wrote."""
    reason: str

    @property
    def document(self) -> JudgingDocument:
        """As documents have it."""
        measured = "pass" if self.measured == "afterwards" else self.measured
        return JudgingDocument(**{**asdict(self), "measured": measured})


StageKind = Literal[
    "lease", "session", "settle", "begin", "batch", "drain", "live", "no_data", "audit", "publish", "record"
]
"""Of a run of the live stream."""
BackfillStageKind = Literal[
    "lease", "live_lease", "session", "begin", "compute", "audit", "replace", "quarantine", "record"
]


@dataclass(frozen=True)
class Stage:
    """One step of a run."""

    kind: StageKind | BackfillStageKind
    text: str
    """What it does, for people."""
    batch_id: int | None = None
    """Of a batch that is planned."""

    @property
    def document(self) -> StageDocument:
        """As documents have it."""
        return StageDocument(kind=self.kind, text=self.text, batch_id=self.batch_id)


@dataclass(frozen=True)
class Plan:
    """What a run will do, and why."""

    stream: str
    generation: int
    verdict: Verdict
    reason: str
    strategy: Strategy
    trigger: LiveTrigger | None = None
    """What keeps the query of a live run at work, and for how long; None for a run that ends by itself."""
    until: datetime | None = None
    unbounded: tuple[str, ...] = ()
    """The sources that the end of the data interval was to bound, and does not, for Spark alone decides the batches."""
    batches: tuple[PlannedBatch, ...] = ()
    problem: Problem | None = None
    """Why the verdict is `refuse`."""
    warnings: tuple[Problem, ...] = ()
    """What was noticed on the way and does not keep the run from going on."""
    started_at: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By source, what `starting` resolves to; kept when the first run begins."""
    quality: Judging | None = None
    """Where the run is judged; None without a suite, and when nothing is to be run."""
    watermarks: WatermarkOutlook | None = None
    """How far each `withWatermark` has come; None without one, and when nothing was measured."""
    stages: tuple[Stage, ...] = ()
    """What the run does, in this order; empty when nothing is to be run."""

    def refused(self, problem: Problem, reason: str | None = None) -> Plan:
        """The same, refused, for the problem's cause unless there is another word for it."""
        return replace(self, verdict="refuse", reason=reason or problem.cause, problem=problem, batches=())

    @property
    def size_bytes(self) -> int | None:
        """How much its batches read, in bytes of files; None when a source does not tell, or Spark is to decide."""
        if self.strategy != "exact":
            return None
        ranges = (source for batch in self.batches for source in batch.sources.values())
        return count_in((source.amount for source in ranges if not source.is_empty), "bytes")

    @property
    def document(self) -> PlanDocument:
        """As `sluice plan --json` prints it, and run records keep it."""
        return PlanDocument(
            stream=self.stream,
            generation=self.generation,
            verdict=self.verdict,
            reason=self.reason,
            strategy=self.strategy,
            until=None if self.until is None else iso_time(self.until),
            unbounded=self.unbounded or msgspec.UNSET,
            trigger=self.trigger or msgspec.UNSET,
            batches=tuple(batch.document for batch in self.batches),
            problem=None if self.problem is None else ProblemDocument.of(self.problem),
            warnings=tuple(map(ProblemDocument.of, self.warnings)),
            quality=None if self.quality is None else self.quality.document,
            watermarks=None if self.watermarks is None else watermarks_document(self.watermarks),
            stages=tuple(stage.document for stage in self.stages),
        )


def watermarks_document(outlook: WatermarkOutlook) -> WatermarksDocument:
    """Every input's watermark, as plans and `sluice inspect` tell it."""
    held_back_by = outlook.held_back_by
    return WatermarksDocument(
        next=iso_millis(outlook.next_ms) if outlook.next_ms else None,
        policy=outlook.policy,
        unmeasured_batches=outlook.unmeasured,
        inputs=tuple(
            InputDocument(
                input=known.input,
                watermark=iso_millis(known.watermark_ms) if known.watermark_ms else None,
                newest_event=iso_millis(known.event_ms),
                delay_seconds=known.delay_ms / 1000,
                since=known.since,
                holds_back=known.input in held_back_by,
            )
            for known in outlook.known.inputs
        ),
    )
