"""Decides what a run does. A pure function: what was seen, the limits and the time are its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest

from sluice.amounts import describe_count, total
from sluice.checkpoint.places import metadata_file, offset_file, offsets_folder
from sluice.checkpoint.reader import restored_id
from sluice.errors import DeclarationError, Problem, StorageError, UnansweredError
from sluice.plan import Plan, PlannedBatch, SourceRange, Strategy, Verdict
from sluice.planning.batch_clock import batch_clock_ms
from sluice.planning.edited_sources import exchanged_sources, filtered_otherwise, read_by_another
from sluice.planning.generation_sink import sink_replaced
from sluice.planning.kept_mode import mode_changed
from sluice.planning.live import live_obstacle, live_reason, other_engine, what_is_new
from sluice.planning.next_watermark import is_measured, is_no_data_due, watermark_outlook
from sluice.planning.replaced_sink import replaced_sink
from sluice.planning.survey import Survey, positions, rows_count
from sluice.planning.timers import NEVER_ENDS, due_timers, is_timer_due, later_timers
from sluice.sources.contract import Available, Bound, Step, TellingSource
from sluice.trigger import LiveTrigger

_UNMEASURED = (
    "nothing new, but the driver died before it had kept how far batch {} took each watermark: it is measured now"
)
_UNBOUNDED = (
    'leave out the bound: with `trigger="available-now"` (`--trigger available-now`) Spark takes what is there by then'
)
_UNREADABLE_REMEDY = "mend it and try again; if only Spark can read it, `--strategy drain` leaves the batches to Spark"


@dataclass(frozen=True)
class Limits:
    """How much one run may do."""

    bound: Bound = Bound()
    max_batches: int | None = None
    """The most data batches; no-data batches and a batch that is resumed do not count."""
    strategy: Strategy | None = None
    """`drain` asks for AvailableNow, `live` for its trigger; None lets the planner choose."""
    trigger: LiveTrigger | None = None
    """Of a live run: what keeps its query at work, and for how long."""
    is_default_bound: bool = False
    """Whether nobody has typed the bound, which is the end of a data interval: it gives way where it can't be kept."""
    left_out: Bound = Bound()
    """The bound that has given way, for Spark alone decides the batches."""

    @property
    def is_bounded(self) -> bool:
        """Whether it may take less than there is."""
        return self.bound != Bound() or self.max_batches is not None


def kept_limits(seen: Survey, limits: Limits) -> Limits:
    """The limits that a run can keep: a bound that nobody has typed is left out where Spark alone decides the batches.

    Args:
        seen: What was seen below the bound.
        limits: How much the run may do.
    """
    if not limits.is_default_bound or limits.bound == Bound() or _unplannable(seen) is None:
        return limits
    return replace(limits, bound=Bound(), left_out=limits.bound)


def build_plan(seen: Survey, limits: Limits, now: datetime) -> Plan:
    """Decide what a run does.

    Args:
        seen: What the checkpoint, the sources and the sink say.
        limits: How much the run may do.
        now: The clock of the batches that are planned.

    Raises:
        DeclarationError: `drain` was asked for, or is the only way, where AvailableNow would do something else; or
            the stream can't be run live as it was asked for.
        StorageError: A source can't be read right now, and `drain` was not asked for.
    """
    blank = Plan(
        stream=seen.stream.name,
        generation=seen.generation,
        verdict="skip",
        reason="",
        strategy="exact",
        until=limits.bound.until,
        warnings=_warnings(seen),
        started_at={name: found.started_at for name, found in seen.available.items() if found.started_at},
        watermarks=watermark_outlook(seen.checkpoint, seen.watermarks),
    )
    problem = find_refusal(seen) or other_engine(seen, limits.trigger)
    if problem is not None:
        return blank.refused(problem)
    if limits.trigger is not None:
        return _live(seen, limits, replace(blank, strategy="live", trigger=limits.trigger), limits.trigger, now)
    undecided = _undecided(seen)
    strategy = _strategy(seen, limits, undecided)
    if limits.left_out != Bound():
        blank = replace(blank, unbounded=tuple(seen.available))
    if undecided and strategy == "drain" and not _is_idle(seen):
        return _drain_blindly(seen, replace(blank, strategy="drain"), undecided)
    batches = [*_uncommitted(seen), *_data(seen, limits.max_batches, now)]
    if not batches and _may_hold_back(seen) and not is_measured(seen.checkpoint, seen.watermarks):
        reason = _UNMEASURED.format(seen.checkpoint.committed_id)
        return replace(blank, verdict="run", strategy=strategy, reason=reason)
    if not batches and _is_no_data_due(seen, now):
        batches = [_no_data(seen, now)]
    verdict: Verdict = "resume" if seen.checkpoint.is_pending else "run" if batches else "skip"
    return replace(
        blank,
        verdict=verdict,
        reason=_reason(seen, batches, limits.bound),
        strategy=strategy,
        batches=tuple(batches),
    )


