"""A stream that would read what it writes is refused before it has read anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice import sinks, sources
from sluice.errors import DeclarationError
from sluice.planning.own_output import check_own_output
from sluice.sources.contract import Source
from sluice.stream import Stream
from sluice.surroundings import Surroundings
from tests.builders import make_stream


def declared(root: Path, source: Source, sink: str) -> Stream:
    out = sinks.files(sink, format="json").resolved(Surroundings(str(root)))
    return make_stream(sources={"a": source.resolved(Surroundings(str(root)))}, sink=out)


def files(path: str, **options: bool) -> Source:
    return sources.files(path, format="json", schema="n bigint", **options)


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        (files("in"), "in"),
        (files("in/"), "link"),
        (files("in"), "in/k=1"),
        (files("in"), "in/k=1/l=2"),
        (files("in*"), "in2"),
        (files("*/new"), "in/new"),
        (files("in/*.json"), "in"),
        (files("in/*"), "in"),
        (files("in", recursive_file_lookup=True), "in/deep/out"),
        (files("."), "k=1"),
    ],
)
def test_refused(tmp_path: Path, source: Source, sink: str) -> None:
    """The folder itself, its partitions, what a glob matches, and everything below where folders are searched."""
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to("in")

    with pytest.raises(DeclarationError, match="source `a` reads from where the sink is written") as refused:
        check_own_output(declared(tmp_path, source, sink), f"{tmp_path}/home")

    assert (refused.value.where or "").endswith(f"{tmp_path}/{sink}")


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        (files("in"), "in/out"),
        (files("in"), "in2"),
        (files("in"), "in/k=1/out"),
        (files("in"), "out/in"),
        (files("in/out"), "in"),
        (files("in*/new"), "in2/old"),
        (files("in/*.csv"), "out"),
        (files("in", recursive_file_lookup=True), "in/_out"),
        (files("in", recursive_file_lookup=True), "out"),
    ],
)
def test_taken(tmp_path: Path, source: Source, sink: str) -> None:
    """What no listing of the source gets to."""
    check_own_output(declared(tmp_path, source, sink), f"{tmp_path}/home")


def test_a_table(tmp_path: Path) -> None:
    """By whatever name."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to("lake")
    stream = make_stream(sources={"a": sources.delta(f"{tmp_path}/link")}, sink=sinks.delta(f"{tmp_path}/lake"))

    with pytest.raises(DeclarationError, match="reads from where the sink is written"):
        check_own_output(stream, f"{tmp_path}/home")


@pytest.mark.parametrize("what", ["the checkpoint", "the project's home", "the quarantine"])
def test_what_else_is_written(tmp_path: Path, what: str) -> None:
    """A search of every folder finds these, too."""
    changes = {"checkpoint": f"{tmp_path}/in/ckpt"} if what == "the checkpoint" else {}
    quarantine = sinks.delta(f"{tmp_path}/in/refused") if what == "the quarantine" else None
    home = f"{tmp_path}/in/home" if what == "the project's home" else f"{tmp_path}/home"
    stream = make_stream(
        sources={"a": files(f"{tmp_path}/in", recursive_file_lookup=True)},
        sink=sinks.delta(f"{tmp_path}/out"),
        quality="suite.json" if quarantine else None,
        quarantine=quarantine,
        **changes,
    )

    with pytest.raises(DeclarationError, match=f"reads from where {what} is written"):
        check_own_output(stream, home)
