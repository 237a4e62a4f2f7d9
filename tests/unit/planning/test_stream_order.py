"""Streams that read what others write come after those."""

from __future__ import annotations

from sluice import Stream, sinks, sources
from sluice.planning.stream_order import in_order, upstream_of


def stream(name: str, *reads: str, memory: str | None = None) -> Stream:
    read = {f"s{number}": sources.delta(place) for number, place in enumerate(reads)}
    return Stream(name=name, sources=read, transform="m:f", sink=sinks.delta(f"/out/{name}"), memory=memory)


def order(*streams: Stream) -> str:
    return "".join(in_order({found.name: found for found in streams}, alike=lambda found: found.memory))


def test_after_what_it_reads() -> None:
    """Over several steps, and wherever it is declared; what is not among them holds nobody up."""
    d, c = stream("d", "/out/b", "/out/c"), stream("c", "/out/a", "/in")
    b, a = stream("b", "/out/z"), stream("a", "/in")

    assert order(d, c, b, a) == "bacd"
    assert upstream_of(d, {"a": a, "b": b, "c": c, "d": d}) == ["b", "c"]


def test_alike_follow_each_other() -> None:
    """As far as they may: each change would cost a start of Spark."""
    assert order(stream("a", "/in"), stream("b", "/in", memory="2g"), stream("c", "/in")) == "acb"
    assert order(stream("a", "/in"), stream("b", "/out/a", memory="2g"), stream("c", "/out/b")) == "abc"


def test_what_can_not_be_ordered() -> None:
    """Of a cycle, and of a stream that reads its own table, the order given holds."""
    assert order(stream("a", "/out/b"), stream("b", "/out/a"), stream("c", "/out/c")) == "cab"
    behind = stream("d", "/out/a"), stream("e", "/out/f", "/out/d"), stream("f", "/out/e")
    assert order(*behind, stream("a", "/out/b"), stream("b", "/out/a")) == "adbef"
