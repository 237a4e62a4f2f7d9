"""Delta sources whose batches only Spark can decide: why so, and when one of them has read a version to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sluice.delta_table import DeltaLog, commit_lines
from sluice.sources.delta.feeding import TRACKED
from sluice.sources.delta.offset import Offset
from sluice.storage import Storage
from sluice.typed_json import decode_as


def why_drained(options: Mapping[str, str]) -> str | None:
    """Why the batches of a source can't be decided from outside of Spark; None when they can.

    Args:
        options: The source's, as Spark spells them.
    """
    for option in ("readChangeFeed", "withEventTimeOrder"):
        if options.get(option) == "true":
            return f"Spark alone knows the offsets of a Delta source with `{option}`"
    if TRACKED in options:
        return f"Spark alone ends its batches where the columns change, as `{TRACKED}` lets it"
    return None


class _Action(msgspec.Struct):
    cdc: dict[str, Any] | None = None


def after_changes(log: DeltaLog, at: Offset, *, storage: Storage) -> Offset:
    """Where a change feed goes on from an offset: behind the version, if that has no more changes.

    Spark's offset is behind a version once its rows were read, but for one with files of changes (those that an
    `UPDATE` makes, say): there it stays on the last of these, and counts nothing else of the version.

    Args:
        log: The table's log.
        at: How far the feed was read.
        storage: Where the log is.

    Raises:
        StorageError: The log can't be read.
    """
    if at.index < 0 or at.is_starting_version:
        return at
    lines = commit_lines(log.location, at.reservoir_version, storage=storage) or ()
    try:
        changes = sum(decode_as(line, _Action).cdc is not None for line in lines)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Whoever reads the commit says so.
        return at
    is_done = 0 < changes <= at.index + 1
    return Offset(at.reservoir_id, at.reservoir_version + 1, -1) if is_done else at
