"""Drivers that stood still past their lease, and may wake up while another run does their batch again.

Of two drivers that write one version of a state, the first one wins, file by file, and Spark says nothing of it. Where
they have read different things, such as a table that is joined and has changed, the state would be that of neither. A
driver that wakes up looks at its lease before whatever it writes itself; what Spark's tasks are amid of comes through.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime

import msgspec

from sluice.checkpoint.log import list_log
from sluice.checkpoint.places import commits_folder
from sluice.checkpoint.reader import CheckpointState
from sluice.checkpoint.state_store import clear_state_of, has_state
from sluice.errors import BatchFailedError
from sluice.generation_notes import Unproven
from sluice.home import StreamHome
from sluice.locations import join
from sluice.running.known_generation import KnownGeneration
from sluice.runs.lease import Lease, LeaseFile, renewed_since, standing_leases
from sluice.storage import Storage

_MOST_LEASES = 100
"""How many leases are looked at, the newest: whoever has begun a batch has one that was taken before it was planned."""
_WAKING_SECONDS = 2.0
"""How long a driver that has woken may take to renew its lease: it looks at it every second while Spark is at work."""
_LOOK_SECONDS = 0.1


def may_have_state(checkpoint: CheckpointState) -> bool:
    """Whether a batch that is done again keeps state, as far as its checkpoint tells: a first one may."""
    return bool(checkpoint.operators) or checkpoint.planned_id == 0


def standing_beside(lease: Lease, storage: Storage) -> Mapping[int, LeaseFile]:
    """By token, the leases of those that may have begun a batch, and may go on with it.

    Raises:
        RefusedError: A lease is damaged.
        StorageError: One can't be read.
    """
    return standing_leases(storage, lease.folder, but=lease.token, since=lease.token - _MOST_LEASES)


def begin_beside(batch_id: int, known: KnownGeneration, standing: Mapping[int, LeaseFile]) -> None:
    """Note that the state of a batch may come to be that of two, before it is begun: whoever dies proves nothing.

    Raises:
        LeaseLostError: Another run has taken over.
        StorageError: It could not be written.
    """
    if standing:
        unproven = Unproven(batch_id, _renewed_until(standing))
        known.keep(lambda found: msgspec.structs.replace(found, unproven=unproven))


def check_own_state(batch_id: int, known: KnownGeneration, lease: Lease, standing: Mapping[int, LeaseFile]) -> None:
    """Make sure that the state of a batch that was done again, and that Spark has committed, is of that run alone.

    Else the commit is taken back, with the state: the sink has the rows, and the next try computes the state of them.
    That is for sinks that know a batch again: others are not written beside a driver that may wake up.

    Args:
        batch_id: The batch.
        known: What is known of the generation.
        lease: That of this run.
        standing: Those of the others, as they were before the batch was begun.

    Raises:
        BatchFailedError: Another driver has woken up meanwhile.
        LeaseLostError: This run is the one that stood still.
        RefusedError: A lease is damaged.
        StorageError: Something can't be read or deleted.
    """
    if not standing:
        return
    storage, number = known.home.storage, known.generation.generation
    checkpoint = known.home.checkpoint_location(number)
    if has_state(checkpoint, storage=storage) and (tokens := _woken(lease, _renewed_until(standing), storage)):
        lease.check()
        _take_back(batch_id, checkpoint, storage)
        raise BatchFailedError(
            f"the driver of run {standing[tokens[0]].run_id}, which had stood still, woke up while its batch {batch_id}"
            " was done again, and may have written some of the state",
            where=checkpoint,
            remedy="the state and the commit are taken back, the sink has the rows: the next try computes the state"
            " anew",
        )
    known.keep(lambda found: msgspec.structs.replace(found, unproven=None))


def take_back_unproven(home: StreamHome, number: int, lease: Lease) -> None:
    """Take back a batch whose driver died before it knew whose the state is, or amid of taking it back.

    Where nobody has woken up, the state is that of the driver that died, and stays.

    Args:
        home: The stream's folder in the home.
        number: The generation.
        lease: That of the run that goes on.

    Raises:
        RefusedError: A file of the home is damaged.
        StorageError: Something can't be read or deleted.
    """
    known = home.generation(number)
    if known is None or known.unproven is None:
        return
    checkpoint = home.checkpoint_location(number)
    commits = list_log(commits_folder(checkpoint), storage=home.storage)
    is_newest = commits is None or commits.latest is None or commits.latest <= known.unproven.batch_id
    if is_newest and _woken(lease, known.unproven.leases, home.storage):
        _take_back(known.unproven.batch_id, checkpoint, home.storage)
    home.keep_generation(msgspec.structs.replace(known, unproven=None))


def _renewed_until(standing: Mapping[int, LeaseFile]) -> dict[int, datetime]:
    return {token: lease.expires_at for token, lease in standing.items()}


def _woken(lease: Lease, leases: Mapping[int, datetime], storage: Storage) -> list[int]:
    """The tokens of the drivers that have renewed their leases; whoever has just woken gets the time for it."""
    deadline = time.monotonic() + _WAKING_SECONDS
    while not (tokens := renewed_since(storage, lease.folder, leases)) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return tokens


def _take_back(batch_id: int, checkpoint: str, storage: Storage) -> None:
    # In this order: Spark goes on from a batch without a commit, and not from one without its state.
    for name in (f".{batch_id}.crc", str(batch_id)):
        storage.delete(join(commits_folder(checkpoint), name))
    clear_state_of(batch_id, checkpoint, storage=storage)
