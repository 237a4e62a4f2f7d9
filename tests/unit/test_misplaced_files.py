"""Files that are something else than they should be, or somewhere else: one message with place and remedy each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import put
from tests.unit.test_mistakes import DECLARES, TRANSFORMS, of_command

Change = Callable[[Path], object]


def text(name: str, content: str | bytes) -> Change:
    return lambda root: put(root / name, content)


def declared(code: str) -> Change:
    return text("streams/s.py", f"{DECLARES}{code}\n")


def without(name: str, change: Change = lambda _: None) -> Change:
    def act(root: Path) -> None:
        place = root / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        change(root)

    return act


def folder(name: str) -> Change:
    return lambda root: (root / name).mkdir(parents=True)


def both(*changes: Change) -> Change:
    return lambda root: [change(root) for change in changes]


def link(name: str, target: str) -> Change:
    return lambda root: os.symlink(target, root / name)


NONE = (
    "exit 2: error: there is no stream `visits` | where: DIR/streams |"
    " what to do: no file there declares one: write `NAME = Stream(...)` at the top level of a .py file"
)
NO_PROJECT = (
    "exit 2: error: no sluice.toml here or in a folder above | where: DIR |"
    " what to do: run `sluice init DIR` to make a project"
)
IN_THE_WAY = (
    "exit 2: error: a file is where a folder should be | where: the {} of DIR/streams/s.py:6: stream `visits`: {}"
)
MOVE = " | what to do: move the file, or correct the path"
NOTHING = "`: a call of it runs nothing | where: DIR/shop/v.py:{} | what to do: make it a plain function"
SUITE = 'visits = Stream(**BASE, quality="s.json")'

CASES: dict[str, tuple[Change, str]] = {
    "the project's file is a folder": (without("sluice.toml", folder("sluice.toml")), NO_PROJECT),
    "the project's file leads in a circle": (without("sluice.toml", link("sluice.toml", "sluice.toml")), NO_PROJECT),
    "the project's file is UTF-16": (
        text("sluice.toml", "[project]\n".encode("utf-16")),
        "exit 2: error: the file is no UTF-8 | where: DIR/sluice.toml | what to do: save it as UTF-8",
    ),
    "the project's file is Latin-1": (
        text("sluice.toml", "[project]\nname = 'caf\xe9'\n".encode("latin-1")),
        "exit 2: error: the file is no UTF-8 | where: DIR/sluice.toml | what to do: save it as UTF-8",
    ),
    "home of Windows": (
        text("sluice.toml", "[project]\nhome = 'C:\\Users\\me'\n"),
        (
            "exit 2: error: 'C:\\\\Users\\\\me' is a path of Windows | where: DIR/sluice.toml |"
            " what to do: give one of this machine"
        ),
    ),
    "home with a tilde": (
        text("sluice.toml", "[project]\nhome = '~/sluice'\n"),
        (
            "exit 2: error: the path '~/sluice' begins with `~` | where: DIR/sluice.toml |"
            " what to do: write it as ${HOME}/sluice"
        ),
    ),
    "home with a bare variable": (
        text("sluice.toml", "[project]\nhome = '$HOME/sluice'\n"),
        (
            "exit 2: error: the path '$HOME/sluice' names a variable without braces | where: DIR/sluice.toml |"
            " what to do: write it as ${HOME}/sluice"
        ),
    ),
    "home is a file": (
        both(text("sluice.toml", "[project]\nhome = 'h'\n"), text("h", "")),
        IN_THE_WAY.format("home", "DIR/h") + MOVE,
    ),
    "home is below a file": (
        both(text("sluice.toml", "[project]\nhome = 'h/x/y'\n"), text("h", "")),
        IN_THE_WAY.format("home", "DIR/h") + MOVE,
    ),
    "the checkpoint is a file": (
        declared('visits = Stream(**BASE, checkpoint="landing/a.json")'),
        IN_THE_WAY.format("checkpoint", "DIR/landing/a.json") + MOVE,
    ),
    "the folder of declarations is a file": (
        without("streams", text("streams", "")),
        (
            "exit 2: error: the folder of declarations does not exist | where: DIR/streams |"
            " what to do: create it, or correct `streams` in sluice.toml"
        ),
    ),
    "the folder of declarations is empty": (without("streams/s.py"), NONE),
    "a declaration in YAML": (without("streams/s.py", text("streams/visits.yml", "name: visits")), NONE),
    "a declaration in a notebook": (without("streams/s.py", text("streams/visits.ipynb", "{}")), NONE),
    "a declaration that is bound anew": (
        declared("s = Stream(**BASE)\ns = Stream(**BASE | {'name': 'other'})"),
        (
            "exit 2: error: stream `visits` is made, and nothing at the top level of the file has it any more | where:"
            " DIR/streams/s.py:6 | what to do: give it a name of its own there, or keep it in a list, tuple or dict"
        ),
    ),
    "a declaration in a function": (declared("def make():\n    return Stream(**BASE)"), NONE),
    "a declaration is a folder": (
        without("streams/s.py", folder("streams/s.py")),
        (
            "exit 2: error: there is no stream `visits` in the files that load, and one does not: the declaration does"
            " not import: IsADirectoryError: [Errno 21] Is a directory:"
            " 'DIR/streams/s.py' | where: DIR/streams/s.py | what to do: correct it; `sluice check` shows every problem"
        ),
    ),
    "a copy of a declaration": (
        lambda root: shutil.copy(root / "streams" / "s.py", root / "streams" / "s (copy).py"),
        (
            "exit 2: error: stream `visits` is declared twice | where: DIR/streams/s (copy).py:6 and"
            " DIR/streams/s.py:6 |"
            " what to do: give one of them another name"
        ),
    ),
    "the transform's module is a folder": (
        without("shop/v.py", folder("shop/v.py")),
        (
            "exit 2: error: there is no module `shop.v` | where: DIR/streams/s.py:6: transform"
            " `shop.v:visits`, import roots"
            " DIR | what to do: create it, or correct the reference, or `path` in sluice.toml"
        ),
    ),
    "the transform is async": (
        text("shop/v.py", "\nasync def visits(visits):\n    return visits\n"),
        "exit 2: error: `shop.v:visits` is `async`, or has `yield" + NOTHING.format(2),
    ),
    "the transform yields": (
        text("shop/v.py", "def visits(visits):\n    if visits:\n        yield visits\n"),
        "exit 2: error: `shop.v:visits` is `async`, or has `yield" + NOTHING.format(1),
    ),
    "the function of the sink yields": (
        both(
            text("shop/v.py", f"def keep(frame, batch_id):\n    yield frame\n\n{TRANSFORMS}"),
            declared('visits = Stream(**BASE | {"sink": sinks.foreach_batch("shop.v:keep")})'),
        ),
        "exit 2: error: `shop.v:keep` is `async`, or has `yield" + NOTHING.format(1),
    ),
    "the suite is UTF-16": (
        both(declared(SUITE), text("s.json", "{}".encode("utf-16"))),
        "exit 2: error: the suite is no UTF-8 | where: DIR/s.json | what to do: save it as UTF-8",
    ),
    "the suite is empty": (
        both(declared(SUITE), text("s.json", "")),
        "exit 2: error: the suite is empty | where: DIR/s.json | what to do: write it as Great Expectations does",
    ),
    "the suite has comments": (
        both(declared(SUITE), text("s.json", '{"name": "s", // ours\n"expectations": []}')),
        (
            "exit 2: error: the suite does not parse: JSON is malformed: object keys must be strings (byte 14) |"
            " where: DIR/s.json | what to do: write it as Great Expectations does"
        ),
    ),
    "the landing folder leads nowhere": (
        without("landing", link("landing", "gone")),
        (
            "exit 2: error: the source's path does not exist | where: DIR/streams/s.py:6: stream `visits`,"
            " source `visits`:"
            " DIR/landing | what to do: create the folder, or correct the path"
        ),
    ),
    "the landing folder leads in a circle": (
        without("landing", link("landing", "landing")),
        (
            "exit 1: error: source `visits` could not be read: could not list it: Too many levels of symbolic links |"
            " where: DIR/streams/s.py:6: stream `visits`, DIR/landing | what to do: mend it and try again; if"
            " only Spark can"
            " read it, `--strategy drain` leaves the batches to Spark"
        ),
    ),
    "the landing folder is where only Spark reads": (
        declared('visits = Stream(**BASE | {"sources": {"visits": sources.files("hdfs://n/x", **JSON)}})'),
        (
            "exit 1: error: source `visits` could not be read: `hdfs:` can be read by Spark only |"
            " where: DIR/streams/s.py:6: stream `visits`, hdfs://n/x | what to do: mend it and try again; if"
            " only Spark can"
            " read it, `--strategy drain` leaves the batches to Spark"
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sluice plan` names what is wrong, where, and what to do."""
    change, said = CASES[name]
    found = of_command(tmp_path, "plan visits", monkeypatch, capsys, change)
    assert found.replace(str(tmp_path), "DIR") == said


