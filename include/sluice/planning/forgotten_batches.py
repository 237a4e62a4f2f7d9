"""A batch that was begun, and of which a table can't tell any more whether it has it: nobody may write it again."""

from __future__ import annotations

from sluice.checkpoint.reader import CheckpointState
from sluice.delta_table import TRANSACTIONS_EXPIRE
from sluice.errors import Problem
from sluice.sinks.contract import Sink, SinkState
from sluice.sinks.delta.forgotten import absent
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


def held_and_forgotten(stream: Stream, state: SinkState, batch_id: int) -> Problem | None:
    """Why the sink's own writer, which is all that Spark Connect has, can't finish a batch; None when it can."""
    if not state.is_forgotten or not state.holds(batch_id) or stream.output_mode == "complete":
        return None
    return Problem(
        code="TRANSACTION_FORGOTTEN",
        file=stream.sink.location or stream.sink.kind,
        cause=f"the table has batch {batch_id}, and has let its transaction expire ({TRANSACTIONS_EXPIRE})",
        consequence="over Spark Connect, Delta's own writer would write it again: its rows would be there twice",
        remedy="run the stream once with a Spark of its own (`[spark] master`), which passes over the batch; unset the"
        " property, and it can't happen again",
    )


def forgetful_table(table: Sink, state: SinkState) -> Problem | None:
    """What is to be said of a table that forgets, before a stream begins to write it; None of any other.

    Later, it matters for a batch alone whose driver was killed, and that is refused where it does.
    """
    if state.forgets_after is None:
        return None
    place = table.location or table.kind
    return Problem(
        code="TRANSACTIONS_EXPIRE",
        file=place,
        cause=f"the table lets transactions expire (`{TRANSACTIONS_EXPIRE}`: {state.forgets_after})",
        consequence="once its commits are cleaned up as well, it can't tell whether it has a batch whose driver was"
        " killed: such a batch is refused until somebody has looked",
        remedy=f"unset it: ALTER TABLE delta.`{place}` UNSET TBLPROPERTIES ('{TRANSACTIONS_EXPIRE}')",
        is_blocking=False,
    )


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
    why = table.why_unknown(application, version, since_ms, storage=storage)
    if why is None:
        return None
    begun = f" {iso_millis(since_ms)}" if since_ms is not None else ""
    return Problem(
        code="TRANSACTION_FORGOTTEN",
        file=table.location or table.kind,
        cause=f"{what} was begun{begun} and not finished, and whether it is in the table can't be told: {why}",
        consequence="written again, its rows could be there twice; passed over, they could be missing",
        remedy="restore the commits that are gone in the table's `_delta_log`; or look whether the table has the rows,"
        f" and note it there: append no row with `txnAppId` {application} and `txnVersion` {version} if it has them,"
        f" with `txnAppId` {absent(application, version)} and `txnVersion` 0 if not (see docs/operations.md). Unset the"
        " property, and it can't happen again",
    )
