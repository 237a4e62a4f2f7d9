"""The version of a Delta table that a stream begins with, where its declaration names a version or a time."""

from __future__ import annotations

import math
from datetime import datetime

from sluice.delta_log.table import DeltaLog, running_times
from sluice.errors import DeclarationError, Problem
from sluice.sources.delta.refusals import start_gone
from sluice.storage import Storage
from sluice.times import epoch_micros


def checked_version(log: DeltaLog, version: int) -> int:
    """The version that is declared.

    Raises:
        DeclarationError: It is none that is there, nor the next one.
    """
    if version > log.latest + 1:
        raise DeclarationError(
            f"`starting_version` is {version}, and the newest version is {log.latest}",
            where=log.location,
            remedy=f"name one that is there, or {log.latest + 1} for what comes next",
        )
    return version


def version_at(log: DeltaLog, starting: datetime | str, *, storage: Storage) -> tuple[int, Problem | None]:
    """The first version that came at a time or later, and what is said where the log does not reach back to it.

    Args:
        log: The table's log as it is now.
        starting: The time; anything else stands for what comes next.
        storage: Where the log is.
    """
    if not isinstance(starting, datetime):
        return log.latest + 1, None
    start = epoch_micros(starting)
    times = running_times(log, storage, 0)
    version = next((version for version, latest_ms in times if latest_ms * 1000 >= start), log.latest + 1)
    # Of the versions before, nobody knows any more when they came.
    is_oldest = version == min(log.versions, default=math.inf) and version > 0
    return version, start_gone(log, version, starting) if is_oldest else None
