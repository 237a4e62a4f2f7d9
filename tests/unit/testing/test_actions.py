"""What a bench refuses before it starts Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice import sinks
from sluice.errors import DeclarationError
from sluice.testing import Bench
from tests.builders import make_stream

WRONG: dict[str, Callable[[Any], object]] = {
    "there is no source `x`": lambda bench: bench.add("x", []),
    "there is no moment 'later' [bench.crash(at=...)]; there are:": lambda bench: bench.crash(at="later"),
    'did you mean "after the plan"?': lambda bench: bench.crash(at="after plan"),
    "a sink of noop commits nothing": lambda bench: bench.crash(at="before the sink's commit"),
    "nothing was cut off": lambda bench: bench.restart(),
    "it has no suite": lambda bench: bench.check_quarantine([]),
    "there is no `side` [bench.check_state()]; there are: join_side": lambda bench: bench.check_state([], side="left"),
    "by a time that passes, or to one": lambda bench: bench.advance(),
    "'soon' is no time that passes": lambda bench: bench.advance("soon"),
    "'soon' is no time [until]": lambda bench: bench.run(until="soon"),
    "'x' is no time [until]; write ISO": lambda bench: bench.check_error(until="x"),
}


@pytest.mark.parametrize("message", WRONG)
def test_bad_calls(tmp_path: Path, message: str) -> None:
    """One message, which says where and what to do; nothing is noted as done."""
    bench = Bench(tmp_path).open(make_stream(sink=sinks.noop()))
    with pytest.raises(DeclarationError) as caught:
        WRONG[message](bench)
    assert message in str(caught.value)
    assert len(bench._shared.history) == 1


def test_nothing_is_open(tmp_path: Path) -> None:
    """Every action needs a stream."""
    for act in (lambda bench: bench.run(), lambda bench: bench.add("a", []), lambda bench: bench.check_watermark(None)):
        with pytest.raises(DeclarationError, match="no stream is open"):
            act(Bench(tmp_path))


def test_a_watermark_that_is_not_there(tmp_path: Path) -> None:
    """Before the first run there is none, and a check says what was done so far."""
    bench = Bench(tmp_path).open(make_stream(), now="2026-02-01")
    bench.advance("1 hour")
    bench.check_watermark(None)
    with pytest.raises(AssertionError) as caught:
        bench.check_watermark("2026-01-01T09:00")
    assert str(caught.value).splitlines() == [
        "`visits`: the watermark is another one",
        "  - 2026-01-01T09:00:00.000Z",
        "  + None",
        "what was done:",
        "  1. open `visits` at 2026-02-01T00:00:00.000Z",
        "  2. it is 2026-02-01T01:00:00.000Z",
        "  3. check the watermark: None",
        "  4. check the watermark: 2026-01-01T09:00:00.000Z",
    ]
