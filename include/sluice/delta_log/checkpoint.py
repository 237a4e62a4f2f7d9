"""The checkpoints of a Delta log: each stands for all commits up to it, which log clean-up may have deleted.

Of them, only the transactions are read here; delta-rs answers everything else, but no question for *all* transactions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from sluice.locations import join
from sluice.storage import Storage
from sluice.storage_failures import library_call

_NAME = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)")
_MOST_JSON_BYTES = 512 * 1024 * 1024
_PARTS = ("appId", "version", "lastUpdated")


@dataclass(frozen=True)
class AppTransaction:
    """The newest transaction that a part of a log knows of an application."""

    application: str
    version: int
    """As the application numbers them."""
    time_ms: int | None
    """When it was made, in milliseconds since the epoch; None when its writer did not say."""


@dataclass(frozen=True)
class LogCheckpoint:
    """A checkpoint with all of its files."""

    version: int
    """The table's version that it stands for."""
    files: tuple[str, ...]
    """Names below the log's folder; without those that a checkpoint of the second kind has beside it, which know of
    data files only."""


class _Txn(msgspec.Struct, rename="camel"):
    app_id: str
    version: int
    last_updated: int | None = None


class _Line(msgspec.Struct):
    txn: _Txn | None = None


_LINE = msgspec.json.Decoder(_Line)


def complete_checkpoints(names: Iterable[str]) -> tuple[LogCheckpoint, ...]:
    """The checkpoints among the files of a log's folder, the oldest first; one that lacks a part is none."""
    parts: dict[tuple[int, int], list[str]] = defaultdict(list)
    found = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        if match[3] is None:
            found.append(LogCheckpoint(int(match[1]), (name,)))
        else:
            parts[int(match[1]), int(match[3])].append(name)
    found += [
        LogCheckpoint(version, tuple(sorted(files)))
        for (version, needed), files in parts.items()
        if len(files) == needed
    ]
    return tuple(sorted(found, key=lambda checkpoint: (checkpoint.version, checkpoint.files)))


def checkpoint_transactions(location: str, checkpoint: LogCheckpoint, *, storage: Storage) -> list[AppTransaction]:
    """The transactions of all applications that a checkpoint knows.

    Args:
        location: The table.
        checkpoint: One of its log.
        storage: Where it is.

    Raises:
        StorageError: It can't be read.
    """
    found: list[AppTransaction] = []
    for name in checkpoint.files:
        place = join(location, "_delta_log", name)
        remedy = "check the table's _delta_log"
        with library_call("the checkpoint of the Delta log can't be read", place, passing=(), remedy=remedy):
            found += _of_json(place, storage) if name.endswith(".json") else _of_parquet(place, storage)
    return found


def _of_json(place: str, storage: Storage) -> list[AppTransaction]:
    content = storage.read(place, max_bytes=_MOST_JSON_BYTES)
    if content is None:
        raise FileNotFoundError(place)
    noted = [_LINE.decode(line).txn for line in content.split(b"\n") if line.strip()]
    return [AppTransaction(txn.app_id, txn.version, txn.last_updated) for txn in noted if txn is not None]


def _of_parquet(place: str, storage: Storage) -> list[AppTransaction]:
    """Reads the footer, and of the columns those alone that are asked for, where any row has them.

    Data files are the bulk of a checkpoint. Neither their columns are read, nor the row groups that have nothing else.
    """
    from pyarrow import parquet

    with storage.open_file(place) as content, parquet.ParquetFile(content) as file:
        leaves = {file.schema.column(number).path: number for number in range(len(file.schema))}
        columns = [f"txn.{part}" for part in _PARTS if f"txn.{part}" in leaves]
        application = leaves.get("txn.appId")
        groups = range(file.num_row_groups) if application is not None else ()
        wanted = [group for group in groups if _has_values(file, group, application)]
        if not wanted:
            return []
        # Without threads: those of C++ outlive Python, see `exit_code`.
        rows = file.read_row_groups(wanted, columns=columns, use_threads=False).column("txn").drop_null().to_pylist()
    noted = (row for row in rows if row["appId"] is not None)
    return [AppTransaction(row["appId"], row["version"], row.get("lastUpdated")) for row in noted]


def _has_values(file: Any, group: int, column: int | None) -> bool:
    statistics = file.metadata.row_group(group).column(column).statistics
    if statistics is None or not statistics.has_null_count:
        return True
    return bool(statistics.null_count < file.metadata.row_group(group).num_rows)
