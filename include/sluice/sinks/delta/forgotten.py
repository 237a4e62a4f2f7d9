"""Whether a Delta table can still tell that it does not hold a batch.

A table may let transactions expire (`delta.setTransactionRetentionDuration`): its checkpoints leave them out, and once
log clean-up has deleted the commits as well, a batch that is there looks like one that never came.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sluice.delta_log.table import TRANSACTIONS_EXPIRE, DeltaLog, commit_lines, load_table, open_log
from sluice.errors import Problem
from sluice.storage import Storage

_UNITS_MS = {
    "week": 7 * 86_400_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
    "microsecond": 0.001,
}
_PART = re.compile(rf"(\d+)\s+({'|'.join(_UNITS_MS)})s?", re.IGNORECASE)
_INTERVAL = re.compile(rf"(?:interval\s+)?{_PART.pattern}(?:\s+{_PART.pattern})*", re.IGNORECASE)
_CLOCKS_APART_MS = 60_000
"""How far the clocks of those may be apart who begin a batch, write it, and make a checkpoint."""


class _Txn(msgspec.Struct, rename="camel"):
    app_id: str
    version: int


class _Metadata(msgspec.Struct):
    configuration: dict[str, Any] = {}


class _CommitInfo(msgspec.Struct, rename="camel"):
    timestamp: Any = None
    in_commit_timestamp: Any = None


class _Action(msgspec.Struct, rename="camel"):
    txn: _Txn | None = None
    meta_data: _Metadata | None = None
    commit_info: _CommitInfo | None = None


_ACTION = msgspec.json.Decoder(_Action)


def absent(application: str, version: int) -> str:
    """The application by whose transaction somebody notes in a table that it does not hold a batch of another one."""
    return f"{application}-without-{version}"


def remedy(application: str | None, version: int) -> str:
    """What a person can do where a table can't tell whether it holds a batch."""
    return (
        "restore the commits that are gone in the table's `_delta_log`; or look whether the table has the rows,"
        f" and note it there: append no row with `txnAppId` {application} and `txnVersion` {version} if it has them,"
        f" with `txnAppId` {absent(application or '', version)} and `txnVersion` 0 if not (see docs/operations.md)."
        " Unset the property, and it can't happen again"
    )


def forgetful(location: str, configuration: Mapping[str, str]) -> Problem | None:
    """What is to be said of a table that lets transactions expire; None of any other."""
    after = configuration.get(TRANSACTIONS_EXPIRE)
    if after is None:
        return None
    return Problem(
        code="TRANSACTIONS_EXPIRE",
        file=location,
        cause=f"the table lets transactions expire (`{TRANSACTIONS_EXPIRE}`: {after})",
        consequence="once its commits are cleaned up as well, it can't tell whether it has a batch whose driver was"
        " killed: such a batch is refused until somebody has looked",
        remedy=f"unset it: ALTER TABLE delta.`{location}` UNSET TBLPROPERTIES ('{TRANSACTIONS_EXPIRE}')",
        is_blocking=False,
    )


def expired(location: str, batch_id: int) -> Problem:
    """What is to be said of a batch that the table has, and whose transaction has expired."""
    return Problem(
        code="TRANSACTION_FORGOTTEN",
        file=location,
        cause=f"the table has batch {batch_id}, and has let its transaction expire ({TRANSACTIONS_EXPIRE})",
        consequence="over Spark Connect, Delta's own writer would write it again: its rows would be there twice",
        remedy="run the stream once with a Spark of its own (`[spark] master`), which passes over the batch; unset the"
        " property, and it can't happen again",
    )


def why_unknown(
    location: str, application: str | None, version: int, since_ms: int | None, *, storage: Storage
) -> str | None:
    """Why a table that knows of no such transaction may hold it; None when it does not.

    The commits that are there are looked through from the newest one on, back to a moment before the transaction can
    have been made. Where they do not reach so far, all depends on how long transactions were kept.

    Args:
        location: The table.
        application: Whose transaction it is; None for that of anybody.
        version: As the application numbers it: newer than all that the table knows of that application.
        since_ms: It was not made before this moment, in milliseconds since the epoch; None when nobody knows.
        storage: Where the table is.

    Raises:
        StorageError: The log can't be read.
    """
    log = open_log(location, storage=storage)
    if log is None or (application is None and log.first_kept == 0):
        return None
    kept: list[Mapping[str, Any]] = [log.configuration]
    for number in range(log.latest, log.first_kept - 1, -1):
        lines = commit_lines(location, number, storage=storage)
        if lines is None:
            # Log clean-up is at work.
            break
        for action in map(_decoded, lines):
            if action.txn is not None and application is not None:
                if action.txn.app_id == application and action.txn.version >= version:
                    return f"version {number} says that it has it, which the table's checkpoint has forgotten"
                if action.txn.app_id in {application, absent(application, version)}:
                    return None
            if since_ms is not None and _is_before(action.commit_info, since_ms):
                return None
            if action.meta_data is not None:
                kept.append(action.meta_data.configuration)
    return None if log.first_kept == 0 else _may_have_expired(log, kept, since_ms, storage)


def _may_have_expired(
    log: DeltaLog, kept: Sequence[Mapping[str, Any]], since_ms: int | None, storage: Storage
) -> str | None:
    """Why a checkpoint may have let a transaction expire that was made since a moment; None when it has not."""
    known = (*kept, _configuration_before(log, storage))
    expiring = [found[TRANSACTIONS_EXPIRE] for found in known if found.get(TRANSACTIONS_EXPIRE)]
    if not expiring:
        return None
    shortest = min(expiring, key=_millis)
    if since_ms is not None and _millis(shortest) > time.time() * 1000 - since_ms + _CLOCKS_APART_MS:
        return None
    return (
        f"the table lets transactions expire (`{TRANSACTIONS_EXPIRE}`: {shortest}), and of its commits those before"
        f" version {log.first_kept} are gone"
    )


def _decoded(line: bytes) -> _Action:
    try:
        return _ACTION.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Whoever needs what it says tells of the damage.
        return _Action()


def _is_before(info: _CommitInfo | None, since_ms: int) -> bool:
    times = (info.in_commit_timestamp, info.timestamp) if info is not None else ()
    made = next((found for found in times if isinstance(found, int)), None)
    return made is not None and made < since_ms


def _configuration_before(log: DeltaLog, storage: Storage) -> dict[str, str]:
    """The table's properties as the commits that are gone have left them."""
    standing = log.standing
    if standing is None:
        return {}
    table = load_table(log.location, storage=storage, version=standing.version)
    return dict(table.metadata().configuration)


def _millis(interval: str) -> float:
    """How long an interval of Delta's is; 0 where it is none that we know."""
    if not _INTERVAL.fullmatch(interval.strip()):
        return 0
    return sum(int(number) * _UNITS_MS[unit.lower()] for number, unit in _PART.findall(interval))
