"""What becomes of every stream that a file of declarations makes."""

from __future__ import annotations

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice.cli.app import app
from sluice.declarations import Declarations
from sluice.errors import DeclarationError
from sluice.made_streams import Makings
from sluice.stream import noticed_by
from tests.builders import make_stream, put
from tests.unit.shop import make_project

pytestmark = pytest.mark.usefixtures("clean_environment")

HEAD = """
from dataclasses import replace
from sluice import Stream, sinks, sources

def made(name, **changes):
    given = {"sources": {"v": sources.files("in", format="json", schema="id bigint")}, "transform": "jobs:f"}
    given |= {} if "sinks" in changes else {"sink": sinks.delta(f"out/{name}")}
    return Stream(name=name, **given | changes)

"""
MADE_AT = 8
"""The line that calls `Stream`."""


def declare(folder: Path, text: str) -> Declarations:
    """A project whose one file of declarations ends in this text."""
    return make_project(folder, a=HEAD + text).declarations()


def lost(found: Declarations) -> list[str]:
    return [name for name, unusable in found.unusable.items() if "nothing at the top level" in unusable.error.problem]


@pytest.mark.parametrize(
    "text",
    [
        "streams = [made('a'), made('b')]",
        "streams = (made('a'), made('b'))",
        "streams = {'x': made('a'), 'y': made('b')}",
        "streams = {'x': [made('a')], 'y': ({'z': made('b')},)}",
        "streams = []\nfor name in 'ab':\n    s = made(name)\n    streams.append(s)",
        "streams = {}\nfor name in 'ab':\n    streams[name] = made(name)",
        "a = also = made('a')\nboth = [a, made('b')]\nboth.append(both)",
        "streams = [made(name) for name in 'ab']",
        "globals().update({name: made(name) for name in 'ab'})",
    ],
)
def test_streams_at_the_top_level(tmp_path: Path, text: str) -> None:
    """By a name, or in what a name has, however deep: each is a declaration, once."""
    found = declare(tmp_path, text)
    assert (list(found.streams), found.errors(), found.names) == (["a", "b"], [], ("a", "b"))


def test_a_table_of_another_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken of it counts, whatever else there is; a function's that is called here is made here."""
    put(tmp_path / "tables" / "__init__.py", "")
    put(tmp_path / "tables" / "found.py", HEAD + "TABLE = {'x': made('a'), 'y': made('a'), 'z': made('c')}\n")
    put(tmp_path / "tables" / "makes.py", HEAD + "def all():\n    return [made('b')]\n")
    take = "from tables.found import TABLE\nfrom tables.makes import all\ns = TABLE['y']\nstreams = all()\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    found = make_project(tmp_path, a=take).declarations()
    assert (sorted(found.streams), found.errors()) == (["a", "b"], [])


HELPER = (
    HEAD
    + """
import functools
kept = functools.lru_cache(made)
STREAMS = []
"""
)


@pytest.mark.parametrize(
    "text",
    [
        "import concurrent.futures as f\nwith f.ThreadPoolExecutor(2) as pool:\n    streams = [*pool.map(kept, 'ab')]",
        "streams = [kept(name) for name in 'ab']",
        "exec(\"streams = [kept(name) for name in 'ab']\")",
        "from kept_helper import STREAMS\nSTREAMS += [made('a'), made('b')]",
        "import kept_helper\nstreams = {'a': kept_helper.kept('a')}\nb = kept('b')",
    ],
)
def test_streams_that_nobody_sees_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """By threads, by another file before, or a version of this one that was imported first: what it keeps counts."""
    put(tmp_path / "kept_helper.py", HELPER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "kept_helper", raising=False)
    text = "from kept_helper import kept, made\n" + text
    for number in range(2):
        found = make_project(tmp_path, a=text + "\n" * number).declarations()
        assert (sorted(found.streams), found.errors()) == (["a", "b"], [])
        monkeypatch.setattr("kept_helper.STREAMS", [])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("s = made('a')\ns = made('b')", ["a"]),
        ("for name in 'abc':\n    s = made(name)", ["a", "b"]),
        ("def all():\n    made('a')\n    return made('b')\nb = all()", ["a"]),
        ("made('a')\nb = made('b')", ["a"]),
        ("s = made('a')\ndel s", ["a"]),
        ("class Streams:\n    a = made('a')", ["a"]),
        ("base = made('base')\nfor name in 'ab':\n    s = replace(base, name=name)", ["a"]),
        ("for name in 'ab':\n    base = made(name)\n    replace(base, name='of_' + name)", ["of_a", "of_b"]),
    ],
)
def test_streams_that_are_lost(tmp_path: Path, text: str, names: list[str]) -> None:
    """Bound anew, or thrown away: nobody runs them, and every one is told."""
    found = declare(tmp_path, text)
    assert lost(found) == names
    assert set(names) <= set(found.names)


