"""The watcher of an asset that changes as soon as a stream's sources have something for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, cast

from sluice.monitoring.arrivals import Arrivals, find_arrivals
from sluice_airflow.triggers.declared import DeclaredStreams
from sluice_airflow.triggers.shared_poll import SharedPoll, Sighting, shared_poll
from sluice_airflow.triggers.stream import watched_streams
from sluice_airflow.triggers.watch import News, Position, StreamWatch


class ArrivalWatch(StreamWatch[Arrivals]):
    """Tells once of everything that arrives, and of what a run has left.

    The payload: `{"stream", "sources": {NAME: {"files", "bytes", "oldest"}}}` with all that waits.
    """

    key: ClassVar[str] = "sluice_arrivals"

    def __init__(self, *, asset: str, stream: str, project: str | None = None) -> None:
        super().__init__(asset=asset, stream=stream, project=project)
        self._ids: frozenset[str] | None = None

    @classmethod
    def follow(cls, stream: str, project: str | None) -> AsyncIterator[Sighting[Arrivals]]:
        """What the shared poll of the project sees."""
        poll = cast("SharedPoll[Arrivals]", shared_poll(("arrivals", project)))
        return poll.follow(stream, _ArrivalsOf(watched_streams("arrivals", project), stream))

    def news(self, told: Position, seen: Arrivals) -> News | None:
        """What arrived since; what only became less is told when the run that took it has ended."""
        digest = seen.digest
        if digest == told.get("digest"):
            self._ids = seen.ids
            return None
        if digest is None:
            return News(None, {})
        has_grown = self._ids is None or not seen.ids <= self._ids
        if not has_grown and seen.is_pending:
            return None
        self._ids = seen.ids
        return News({"stream": self.stream, "sources": seen.sources}, {"digest": digest})


@dataclass(frozen=True)
class _ArrivalsOf:
    """Reads what waits for a declared stream."""

    streams: DeclaredStreams
    name: str

    def __call__(self) -> Arrivals:
        declared = self.streams.find(self.name)
        return find_arrivals(declared.stream, declared.home, datetime.now(UTC))
