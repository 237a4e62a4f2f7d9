"""Whether an edited query can go on with the state of its checkpoint, where a server plans it: it is tried there.

A server plans no batch without running it. So it runs one without rows, into no sink, over a copy of what the
checkpoint says of its state: what does not fit, Spark refuses before it looks for the state itself, which the copy
lacks.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from sluice.checkpoint.places import state_folder
from sluice.checkpoint.reader import CheckpointState
from sluice.checkpoint.state_store import read_state_layout, read_state_schemas
from sluice.checkpoint.writer import write_planned_batch
from sluice.errors import RefusedError
from sluice.locations import join
from sluice.spark.connect_session import is_connected
from sluice.spark.query import Query
from sluice.spark.replay import copy_checkpoint
from sluice.spark.state_check import check_variables, state_changed
from sluice.storage import Storage

logger = logging.getLogger(__name__)


def try_state(query: Query, state: CheckpointState, *, storage: Storage) -> None:
    """Make sure that a server takes the state of a checkpoint for a query that may have been edited.

    Of a Spark in this process, `check_state` tells without a batch. Of a batch that is planned already, the batch does.

    Raises:
        RefusedError: The server refuses it.
        StorageError: The copy could not be made.
    """
    planned = state.planned
    if planned is None or state.is_pending or not is_connected(query.frame.sparkSession):
        return
    location = state_folder(state.location)
    found = read_state_schemas(location, storage=storage)
    schemas = {name: content for name, content in found.items() if content}
    operators = {name.partition("/")[0] for name in found}
    if not schemas or operators != {name.partition("/")[0] for name in schemas}:
        # Of an operator that says nothing of itself, Spark would miss the folder in the copy.
        return
    folder = copy_checkpoint(state.location, "sources", "commits", "offsets", storage=storage)
    for name, content in schemas.items():
        storage.replace(join(state_folder(folder), name), content)
    write_planned_batch(folder, replace(planned, batch_id=planned.batch_id + 1), {}, {}, storage=storage)
    try:
        query.start_replay(folder).awaitTermination()
    except Exception as exc:
        problem = state_changed(str(exc), location, query.place)
        if problem is not None:
            storage.delete_folder(folder)
            raise RefusedError(problem) from exc
        # It was planned, and lacks the state in the copy.
        logger.debug("the server takes the state for the query", exc_info=True)
    try:
        goes_on = read_state_layout(state_folder(folder), None, storage=storage).operators
        check_variables(state.operators, goes_on, location, query.place)
    finally:
        storage.delete_folder(folder)
