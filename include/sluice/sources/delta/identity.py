"""Whether a table is the one that a checkpoint has read: by its id, and by the newest noted commit that was read."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.delta_log.digest import version_digest
from sluice.delta_log.table import DeltaLog
from sluice.errors import Problem, RefusedError
from sluice.sources.delta.offset import Offset
from sluice.storage import Storage


def mark_of(location: str, offsets: Iterable[Offset], *, storage: Storage) -> str | None:
    """What tells the newest versions up to some offsets from others of their numbers; None where their commits went.

    Raises:
        StorageError: One can't be read.
    """
    digests = {
        version: version_digest(location, version, storage=storage) for version in sorted(set(map(_read_to, offsets)))
    }
    return ", ".join(f"{version} {digest}" for version, digest in digests.items() if digest is not None) or None


def is_noted(offset: Offset, mark: str | None) -> bool:
    """Whether the newest version up to an offset is among those of which something is noted.

    Args:
        offset: How far the table was read.
        mark: See `check_identity`.
    """
    return _read_to(offset) in _noted(mark)


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
    noted = _noted(mark)
    # Once a copy was written on, every later version of it is another one; what is yet to be read may be.
    newest = max((version for version in noted if version <= read_to), default=None)
    # A version that log clean-up has taken is as good as any.
    if newest is not None and version_digest(log.location, newest, storage=storage) not in (None, noted[newest]):
        cause = (
            f"version {newest}, which the checkpoint has read, is another one now: an older copy of the table was"
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


def _noted(mark: str | None) -> dict[int, str]:
    """What tells each version of a mark from another one."""
    found = (noted.partition(" ") for noted in (mark or "").split(", "))
    return {int(version): digest for version, _, digest in found if version.isdigit()}


def _read_to(offset: Offset) -> int:
    return offset.reservoir_version if offset.index >= 0 or offset.is_starting_version else offset.reservoir_version - 1
