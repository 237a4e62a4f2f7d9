"""Decides what a backfill reads and replaces. Looks first, reading only; the plan is a pure function of what was seen.

A version V of the sink and a batch N of the live generation belong together: all that the batches up to N wrote is in
V, and nothing else of the live stream. So the slice up to the end of N, replaced in V, is neither short of rows nor
takes one that the live stream has yet to write. No lock is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

import msgspec

from sluice.amounts import count_in, describe_count, in_document
from sluice.checkpoint.offsets import OffsetFile, read_offset_file
from sluice.checkpoint.places import offset_file
from sluice.checkpoint.reader import read_checkpoint
from sluice.errors import DeclarationError, Problem, RefusedError
from sluice.home import StreamHome, log_keys
from sluice.interval import Interval
from sluice.locations import same_for_every_name
from sluice.plan import Judging, Stage
from sluice.plan_document import DownstreamDocument, IntervalDocument, PlanDocument, ProblemDocument, SliceDocument
from sluice.planning.backfill_inputs import BackfillInputs
from sluice.planning.backfill_refusals import (
    check_state,
    holds_rows_back,
    may_have_missed_late_rows,
    shared_by,
    shared_table,
)
from sluice.planning.forgotten_batches import pending_forgotten
from sluice.planning.older_table import older_sink
from sluice.planning.planner import find_refusal
from sluice.planning.read_before import read_before
from sluice.planning.survey import Survey, own_logs, positions, source_lines
from sluice.sinks.contract import SinkState
from sluice.sinks.replaceable import ReplaceableSink, SinkSnapshot
from sluice.sources.contract import Slice, VersionedSource
from sluice.storage import Storage
from sluice.stream import Stream
from sluice.times import epoch_micros, iso_millis, iso_time, parse_time

_LOOKS = 4
"""How often to look until the checkpoint, which a live run may be writing, and the sink agree."""

PublishMode = Literal["metadata", "replace_where"]
LateRows = Callable[[int, int], int | None]
"""Gives how many late rows the live stream has dropped, by generation and newest batch; None when nobody knows."""


def _not_known(_generation: int, _batch_id: int) -> None:
    return None


@dataclass(frozen=True)
class Downstream:
    """Another stream of the project that reads the sink as a Delta table."""

    stream: str
    skips_changes: bool
    """Whether it passes over commits that change rows; else its next run after one is refused."""
    only_adds: bool = False
    """Whether the table has no rows of the interval: then the backfill's commit changes none, and is read as new."""


def downstream_effect(*, skips_changes: bool, only_adds: bool) -> str:
    """What a backfill means for a stream that reads the table."""
    if only_adds:
        return (
            "reads the rows as new ones, for the table has none of the interval; if it had read them before they were"
            " deleted, backfill it too"
        )
    if skips_changes:
        return "passes over what is replaced: backfill it too"
    return "is refused at its next run, for it does not declare `skip_change_commits`"


@dataclass(frozen=True)
class Sight:
    """What was seen."""

    seen: Survey
    interval: Interval
    snapshot: SinkSnapshot | None = None
    batch: OffsetFile | None = None
    """The newest batch whose rows are all in the snapshot."""
    inputs: BackfillInputs | None = None
    slices: Mapping[str, Slice] = field(default_factory=dict)
    late_rows: int | None = None
    """How many late rows the live stream has dropped; None when nobody knows, or it was not asked."""
    refusal: Problem | None = None
    downstream: tuple[Downstream, ...] = ()


@dataclass(frozen=True)
class BackfillPlan:
    """What a backfill will do, and why."""

    stream: str
    generation: int
    interval: Interval
    verdict: Literal["run", "skip", "refuse"]
    reason: str
    version: int | None = None
    """The version of the sink whose rows are replaced."""
    batch_id: int | None = None
    """The batch of the live generation up to which everything is read."""
    publish: PublishMode = "metadata"
    watermark_ms: int | None = None
    """The watermark that the live stream has emitted rows by; None when it keeps none back."""
    slices: Mapping[str, Slice] = field(default_factory=dict)
    inputs: BackfillInputs | None = field(default=None, repr=False)
    """Looks at the sources again; None when nothing is read."""
    downstream: tuple[Downstream, ...] = ()
    problem: Problem | None = None
    quality: Judging | None = None
    """How its rows are judged before they replace any; None without a suite, and when nothing is to be done."""
    left_to_spark: tuple[str, ...] = ()
    """What only Spark can tell, and refuses at its start, before anything is replaced."""
    stages: tuple[Stage, ...] = ()
    """What the backfill does, in this order; empty when nothing is to be done."""

    def refused(self, problem: Problem) -> BackfillPlan:
        """The same, refused."""
        return replace(self, verdict="refuse", reason=problem.cause, problem=problem)

    def find_changed(self, *, storage: Storage) -> str | None:
        """Why what Spark has read may be something else than was planned; see `BackfillInputs.find_changed`."""
        return None if self.inputs is None else self.inputs.find_changed(self.slices, storage=storage)

    @property
    def size_bytes(self) -> int | None:
        """How much it reads, in bytes of files; None when a source does not tell."""
        return count_in((taken.amount for taken in self.slices.values()), "bytes")

    @property
    def document(self) -> PlanDocument:
        """As `sluice backfill --dry-run --json` prints it, and run records keep it."""
        return PlanDocument(
            stream=self.stream,
            generation=self.generation,
            interval=IntervalDocument(start=iso_time(self.interval.start), end=iso_time(self.interval.end)),
            verdict=self.verdict,
            reason=self.reason,
            strategy="backfill",
            version=self.version,
            batch_id=self.batch_id,
            publish=self.publish,
            watermark=iso_millis(self.watermark_ms),
            sources={name: _document(taken) for name, taken in self.slices.items()},
            downstream=tuple(
                DownstreamDocument(stream=found.stream, skips_changes=found.skips_changes, only_adds=found.only_adds)
                for found in self.downstream
            ),
            problem=None if self.problem is None else ProblemDocument.of(self.problem),
            quality=None if self.quality is None else self.quality.document,
            stages=tuple(stage.document for stage in self.stages),
            left_to_spark=self.left_to_spark,
        )


