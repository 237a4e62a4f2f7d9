"""Live runs: Spark keeps the query at work and decides its batches, until the time of the run is over."""

from __future__ import annotations

from sluice.amounts import count_of, describe_count, total
from sluice.checkpoint.places import offset_file
from sluice.errors import Problem
from sluice.planning.survey import Survey
from sluice.sources.contract import Available
from sluice.trigger import SHORTEST_REAL_TIME_MS, LiveTrigger, duration

MOST_BATCHES = 5000
"""How many batches a live run may come to: its record has each of them, and is read and written whole."""
MOST_JUDGED = 1000
"""The same where a suite measures each, which the record has, too."""
_SHORTEST_MS = 100
"""How far apart batches are at the least, where no interval keeps them apart."""


def live_obstacle(seen: Survey, trigger: LiveTrigger, *, is_bounded: bool) -> str | None:
    """Why a stream can't be run live as it was asked; None when it can."""
    stream = seen.stream
    if is_bounded:
        return "Spark decides its batches, and keeps no bound"
    most = MOST_BATCHES if stream.quality is None else MOST_JUDGED
    batches = trigger.run_for_ms // max(trigger.interval_ms, _SHORTEST_MS)
    if batches > most:
        judged = "" if stream.quality is None else " and its suite judges"
        return f"it may come to {batches:,} batches, of which its record has{judged} {most:,} at the most"
    return next((found.undrainable for found in seen.available.values() if found.undrainable), None) or (
        None if trigger.kind == "processing-time" else _other_engine_obstacle(seen, trigger)
    )


def _other_engine_obstacle(seen: Survey, trigger: LiveTrigger) -> str | None:
    """What `continuous` and `real-time` lack, which write each row as it comes, without a look at a whole batch."""
    stream, kind = seen.stream, trigger.kind
    for name, source in stream.sources.items():
        if kind not in source.live_kinds:
            return f"Spark does not read source `{name}`, of kind `{source.kind}`, with the trigger `{kind}`"
    if kind not in stream.sink.live_kinds:
        return f"Spark does not write a sink of kind `{stream.sink.kind}` with the trigger `{kind}`"
    if stream.quality is not None:
        return f"rows are in the sink before a suite could see them, with the trigger `{kind}`"
    if kind == "continuous" and len(stream.sources) > 1:
        return f"Spark reads one source with the trigger `continuous`, and the stream has {len(stream.sources)}"
    if kind == "continuous" and stream.output_mode == "complete":
        return "a continuous query has no state, and so no complete result"
    if kind == "real-time" and trigger.interval_ms < SHORTEST_REAL_TIME_MS:
        return f"a batch of the real-time mode lasts at least {duration(SHORTEST_REAL_TIME_MS)}"
    if kind == "real-time" and stream.output_mode != "update":
        return f'`real-time` takes `output_mode="update"`, and the stream\'s is {stream.output_mode!r}'
    return None


def other_engine(seen: Survey, trigger: LiveTrigger | None) -> Problem | None:
    """Why a checkpoint can't be gone on with: Spark's two engines do not read what the other has left."""
    checkpoint, is_continuous = seen.checkpoint, trigger is not None and trigger.kind == "continuous"
    if checkpoint.planned is None or checkpoint.planned.is_epoch == is_continuous:
        return None
    file = offset_file(checkpoint.location, checkpoint.planned.batch_id)
    anew = "declare a new stream, with a sink of its own"
    if is_continuous:
        return Problem(
            code="CHECKPOINT_OF_BATCHES",
            file=file,
            cause="the checkpoint has batches, and a continuous query is to go on with it",
            consequence="no other run could go on from its epochs: Spark fails to start on them",
            remedy=f"run it with another trigger, or without; for a continuous query, {anew}",
        )
    return Problem(
        code="CHECKPOINT_OF_EPOCHS",
        file=file,
        cause="a continuous query has written the checkpoint: its newest epoch has neither a clock nor settings",
        consequence="Spark fails to start any other query on it",
        remedy=f"go on with `--trigger continuous=1s --for 1m`; for other runs, {anew}",
    )


def live_reason(seen: Survey, trigger: LiveTrigger) -> str:
    """What a plan says of a live run."""
    waiting = []
    for name, found in seen.available.items():
        waiting += [f"; `{name}`: {what_is_new(found)}"] if found.steps else []
    return f"live, {trigger}: Spark decides the batches{''.join(waiting)}"


def what_is_new(found: Available) -> str:
    """How much a source has, in words: in its first unit, or, where nobody counts it, in batches."""
    new = describe_count(total(step.amount for step in found.steps), "new")
    return new or count_of(len(found.steps), "batches", "new")
