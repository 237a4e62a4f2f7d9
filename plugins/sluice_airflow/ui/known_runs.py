"""The newest runs of every stream, kept in mind by the server and compared with the home at each request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from sluice.errors import SluiceError
from sluice.home import StreamHome
from sluice.locations import is_local
from sluice.runs.summary import RunLine, compare_lines, read_lines

_QUIET_SECONDS = 3.0
"""A folder's time may stand still over two changes (file systems count in steps of up to 2 s): the folder is listed
again, although its time is the same, until it was listed once this long after that time was first seen."""
_COMPARE_SECONDS = 30.0
"""How long it may take until a record that somebody edited in place is noticed: that changes no folder's time."""
_LIST_AGAIN_SECONDS = 15.0
"""How long the listing of an object-store folder counts: its requests are paid for, and 1,000 take seconds. Where a run
goes on, it is listed each time."""
_OLD_SECONDS = 60.0
"""When it is said of what is shown in place of a listing that is late how old it is."""
_REQUESTS = 16
"""How many object-store folders are listed at once."""


@dataclass(frozen=True)
class KnownRuns:
    """The newest runs of one stream."""

    lines: tuple[RunLine, ...]
    """Newest first."""
    error: str = ""
    """Why they can't be listed, if so; the lines are those that were known before."""
    folder_ms: int | None = None
    """When the folder of records changed last, in milliseconds since the epoch; None where folders have no time."""
    seen_at: float = 0.0
    """When that time was first seen."""
    is_quiet: bool = False
    compared_at: float = 0.0
    """When every record's file was looked at last."""

    @property
    def goes_on(self) -> bool:
        """Whether a run is at work."""
        return any(line.status in {"planned", "running"} and not line.error for line in self.lines)


class RunsInMind:
    """Reads the newest runs of many streams again and again.

    On a disk, a stream in whose folder of records nothing was created, replaced or deleted since costs one `stat`, and
    twice a minute one for each of its newest records.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        """Args: `seconds` tells seconds that pass, from any start."""
        self._seconds = seconds
        self._known: dict[str, KnownRuns] = {}

    def all(self, homes: Mapping[str, StreamHome]) -> dict[str, KnownRuns]:
        """The newest runs of these streams, by name; what can't be listed says so."""
        if all(is_local(home.location) for home in homes.values()):
            found = {name: self._look(home) for name, home in homes.items()}
        else:
            with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="sluice-runs") as pool:
                found = dict(zip(homes, pool.map(self._look, homes.values()), strict=True))
        self._known = {home.location: found[name] for name, home in homes.items()}
        return found

    def knows(self, homes: Iterable[StreamHome]) -> bool:
        """Whether something is known of all of these."""
        return all(home.location in self._known for home in homes)

    def last_known(self, home: StreamHome) -> KnownRuns:
        """What is known of a stream at this moment, while `all` may be at work: nothing is read."""
        known = self._known.get(home.location)
        if known is None:
            return KnownRuns((), "the run records could not be read in time")
        age = self._seconds() - known.compared_at
        if known.error or age < _OLD_SECONDS:
            return known
        return replace(known, error=f"the run records could not be read for {age:.0f} seconds; these are from then")

    def _look(self, home: StreamHome) -> KnownRuns:
        known = self._known.get(home.location)
        is_enough = known is not None and not is_local(home.location) and not known.error and not known.goes_on
        if known is not None and is_enough and self._seconds() - known.compared_at < _LIST_AGAIN_SECONDS:
            return known
        found = self._known[home.location] = self._list(home, known)
        return found

    def _list(self, home: StreamHome, known: KnownRuns | None) -> KnownRuns:
        try:
            # The time is taken first: what comes while the folder is read changes it once more.
            stat = home.storage.stat(home.runs_folder()) if is_local(home.location) else None
            folder_ms, now = None if stat is None else stat.mtime_ms, self._seconds()
            is_same = known is not None and folder_ms is not None and known.folder_ms == folder_ms
            if known is not None and is_same and known.is_quiet:
                if now - known.compared_at < _COMPARE_SECONDS:
                    return known
                return replace(known, lines=compare_lines(home, known.lines), compared_at=now)
            lines = read_lines(home, known.lines if known is not None else None)
        except SluiceError as exc:
            return KnownRuns(known.lines if known is not None else (), str(exc))
        seen_at = known.seen_at if known is not None and is_same else now
        return KnownRuns(lines, "", folder_ms, seen_at, is_same and now - seen_at >= _QUIET_SECONDS, now)
