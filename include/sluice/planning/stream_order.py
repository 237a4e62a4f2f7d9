"""The order of streams of which some read what others write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from sluice.errors import SluiceError
from sluice.sources.contract import Source
from sluice.stream import Stream
from sluice.table_writers import written_tables


def upstreams(streams: Mapping[str, Stream]) -> dict[str, list[str]]:
    """By stream, the names of those that write what it reads: their sinks and what is beside them, by whatever name.

    Args:
        streams: The streams by name, with absolute locations.
    """
    places = {name: set(written_tables(stream).values()) for name, stream in streams.items()}
    return {
        name: [
            other
            for other, written in places.items()
            if any(is_read(source, place) for source in stream.sources.values() for place in written)
        ]
        for name, stream in streams.items()
    }


def is_read(source: Source, place: str) -> bool:
    """Whether a source reads what is written to a place; no, of one whose glob is not right, as its own plan says."""
    try:
        return source.reads_from(place)
    except SluiceError:
        return False


def in_order(upstream: Mapping[str, Collection[str]], alike: Callable[[str], object] = lambda _: None) -> list[str]:
    """The names of streams, each after those that it reads; of a cycle, in the order in which they are given.

    Args:
        upstream: By stream, those of them that it reads.
        alike: Streams for whose names it gives equal values follow each other where they may.
    """
    ordered: list[str] = []
    kinds = {name: alike(name) for name in upstream}
    waiting = {name: set(read) - {name} for name, read in upstream.items()}
    while waiting:
        ready = [name for name, read in waiting.items() if not read & waiting.keys()] or _in_cycles(waiting)
        same = [name for name in ready if ordered and kinds[name] == kinds[ordered[-1]]]
        ordered.append((same or ready)[0])
        del waiting[ordered[-1]]
    return ordered


def _in_cycles(read: Mapping[str, set[str]]) -> list[str]:
    """Those that read themselves by way of others, of cycles that read no other one."""
    reached = {name: _reached(name, read) for name in read}
    return [name for name, found in reached.items() if all(name in reached[other] for other in found)]


def _reached(name: str, read: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = [name]
    while pending:
        new = (read[pending.pop()] & read.keys()) - found
        found |= new
        pending += new
    return found