def find_refusal(seen: Survey) -> Problem | None:
    """The first reason not to go on: nothing of the checkpoint, the sources and the sink may contradict the rest."""
    checkpoint, record = seen.checkpoint, seen.known
    if seen.foreign_owner is not None:
        return seen.foreign_owner
    if checkpoint.blocking is not None:
        return checkpoint.blocking
    if record is not None and checkpoint.query_id not in (None, record.query_id):
        return Problem(
            code="QUERY_ID_CHANGED",
            file=metadata_file(checkpoint.location),
            cause=f"the checkpoint bears query id {checkpoint.query_id}, this generation began with {record.query_id}",
            consequence="the sink would take every batch as new, and rows would be doubled",
            remedy="put the stream's own checkpoint back; if only this file was changed,"
            f" {restored_id(record.query_id)}",
        )
    lines = seen.lines
    if lines is None:
        return Problem(
            code="SOURCE_ORDER_UNKNOWN",
            file=offset_file(checkpoint.location, checkpoint.planned_id or 0),
            cause="the checkpoint was not made by Sluice and has several sources, whose order only the query can tell",
            consequence="offsets could be taken for those of another source",
            remedy="run the stream once without a plan: `sluice run` reads the order from the query",
        )
    problem = _check_lines(seen) or exchanged_sources(seen) or filtered_otherwise(seen)
    problem = problem or mode_changed(seen.stream, record, checkpoint, seen.sink, is_decided=seen.is_decided)
    if problem is not None:
        return problem
    if seen.refusal is not None:
        return seen.refusal
    needed = next((problem for problem in seen.pending_problems if problem.is_blocking), None)
    if needed is not None:
        return needed
    return _check_sink(seen)


def _check_lines(seen: Survey) -> Problem | None:
    planned, lines = seen.checkpoint.planned, seen.lines or ()
    if planned is not None and len(planned.offsets) != len(lines):
        return Problem(
            code="SOURCES_CHANGED",
            file=offset_file(seen.checkpoint.location, planned.batch_id),
            cause=f"the checkpoint has offsets of {len(planned.offsets)} sources, the query has {len(lines)}",
            consequence="Spark refuses to start: sources can't be added to or removed from a checkpoint",
            remedy="put the sources back, or declare a new stream with a sink of its own",
        )
    record = seen.known
    if record is not None and record.declared and record.declared != tuple(sorted(seen.stream.sources)):
        return Problem(
            code="SOURCES_CHANGED",
            file=seen.checkpoint.location,
            cause=f"the generation began with the sources {_names(record.declared)}, declared are now"
            f" {_names(sorted(seen.stream.sources))}",
            consequence="Spark refuses to start: sources can't be added to or removed from a checkpoint",
            remedy="put the sources back as they were, or declare a new stream with a sink of its own",
        )
    missing = [line.source for line in lines if line.source not in seen.stream.sources]
    if missing:
        return Problem(
            code="SOURCES_CHANGED",
            file=offsets_folder(seen.checkpoint.location),
            cause=f"the checkpoint reads a source `{missing[0]}`, which is not declared any more",
            consequence="its offsets would be taken for those of another source",
            remedy="put the source back under its name, or declare a new stream with a sink of its own",
        )
    return None


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _check_sink(seen: Survey) -> Problem | None:
    checkpoint, sink, last_batch = seen.checkpoint, seen.sink, seen.sink.last_batch
    place = seen.stream.sink.location or seen.stream.sink.kind
    if (replaced := sink_replaced(seen.stream, seen.known, sink, checkpoint)) is not None:
        return replaced
    if seen.unnoted is not None and seen.unnoted.is_blocking:
        return seen.unnoted
    committed, in_sink = (-1 if found is None else found for found in (checkpoint.committed_id, last_batch))
    if sink.notes_every_batch and in_sink < committed:
        return replaced_sink(
            place,
            f"this generation has written its batches up to {committed} into it, and the manifest there has "
            + (f"them up to {in_sink}" if in_sink >= 0 else "none of them"),
            remedy="restore the folder with its manifest, or declare a new stream with a sink of its own",
        )
    if seen.older is not None and seen.older.is_blocking:
        return seen.older
    planned = -1 if checkpoint.planned_id is None else checkpoint.planned_id
    if last_batch is not None and last_batch > planned:
        return Problem(
            code="SINK_AHEAD",
            file=place,
            cause=f"the sink holds batch {last_batch}, the checkpoint has planned only up to {planned}",
            consequence="the sink would skip the next batches as done, and their rows would be lost without a word",
            remedy="restore the checkpoint that belongs to this sink, or declare a new stream with a sink of its own",
        )
    return seen.forgotten


