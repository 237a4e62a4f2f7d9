"""Versions of a Delta table that `RESTORE` has made: each shows the rows of an earlier one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from sluice.delta_log.table import commit_lines
from sluice.storage import Storage

RESTORE = "RESTORE"
"""What a commit is called that has taken a table back."""
_MOST_STEPS = 20


@dataclass(frozen=True)
class Restore:
    """A commit that has taken a table back."""

    version: int | None
    """To which version; None where it names a time."""


class _Info(msgspec.Struct, rename="camel"):
    # Free-form by Delta's protocol: what is not as expected is not known.
    operation: Any = None
    operation_parameters: Any = None


class _Line(msgspec.Struct, rename="camel"):
    commit_info: _Info | None = None


_LINE = msgspec.json.Decoder(_Line)


def read_restore(location: str, version: int, *, storage: Storage) -> Restore | None:
    """What a commit says of the restore that it is; None of any other one, and of one that is gone.

    Args:
        location: Where the table is.
        version: The commit's.
        storage: Where to look.

    Raises:
        StorageError: It can't be read.
    """
    for line in commit_lines(location, version, storage=storage) or ():
        if b'"commitInfo"' not in line:
            continue
        try:
            info = _LINE.decode(line).commit_info
        except (msgspec.DecodeError, RecursionError):
            return None
        if info is not None:
            parameters = info.operation_parameters if isinstance(info.operation_parameters, dict) else {}
            return Restore(_number(parameters.get("version"))) if info.operation == RESTORE else None
    return None


def shown_version(location: str, version: int, *, storage: Storage) -> int:
    """The version whose rows a version shows: an earlier one where that was restored, else itself.

    Raises:
        StorageError: A commit can't be read.
    """
    for _ in range(_MOST_STEPS):
        restore = read_restore(location, version, storage=storage)
        if restore is None or restore.version is None or restore.version >= version:
            break
        version = restore.version
    return version


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, str | int) and str(value).isdecimal() else None