@pytest.mark.parametrize(
    "text",
    [
        "a = replace(made('base'), name='a')",
        "s = made('base')\ns = replace(s, name='a')",
        "s = replace(replace(made('base'), name='between'), name='a')",
        "base = made('base')\nstreams = [replace(base, name=name) for name in 'bc']\ndel base",
        "a = made('a', sinks={'x': sinks.delta('o/x'), 'y': sinks.delta('o/y')})\nassert len(a.outputs) == 2",
        "from lib.factories import TEMPLATE, made_there\na = replace(TEMPLATE, name='a')\ndel TEMPLATE",
        "from lib.factories import made_there\na = made_there('a')",
        "import lib.factories\na = lib.factories.made_there('a')",
        "try:\n    made('no name at all')\nexcept Exception:\n    pass\na = made('a')",
    ],
)
def test_what_is_no_loss(tmp_path: Path, text: str) -> None:
    """Models of others, what a module makes for itself, what was refused: no word of them."""
    put(tmp_path / "lib" / "__init__.py")
    make = HEAD + "TEMPLATE = made('template')\nfor name in 'xyz':\n    made(name)\n\ndef made_there(name):\n"
    make += "    model = made('model')\n    return replace(model, name=name)\n"
    put(tmp_path / "lib" / "factories.py", make)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        patch.delitem(sys.modules, "lib.factories", raising=False)
        patch.delitem(sys.modules, "lib", raising=False)
        found = declare(tmp_path, text)
    assert found.errors() == []
    assert found.names


def test_the_place_and_the_remedy(tmp_path: Path) -> None:
    """The line of the file that has made it, also where a function of another module did; and what to do."""
    found = declare(tmp_path, "s = Stream(\n    **vars(made('x')) | {'name': 'a'})\ns = made('b')\n")
    error = found.unusable["x"].error
    assert error.problem == "stream `x` is made, and nothing at the top level of the file has it any more"
    assert error.where == f"{tmp_path}/declared/a.py:{MADE_AT}"
    assert error.remedy == "give it a name of its own there, or keep it in a list, tuple or dict"


def test_one_name_of_two_streams(tmp_path: Path) -> None:
    """The first one is lost by the second, which has its name: as where both are kept."""
    found = declare(tmp_path, "s = made('a')\ns = made('a', output_mode='append')")
    assert [error.problem for _, error in found.errors()] == ["stream `a` is declared twice"]
    assert found.usable() == {}


def test_one_stream_in_two_files(tmp_path: Path) -> None:
    """What a module has made, and two files import, is one stream."""
    put(tmp_path / "shared_streams.py", HEAD + "base = made('base')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        project = make_project(tmp_path, a="from shared_streams import base", b="from shared_streams import base")
        found = project.declarations()
        patch.delitem(sys.modules, "shared_streams")
    assert (list(found.streams), found.errors()) == (["base"], [])


def test_the_commands_tell(tmp_path: Path) -> None:
    """`list`, `check`, and whoever names the stream; the others are as they were."""
    project = make_project(tmp_path, a=HEAD + "s = made('a')\ns = made('b')\n")
    for command in (["list"], ["check", "--no-spark"]):
        ended = CliRunner().invoke(app, [*command, "--project", str(tmp_path)])
        assert "stream `a` is made, and nothing at the top level" in " ".join(ended.output.split()), command
        assert ended.exit_code == 2
    with pytest.raises(DeclarationError, match="nothing at the top level of the file has it"):
        project.stream("a")
    assert list(project.streams()) == ["b"]


def test_a_file_that_does_not_load_is_over(tmp_path: Path) -> None:
    """Whatever it made, nobody is told of what is made later."""
    found = declare(tmp_path, "s = made('a')\nraise ValueError('no')")
    assert list(found.unreadable) == [f"{tmp_path}/declared/a.py"]
    assert noticed_by.get() is None


def test_threads_notice_their_own(tmp_path: Path) -> None:
    """Pages load several projects at once."""
    for number in range(8):
        folder = tmp_path / str(number)
        make_project(folder, a=HEAD + f"s = made('lost{number}')\ns = made('kept{number}')\n")

    def names(number: int) -> tuple[str, ...]:
        return (
            make_project(tmp_path / str(number), a=HEAD + f"s = made('lost{number}')\ns = made('kept{number}')\n")
            .declarations()
            .names
        )

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(names, range(8))] == [(f"kept{number}", f"lost{number}") for number in range(8)]


def test_nothing_is_kept_of_what_is_made_otherwise(tmp_path: Path) -> None:
    """A triggerer goes on for weeks: streams that nobody has any more are gone."""
    with Makings.of(str(tmp_path / "a.py")) as makings:
        gone = weakref.ref(make_stream(name="a"))
    gc.collect()
    assert gone() is None
    assert makings.made == []
