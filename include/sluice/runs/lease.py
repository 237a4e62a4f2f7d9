"""The lease: the right to write to one generation.

A lease is a numbered file, put if absent; the highest number holds, and is the fencing token. It is an honest lock
between well-behaved runs, not a fence inside a batch: a process that was stopped and wakes up could still write.
There the sink's own identity holds. So a lease that has run out is taken over at once where the owner is provably
dead or the sink is idempotent, and otherwise only by a person.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, Self

import msgspec

from sluice.documents import Document, encode_document, read_document
from sluice.errors import LeaseLostError, LeaseTakenError, RefusedError, SluiceError
from sluice.locations import join
from sluice.runs.process import Process, boot_id, is_alive, machine, process
from sluice.storage import Storage
from sluice.times import Clock, iso_time

logger = logging.getLogger(__name__)

TTL = timedelta(seconds=60)
HEARTBEAT = timedelta(seconds=10)
_DEATH_PATIENCE_SECONDS = 5.0
"""How long the JVM of a dead driver may take to follow it (measured: 0.5 to 1.1 s)."""

_FILE_NAME = re.compile(r"(0|[1-9][0-9]*)\.json")


class RemoteSession(msgspec.Struct, frozen=True):
    """A session on a server. It holds no secret: who wants to use it needs what the server asks for."""

    server: str
    """`sc://HOST:PORT`."""
    user_id: str
    session_id: str
    process: Process | None = None
    """The server's, where it is one of the machine that the lease names: dead, it runs nothing."""


EndSession = Callable[[RemoteSession], bool]
"""Ends a session on a Spark Connect server; says whether it provably runs nothing any more."""


class LeaseFile(Document, frozen=True, kw_only=True):
    """What a lease file says."""

    if_lost = (
        'make sure that no driver of the stream is at work, then write {"is_released": true} into it. Do not delete it:'
        " its number would be given twice"
    )
    token: int
    run_id: str
    host: str
    machine: str
    """What tells apart machines, and containers with process numbers of their own."""
    boot_id: str
    processes: Annotated[tuple[Process, ...], msgspec.Meta(min_length=1)]
    acquired_at: Annotated[datetime, msgspec.Meta(tz=True)]
    expires_at: Annotated[datetime, msgspec.Meta(tz=True)]
    is_given_up: bool = msgspec.field(default=False, name="is_released")
    session: RemoteSession | None = None
    """Where Spark works for this lease, if that is on a server: there it goes on when the owner is dead."""


class _GivenUp(Document, frozen=True, kw_only=True):
    """What a person leaves of a damaged lease: its owner is gone."""

    is_given_up: Literal[True] = msgspec.field(name="is_released")


class Lease:
    """A lease that this process has taken, kept alive by a thread; a context manager that gives it up."""

    def __init__(
        self, storage: Storage, folder: str, content: LeaseFile, clock: Clock, *, taken_from: str | None = None
    ) -> None:
        self._storage, self._content, self._clock = storage, content, clock
        self.folder = folder
        """Where it and those before it are."""
        self.taken_from = taken_from
        """The run that took the lease and never gave it up: its driver died."""
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, name="sluice-lease", daemon=True)

    @property
    def token(self) -> int:
        """The fencing token."""
        return self._content.token

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()
        try:
            self._write(is_given_up=True)
        except SluiceError:
            # The work is done; a lease that a dead owner never gave up costs the next run nothing.
            logger.warning("the lease could not be given up", exc_info=True)

    def check(self) -> None:
        """Make sure that the lease still holds.

        Raises:
            LeaseLostError: Another run has taken it over.
        """
        newest = newest_token(self._storage, self.folder)
        if newest != self.token:
            if not self._ended.is_set():
                # It tells the other run that this one is awake, before the heartbeat does.
                with contextlib.suppress(SluiceError):
                    self._write()
            raise LeaseLostError(
                f"the lease {self.token} was taken over by {newest}",
                where=join(self.folder, f"{newest}.json"),
                remedy="the other run goes on from what is on disk",
            )

    def add_process(self, pid: int) -> None:
        """Name a further process that writes for this lease: Spark's JVM outlives its driver by a second."""
        added = process(pid)
        with self._guard:
            self._content = msgspec.structs.replace(self._content, processes=(*self._content.processes, added))
        self._write()

    def add_session(self, session: RemoteSession | None) -> None:
        """Name the session on a server that writes for this lease; None where the one before was ended."""
        with self._guard:
            self._content = msgspec.structs.replace(self._content, session=session)
        self._write()

    def _keep_alive(self) -> None:
        while not self._ended.wait(HEARTBEAT.total_seconds()):
            try:
                self._write()
            except SluiceError:
                logger.warning("the lease's heartbeat failed; it is tried again", exc_info=True)

    def _write(self, *, is_given_up: bool = False) -> None:
        with self._guard:
            content = msgspec.structs.replace(self._content, expires_at=self._clock() + TTL, is_given_up=is_given_up)
            self._storage.replace(_file(self.folder, self.token), encode_document(content))


