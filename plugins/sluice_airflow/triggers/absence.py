"""How long a trigger bears with a home that is away."""

from __future__ import annotations

import time
from typing import Any

from sluice.errors import StorageError

AWAY_SECONDS = 600.0
"""How long a home may be away before the task goes on, and fails. A share that is mounted anew, or a store that fails
over, is back within minutes. Of anything longer a person must hear, and a deferred task would keep its slot of the pool
for ever."""


class Absence:
    """Tells the log once that a home is away, and once that it is back.

    Args:
        log: Where.
        what: What is looked at.
    """

    def __init__(self, log: Any, what: str) -> None:
        self._log, self._what = log, what
        self._since: float | None = None

    def goes_on(self, exc: StorageError) -> bool:
        """It can't be looked at; says whether that has been so for too long."""
        if self._since is None:
            self._since = time.monotonic()
            self._log.warning("%s can't be looked at right now, and is looked at again: %s", self._what, exc)
        return time.monotonic() - self._since >= AWAY_SECONDS

    def is_over(self) -> None:
        """It can be looked at."""
        if self._since is not None:
            self._log.info("%s can be looked at again", self._what)
        self._since = None
