"""Drivers that stood still past their lease, and may wake up while another run does their batch again.

Of two drivers that write one version of a state, the first one wins, file by file, and Spark says nothing of it. Where
they have read different things, such as a table that is joined and has changed, the state would be that of neither. A
driver that wakes up looks at its lease before whatever it writes itself; what Spark's tasks are amid of comes through.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from sluice.checkpoint.state_store import clear_state_of, has_state
from sluice.errors import BatchFailedError
from sluice.locations import join
from sluice.runs.lease import Lease, LeaseFile, standing_leases, woken
from sluice.storage import Storage

_MOST_LEASES = 100
"""How many leases are looked at, the newest: whoever has begun a batch has one that was taken before it was planned."""
_WAKING_SECONDS = 2.0
"""How long a driver that has woken may take to renew its lease: it looks at it every second while Spark is at work."""
_LOOK_SECONDS = 0.1


def standing_beside(lease: Lease, storage: Storage) -> Mapping[int, LeaseFile]:
    """By token, the leases of those that may have begun a batch, and may go on with it.

    Raises:
        RefusedError: A lease is damaged.
        StorageError: One can't be read.
    """
    return standing_leases(storage, lease.folder, but=lease.token, since=lease.token - _MOST_LEASES)


def check_own_state(
    batch_id: int, checkpoint: str, lease: Lease, standing: Mapping[int, LeaseFile], *, storage: Storage
) -> None:
    """Make sure that the state of a batch that was done again, and that Spark has committed, is of that run alone.

    Else the commit is taken back, with the state: the sink has the rows, and the next try computes the state of them.
    That is for sinks that know a batch again: others are not written beside a driver that may wake up.

    Args:
        batch_id: The batch.
        checkpoint: The checkpoint's folder.
        lease: That of this run.
        standing: Those of the others, as they were before the batch was begun.
        storage: Where all of it is.

    Raises:
        BatchFailedError: Another driver has woken up meanwhile.
        LeaseLostError: This run is the one that stood still.
        RefusedError: A lease is damaged.
        StorageError: Something can't be read or deleted.
    """
    if not standing or not has_state(checkpoint, storage=storage):
        return
    deadline = time.monotonic() + _WAKING_SECONDS
    while not (run_ids := woken(storage, lease.folder, standing)):
        if time.monotonic() >= deadline:
            return
        time.sleep(_LOOK_SECONDS)
    lease.check()
    # In this order: a commit without its state is told by Spark, a state without its commit by nobody.
    clear_state_of(batch_id, checkpoint, storage=storage)
    for name in (f".{batch_id}.crc", str(batch_id)):
        storage.delete(join(checkpoint, "commits", name))
    raise BatchFailedError(
        f"the driver of run {run_ids[0]}, which had stood still, woke up while its batch {batch_id} was done again, and"
        " may have written some of the state",
        where=checkpoint,
        remedy="the state and the commit are taken back, the sink has the rows: the next try computes the state anew",
    )