def _end_nothing(_session: RemoteSession) -> bool:
    return False


def acquire(
    storage: Storage,
    folder: str,
    *,
    run_id: str,
    sink_is_idempotent: bool,
    clock: Clock = lambda: datetime.now(UTC),
    end_session: EndSession = _end_nothing,
) -> Lease:
    """Take the lease of a generation.

    Args:
        storage: Where leases are.
        folder: The generation's lease folder.
        run_id: The run that wants it.
        sink_is_idempotent: Whether the sink itself keeps a second writer from doubling rows; without that, a lease
            is taken over only from an owner that is provably dead.
        clock: Tells the time.
        end_session: Ends what a dead owner has left running on a server.

    Raises:
        LeaseTakenError: Another run has taken it.
        StorageError: It could not be written.
    """
    newest = newest_token(storage, folder)
    lease = None if newest is None else _read(storage, _file(folder, newest))
    taken_from = None
    if lease is not None and not lease.is_given_up:
        file = _file(folder, lease.token)
        _check_takeover(lease, file, clock(), sink_is_idempotent=sink_is_idempotent, end_session=end_session)
        taken_from = lease.run_id
    token = (newest or 0) + 1
    content = LeaseFile(
        token=token,
        run_id=run_id,
        host=socket.gethostname(),
        machine=machine(),
        boot_id=boot_id(),
        processes=(process(os.getpid()),),
        acquired_at=clock(),
        expires_at=clock() + TTL,
    )
    if not storage.put_if_absent(_file(folder, token), encode_document(content)):
        raise LeaseTakenError(
            "another run took the lease at the same moment", where=_file(folder, token), remedy="try again later"
        )
    return Lease(storage, folder, content, clock, taken_from=taken_from)


def check_not_taken(storage: Storage, folder: str, now: datetime) -> None:
    """Make sure that no run that may be at work has taken a lease, and take none.

    Raises:
        LeaseTakenError: One has.
        RefusedError: The lease is damaged.
        StorageError: It can't be read.
    """
    lease = newest_lease(storage, folder)
    if lease is None or lease.is_given_up or lease.expires_at <= now:
        return
    if not is_dead(lease, patience_seconds=_DEATH_PATIENCE_SECONDS):
        raise _taken_by(lease, _file(folder, lease.token), now)


def _taken_by(lease: LeaseFile, file: str, now: datetime) -> LeaseTakenError:
    ahead = lease.expires_at - now
    clocks = f" (by a clock {ahead - TTL} ahead of this one)" if ahead > 2 * TTL else ""
    return LeaseTakenError(
        f"the stream is being run by {_owner(lease)}, since {iso_time(lease.acquired_at)}{clocks}",
        where=file,
        remedy="wait for it, or stop it",
    )


def _owner(lease: LeaseFile) -> str:
    return f"run {lease.run_id} on {lease.host}, process {lease.processes[0].pid}"


def _check_takeover(
    lease: LeaseFile, file: str, now: datetime, *, sink_is_idempotent: bool, end_session: EndSession
) -> None:
    owner = _owner(lease)
    is_gone = is_dead(lease, patience_seconds=_DEATH_PATIENCE_SECONDS)
    # What a dead owner has started on a server goes on there; ended, it can't write any more, whoever started it.
    may_end = is_gone or lease.expires_at <= now
    runs_on = None if lease.session is None or _is_server_dead(lease) else lease.session
    if may_end and (is_gone if runs_on is None else end_session(runs_on)):
        logger.info("taking over lease %s: nothing of its owner is at work", lease.token)
        return
    if lease.expires_at > now and is_gone and runs_on is not None:
        raise LeaseTakenError(
            f"{owner}, is dead, but what it has started on {runs_on.server} could not be ended",
            where=file,
            remedy=f"try again, on that server; from {iso_time(lease.expires_at)} on, the sink's own identity counts",
        )
    if lease.expires_at > now:
        raise _taken_by(lease, file, now)
    if not sink_is_idempotent:
        raise LeaseTakenError(
            f"the lease of {owner} has run out, but it may still write, and this sink can't refuse a second writer",
            where=file,
            remedy='make sure that the process is gone, then set "is_released": true in the file'
            if runs_on is None
            else f'make sure that it runs nothing on {runs_on.server}, then set "is_released": true in the file',
        )
    logger.warning("taking over lease %s, which ran out at %s", lease.token, iso_time(lease.expires_at))


