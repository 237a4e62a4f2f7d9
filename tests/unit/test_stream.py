"""What a stream is declared with: frozen, checked at once."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from sluice import sinks
from sluice.errors import DeclarationError
from sluice.stream import LogEntry, SourceLog, check_limit, parse_starting
from tests.builders import make_files_source, make_stream


def test_declaration() -> None:
    """A stream has the declared fields, and appends unless it says otherwise."""
    stream = make_stream()

    assert stream.name == "visits"
    assert stream.output_mode == "append"
    assert stream.checkpoint is None


def test_frozen() -> None:
    """A declaration does not change after it was made."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_stream().name = "other"


@pytest.mark.parametrize("name", ["visits", "V", "a-b_c9", "a" * 100])
def test_good_names(name: str) -> None:
    """Letters, digits, `_` and `-` make a name."""
    assert make_stream(name=name).name == name


@pytest.mark.parametrize("name", ["", "9visits", "-a", "a b", "a/b", "..", "ü", "a" * 101, "a\n", None, 5])
def test_bad_names(name: Any) -> None:
    """A name that could not be a folder everywhere is refused."""
    with pytest.raises(DeclarationError) as caught:
        make_stream(name=name)

    assert caught.value.problem == f"`name` is {name!r}"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sources": {}}, "`sources` is empty or not a mapping"),
        ({"sources": ["visits"]}, "`sources` is empty or not a mapping"),
        ({"sources": {"visits": "data/visits"}}, "source `visits` is 'data/visits'"),
        ({"sources": {"a-b": make_stream().sources["visits"]}}, "source name 'a-b' can't be a parameter name"),
        ({"sources": {"": make_stream().sources["visits"]}}, "source name '' can't be a parameter name"),
        ({"sources": {1: make_stream().sources["visits"]}}, "source name 1 can't be a parameter name"),
        ({"transform": "jobs.visits"}, "`transform` is 'jobs.visits'"),
        ({"transform": "jobs/visits.py:visits"}, "`transform` is 'jobs/visits.py:visits'"),
        ({"transform": print}, "`transform` is <built-in function print>"),
        ({"sink": "data/lake"}, "`sink` is 'data/lake'"),
    ],
)
def test_bad_fields(changes: dict[str, Any], problem: str) -> None:
    """A field that is not what it must be is refused, and the message names the stream."""
    with pytest.raises(DeclarationError) as caught:
        make_stream(**changes)

    assert caught.value.problem == problem
    assert caught.value.where == "stream `visits`"


@pytest.mark.parametrize(
    ("sink", "mode"),
    [
        (sinks.delta("lake"), "update"),
        (sinks.files("out", format="json"), "complete"),
        (sinks.console(), "sideways"),
    ],
)
def test_output_mode_that_the_sink_does_not_take(sink: Any, mode: str) -> None:
    """The sink decides which output modes there are."""
    with pytest.raises(DeclarationError) as caught:
        make_stream(sink=sink, output_mode=mode)

    assert caught.value.remedy == f"use one of: {', '.join(sink.output_modes)}"


@pytest.mark.parametrize("value", [None, 1, 10**12])
def test_good_limits(value: int | None) -> None:
    """A limit is a whole number above 0, or left out."""
    check_limit(value, "max_files_per_batch", "here")

    assert make_files_source("in", max_files_per_batch=value).max_files_per_batch == value


@pytest.mark.parametrize("value", [0, -1, 1.5, "5", True])
def test_bad_limits(value: Any) -> None:
    """Anything else is refused by name."""
    with pytest.raises(DeclarationError) as caught:
        check_limit(value, "max_files_per_batch", "here")

    assert caught.value.problem == f"`max_files_per_batch` is {value!r}"
    assert caught.value.where == "here"


@pytest.mark.parametrize(
    ("value", "starting"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00:00-05:00", datetime(2026, 1, 31, 17, tzinfo=UTC)),
        (datetime(2026, 1, 31, 12), datetime(2026, 1, 31, 12, tzinfo=UTC)),  # noqa: DTZ001 - what users write
    ],
)
def test_parse_starting(value: str | datetime, starting: object) -> None:
    """A start is a word or a time, UTC unless it names a zone."""
    assert parse_starting(value, "here") == starting


@pytest.mark.parametrize("value", ["newest", "", None, 5, "2026-02-30"])
def test_bad_starting(value: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(DeclarationError) as caught:
        parse_starting(value, "here")

    assert caught.value.problem == f"`starting` is {value!r}"


def test_source_log() -> None:
    """A log gives the paths that were taken, and what a range of ids took."""
    log = SourceLog(2, [LogEntry("file:///a", 1, 0), LogEntry("file:///b", 2, 1), LogEntry("file:///c", 3, 2)])

    assert log.paths == {"file:///a", "file:///b", "file:///c"}
    assert [entry.path for entry in log.taken(1, 2)] == ["file:///b", "file:///c"]
    assert log.taken(3, 9) == ()
