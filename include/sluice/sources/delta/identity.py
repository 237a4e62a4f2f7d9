"""Whether a table is the one that a checkpoint has read: by its id, and by the newest commit that was read.

A table that is brought back from a backup has its id and fewer versions. Once it was written on, it has their numbers
again, of other rows.
"""

from __future__ import annotations

import hashlib

from sluice.delta_table import DeltaLog, commit_file
from sluice.errors import Problem, RefusedError
from sluice.sources.delta.offset import Offset
from sluice.storage import Storage

_MOST_BYTES = 1024 * 1024 * 1024


def mark_of(location: str, offset: Offset, *, storage: Storage) -> str | None:
    """What tells the newest version up to an offset from another one of its number; None where its commit is gone.

    Raises:
        StorageError: It can't be read.
    """
    version = _read_to(offset)
    digest = _digest(location, version, storage)
    return None if digest is None else f"{version} {digest}"


def is_noted(offset: Offset, mark: str | None) -> bool:
    """Whether the newest version up to an offset is among those of which something is noted.

    Args:
        offset: How far the table was read.
        mark: See `check_identity`.
    """
    return str(_read_to(offset)) in {noted.partition(" ")[0] for noted in (mark or "").split(", ")}


def check_identity(log: DeltaLog, offset: Offset, mark: str | None, *, storage: Storage) -> None:
    """Make sure that a table is the one that was read up to an offset.

    Args:
        log: The table's log.
        offset: How far it was read.
        mark: What was noted of versions that were read, or were about to be; None where nothing was.
        storage: Where the log is.

    Raises:
        RefusedError: It is another one.
        StorageError: It can't be read.
    """
    if offset.reservoir_id != log.table_id:
        raise RefusedError(
            Problem(
                code="SOURCE_TABLE_REPLACED",
                file=log.location,
                cause=f"the checkpoint has read table {offset.reservoir_id}, now there is table {log.table_id}",
                consequence="Spark fails with DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
                remedy="restore the table, or declare a new stream with a sink of its own for the new one",
            )
        )
    cause = None
    if (read_to := _read_to(offset)) > log.latest:
        cause = f"the checkpoint has read up to version {read_to}, the newest is {log.latest}"
    for version, _, noted in (found.partition(" ") for found in (mark or "").split(", ")):
        # A version that log clean-up has taken is as good as any, and so is one that is yet to be read.
        if (
            version.isdigit()
            and int(version) <= read_to
            and _digest(log.location, int(version), storage) not in (None, noted)
        ):
            cause = (
                f"version {version}, which the checkpoint has read, is another one now: an older copy of the table was"
                " brought back, and written on"
            )
    if cause is not None:
        raise RefusedError(
            Problem(
                code="SOURCE_TABLE_ROLLED_BACK",
                file=log.location,
                cause=cause,
                consequence="new versions with numbers that were read already would be passed over",
                remedy="restore the table's log, or declare a new stream with a sink of its own",
            )
        )


def _read_to(offset: Offset) -> int:
    return offset.reservoir_version if offset.index >= 0 or offset.is_starting_version else offset.reservoir_version - 1


def _digest(location: str, version: int, storage: Storage) -> str | None:
    content = storage.read(commit_file(location, version), max_bytes=_MOST_BYTES) if version >= 0 else None
    return None if content is None else hashlib.sha256(content).hexdigest()[:16]
