"""Where a stream of a bench reads and writes: never where it is declared to."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from sluice.surroundings import Surroundings
from sluice.template import create_project
from sluice.testing import Bench
from sluice.testing.places import Places
from tests.builders import make_files_source, make_stream

PLACES = Places("/bench", "/project", "/project/var/home")


@pytest.mark.parametrize(
    ("declared", "place"),
    [
        ("data/in", "data/in"),
        ("/project/data/in", "data/in"),
        ("file:///project/data/in", "data/in"),
        ("/project/var/home/s/generations/0001/_schemas", "home/s/generations/0001/_schemas"),
        ("data/*/in/{a,b}", "data/any/in/any"),
        ("data/*/other/x-?[0-9].json", "data/any/other/x-anyany.json"),
        ("*.json", "any.json"),
        ("/data/in", "elsewhere/data/in"),
        ("s3://bucket/a b/in", "elsewhere/s3-/bucket/a-b/in"),
        ("${LAKE}/in", "elsewhere/-LAKE-/in"),
        ("../other/in", "elsewhere/other/in"),
        ("/etc/../root", "elsewhere/etc/root"),
    ],
)
def test_every_place_is_in_the_bench(declared: str, place: str) -> None:
    """What another stream names the same is the same there."""
    assert PLACES.of(declared) == str(Path("/bench", place))


def test_a_whole_stream() -> None:
    """Source, sink, quarantine and checkpoint."""
    source = make_files_source("/data/*", path_glob_filter="*.gz", base_path="/data")
    stream = make_stream(
        sources={"visits": source},
        sink=sinks.delta("gs://lake/out"),
        quality="suite.json",
        quarantine=sinks.delta("/lake/bad"),
        checkpoint="/real/checkpoint",
    )
    placed = PLACES.stream(stream, None)
    found = placed.sources["visits"]
    assert isinstance(found, type(source))
    assert (found.path, found.path_glob_filter, found.options) == ("/bench/elsewhere/data/any", None, {})
    assert placed.sink.location == "/bench/elsewhere/gs-/lake/out"
    assert placed.quarantine is not None
    assert (placed.quarantine.location, placed.checkpoint) == ("/bench/elsewhere/lake/bad", None)


def test_a_schema_log_is_in_the_bench() -> None:
    """It lies below the checkpoint, which is the bench's."""
    source = sources.delta("in", schema_tracking_location="var/home/visits/generations/0001/_schemas")
    found = PLACES.stream(make_stream(sources={"visits": source.resolved(Surroundings("/project"))}), None).sources[
        "visits"
    ]
    assert found.options["schemaTrackingLocation"].endswith("/bench/home/visits/generations/0001/_schemas")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": {"visits": sources.kafka("b:9092", topics=["t"])}}, "one of kafka, which a bench can't give rows"),
        ({"sources": {"visits": sources.other("rate")}}, "one of other, which a bench can't give rows"),
        ({"sink": sinks.foreach_batch("jobs.visits:write")}, "one of foreach_batch, and a bench does not know"),
        ({"sink": sinks.kafka("b:9092", topic="t")}, "one of kafka, and a bench does not know"),
    ],
)
def test_what_can_t_be_brought_there_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    """Before anything is started; and what the message says to write is taken."""
    stream = make_stream(**changes)
    with pytest.raises(DeclarationError, match=re.escape(message)) as caught:
        Bench(tmp_path).open(stream)
    calls = re.findall(r"bench\.open\(\.\.\., (.*?)\)(?:;|\Z)", (caught.value.remedy or "").replace('"..."', '"n int"'))
    words = {"sources": sources, "sinks": sinks, "STREAM": stream}
    opened = [Bench(tmp_path).open(stream, **eval(f"dict({call})", words)) for call in calls]
    assert len(opened) == (1 if "sources" in changes else 2)


def test_a_sink_that_the_test_names_writes_where_it_does(tmp_path: Path) -> None:
    """Somebody said so."""
    stream = make_stream(sink=sinks.foreach_batch("jobs.visits:write"))
    assert Bench(tmp_path).open(stream, sink=stream.sink).stream.sink == stream.sink


def test_sinks_in_memory_are_apart(tmp_path: Path) -> None:
    """Two tests may both keep their rows under the name that is the default."""
    stream = make_stream(sink=sinks.memory())
    assert Bench(tmp_path).open(stream).stream.sink != Bench(tmp_path).open(stream).stream.sink


def test_a_declared_stream(tmp_path: Path) -> None:
    """By its name in the project; the project's folder is for its code and its suites alone."""
    create_project(tmp_path / "shop")
    bench = Bench(tmp_path / "bench", str(tmp_path / "shop")).open("visits")
    assert bench.stream.sources["visits"].location == f"{tmp_path}/bench/data/landing/visits"
    assert bench.stream.sink.location == f"{tmp_path}/bench/data/lake/visits"


def test_what_a_test_says_otherwise(tmp_path: Path) -> None:
    """Sources by name, settings beside those that are declared, and the kind of state store."""
    stream = Stream(
        name="s",
        sources={"a": make_files_source("a"), "b": make_files_source("b")},
        transform="m:f",
        sink=sinks.noop(),
        conf={"spark.sql.ansi.enabled": False},
    )
    opened = Bench(tmp_path).open(stream, sources={"b": sources.delta("t")}, state_store="rocksdb", conf={"spark.x": 1})
    assert [source.kind for source in opened.stream.sources.values()] == ["files", "delta"]
    assert sorted(opened.stream.settings) == [
        "spark.sql.ansi.enabled", "spark.sql.streaming.stateStore.providerClass", "spark.x",
    ]  # fmt: skip
    for wrong in ({"sources": {"c": sources.delta("t")}}, {"state_store": "rocks"}):
        with pytest.raises(DeclarationError, match="there is no"):
            Bench(tmp_path).open(stream, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("declare", [sources.delta, sinks.delta])
def test_a_table_by_its_name(declare: Callable[..., Any]) -> None:
    """It has a place in the bench, which no catalog is asked about, nor the project."""
    declared = declare(table="shop.visits")
    placed = declared.placed(PLACES.of, *(["visits"] if declare is sinks.delta else []))
    found = placed.resolved(Surroundings("/elsewhere"))
    assert (found.location, found.named_table) == ("/bench/shop.visits", None)
