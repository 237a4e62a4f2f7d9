"""What the try before a run has left, which may still be at work: a driver that stood still, a query of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sluice.checkpoint.log import list_log
from sluice.checkpoint.places import commits_folder, offsets_folder, state_folder
from sluice.checkpoint.reader import CheckpointState
from sluice.checkpoint.state_store import clear_state_of, has_state
from sluice.checkpoint.writer import rewrite_planned_batch
from sluice.errors import BatchFailedError
from sluice.planning.kept_mode import may_have_written
from sluice.planning.survey import Survey
from sluice.spark.query import Query
from sluice.spark.session import SHUFFLE_PARTITIONS, pinned_conf
from sluice.storage import Storage


def has_gone_on(checkpoint: CheckpointState, *, storage: Storage) -> bool:
    """Whether somebody has planned or committed a batch since a checkpoint was read.

    Raises:
        StorageError: A folder can't be listed.
    """
    logs = (list_log(folder(checkpoint.location), storage=storage) for folder in (offsets_folder, commits_folder))
    newest = tuple(None if log is None else log.latest for log in logs)
    return newest != (checkpoint.planned_id, checkpoint.committed_id)


def clear_state_of_try(seen: Survey, *, storage: Storage) -> None:
    """Delete what a try before has left of the state: a batch that is done again may read other rows.

    Raises:
        BatchFailedError: That try has committed its batch.
        StorageError: Something can't be deleted.
    """
    checkpoint = seen.checkpoint
    check_uncommitted(checkpoint, storage=storage)
    if checkpoint.planned_id == 0 and not may_have_written(seen.stream, checkpoint, seen.sink, is_decided=False):
        # Also what it says of its columns: a first batch is computed from nothing.
        storage.delete_folder(state_folder(checkpoint.location))
    else:
        clear_state_of(checkpoint.planned_id or 0, checkpoint.location, storage=storage)


def pinned_anew(
    query: Query, checkpoint: CheckpointState, conf: Mapping[str, str], *, storage: Storage
) -> CheckpointState:
    """The checkpoint of a first batch that counts nowhere, with the settings of today: nothing is made with others yet.

    What was declared when it was planned may have been what it failed of, and be taken back by now.

    Args:
        query: The query, in a session that has the settings.
        checkpoint: What is there. Of a try before, no state is.
        conf: The settings that are declared.
        storage: Where it is.

    Raises:
        StorageError: It can't be written.
    """
    planned = checkpoint.planned
    if planned is None or planned.version != 1 or planned.is_epoch:
        return checkpoint
    pinned = pinned_conf(query.frame.sparkSession)
    if SHUFFLE_PARTITIONS not in conf or has_state(checkpoint.location, storage=storage):
        # Chosen by what the batch reads, when that was planned; and of state that a try has left, Spark keeps the form.
        pinned.pop(SHUFFLE_PARTITIONS)
    changed = replace(planned, conf={**planned.conf, **pinned})
    if changed == planned:
        return checkpoint
    rewrite_planned_batch(checkpoint.location, changed, storage=storage)
    return replace(checkpoint, planned=changed)


def check_uncommitted(checkpoint: CheckpointState, *, storage: Storage) -> None:
    """Make sure that the batch that is to be done again is nobody's yet.

    Raises:
        BatchFailedError: It is committed by now.
    """
    if has_gone_on(checkpoint, storage=storage):
        raise committed_meanwhile(checkpoint.planned_id, checkpoint.location)


def written_meanwhile(batch_id: int, checkpoint: str) -> BatchFailedError:
    """What to raise where another driver, with what was declared then, has written a batch's rows."""
    return BatchFailedError(
        f"the rows of batch {batch_id} were written by the driver of a try before, which had stood still, while this"
        " run began, and something else was declared for it",
        where=checkpoint,
        remedy="the next try goes on with the batch as that one did, or says what has changed",
    )


def committed_meanwhile(batch_id: int | None, checkpoint: str) -> BatchFailedError:
    """What to raise where another driver has done a batch that was to be done again."""
    return BatchFailedError(
        f"batch {batch_id} was done by the driver of a try before, which had stood still, while this run began",
        where=checkpoint,
        remedy="the next try goes on behind what is committed",
    )