def is_dead(lease: LeaseFile, *, patience_seconds: float = 0.0) -> bool:
    """Whether every process of an owner is provably gone: same machine, same boot, no such process any more.

    When only the first one (the driver) is gone, its JVM follows shortly: that is waited for. Another boot proves
    nothing: clones of a machine, and pods that were moved, bear its name elsewhere.
    """
    if (lease.machine, lease.boot_id) != (machine(), boot_id()) or lease.processes[0].started is None:
        return False
    if is_alive(lease.processes[0]):
        return False
    deadline = time.monotonic() + patience_seconds
    while any(map(is_alive, lease.processes)):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def _is_server_dead(lease: LeaseFile) -> bool:
    """Whether the server of a lease's session is provably gone, and the session with it."""
    server = None if lease.session is None else lease.session.process
    is_here = (lease.machine, lease.boot_id) == (machine(), boot_id())
    return server is not None and server.started is not None and is_here and not is_alive(server)


def _may_write(lease: LeaseFile) -> bool:
    """Whether anything of an owner may be at work: a process, or a session that may outlive it."""
    return not is_dead(lease) or (lease.session is not None and not _is_server_dead(lease))


def newest_lease(storage: Storage, folder: str) -> LeaseFile | None:
    """The newest lease of a generation, whether it holds or not; None when there was none, or somebody has said so.

    Raises:
        RefusedError: It is damaged.
        StorageError: It can't be read.
    """
    newest = newest_token(storage, folder)
    return None if newest is None else _read(storage, _file(folder, newest))


def _read(storage: Storage, file: str) -> LeaseFile | None:
    try:
        return read_document(storage, file, LeaseFile)
    except RefusedError:
        with contextlib.suppress(RefusedError):
            if read_document(storage, file, _GivenUp) is not None:
                return None
        raise


def may_wake_up(storage: Storage, folder: str, *, but: int | None = None) -> list[str]:
    """The runs that have taken a lease and not given it up, and are not provably dead: they may stand still.

    Args:
        storage: Where leases are.
        folder: The generation's, or the interval's, lease folder.
        but: A token that is left out.

    Raises:
        RefusedError: A lease is damaged.
        StorageError: One can't be read.
    """
    return [lease.run_id for lease in standing_leases(storage, folder, but=but).values()]


def standing_leases(storage: Storage, folder: str, *, but: int | None = None, since: int = 1) -> dict[int, LeaseFile]:
    """By token, the leases that were not given up, and whose owners are not provably dead: they may stand still.

    Args:
        storage: Where leases are.
        folder: The generation's, or the interval's, lease folder.
        but: A token that is left out.
        since: The first token that is looked at.

    Raises:
        RefusedError: A lease is damaged.
        StorageError: One can't be read.
    """
    found = {}
    for token in range(max(1, since), (newest_token(storage, folder) or 0) + 1):
        lease = None if token == but else _read(storage, _file(folder, token))
        if lease is not None and not lease.is_given_up and _may_write(lease):
            found[token] = lease
    return found


def renewed_since(storage: Storage, folder: str, leases: Mapping[int, datetime]) -> list[int]:
    """The tokens of those that are other ones than they were, or are no more: who wakes up renews its lease at once.

    Args:
        storage: Where leases are.
        folder: Their folder.
        leases: By token, until when they were renewed.

    Raises:
        RefusedError: A lease is damaged.
        StorageError: One can't be read.
    """
    found = {token: _read(storage, _file(folder, token)) for token in leases}
    return [
        token
        for token, lease in found.items()
        if lease is None or lease.is_given_up or lease.expires_at != leases[token]
    ]


def newest_token(storage: Storage, folder: str) -> int | None:
    """The highest token that was ever given; None when there was none.

    Raises:
        StorageError: The folder can't be listed.
    """
    listed = storage.list_folder(folder)
    names = listed.files if listed is not None else []
    return max((int(match[1]) for name in names if (match := _FILE_NAME.fullmatch(name))), default=None)


def _file(folder: str, token: int) -> str:
    return join(folder, f"{token}.json")
