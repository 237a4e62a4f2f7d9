"""What the change feed of a Delta table has for a stream in each version, and where it was not kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from sluice.delta_log.table import AddedFile, Commit, DeltaLog, commit_file, commit_lines, load_table
from sluice.errors import Problem, RefusedError, StorageError
from sluice.sources.delta.batch_limits import Chunk
from sluice.sources.delta.offset import Offset
from sluice.storage import Storage
from sluice.typed_json import decode_as

OPTION = "readChangeFeed"
"""What asks for it, as Spark spells it."""
_KEPT = "delta.enableChangeDataFeed"


class _File(msgspec.Struct, rename="camel"):
    path: str
    size: int | None = 0
    data_change: bool = True


class _Action(msgspec.Struct):
    cdc: _File | None = None
    remove: _File | None = None


def fed_files(log: DeltaLog, commit: Commit, *, storage: Storage) -> tuple[AddedFile, ...]:
    """The files of one version that Spark reads for its changes: those of changes alone where it has some.

    How many rows these have is known where nothing was taken out: Delta counts rows where it adds them.

    Args:
        log: The table's log.
        commit: The version's commit.
        storage: Where the log is.

    Raises:
        StorageError: The log can't be read.
    """
    changes, removed = _actions(log, commit.version, storage)
    if changes:
        return tuple(AddedFile(file.size or 0, None, file.path) for file in changes)
    added = commit.files if not removed else tuple(replace(file, rows=None) for file in commit.files)
    return (*added, *(AddedFile(file.size or 0, None, file.path) for file in removed))


def after_changes(log: DeltaLog, at: Offset, *, storage: Storage) -> Offset:
    """Where a change feed goes on from an offset: behind the version, if that has no more changes.

    Where Spark decides, its offset is behind a version once its rows were read, but for one with files of changes
    (those that an `UPDATE` makes, say): there it stays on the last of these, and counts nothing else of the version.

    Args:
        log: The table's log.
        at: How far the feed was read.
        storage: Where the log is.

    Raises:
        StorageError: The log can't be read.
    """
    if at.index < 0 or at.is_starting_version:
        return at
    changes, _ = _actions(log, at.reservoir_version, storage)
    is_done = 0 < len(changes) <= at.index + 1
    return Offset(at.reservoir_id, at.reservoir_version + 1, -1) if is_done else at


def kept(log: DeltaLog, chunks: Sequence[Chunk], *, storage: Storage) -> list[Chunk]:
    """Some versions, all of whose changes were recorded, and which of them a batch may begin with.

    A version that has no rows need not be recorded: the feed may be switched off and on again. But for one with which a
    batch begins: there Spark asks.

    Args:
        log: The table's log.
        chunks: The versions that are read, oldest first.
        storage: Where the log is.

    Raises:
        RefusedError: What changed in one was not recorded, or it is the first, and not to be begun with.
    """
    if not chunks:
        return []
    first, found = chunks[0], []
    if chunks[-1].version >= log.latest and all(chunk.metadata is None for chunk in chunks):
        properties: Mapping[str, Any] | None = log.configuration
    else:
        properties = _properties(log, first.version, storage)
    for chunk in chunks:
        properties = chunk.metadata.configuration if chunk.metadata is not None else properties
        is_kept = properties is None or _keeps(properties)
        if not is_kept and (chunk.files or chunk is first):
            raise RefusedError(_off(log, chunk.version))
        found.append(replace(chunk, begins=is_kept))
    return found


def _actions(log: DeltaLog, version: int, storage: Storage) -> tuple[list[_File], list[_File]]:
    """The files of changes of a version, and those that it took out with their rows."""
    lines = commit_lines(log.location, version, storage=storage) or ()
    try:
        actions = [decode_as(line, _Action) for line in lines]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Whoever reads the commit says so.
        return [], []
    removed = [action.remove for action in actions if action.remove is not None and action.remove.data_change]
    return [action.cdc for action in actions if action.cdc is not None], removed


def _properties(log: DeltaLog, version: int, storage: Storage) -> Mapping[str, Any] | None:
    """The table's properties as of a version; None where the log does not tell them any more, as Spark will say."""
    try:
        return load_table(log.location, storage=storage, version=version).metadata().configuration
    except StorageError:
        return None


def _keeps(properties: Mapping[str, Any]) -> bool:
    return str(properties.get(_KEPT)).lower() == "true"


def _off(log: DeltaLog, version: int) -> Problem:
    return Problem(
        code="SOURCE_FEED_NOT_KEPT",
        file=commit_file(log.location, version),
        cause=f"`read_change_feed` is declared, and in version {version} the table keeps no change feed",
        consequence="what changed in it was not recorded, and Spark fails with DELTA_MISSING_CHANGE_DATA",
        remedy=f"set the table's property `{_KEPT}` to true. A stream that has read nothing yet goes on then; where it"
        " begins with an older version, give a later `starting_version`. One that has read the table can't get past"
        " this version: declare a new stream, with a sink of its own",
    )