AS_WELL: dict[str, Change] = {
    "a mark at the beginning of every file": both(
        text("sluice.toml", b"\xef\xbb\xbf[project]\r\nname = 'p'\r\n"),
        text("shop/v.py", b"\xef\xbb\xbf" + TRANSFORMS.encode()),
        text("s.json", b'\xef\xbb\xbf{"name": "s", "expectations": []}'),
        text("streams/s.py", b"\xef\xbb\xbf" + f"{DECLARES}{SUITE}\n".encode()),
    ),
    "lines of Windows": text("streams/s.py", f"{DECLARES}visits = Stream(**BASE)\n".replace("\n", "\r\n")),
    "a name that is none of Python's": lambda root: (root / "streams" / "s.py").rename(root / "streams" / "my s-1.py"),
    "an editor's lock": link("streams/.#s.py", "me@host.1"),
    "functions that yield inside": text(
        "shop/v.py", "def visits(visits):\n    def rows():\n        yield 1\n    return visits\n"
    ),
}


@pytest.mark.parametrize("name", AS_WELL)
def test_what_is_taken(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What editors and systems leave is no mistake."""
    assert of_command(tmp_path, "plan visits", monkeypatch, capsys, AS_WELL[name]) == "exit 0: "


@pytest.mark.parametrize("place", ["landing/a.json", "landing/a.json/x"])
def test_a_new_project_below_a_file(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no folder that is full."""
    said = of_command(tmp_path, f"init {place}", monkeypatch, capsys)
    where = "where: landing/a.json | what to do: name another one"
    assert said == f"exit 2: error: a file is where the folder should be | {where}"
