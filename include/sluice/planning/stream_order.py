"""The order of streams of which some read what others write."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from sluice.errors import SluiceError
from sluice.locations import canonical_location
from sluice.sources.contract import Source, VersionedSource
from sluice.stream import Stream
from sluice.table_writers import written_tables


def upstreams(streams: Mapping[str, Stream]) -> dict[str, list[str]]:
    """By stream, the names of those that write what it reads: their sinks and what is beside them, by whatever name.

    Args:
        streams: The streams by name, with absolute locations.
    """
    writers = defaultdict[str, set[str]](set)
    for name, stream in streams.items():
        for place in written_tables(stream).values():
            writers[canonical_location(place)].add(name)
    places, found = sorted(writers), dict[str, list[str]]()
    for name, stream in streams.items():
        read = {
            writer
            for source in stream.sources.values()
            for place in below(canonical_location(source.reads_below).rstrip("/"), places)
            if is_read(source, place)
            for writer in writers[place]
        }
        found[name] = [other for other in streams if other in read]
    return found


def below(root: str, places: Sequence[str]) -> Iterator[str]:
    """The places, of these in order, that begin so."""
    for index in range(bisect_left(places, root), len(places)):
        if not places[index].startswith(root):
            return
        yield places[index]


def is_read(source: Source, place: str) -> bool:
    """Whether a source reads what is written to a place; no, of one whose glob is not right, as its own plan says."""
    try:
        return source.reads_from(place)
    except SluiceError:
        return False


def version_writer(stream: Stream, before: Sequence[Stream]) -> str | None:
    """The stream that leaves the version up to which another one reads: of the one table with versions that it reads.

    Args:
        stream: The other one.
        before: The streams that it reads, and that run before it.

    Returns:
        Its name; None where there are several of either, or that table is not its sink.
    """
    versioned = [source for source in stream.sources.values() if isinstance(source, VersionedSource)]
    if len(versioned) != 1 or len(before) != 1:
        return None
    (source,), (writer,) = versioned, before
    place = writer.sink.location
    return writer.name if place is not None and is_read(source, place) else None


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