def check_declaration(stream: Stream) -> None:
    """Refuse a stream that can't be backfilled.

    Raises:
        DeclarationError: Its declaration does not support it.
    """
    if stream.backfill_obstacle is not None:
        raise DeclarationError(
            f"stream `{stream.name}` can't be backfilled: {stream.backfill_obstacle}",
            where=stream.place,
            remedy='declare `interval_column="..."`, a date or time column of the result, with a Delta sink',
        )


def survey_backfill(
    stream: Stream,
    home: StreamHome,
    interval: Interval,
    streams: Mapping[str, Stream],
    *,
    late_rows: LateRows = _not_known,
) -> Sight:
    """Look at the live generation, the sink and the sources. Reads only; the live stream may be running.

    Args:
        stream: The declaration, with absolute locations.
        home: The stream's folder in the home.
        interval: What to recompute.
        streams: Every stream of the project.
        late_rows: Asked only where it matters.

    Raises:
        DeclarationError: The declaration does not support it, or the interval column is not in the sink.
        StorageError: Something can't be read right now.
        RefusedError: A file of the home is damaged.
    """
    check_declaration(stream)
    sink = stream.sink
    if not isinstance(sink, ReplaceableSink) or stream.interval_column is None:  # pragma: no cover - checked above
        raise TypeError(stream.name)
    sight = Sight(_survey_checkpoint(stream, home), interval, downstream=_downstream(stream, streams))
    if (shared := shared_table(stream, streams)) is not None:
        return replace(sight, refusal=shared)
    for _ in range(_LOOKS):
        # The checkpoint first: what was committed by then, the sink holds now.
        seen = sight.seen
        query_id = seen.known.query_id if seen.known else seen.checkpoint.query_id
        snapshot = sink.snapshot(stream.interval_column, query_id, storage=home.storage) if query_id else None
        state = SinkState(exists=False)
        if snapshot is not None:
            state = SinkState(
                exists=True, identity=snapshot.identity, last_batch=snapshot.last_batch, version=snapshot.version
            )
        older = older_sink(stream, state, seen.known, seen.checkpoint.committed_id, storage=home.storage)
        lost = pending_forgotten(stream, sink, state, seen.checkpoint, query_id, storage=home.storage)
        refusal = find_refusal(replace(seen, sink=state, forgotten=lost, older=older))
        sight = replace(sight, snapshot=snapshot, refusal=refusal)
        if sight.refusal is None:
            if snapshot is None or seen.checkpoint.is_new:
                return sight
            sight = _survey_late_rows(_survey_slices(_survey_writers(sight, home), home), late_rows)
            if sight.downstream and not sink.may_have_rows(
                snapshot.version, stream.interval_column, interval, storage=home.storage
            ):
                only_added = (replace(found, only_adds=True) for found in sight.downstream)
                sight = replace(sight, downstream=tuple(only_added))
            return sight
        # A live run may have gone on between two looks; what is really wrong stays wrong.
        sight = replace(sight, seen=_survey_checkpoint(stream, home))
    return sight


def build_backfill_plan(sight: Sight) -> BackfillPlan:
    """Decide what a backfill does.

    Raises:
        DeclarationError: The interval column has dates, and the interval does not begin and end at midnight.
    """
    seen, snapshot, batch = sight.seen, sight.snapshot, sight.batch
    plan = BackfillPlan(
        stream=seen.stream.name,
        generation=seen.generation,
        interval=sight.interval,
        verdict="skip",
        reason="the live stream has written nothing yet",
        version=snapshot.version if snapshot else None,
        slices=sight.slices,
        inputs=sight.inputs,
        downstream=sight.downstream,
    )
    if sight.refusal is not None:
        return plan.refused(sight.refusal)
    if snapshot is None or batch is None:
        return plan
    if snapshot.column_kind == "date":
        _check_midnights(sight.interval, seen.stream)
    plan = replace(
        plan,
        batch_id=batch.batch_id,
        publish="metadata" if snapshot.obstacle is None else "replace_where",
        watermark_ms=batch.watermark_ms if holds_rows_back(seen) else None,
    )
    problem = check_state(seen, sight.interval, batch, sight.late_rows)
    if problem is not None:
        return plan.refused(problem)
    why = f"{_amounts(sight.slices)}, read up to batch {batch.batch_id}, replace the interval in version {plan.version}"
    how = "" if snapshot.obstacle is None else f" by Spark, under the live stream's lease ({snapshot.obstacle})"
    return replace(plan, verdict="run", reason=why + how)