def _undecided(seen: Survey) -> str | None:
    """Why the batches can't be decided here, if they can't."""
    if seen.unreadable:
        return f"source `{next(iter(seen.unreadable))}` could not be read"
    return _unplannable(seen)


def _unplannable(seen: Survey) -> str | None:
    """Why Spark alone can decide the batches, whatever can be read; None where it need not."""
    if seen.checkpoint.planned is not None and seen.checkpoint.planned.version != 1:
        return "the checkpoint's offset log has format v2, which only Spark writes"
    return next((found.unplannable for found in seen.available.values() if found.unplannable), None)


def _strategy(seen: Survey, limits: Limits, undecided: str | None) -> Strategy:
    if undecided is None and limits.strategy != "drain":
        return "exact"
    if seen.unreadable and limits.strategy != "drain":
        name, cause = next(iter(seen.unreadable.items()))
        raise StorageError(
            f"source `{name}` could not be read: {cause.problem}",
            where=f"{seen.stream.place}, {seen.stream.sources[name].location}",
            remedy=cause.remedy if isinstance(cause, UnansweredError) else _UNREADABLE_REMEDY,
        )
    why = undecided or "it was asked for"
    obstacle, remedy = None, "leave out the bound or the strategy"
    if limits.strategy == "exact":
        obstacle = "`exact` was asked for"
    elif limits.is_bounded:
        obstacle = "AvailableNow keeps no bound"
        remedy = _UNBOUNDED if undecided is not None else remedy
    elif seen.known is not None and seen.known.has_timers:
        obstacle = NEVER_ENDS
    else:
        obstacle = next((found.undrainable for found in seen.available.values() if found.undrainable), None)
        obstacle = obstacle or _blind_obstacle(seen)
    if obstacle is not None:
        raise DeclarationError(
            f"the run can't be drained: {obstacle}",
            where=f"{seen.stream.place}, strategy `drain` because {why}",
            remedy=remedy,
        )
    return "drain"


def _live(seen: Survey, limits: Limits, blank: Plan, trigger: LiveTrigger, now: datetime) -> Plan:
    """A run whose query Spark keeps at work: what waits now is told; only what is logged and not done is planned."""
    obstacle = live_obstacle(seen, trigger, is_bounded=limits.is_bounded) or _blind_obstacle(seen)
    if obstacle is not None:
        raise DeclarationError(
            f"the run can't be live: {obstacle}",
            where=f"{seen.stream.place}, trigger `{trigger}`",
            remedy="run it without the trigger, or change what does not go with it",
        )
    batches: list[PlannedBatch] = []
    # An epoch that is not committed is begun anew: what was logged of it is no promise.
    if trigger.kind != "continuous":
        batches = [*_uncommitted(seen), *(() if _undecided(seen) else _data(seen, None, now))]
    return replace(
        blank,
        verdict="resume" if trigger.kind != "continuous" and seen.checkpoint.is_pending else "run",
        reason=live_reason(seen, trigger),
        batches=tuple(batches),
    )


