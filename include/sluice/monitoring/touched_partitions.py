"""Which partitions of a Delta table some of its versions touched, read from its log without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sluice.delta_log.table import commit_lines
from sluice.storage import Storage

Partition = tuple[str | None, ...]
"""The values of the partition columns, as Delta writes them; None for null."""


class _File(msgspec.Struct, rename="camel"):
    data_change: bool = True
    partition_values: dict[str, str | None] | None = None


class _Action(msgspec.Struct):
    add: _File | None = None
    remove: _File | None = None


_ACTION = msgspec.json.Decoder(_Action)


def touched_partitions(
    location: str, versions: Iterable[int], columns: Sequence[str], *, storage: Storage
) -> list[Partition]:
    """The partitions in which these versions added or removed rows, sorted, nulls first.

    A version whose commit file is gone (log clean-up) adds nothing; compactions touch nothing.

    Args:
        location: The table.
        versions: The versions.
        columns: The partition columns, in order.
        storage: Where to read.

    Raises:
        StorageError: A commit can't be read.
        msgspec.DecodeError: A commit does not parse.
    """
    touched: set[Partition] = set()
    for version in versions:
        for line in commit_lines(location, version, storage=storage) or ():
            action = _ACTION.decode(line)
            for changed in (action.add, action.remove):
                if changed is not None and changed.data_change and changed.partition_values:
                    touched.add(_partition(changed.partition_values, columns))
    return sorted(touched, key=lambda values: [(value is not None, value or "") for value in values])


def _partition(values: dict[str, str | None], columns: Sequence[str]) -> Partition:
    # With column mapping the log has physical names, in the order of the table's columns.
    found = [values.get(column) for column in columns] if set(columns) <= set(values) else list(values.values())
    # An empty string is null, by Delta's protocol.
    return tuple(value or None for value in found)