def _survey_checkpoint(stream: Stream, home: StreamHome) -> Survey:
    number = home.current_generation()
    record = home.generation(number)
    checkpoint = read_checkpoint(home.checkpoint_location(number), storage=home.storage, log_keys=log_keys(record))
    lines = source_lines(stream, record, checkpoint)
    seen = Survey(stream, number, record, checkpoint, lines, {}, dict(record.sources) if record else {}, {})
    return replace(seen, foreign_owner=home.foreign_owner(), logs=own_logs(home, number, checkpoint.source_logs))


def _survey_writers(sight: Sight, home: StreamHome) -> Sight:
    """Look whether another query has written batches into the sink since the stream began to."""
    stream = sight.seen.stream
    known = list(filter(None, map(home.generation, range(1, sight.seen.generation + 1))))
    first = min(filter(None, (parse_time(found.created_at) for found in known)), default=None)
    if first is None or not isinstance(stream.sink, ReplaceableSink):
        return sight
    own = {found.query_id for found in known}
    other = stream.sink.other_query(own, epoch_micros(first) // 1000, storage=home.storage)
    if other is None:
        return sight
    return replace(sight, refusal=shared_by(stream.sink.location or "", f"another streaming query ({other})"))


def _survey_late_rows(sight: Sight, late_rows: LateRows) -> Sight:
    batch = sight.batch
    if batch is None or not may_have_missed_late_rows(sight.seen, sight.interval, batch):
        return sight
    return replace(sight, late_rows=late_rows(sight.seen.generation, batch.batch_id))


def _survey_slices(sight: Sight, home: StreamHome) -> Sight:
    seen, snapshot = sight.seen, sight.snapshot
    if sight.refusal is not None:
        return sight
    committed = seen.checkpoint.committed_id
    in_sink = snapshot.last_batch if snapshot else None
    # Batches after the sink's newest that are committed have written nothing: the live stream is done with them.
    newest = max((found for found in (committed, in_sink) if found is not None), default=None)
    if newest is None:
        return sight
    location = offset_file(seen.checkpoint.location, newest)
    batch = read_offset_file(location, newest, storage=home.storage)
    if batch is None:
        return replace(sight, refusal=_offsets_gone(location, newest))
    lateness = seen.stream.lateness_time
    arrivals = None if lateness is None else Interval(sight.interval.start, _later(sight.interval.end, lateness))
    at = {
        name: replace(position, read_before=partial(read_before, seen, home, name))
        for name, position in positions(seen, batch).items()
    }
    inputs = BackfillInputs(seen.stream, at, arrivals)
    try:
        slices = inputs.slices(storage=home.storage)
    except RefusedError as refused:
        return replace(sight, batch=batch, refusal=refused.finding)
    return replace(sight, batch=batch, inputs=inputs, slices=slices)


def _later(moment: datetime, lateness: timedelta) -> datetime:
    try:
        return moment + lateness
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _check_midnights(interval: Interval, stream: Stream) -> None:
    for moment in (interval.start, interval.end):
        at = moment.astimezone(UTC)
        if at != at.replace(hour=0, minute=0, second=0, microsecond=0):
            raise DeclarationError(
                f"`{stream.interval_column}` has dates, and {iso_time(moment)} is no midnight (UTC)",
                where="--start, --end",
                remedy="give whole days; a DAG needs a schedule whose intervals are whole days, such as @daily",
            )


def _offsets_gone(file: str, batch_id: int) -> Problem:
    return Problem(
        code="BACKFILL_OFFSETS_GONE",
        file=file,
        cause=f"the sink holds batch {batch_id}, whose offsets are gone",
        consequence="nobody knows what of the sources is in the sink",
        remedy="run the live stream once, then backfill again",
    )


def _downstream(stream: Stream, streams: Mapping[str, Stream]) -> tuple[Downstream, ...]:
    if stream.sink.location is None:
        return ()
    wanted = same_for_every_name(stream.sink.location)
    found = {
        name: source.bears_changes
        for name, other in streams.items()
        for source in other.sources.values()
        if isinstance(source, VersionedSource) and same_for_every_name(source.location) == wanted
    }
    return tuple(Downstream(name, skips) for name, skips in sorted(found.items()))


def _amounts(slices: Mapping[str, Slice]) -> str:
    return ", ".join(f"`{name}`: {describe_count(taken.amount) or 'nothing'}" for name, taken in slices.items())


def _document(taken: Slice) -> SliceDocument:
    end = None if taken.end is None else msgspec.json.decode(taken.end)
    return SliceDocument(end=end, version=taken.version, **in_document(taken.amount))
