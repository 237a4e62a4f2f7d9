"""Who writes to a place: the streams of a project, with their sinks and quarantines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.locations import same_for_every_name
from sluice.stream import Stream


@dataclass(frozen=True)
class Writer:
    """A stream, and which of its tables lies at a place."""

    stream: Stream
    table: str
    """`sink`, `quarantine`, or what the sink has beside it."""


def written_tables(stream: Stream) -> dict[str, str]:
    """The locations that a stream writes rows to, by what they are to it: `sink`, `quarantine`, and what is beside."""
    quarantine = stream.quarantine_table if stream.quality is not None else None
    places = {"sink": stream.sink.location, "quarantine": quarantine.location if quarantine is not None else None}
    return {table: place for table, place in places.items() if place} | dict(stream.sink.side_tables)


def other_writer(place: str, stream: Stream, streams: Mapping[str, Stream]) -> Writer | None:
    """Another stream that writes to a place, by whatever name; None when there is none.

    Args:
        place: A location of the stream's.
        stream: The one that is asked about, with absolute locations.
        streams: The streams of the project by name, with absolute locations.
    """
    wanted = same_for_every_name(place)
    for name, other in streams.items():
        if name != stream.name:
            for table, written in written_tables(other).items():
                if same_for_every_name(written) == wanted:
                    return Writer(other, table)
    return None
