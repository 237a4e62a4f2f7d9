"""The order of streams of which some read what others write."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sluice.stream import Stream


def upstream_of(stream: Stream, streams: Mapping[str, Stream]) -> list[str]:
    """The names of the streams whose sink this one reads.

    Args:
        stream: The stream.
        streams: Those that may be among them, by name, with absolute locations.
    """
    read = {source.location for source in stream.sources.values()}
    return [name for name, other in streams.items() if other.sink.location is not None and other.sink.location in read]


def in_order(streams: Mapping[str, Stream], alike: Callable[[Stream], object] = lambda _: None) -> list[str]:
    """The names of streams, each after those that it reads; of a cycle, in the order in which they are given.

    Args:
        streams: The streams by name, with absolute locations.
        alike: Streams for which it gives equal values follow each other where they may.
    """
    ordered: list[str] = []
    kinds = {name: alike(stream) for name, stream in streams.items()}
    waiting = {name: set(upstream_of(stream, streams)) - {name} for name, stream in streams.items()}
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