def _blind_obstacle(seen: Survey) -> str | None:
    """Why a source that can't be read right now can't be left to Spark; None when it can."""
    at = positions(seen, seen.checkpoint.planned)
    obstacles = (seen.stream.sources[name].blind_obstacle(at[name]) for name in seen.unreadable)
    return next((obstacle for obstacle in obstacles if obstacle is not None), None)


def _is_idle(seen: Survey) -> bool:
    """Whether it is certain that Spark, where it decides the batches, would find nothing new."""
    if seen.checkpoint.is_pending or seen.unreadable or _silent(seen):
        return False
    at = positions(seen, seen.checkpoint.planned)
    for name, found in seen.available.items():
        source = seen.stream.sources[name]
        if not (source.is_idle(found, at[name]) if isinstance(source, TellingSource) else not found.steps):
            return False
    return True


def _silent(seen: Survey) -> list[str]:
    """The sources of which only Spark can tell whether they have anything new."""
    return [
        name
        for name, found in seen.available.items()
        if found.unplannable is not None and not isinstance(seen.stream.sources[name], TellingSource)
    ]


def _drain_blindly(seen: Survey, blank: Plan, undecided: str) -> Plan:
    silent = _silent(seen)
    untold = f", and whether {_names(silent)} {'have' if len(silent) > 1 else 'has'} anything new" if silent else ""
    return replace(
        blank,
        verdict="resume" if seen.checkpoint.is_pending else "run",
        reason=f"{undecided}: Spark decides the batches{untold}{_unbounded(blank)}",
        batches=tuple(_uncommitted(seen)),
    )


def _unbounded(blank: Plan) -> str:
    """That the end of a data interval bounds nothing, by the sources' names; nothing where it was not to."""
    if not blank.unbounded:
        return ""
    return f"; not bounded by the data interval: {_names(blank.unbounded)}"


def _uncommitted(seen: Survey) -> list[PlannedBatch]:
    """The batch that is planned and not committed: it runs again exactly as logged."""
    checkpoint = seen.checkpoint
    if not checkpoint.is_pending or checkpoint.planned is None:
        return []
    before, after = positions(seen, checkpoint.previous), positions(seen, checkpoint.planned)
    ranges = {name: SourceRange(before[name].offset, after[name].offset) for name in after}
    return [PlannedBatch(checkpoint.planned.batch_id, "uncommitted", checkpoint.planned.timestamp_ms, ranges)]


def _data(seen: Survey, max_batches: int | None, now: datetime) -> list[PlannedBatch]:
    """Batch k takes the k-th step of every source; a source that has no more repeats its offset."""
    at = {name: position.offset for name, position in positions(seen, seen.checkpoint.planned).items()}
    names = [name for name in seen.stream.sources if name in seen.available]
    steps: list[Sequence[Step]] = [seen.available[name].steps for name in names]
    first = -1 if seen.checkpoint.planned_id is None else seen.checkpoint.planned_id
    batches: list[PlannedBatch] = []
    for taken in zip_longest(*steps):
        if max_batches is not None and len(batches) >= max_batches:
            break
        ranges = {name: SourceRange(offset, offset) for name, offset in at.items()}
        for name, step in zip(names, taken, strict=True):
            if step is not None:
                ranges[name] = _range(at[name], step)
                at[name] = step.end
        batches.append(PlannedBatch(first + len(batches) + 1, "data", _clock(seen, now), ranges))
    return batches


def _range(start: str | None, step: Step) -> SourceRange:
    return SourceRange(start, step.end, step.amount, step.added)


def _no_data(seen: Survey, now: datetime) -> PlannedBatch:
    at = positions(seen, seen.checkpoint.planned)
    ranges = {name: SourceRange(position.offset, position.offset) for name, position in at.items()}
    return PlannedBatch((seen.checkpoint.planned_id or 0) + 1, "no_data", _clock(seen, now), ranges)


def _may_hold_back(seen: Survey) -> bool:
    """Whether there is state that may come out without data."""
    return bool(seen.checkpoint.operators) and seen.stream.output_mode != "complete"


