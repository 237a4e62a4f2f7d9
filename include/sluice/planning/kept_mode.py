"""Whether the declared output mode is the one in which the state of a generation was written."""

from __future__ import annotations

from sluice.checkpoint.reader import CheckpointState
from sluice.errors import Problem
from sluice.home import Generation
from sluice.sinks.contract import SinkState
from sluice.stream import Stream


def may_have_written(stream: Stream, checkpoint: CheckpointState, sink: SinkState, *, is_decided: bool) -> bool:
    """Whether rows that the state has made may be anywhere; a first batch that is nowhere is computed from nothing.

    Args:
        stream: The declaration.
        checkpoint: What the checkpoint has.
        sink: What the sink has.
        is_decided: Whether it is decided where the rows of the pending batch go.
    """
    if checkpoint.planned_id is None:
        return False
    return (
        is_decided
        or checkpoint.committed is not None
        or not stream.sink.is_idempotent
        or sink.holds(checkpoint.planned_id)
    )


def mode_changed(
    stream: Stream, record: Generation | None, checkpoint: CheckpointState, sink: SinkState, *, is_decided: bool
) -> Problem | None:
    """Another output mode than that of the newest run; None when it is that, or when none of its rows depends on it.

    What is emitted, and what is forgotten, goes by the mode. A query without state emits the same rows in each.
    """
    if (
        record is None
        or not checkpoint.operators
        or not may_have_written(stream, checkpoint, sink, is_decided=is_decided)
    ):
        return None
    # That of the newest run, which has finished what it found: an edit before it was taken, or refused.
    then = record.newest_declared.get("output mode")
    if then is None or then == stream.output_mode:
        return None
    return Problem(
        code="OUTPUT_MODE_CHANGED",
        file=stream.place,
        cause=f"`output_mode` is {stream.output_mode!r}, and the stream has run with {then!r}",
        consequence="its state has emitted and forgotten rows by the earlier mode: rows would be missing in the"
        " sink, or there twice",
        remedy=f"set `output_mode` to {then!r} again, or declare a new stream with a sink of its own",
    )
