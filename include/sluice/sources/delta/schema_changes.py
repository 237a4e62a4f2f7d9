"""Changes of a table's columns among the versions that a batch reads.

Spark reads all of them with the columns that the table has now. What was added since, stands in another place or has
become wider is read right: what an older version does not have is null. Of a column that had another name or another
type then, or that is there no more, Spark says so once the batch has begun; so it is refused before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sluice.delta_table import DeltaLog, commit_file, is_version_gone, load_table, read_commit, spark_type
from sluice.delta_types import PARTS, is_same, is_wider
from sluice.errors import Problem
from sluice.storage import Storage
from sluice.storage_failures import library_call

_PHYSICAL = "delta.columnMapping.physicalName"
_UNREADABLE = "the columns of the Delta table can't be read"
_WIDENS = {"typeWidening", "typeWidening-preview"}


def told_columns(log: DeltaLog, versions: range, *, storage: Storage) -> dict[int, str | None]:
    """The columns that each of some versions sets, as Spark's JSON; None for one that says nothing of them.

    Raises:
        RefusedError: A commit is damaged.
        StorageError: One can't be read.
    """
    commits = (read_commit(log, version, storage=storage) for version in versions if version <= log.latest)
    return {commit.version: commit.columns for commit in commits if commit is not None}


def changed_columns(log: DeltaLog, read: Mapping[int, str | None], *, storage: Storage) -> Problem | None:
    """What of some versions can't be read with the columns that the table has now; None when all can.

    Args:
        log: The table's log.
        read: The versions of which something is read, in order, with the columns that each sets: by `told_columns`.
        storage: Where the log is.

    Raises:
        StorageError: The log can't be read, or a version has no columns in it.
    """
    told = {version: columns for version, columns in read.items() if columns is not None}
    first = next(iter(read), log.latest + 1)
    if first > log.latest or (told.keys() <= {first} and max(read) >= log.latest):
        # All of them have the columns of the newest one.
        return None
    if first not in told and not is_version_gone(log, first, storage=storage):
        told[first] = _columns(log, first, storage)[0]
    now, widens = _columns(log, log.latest, storage)
    for version in sorted(told):
        with library_call(_UNREADABLE, commit_file(log.location, version), passing=()):
            lines = [*_unread(json.loads(told[version]), json.loads(now), version, "", widens=widens)]
        if lines:
            return _refused(log, version, lines)
    return None


def _columns(log: DeltaLog, version: int, storage: Storage) -> tuple[str, bool]:
    """The columns that a version has, and whether they may be of wider types than in versions before."""
    table = load_table(log.location, storage=storage, version=version)
    with library_call(_UNREADABLE, log.location, passing=()):
        return table.schema().to_json(), bool(_WIDENS & set(table.protocol().writer_features or ()))


def _unread(then: Any, now: Any, version: int, before: str, *, widens: bool) -> Iterator[str]:
    """A line for each column that is not the same column any more."""
    if not isinstance(then, dict) or not isinstance(now, dict) or then["type"] != now["type"]:
        are_atomic = isinstance(then, str) and isinstance(now, str)
        if not is_same(then, now) and not (widens and are_atomic and is_wider(then, now)):
            yield f"{before}: {spark_type(then)} in version {version}, {spark_type(now)} now"
        return
    known = {_physical(found): found for found in now.get("fields", ())}
    for found in then.get("fields", ()):
        path = f"{before}.{found['name']}".removeprefix(".")
        there = known.get(_physical(found))
        if there is None:
            yield f"{path}: {spark_type(found['type'])} in version {version}, dropped since"
        elif there["name"].casefold() != found["name"].casefold():
            yield f"{path}: called so in version {version}, renamed to `{there['name']}` since"
        else:
            yield from _unread(found["type"], there["type"], version, path, widens=widens)
    for part, name in PARTS.items():
        if part in then:
            yield from _unread(then[part], now[part], version, f"{before}.{name}", widens=widens)


def _physical(column: Mapping[str, Any]) -> str:
    """What a column is called in the files, which a new name does not change."""
    return str(column.get("metadata", {}).get(_PHYSICAL, column["name"])).casefold()


def _refused(log: DeltaLog, version: int, lines: list[str]) -> Problem:
    return Problem(
        code="SOURCE_COLUMNS_CHANGED",
        file=commit_file(log.location, version),
        cause="of the versions that are to be read, some have columns that the table has no more:"
        + "".join(f"\n  {line}" for line in lines),
        consequence="Spark reads every version with the columns of the newest one, and refuses these once the batch has"
        " begun",
        remedy="let Spark follow the columns: declare `schema_tracking_location`, as docs/schema-evolution.md says; or"
        " declare a new stream with a sink of its own",
    )
