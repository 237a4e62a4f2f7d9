"""What a stream is declared with: frozen, checked at once."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluice import sinks, sources
from sluice.checkpoint.source_log import LogEntry, SourceLog
from sluice.declaration_checks import check_limit
from sluice.errors import DeclarationError
from sluice.interval import Interval
from sluice.sources.contract import parse_starting
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
        ({"transform": print}, "`transform` is the function itself"),
        ({"sink": "data/lake"}, "`sink` is 'data/lake'"),
        ({"quality": " "}, "`quality` is ' '"),
        ({"quality": ["a.json"]}, "`quality` is ['a.json']"),
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

    assert caught.value.remedy.startswith(f"use one of: {', '.join(sink.output_modes)}")


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


class TestBackfillDeclaration:
    """`interval_column` and `lateness`."""

    def test_declared(self) -> None:
        """A stream into a Delta table can be backfilled once it names the column."""
        stream = make_stream(interval_column="day", lateness="3 days")
        assert stream.backfill_obstacle is None
        assert stream.lateness_time == timedelta(days=3)
        assert make_stream(interval_column="day").lateness_time is None

    @pytest.mark.parametrize(
        ("changes", "told"),
        [
            ({}, "declares no `interval_column`"),
            ({"sink": sinks.files("out", format="json")}, "a files sink can't replace"),
            ({"output_mode": "complete"}, "the next batch of the live stream writes all rows anew"),
        ],
    )
    def test_obstacles(self, changes: dict[str, Any], told: str) -> None:
        """A declaration that does not support a backfill says why, without anything being read."""
        assert told in (make_stream(**changes).backfill_obstacle or "")

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"interval_column": ""}, "`interval_column` is ''"),
            ({"interval_column": 3}, "`interval_column` is 3"),
            ({"interval_column": "day", "sink": sinks.noop()}, "`interval_column` is set, but a noop sink"),
            ({"interval_column": "day", "output_mode": "complete"}, "`interval_column` is set, but in output mode"),
            (
                {"interval_column": "day", "sources": {"changes": sources.delta("in", read_change_feed=True)}},
                "`interval_column` is set, but a change feed can't be read again as the stream has read it",
            ),
            ({"lateness": "3 days"}, "`lateness` is set without `interval_column`"),
            ({"interval_column": "day", "lateness": "3"}, "`lateness` is '3'"),
            ({"interval_column": "day", "lateness": 3}, "`lateness` is 3"),
        ],
    )
    def test_refused(self, changes: dict[str, Any], problem: str) -> None:
        """A bad value, or one that can't be kept, is an error of the declaration."""
        with pytest.raises(DeclarationError) as caught:
            make_stream(**changes)
        assert caught.value.problem.startswith(problem)

    def test_interval(self) -> None:
        """An interval has two times with a zone, in order, and is exclusive at its end."""
        day = [datetime(2026, 1, number, tzinfo=UTC) for number in range(1, 4)]
        assert not Interval(day[0], day[1]).overlaps(Interval(day[1], day[2]))
        assert Interval(day[0], day[2]).overlaps(Interval(day[1], day[2]))
        for start, end in ((day[1], day[1]), (day[1], day[0]), (datetime(2026, 1, 1), day[1])):  # noqa: DTZ001
            with pytest.raises(DeclarationError):
                Interval(start, end)

    @pytest.mark.parametrize(
        ("kind", "first", "last"),
        [
            ("date", "DATE'2026-01-01'", "DATE'2026-01-02'"),
            ("timestamp", "TIMESTAMP'2026-01-01 00:00:00.000000 UTC'", "TIMESTAMP'2026-01-02 00:00:00.000000 UTC'"),
            ("timestamp_ntz", "TIMESTAMP_NTZ'2026-01-01 00:00:00.000000'", "TIMESTAMP_NTZ'2026-01-02 00:00:00.000000'"),
        ],
    )
    def test_condition(self, kind: str, first: str, last: str) -> None:
        """The rows of an interval in SQL, by the column's type."""
        interval = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
        assert interval.condition("at", kind) == f"`at` >= {first} AND `at` < {last}"

        first_year = Interval(datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
        told = first.replace("2026", "0001")
        assert first_year.condition("at", kind) == f"`at` >= {told} AND `at` < {last}"
