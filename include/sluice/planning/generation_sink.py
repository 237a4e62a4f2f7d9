"""Whether the declared sink is the table that a generation has written: runs, backfills and releases ask the same."""

from __future__ import annotations

from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.errors import Problem, RefusedError
from sluice.gate.decided_batch import is_pending_decided
from sluice.home import Generation, StreamHome, log_keys
from sluice.planning.kept_mode import mode_changed
from sluice.planning.older_table import older_sink
from sluice.planning.replaced_sink import replaced_sink
from sluice.planning.sink_places import SINK_PLACE
from sluice.planning.unnoted_sink import unnoted_sink
from sluice.project import Project
from sluice.sinks.contract import SinkState
from sluice.stream import Stream

SINK_FORM = "kind of sink"
"""What a sink's form is noted as, among what batches are begun with; not in homes from before that was noted."""


def sink_replaced(
    stream: Stream, record: Generation | None, sink: SinkState, checkpoint: CheckpointState
) -> Problem | None:
    """Another sink than the one that a generation has written: a table at its place, or another kind.

    Args:
        stream: The declaration.
        record: What is known of the generation.
        sink: What the sink says of itself.
        checkpoint: What the checkpoint has.
    """
    place, planned = stream.sink.shown_place, checkpoint.planned_id
    begun = record.declared_at(planned) if record is not None and planned is not None else {}
    if begun.get(SINK_FORM, stream.sink.form) != stream.sink.form:
        was = f"{begun[SINK_FORM]} at {begun['sink']}" if begun.get("sink") else begun[SINK_FORM]
        is_order = sorted(begun[SINK_FORM].split(", ")) == sorted(stream.sink.form.split(", "))
        other = "its sinks in another order" if is_order else "a sink of another kind"
        return replaced_sink(
            place,
            f"this generation has begun with {other} ({was}); declared is {stream.sink.form}",
            remedy="declare the sink as it was; or a new stream with a sink of its own",
        )
    identity = record.sink_identity if record is not None else None
    if identity is None or sink.identity == identity:
        return None
    if checkpoint.is_pending and checkpoint.committed_id is None:
        # A first batch that nobody counts was there, and is done again.
        return None
    then = record.newest_declared.get("sink") if record is not None else None
    known = f"{identity} at {then}" if then else identity
    now = f"another one now, {sink.identity}" if sink.identity else "none"
    return replaced_sink(place, f"this generation has written table {known}; at {place} there is {now}")


def sink_moved(project: Project, stream: Stream, record: Generation, state: SinkState, pending: int) -> Problem | None:
    """Another place than that of the sink with which a first batch was begun that is not done; None when it is that.

    A table that was moved is known again by its identity, where that is noted.
    """
    place = stream.sink.location or ""
    sink = project.place(place)
    # Of several, the places of the others are those with which the batch was divided: see `moved_sink`.
    then = record.declared_at(pending).get(SINK_PLACE, sink)
    if then == sink or (record.sink_identity is not None and state.identity == record.sink_identity):
        return None
    return Problem(
        code="SINK_MOVED",
        file=place,
        cause=f"batch {pending} was begun with a sink at {then or 'another place'}, which may have it already",
        consequence="its rows could be in both places",
        remedy=f"declare the sink at {then or 'its earlier place'}, run the stream once, and move it then;"
        " where it can't be run there, declare a new stream",
    )


def check_sink(project: Project, stream: Stream, home: StreamHome) -> None:
    """Make sure that the declared sink is the one that a stream's generation writes, before rows go there beside runs.

    Raises:
        RefusedError: It is another one, in the words of a run; or a file of the home is damaged.
        StorageError: The sink or the checkpoint can't be read.
    """
    number = home.current_generation()
    record = home.generation(number)
    if record is None:
        return
    location, keys = home.checkpoint_location(number), log_keys(record)
    checkpoint = read_checkpoint(location, storage=home.storage, log_keys=keys, known_id=record.query_id)
    state = stream.sink.state(record.query_id, storage=home.storage)
    is_decided = is_pending_decided(home, number, checkpoint)
    problem = mode_changed(stream, record, checkpoint, state, is_decided=is_decided)
    problem = problem or sink_replaced(stream, record, state, checkpoint)
    if problem is None:
        older = older_sink(stream, state, record, checkpoint.committed_id, storage=home.storage)
        problem = older if older is not None and older.is_blocking else None
    problem = problem or unnoted_sink(project, stream, record, checkpoint, state, storage=home.storage)
    if problem is None and checkpoint.planned_id is not None:
        problem = sink_moved(project, stream, record, state, checkpoint.planned_id)
    if problem is not None and problem.is_blocking:
        raise RefusedError(problem)
