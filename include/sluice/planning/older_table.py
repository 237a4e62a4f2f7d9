"""A table that is older than the checkpoint: the newest batch that it is known to have had is not in it."""

from __future__ import annotations

from sluice.errors import Problem
from sluice.generation_notes import WrittenBatch
from sluice.home import Generation
from sluice.planning.replaced_sink import replaced_sink
from sluice.several_sinks import SeveralSinks
from sluice.sinks.contract import Sink, SinkState
from sluice.storage import Storage
from sluice.stream import Stream


def older_sink(
    stream: Stream, state: SinkState, record: Generation | None, committed: int | None, *, storage: Storage
) -> Problem | None:
    """What is to be said of a stream's sink, or of one of several; see `older_table`."""
    sink = stream.sink
    if record is None:
        return None
    if not isinstance(sink, SeveralSinks):
        return older_table(stream, sink, state, record, committed, written=record.written, storage=storage)
    found = [
        older_table(
            stream, sink.parts[name], there, record, committed, written=record.written_parts.get(name), storage=storage
        )
        for name, there in sink.table_states(record.query_id, storage=storage).items()
    ]
    problems = [problem for problem in found if problem is not None]
    return next((problem for problem in problems if problem.is_blocking), problems[0] if problems else None)


def older_table(
    stream: Stream,
    table: Sink,
    state: SinkState,
    record: Generation | None,
    committed: int | None,
    *,
    written: WrittenBatch | None,
    storage: Storage,
) -> Problem | None:
    """What is to be said of a table that lacks a batch which was written into it; None where nothing is known of one.

    Not blocking where the table may have forgotten that it has the batch, and where it says that it has one that counts
    while its rows were taken back.

    Args:
        stream: The declaration.
        table: Its sink, or its quarantine.
        state: What that one holds.
        record: What is known of the generation.
        committed: The newest batch that the checkpoint has committed.
        written: The newest batch that is known to have been in it; None where none is known.
        storage: Where the table is.

    Raises:
        StorageError: The table can't be read right now.
    """
    if record is None or not state.exists:
        return None
    behind = -1 if committed is None else committed
    if state.last_batch is not None and state.last_batch > behind:
        # Whatever is noted: that one would be passed over as done.
        taken_back = _taken_back(table, state, record.query_id, None, storage=storage)
        if taken_back is not None:
            return taken_back
    # In mode `complete` the next batch writes all rows anew.
    if committed is None or stream.output_mode == "complete":
        return None
    if written is None or written.batch_id > committed:
        # A home from before that was noted, or a checkpoint that was restored alone: all depends on the table.
        return _expired(state, committed) if state.last_batch is None else None
    if state.holds(written.batch_id):
        return _taken_back(table, state, record.query_id, written, storage=storage)
    # A version that is not there yet can't have been forgotten.
    if state.version is None or state.version >= written.version:
        if state.forgetful is not None:
            return _expired(state, written.batch_id)
        unknown = table.why_unknown(record.query_id, written.batch_id, None, storage=storage)
        if unknown is not None:
            return _may_have_expired(table.location or table.kind, written.batch_id, unknown.why)
    return replaced_sink(
        table.location or table.kind,
        f"this generation has written batch {written.batch_id} into the table, in version {written.version}, and"
        f" it has {'none of its batches' if state.last_batch is None else f'them up to {state.last_batch}'}"
        + (f", and versions up to {state.version}" if state.version is not None else ""),
        remedy="restore the table as it was, or declare the sink where that one is; or a new stream with a sink of its"
        " own",
    )


def _taken_back(
    table: Sink, state: SinkState, query_id: str, written: WrittenBatch | None, *, storage: Storage
) -> Problem | None:
    """That somebody has taken back the version with the newest batch, which the table says that it has.

    Args:
        table: The table.
        state: What it holds.
        query_id: The query's.
        written: The newest batch that is noted, where the newest one counts; None where that is pending.
        storage: Where it is.
    """
    newest, version = state.last_batch, written.version if written is not None else None
    if newest is not None and (written is None or newest > written.batch_id):
        outcome = table.outcome(query_id, newest, storage=storage)
        version = outcome.version if outcome is not None and outcome.version is not None else version
    if state.version is None or newest is None:
        return None
    if version is None:
        return _not_told(table.location or table.kind, newest)
    if state.version <= version:
        return None
    return table.taken_back_since(version, is_pending=written is None, storage=storage)


def _not_told(place: str, batch_id: int) -> Problem:
    """What is to be said of a pending batch that a table has had since before all that is left of its log."""
    return Problem(
        code="SINK_RESTORED",
        file=place,
        cause=f"the table says that it has batch {batch_id}, and its log does not tell any more in which version: the"
        " commits of then are gone",
        consequence="the batch is passed over as done; whether somebody has taken its rows back by a `RESTORE` since,"
        " nobody can tell",
        remedy="look whether the table has rows of the batch (`sluice inspect` tells what it reads); if not,"
        " recompute its intervals by a backfill",
        is_blocking=False,
    )


def older_quarantine(stream: Stream, record: Generation, committed: int | None, *, storage: Storage) -> Problem | None:
    """What is to be said of a stream's quarantine, which a plan does not open; see `older_table`.

    Args:
        stream: The declaration.
        record: What is known of the generation.
        committed: The newest batch that the checkpoint has committed.
        storage: Where the table is.

    Raises:
        StorageError: The table can't be read right now.
    """
    table = stream.quarantine_table if stream.quality is not None else None
    if table is None:
        return None
    state = table.state(record.query_id, storage=storage)
    if record.quarantined is not None and state.identity != record.quarantined.identity:
        # Whoever deletes a quarantine, or moves it, gives up what it has, or releases it there.
        return None
    return older_table(stream, table, state, record, committed, written=record.quarantined, storage=storage)


def _expired(state: SinkState, batch_id: int) -> Problem | None:
    """What is to be said of a table that forgets, once it has; None of any other."""
    if state.forgetful is None:
        return None
    return _may_have_expired(state.forgetful.file, batch_id, state.forgetful.cause)


def _may_have_expired(place: str, batch_id: int, why: str) -> Problem:
    return Problem(
        code="TRANSACTIONS_EXPIRE",
        file=place,
        cause=f"the table does not know any more that it has batch {batch_id}, which is committed: {why}",
        consequence="a checkpoint that is older than the table, or a table that is older than the checkpoint, is not"
        " noticed: rows could be there twice, or be missing",
        remedy="restore neither of the two alone. Once another batch has rows, the table knows again; unset"
        " `delta.setTransactionRetentionDuration`, and it can't forget any more",
        is_blocking=False,
    )
