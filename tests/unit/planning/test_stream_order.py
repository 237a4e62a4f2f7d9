"""Streams that read what others write come after those."""

from __future__ import annotations

from pathlib import Path

from sluice import Stream, sinks, sources
from sluice.planning.stream_order import in_order, upstreams
from sluice.sinks.contract import Sink
from sluice.sources.contract import Source


def stream(name: str, *reads: str, memory: str | None = None) -> Stream:
    read = {f"s{number}": sources.delta(place) for number, place in enumerate(reads)}
    return Stream(name=name, sources=read, transform="m:f", sink=sinks.delta(f"/out/{name}"), memory=memory)


def order(*streams: Stream) -> str:
    named = {found.name: found for found in streams}
    return "".join(in_order(upstreams(named), alike=lambda name: named[name].memory))


def test_after_what_it_reads() -> None:
    """Over several steps, and wherever it is declared; what is not among them holds nobody up."""
    d, c = stream("d", "/out/b", "/out/c"), stream("c", "/out/a", "/in")
    b, a = stream("b", "/out/z"), stream("a", "/in")

    assert order(d, c, b, a) == "bacd"
    assert upstreams({"a": a, "b": b, "c": c, "d": d})["d"] == ["b", "c"]


def test_alike_follow_each_other() -> None:
    """As far as they may: each change would cost a start of Spark."""
    assert order(stream("a", "/in"), stream("b", "/in", memory="2g"), stream("c", "/in")) == "acb"
    assert order(stream("a", "/in"), stream("b", "/out/a", memory="2g"), stream("c", "/out/b")) == "abc"


def test_what_can_not_be_ordered() -> None:
    """Of a cycle, and of a stream that reads its own table, the order given holds."""
    assert order(stream("a", "/out/b"), stream("b", "/out/a"), stream("c", "/out/c")) == "cab"
    behind = stream("d", "/out/a"), stream("e", "/out/f", "/out/d"), stream("f", "/out/e")
    assert order(*behind, stream("a", "/out/b"), stream("b", "/out/a")) == "adbef"


def test_by_whatever_name(tmp_path: Path) -> None:
    """A table by a link to it or with a scheme, files by a glob, a topic among others, what the quarantine has."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    lake, read = str(tmp_path / "lake"), {"s": sources.delta("/in")}

    def writer(name: str, sink: Sink, **given: str) -> Stream:
        return Stream(name=name, sources=read, transform="m:f", sink=sink, **given)

    writers = [
        writer("table", sinks.delta(f"{lake}/table")),
        writer("files", sinks.files(f"{lake}/days/one", format="parquet")),
        writer("topic", sinks.kafka("b:2,a:1", topic="sales")),
        writer("checked", sinks.delta(f"{lake}/checked"), quality="suite.json"),
    ]

    def reading(source: Source) -> list[str]:
        reader = Stream(name="reader", sources={"s": source}, transform="m:f", sink=sinks.delta("/out/reader"))
        return upstreams({found.name: found for found in (reader, *writers)})["reader"]

    assert reading(sources.delta(f"file://{tmp_path}/link/table/")) == ["table"]
    assert reading(sources.files(f"{tmp_path}/link/days/*", format="parquet", schema="n INT")) == ["files"]
    assert reading(sources.kafka("a:1", topics=["other", "sales"])) == ["topic"]
    assert reading(sources.delta(f"{lake}/checked_quarantine")) == ["checked"]
    assert reading(sources.delta(f"{lake}/days")) == []
