"""What the command line answers to other tools' words names commands and options that there are."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import sluice
from sluice.cli.answers import COMMANDS, OPTIONS, answer_to_option
from sluice.cli.app import app
from sluice.other_names import FORMAT_WORDS, KIND_WORDS, SINK_WORDS, SOURCE_WORDS, STREAM_WORDS

REPOSITORY = Path(__file__).parents[3]

ROOT = typer.main.get_command(app)


def commands(group: object = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Every command that does something, with its options."""
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), {option for parameter in command.params for option in parameter.opts} | {"--help"}


KNOWN = dict(commands())
GROUPS = {path[:-1] for path in KNOWN if len(path) > 1}
ROOT_OPTIONS = {option for parameter in ROOT.params for option in parameter.opts} | {"--help"}


def wrong_in(text: str, own: set[str]) -> Iterator[str]:
    """What an answer names that is not there: a command, or an option that neither that one has nor the one typed."""
    rest = text
    for quoted in re.findall(r"`(sluice [^`]*)`", text):
        rest = rest.replace(f"`{quoted}`", "")
        words = quoted.split()[1:]
        path = next((tuple(words[:n]) for n in (2, 1) if tuple(words[:n]) in KNOWN), None)
        if path is None and tuple(words[:1]) not in GROUPS and words[0] not in ROOT_OPTIONS:
            yield quoted
        options = KNOWN.get(path or (), ROOT_OPTIONS)
        yield from (word for word in words if word.startswith("--") and word not in options)
    yield from (option for option in re.findall(r"--[a-z][a-z-]*", rest) if option not in own)


@pytest.mark.parametrize(
    ("group", "typed"), [(group, typed) for group, words in COMMANDS.items() for typed in words], ids=str
)
def test_commands(group: str, typed: str) -> None:
    """An answer to a command names commands that there are, and no command of ours is answered away."""
    path = () if group == "sluice" else (group,)
    assert (*path, typed) not in KNOWN
    assert (*path, typed) not in GROUPS
    assert list(wrong_in(COMMANDS[group][typed], set())) == []


@pytest.mark.parametrize("path", KNOWN, ids=" ".join)
def test_options(path: tuple[str, ...]) -> None:
    """An answer to an option names options of the command that was typed, or another command with its own."""
    answers = {typed: answer_to_option(typed, KNOWN[path]) for typed in OPTIONS}
    assert {typed: list(wrong_in(said, KNOWN[path])) for typed, said in answers.items() if said is not None} == {
        typed: [] for typed, said in answers.items() if said is not None
    }
    assert all(answers[typed] is None for typed in answers if typed in KNOWN[path])


def words() -> Iterator[tuple[str, str]]:
    tables = {"Stream": STREAM_WORDS, "source": SOURCE_WORDS, "sink": SINK_WORDS, "format": FORMAT_WORDS, **KIND_WORDS}
    yield from ((f"{place} {typed}", said) for place, table in tables.items() for typed, said in table.items())


@pytest.mark.parametrize(("typed", "said"), list(words()), ids=lambda text: text if len(text) < 40 else "")
def test_declarations(typed: str, said: str) -> None:
    """An answer to a name in a declaration names commands, options and names to import that there are."""
    assert list(wrong_in(said, set())) == []
    for module, name in re.findall(r"from (sluice[\w.]*) import (\w+)", said):
        file = REPOSITORY / ("plugins" if module.startswith("sluice_") else "include") / module.replace(".", "/")
        file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
        assert re.search(rf"(class|def|import) {name}\b|import .*\b{name}\b", file.read_text("utf-8"))
    for package, function in re.findall(r"`(sources|sinks)\.(\w+)", said):
        assert hasattr(getattr(sluice, package), function)
    for argument in re.findall(r"`Stream\((\w+)=", said):
        assert argument in {field.name for field in dataclasses.fields(sluice.Stream)}


def test_no_module_is_answered_away() -> None:
    """A name that is answered is no module of the package, which an import would look for in the same way."""
    modules = {file.stem for file in Path(sluice.__file__ or "").parent.iterdir()}
    assert modules & set(KIND_WORDS["sluice"]) == set()
    assert not hasattr(sluice, "anything_else")


def test_the_check_finds_what_is_wrong() -> None:
    """An option that the command lacks, a command that there is not, and an option that a named command lacks."""
    assert list(wrong_in("write it as --start", {"--until"})) == ["--start"]
    assert list(wrong_in("`sluice go STREAM` does it", set())) == ["sluice go STREAM"]
    assert list(wrong_in("`sluice plan STREAM --start TIME`", set())) == ["--start"]
