"""What a backfill reads of its sources: found by the plan, and looked at again once Spark has read it.

Between the two, the start of Spark among them, a source may lose some of it or become another one. Spark tells of that
in part at most, and rows would be replaced by others, or by nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.errors import RefusedError
from sluice.interval import Interval
from sluice.sources.contract import Position, Slice, Source, VersionedSource
from sluice.storage import Storage
from sluice.stream import Stream


@dataclass(frozen=True)
class BackfillInputs:
    """Up to where the sources of one stream are read, whatever the live stream reads meanwhile."""

    stream: Stream
    positions: Mapping[str, Position]
    """By source, how far the live generation had read when it was planned."""
    arrivals: Interval | None
    """What arrived outside of it need not be read; None when all is needed."""

    def slices(self, *, storage: Storage) -> dict[str, Slice]:
        """What there is to read, by source.

        Raises:
            SluiceError: See `Source.slice`.
        """
        return {
            name: source.slice(self.positions[name], self.arrivals, storage=storage)
            for name, source in self.stream.sources.items()
        }

    def find_changed(self, slices: Mapping[str, Slice], *, storage: Storage) -> str | None:
        """Why rows that were computed of these slices may be others than were planned; None when they are not.

        Raises:
            StorageError: A source can't be read right now.
            DeclarationError: A source is not what the declaration says.
        """
        for name, source in self.stream.sources.items():
            position, taken = self.positions[name], slices[name]
            try:
                if self._slice_again(source, position, taken, storage=storage) == taken:
                    continue
            except RefusedError as refused:
                return f"source `{name}`: {refused.finding.cause}"
            return f"source `{name}` has other input now than was planned"
        return None

    def _slice_again(self, source: Source, position: Position, taken: Slice, *, storage: Storage) -> Slice:
        if isinstance(source, VersionedSource):
            return source.slice_again(position, self.arrivals, taken, storage=storage)
        return source.slice(position, self.arrivals, storage=storage)
