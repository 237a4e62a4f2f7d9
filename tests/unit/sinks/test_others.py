"""The sinks that keep nothing: console, foreach_batch, noop."""

from __future__ import annotations

from typing import Any

import pytest

from sluice import sinks
from sluice.errors import DeclarationError
from sluice.sinks.contract import Sink, SinkState
from sluice.storage import Storage
from sluice.surroundings import Surroundings
from tests.builders import QUERY_ID, make_stream

OTHERS = [sinks.console(), sinks.foreach_batch("jobs.visits:publish"), sinks.noop()]


@pytest.mark.parametrize("sink", OTHERS, ids=lambda sink: sink.kind)
def test_nothing_is_kept(sink: Sink) -> None:
    """They have no place, no memory of batches, and no way to refuse one that came before."""
    assert sink.location is None
    assert sink.state(QUERY_ID, storage=Storage()) == SinkState(exists=True)
    assert sink.outcome(QUERY_ID, 0, storage=Storage()) is None
    assert sink.resolved(Surroundings("/project")) is sink
    assert not sink.is_idempotent


@pytest.mark.parametrize("mode", ["append", "update", "complete"])
@pytest.mark.parametrize("sink", OTHERS, ids=lambda sink: sink.kind)
def test_every_output_mode(sink: Sink, mode: str) -> None:
    """They take every output mode."""
    assert make_stream(sink=sink, output_mode=mode).output_mode == mode


def test_kinds_are_told_apart() -> None:
    """Every sink has a kind of its own."""
    kinds = [sink.kind for sink in (*OTHERS, sinks.delta("a"), sinks.files("a", format="json"), sinks.memory())]

    assert sorted(kinds) == ["console", "delta", "files", "foreach_batch", "memory", "noop"]


def test_foreach_batch_function() -> None:
    """The function is named as the transform is, and known to who checks declarations."""
    assert sinks.foreach_batch("jobs.visits:publish").function == "jobs.visits:publish"
    assert sinks.noop().function is None


@pytest.mark.parametrize(
    "reference", ["publish", "jobs:", ":publish", "jobs.py:publish()", "jobs:a.b", "", None, print]
)
def test_foreach_batch_refuses(reference: Any) -> None:
    """What is no `module:function` is refused."""
    with pytest.raises(DeclarationError) as caught:
        sinks.foreach_batch(reference)

    assert caught.value.where == "sinks.foreach_batch()"


@pytest.mark.parametrize("num_rows", [0, -1, "20", True])
def test_console_rows(num_rows: Any) -> None:
    """The number of rows is a whole number above 0."""
    with pytest.raises(DeclarationError):
        sinks.console(num_rows=num_rows)


def test_console_defaults() -> None:
    """As Spark, 20 rows with long values cut."""
    assert (sinks.console().num_rows, sinks.console().truncate) == (20, True)