def _is_no_data_due(seen: Survey, now: datetime) -> bool:
    """Whether state would change though no data came: the watermark makes some due, or a time-out is."""
    checkpoint = seen.checkpoint
    if is_timer_due(checkpoint, seen.known, _clock(seen, now)):
        return True
    has_state = bool(checkpoint.operators)
    return is_no_data_due(checkpoint, seen.watermarks, seen.stream.output_mode, has_state=has_state)


def _clock(seen: Survey, now: datetime) -> int:
    """The time of a batch: never before that of the batch in front of it."""
    return batch_clock_ms(now, seen.checkpoint.planned)


def _reason(seen: Survey, batches: Sequence[PlannedBatch], bound: Bound) -> str:
    if batches and batches[0].kind == "no_data":
        if not is_no_data_due(seen.checkpoint, seen.watermarks, seen.stream.output_mode, has_state=True):
            return f"nothing new, but {due_timers(seen.checkpoint, seen.known)}"
        return "nothing new, but the watermark has passed state that is due"
    new = _describe(seen.available)
    limit = "" if bound.until is None else f" before {bound.until.isoformat()}"
    limit += "" if bound.to_version is None else f" up to version {bound.to_version}"
    if seen.checkpoint.is_pending:
        again = f"batch {seen.checkpoint.planned_id} was planned and not committed"
        return f"{again}; {new}{limit}" if len(batches) > 1 else again
    set_aside = _set_aside(seen.available)
    if batches:
        return f"{new}{limit}{set_aside}"
    return f"nothing new{limit}{_later(seen.available)}{set_aside}{later_timers(seen.checkpoint, seen.known)}"


def _later(available: Mapping[str, Available]) -> str:
    later = total(found.later for found in available.values())
    return f"; left to a later run: {describe_count(later)} that arrived after that" if any(later.values()) else ""


def _set_aside(available: Mapping[str, Available]) -> str:
    set_aside = total(found.set_aside for found in available.values())
    if not any(set_aside.values()):
        return ""
    seems = "look like renamed ones" if sum(set_aside.values()) > 1 else "looks like a renamed one"
    return f"; set aside: {describe_count(set_aside)} that {seems}"


def _describe(available: Mapping[str, Available]) -> str:
    parts = []
    for name, found in available.items():
        if found.steps:
            parts.append(f"`{name}`: {what_is_new(found)}")
    return ", ".join(parts) or "nothing new"


def _warnings(seen: Survey) -> tuple[Problem, ...]:
    noticed = [problem for problem in seen.checkpoint.problems if not problem.is_blocking]
    unneeded = [problem for problem in seen.pending_problems if not problem.is_blocking]
    of_sources = (problem for found in seen.available.values() for problem in found.problems)
    # Later, it matters for a batch alone whose driver was killed, and that is refused where it does.
    of_sink = (seen.sink.forgetful if seen.checkpoint.is_new else None, seen.older, seen.unnoted)
    told = (problem for problem in of_sink if problem is not None and not problem.is_blocking)
    # Two sources that read the same thing say the same of it.
    of_all = (*noticed, *unneeded, *of_sources, *read_by_another(seen), *told, *_pinned_settings(seen))
    return tuple(dict.fromkeys(of_all))


def _pinned_settings(seen: Survey) -> Iterator[Problem]:
    """Settings of the stream that its checkpoint has with another value: Spark goes by the checkpoint's."""
    planned = seen.checkpoint.planned
    if planned is None or (planned.batch_id == 0 and seen.checkpoint.committed is None and not rows_count(seen)):
        # A first batch that counts nowhere is pinned anew.
        return
    for key, wanted in seen.stream.settings.items():
        pinned = planned.conf.get(key)
        if pinned is not None and pinned != wanted:
            yield Problem(
                code="SETTING_PINNED",
                file=offset_file(seen.checkpoint.location, planned.batch_id),
                cause=f"`{key}` is {wanted} in `Stream(conf=...)`, and the checkpoint began with {pinned}",
                consequence="Spark goes on with what the checkpoint began with",
                remedy="leave it out; or declare a new stream with a sink of its own",
                is_blocking=False,
            )
