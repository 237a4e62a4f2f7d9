"""A sink of which the home does not know that it is the one with the batches that the checkpoint has committed.

The home notes which table a stream writes once a first batch is in it. Where a driver died before, and where another
writer's checkpoint is adopted, the table's own log tells: nearly every batch leaves the query's id in it.
"""

from __future__ import annotations

from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.errors import Problem
from sluice.home import Generation, StreamHome, log_keys
from sluice.planning.replaced_sink import MISSING, replaced_sink
from sluice.planning.sink_places import SINK_PLACE, place_name
from sluice.project import Project
from sluice.several_sinks import SeveralSinks
from sluice.sinks.contract import Sink, SinkState
from sluice.storage import Storage
from sluice.stream import Stream


def unnoted_sink(
    project: Project,
    stream: Stream,
    record: Generation | None,
    checkpoint: CheckpointState,
    state: SinkState,
    *,
    storage: Storage,
) -> Problem | None:
    """What is to be said of a sink that has none of a stream's committed batches, as far as it tells.

    Not blocking where the batches are another writer's, which need not have left their ids.

    Args:
        project: Whose folder places are told from.
        stream: The declaration.
        record: What is known of the generation; None before its first run.
        checkpoint: What the checkpoint has.
        state: What the sink says of itself.
        storage: Where it is.

    Raises:
        StorageError: A table can't be read right now.
    """
    sink, committed = stream.sink, checkpoint.committed_id
    # A manifest of files, which has every batch, is looked at in any case.
    if committed is None or _is_noted_or_mute(sink, record) or state.notes_every_batch:
        return None
    query_id = record.query_id if record is not None else checkpoint.query_id
    begun = record.declared_at(checkpoint.planned_id or 0) if record is not None else {}
    for place, table, there in _tables(sink, state, query_id, storage):
        if there.last_batch is not None:
            continue
        if record is None or not _has_own(record, committed):
            problem = _of_another_writer(stream, table, there, committed)
        else:
            problem = _elsewhere(project, table, begun.get(place), committed) or _gone(table, there, committed)
            if problem is None and not isinstance(sink, SeveralSinks):
                problem = _without_any(table, there, record, committed, storage=storage)
        if problem is not None:
            return problem
    return None


def unnoted_now(project: Project, stream: Stream, home: StreamHome) -> Problem | None:
    """The same of what is there now; what does not block is passed over.

    Raises:
        RefusedError: A file of the home is damaged.
        StorageError: The sink or the checkpoint can't be read.
    """
    number = home.current_generation()
    record = home.generation(number)
    if _is_noted_or_mute(stream.sink, record):
        return None
    checkpoint = read_checkpoint(home.checkpoint_location(number), storage=home.storage, log_keys=log_keys(record))
    query_id = record.query_id if record is not None else checkpoint.query_id
    # The checkpoint first: what was committed by then, the sink holds now.
    state = stream.sink.state(query_id, storage=home.storage)
    problem = unnoted_sink(project, stream, record, checkpoint, state, storage=home.storage)
    return problem if problem is not None and problem.is_blocking else None


def _is_noted_or_mute(sink: Sink, record: Generation | None) -> bool:
    """Whether the home knows the sink, or the sink is a topic or a function, which tell nothing."""
    return (record is not None and record.sink_identity is not None) or not sink.is_idempotent


def _tables(sink: Sink, state: SinkState, query_id: str | None, storage: Storage) -> list[tuple[str, Sink, SinkState]]:
    """The tables, with what their places are noted as, and what they say of themselves."""
    if not isinstance(sink, SeveralSinks):
        return [(SINK_PLACE, sink, state)]
    states = sink.table_states(query_id, storage=storage)
    # The first of several is noted as a sink alone is.
    names = {name: SINK_PLACE if sink.parts[name] is sink.main else place_name(name) for name in states}
    return [(names[name], sink.parts[name], there) for name, there in states.items()]


def _has_own(record: Generation, committed: int) -> bool:
    """Whether the newest committed batch is one of this stream's runs; else it is another writer's, as all before."""
    if record.checkpoint is None:
        return True
    return bool(record.runs) and committed > record.runs[0].behind


def _of_another_writer(stream: Stream, table: Sink, there: SinkState, committed: int) -> Problem | None:
    # In mode `complete` the next batch writes all rows.
    if not there.exists and stream.output_mode == "complete":
        return None
    return Problem(
        code="SINK_LACKS_BATCHES",
        file=table.location or table.kind,
        cause=f"the checkpoint has committed batches up to {committed}, and "
        + ("the table's log has none of them" if there.exists else "there is no table"),
        consequence="the rows that were written before are not in it, unless their writer left no transactions there"
        if there.exists
        else MISSING,
        remedy="compare the place of the sink with that of the writer before: Spark's own Delta sink leaves the id of"
        " the query, `foreachBatch` leaves nothing"
        + ("" if there.exists else ". Where the table is to begin with what comes now, make it, without rows"),
        is_blocking=not there.exists,
    )


def _elsewhere(project: Project, table: Sink, then: str | None, committed: int) -> Problem | None:
    place = table.location or ""
    if then is None or then == project.place(place):
        return None
    return Problem(
        code="SINK_MOVED",
        file=place,
        cause=f"batch {committed} went into a sink at {then or 'another place'}, and what is here has no batch of the"
        " stream",
        consequence=MISSING,
        remedy=f"declare the sink at {then or 'its earlier place'}; or move the table here, with its log",
    )


def _gone(table: Sink, there: SinkState, committed: int) -> Problem | None:
    if there.exists:
        return None
    return replaced_sink(
        table.location or table.kind, f"this generation has committed batches up to {committed}, and there is no table"
    )


def _without_any(
    table: Sink, there: SinkState, record: Generation, committed: int, *, storage: Storage
) -> Problem | None:
    """A table at the place that has no batch: another one, but where a batch without rows leaves no trace."""
    if not table.notes_first_batch or record.checkpoint is not None:
        return None
    if there.forgetful is not None or table.why_unknown(record.query_id, committed, None, storage=storage) is not None:
        # What is to be said of that, `older_table` says.
        return None
    return replaced_sink(
        table.location or table.kind,
        f"this generation has committed batches up to {committed}, and the table has none of them",
    )
