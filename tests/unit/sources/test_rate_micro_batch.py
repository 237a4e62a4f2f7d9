"""The generator of rows: what a run takes, and what an offset means, without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sluice import sources
from sluice.errors import DeclarationError, RefusedError
from sluice.sources.contract import Available, Bound, Position
from sluice.sources.rate_micro_batch import RateMicroBatchSource
from sluice.storage import Storage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TICKS = RateMicroBatchSource(rows_per_batch=10, start_ms=0, advance_ms=1000)


def available(
    offset: str | None = None, until_ms: int | None = None, source: RateMicroBatchSource = TICKS
) -> Available:
    until = None if until_ms is None else datetime.fromtimestamp(until_ms / 1000, UTC)
    return source.available(Position(offset), Bound(until), storage=Storage(), now=NOW)


def test_one_batch_a_run() -> None:
    """As Spark makes one at each trigger."""
    (step,) = available().steps
    assert (step.end, step.amount) == ('{"offset":10,"timestamp":1000}', {"rows": 10})
    (step,) = available(step.end).steps
    assert step.end == '{"offset":20,"timestamp":2000}'


@pytest.mark.parametrize(("until_ms", "batches"), [(0, 0), (999, 0), (1000, 1), (3500, 3), (10**12, 10_000)])
def test_a_bound_takes_the_batches_that_are_over_before_it(until_ms: int, batches: int) -> None:
    assert len(available(until_ms=until_ms).steps) == batches


def test_a_time_that_stands_still() -> None:
    """No bound is ever reached: one batch a run."""
    still = RateMicroBatchSource(rows_per_batch=1, start_ms=0, advance_ms=0)
    assert [step.end for step in available(until_ms=5, source=still).steps] == ['{"offset":1,"timestamp":0}']


@pytest.mark.parametrize(
    "offset", ["3", '{"logOffset":1}', '{"offset":11,"timestamp":1000}', '{"offset":10,"timestamp":999}', "[]"]
)
def test_an_offset_of_another_source(offset: str) -> None:
    """Also of one with other rows or times: they would be made otherwise a second time."""
    with pytest.raises(RefusedError) as caught:
        available(offset)

    assert caught.value.finding.code == "OFFSET_OF_ANOTHER_KIND"


@pytest.mark.parametrize(
    "other", [{"rows_per_batch": 5}, {"advance_ms": 500}, {"rows_per_batch": 20, "advance_ms": 2000}]
)
def test_other_numbers_than_the_rows_were_made_with(other: dict[str, int]) -> None:
    """Also where the offset would fit: what was made once would be made otherwise, and a backfill would replace it."""
    started_at = available().started_at
    assert started_at
    changed = replace(TICKS, **other)
    position = Position('{"offset":40,"timestamp":4000}', started_at=started_at)
    for look in (
        lambda: changed.available(position, Bound(), storage=Storage(), now=NOW),
        lambda: changed.slice(position, None, storage=Storage()),
        lambda: changed.check_inputs(position, '{"offset":40,"timestamp":4000}', storage=Storage()),
    ):
        with pytest.raises(RefusedError) as caught:
            look()
        assert caught.value.finding.code == "OFFSET_OF_ANOTHER_KIND"


def test_what_a_backfill_reads() -> None:
    taken = TICKS.slice(Position('{"offset":30,"timestamp":3000}'), None, storage=Storage())
    assert (taken.end, taken.amount) == ('{"offset":30,"timestamp":3000}', {"rows": 30})


def test_declared() -> None:
    declared = sources.rate_micro_batch(rows_per_batch=5, start_timestamp="2026-01-01", advance_millis_per_batch=0)
    assert (declared.rows_per_batch, declared.start_ms, declared.advance_ms) == (5, 1_767_225_600_000, 0)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"rows_per_batch": 0}, "`rows_per_batch` is 0"),
        ({"rows_per_batch": 1, "advance_millis_per_batch": -1}, "`advance_millis_per_batch` is -1"),
        ({"rows_per_batch": 1, "start_timestamp": "soon"}, "'soon'"),
        ({"rows_per_batch": 1, "start_timestamp": "latest"}, "'latest'"),
        ({"rows_per_batch": 1, "start_timestamp": "1969-12-31"}, "'1969-12-31'"),
        ({"rows_per_batch": 1, "rowsPerBatch": 2}, "rowsPerBatch"),
    ],
)
def test_declared_wrongly(given: dict[str, object], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        sources.rate_micro_batch(**given)  # type: ignore[arg-type]
