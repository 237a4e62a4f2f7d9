"""A batch that was begun, and of which a table can't tell any more whether it has it: nobody may write it again."""

from __future__ import annotations

from sluice.checkpoint.reader import CheckpointState
from sluice.errors import Problem
from sluice.sinks.contract import Sink, SinkState
from sluice.storage import Storage
from sluice.stream import Stream
from sluice.times import iso_millis


def pending_forgotten(
    stream: Stream,
    table: Sink,
    state: SinkState,
    checkpoint: CheckpointState,
    query_id: str | None,
    *,
    storage: Storage,
) -> Problem | None:
    """Why the batch that is planned and not committed can't be written into a table; None when it can be, or is there.

    Args:
        stream: The declaration.
        table: Its sink, or its quarantine.
        state: What that one holds.
        checkpoint: What the checkpoint has.
        query_id: The query's.
        storage: Where the table is.

    Raises:
        StorageError: The table can't be read right now.
    """
    planned = checkpoint.planned
    if planned is None or query_id is None or not checkpoint.is_pending or not state.exists:
        return None
    # In mode `complete` a batch replaces all rows: there twice is there once.
    if state.holds(planned.batch_id) or stream.output_mode == "complete":
        return None
    return forgotten(
        table, query_id, planned.batch_id, planned.timestamp_ms, what=f"batch {planned.batch_id}", storage=storage
    )


def in_sink_and_forgotten(stream: Stream, state: SinkState, batch_id: int) -> Problem | None:
    """Why the sink's own writer, which is all that Spark Connect has, can't finish a batch; None when it can."""
    is_final = stream.output_mode != "complete" and state.holds(batch_id)
    return state.forgotten if is_final else None


def forgotten(
    table: Sink, application: str, version: int, since_ms: int | None, *, what: str, storage: Storage
) -> Problem | None:
    """Why what was begun, and is not known to be in a table, can't be written into it; None when it can.

    Args:
        table: Where it goes.
        application: Names who writes it in the table's log.
        version: As the application numbers it.
        since_ms: When it was begun; None when nobody knows.
        what: It, in words.
        storage: Where the table is.

    Raises:
        StorageError: The table can't be read right now.
    """
    unknown = table.why_unknown(application, version, since_ms, storage=storage)
    if unknown is None:
        return None
    begun = f" {iso_millis(since_ms)}" if since_ms is not None else ""
    return Problem(
        code="TRANSACTION_FORGOTTEN",
        file=table.location or table.kind,
        cause=f"{what} was begun{begun} and not finished, and whether it is in the table can't be told: {unknown.why}",
        consequence="written again, its rows could be there twice; passed over, they could be missing",
        remedy=unknown.remedy,
    )
