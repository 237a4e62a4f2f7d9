"""What waits for a stream, in a form that tells one state of its sources from another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sluice.amounts import amount_json
from sluice.errors import RefusedError
from sluice.home import StreamHome
from sluice.planning.planner import find_refusal
from sluice.planning.survey import Survey, survey
from sluice.planning.timers import is_timer_due
from sluice.sources.contract import Available, Bound
from sluice.stream import Stream
from sluice.times import iso_millis


@dataclass(frozen=True)
class Arrivals:
    """What the sources have that the stream has not planned yet."""

    ids: frozenset[str]
    """Names each thing that waits: a file at a time, or how far a table reaches. Empty when nothing waits."""
    is_pending: bool
    """Whether a planned batch is not committed: a run is under way, or has died."""
    sources: Mapping[str, Mapping[str, Any]]
    """By source that has something: its amount as documents have it, and `oldest`."""

    @property
    def digest(self) -> str | None:
        """Tells this state from others, also in another process; None when nothing waits."""
        if not self.ids:
            return None
        return hashlib.sha256("\n".join(sorted(self.ids)).encode()).hexdigest()


def find_arrivals(stream: Stream, home: StreamHome, now: datetime) -> Arrivals:
    """Look at every source of a stream.

    A stream that begins with what comes from now on (`starting="latest"`), and was never planned, has something to
    do at once: its first run notes where it begins. So has one with a time-out that is due.

    Raises:
        RefusedError: The checkpoint is damaged, or contradicts what the sources say: a person must decide.
        SluiceError: The checkpoint or a declared source can't be read.
    """
    seen = survey(stream, home, Bound(), now)
    if not seen.available and not seen.unreadable:
        refusal = find_refusal(seen)
        if refusal is not None:
            raise RefusedError(refusal)
    ids = {name for source, found in seen.available.items() for name in _ids(source, found)}
    if not ids and _is_yet_to_begin(seen):
        ids = {"beginning"}
    if is_timer_due(seen.checkpoint, seen.known, int(now.timestamp() * 1000)):
        known = seen.known.timers if seen.known is not None else None
        ids.add(f"time-out\0{known.due_ms if known is not None else ''}")
    return Arrivals(
        ids=frozenset(ids),
        is_pending=seen.checkpoint.is_pending,
        sources={
            name: {**amount_json(stream.sources[name].waiting(found)), "oldest": iso_millis(found.oldest_ms)}
            for name, found in seen.available.items()
            if found.steps
        },
    )


def _ids(source: str, found: Available) -> Iterator[str]:
    entries = [entry for step in found.steps for entry in step.added.entries]
    if entries:
        yield from (f"{source}\0{entry.path}\0{entry.timestamp_ms}" for entry in entries)
    elif found.steps:
        yield f"{source}\0{found.steps[-1].end}"


def _is_yet_to_begin(seen: Survey) -> bool:
    return seen.checkpoint.is_new and not seen.started_at and any(found.started_at for found in seen.available.values())
