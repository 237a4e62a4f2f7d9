"""Where the rows of a run went, told by its record."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.runs.balance import balance_of, broken_balance
from sluice.runs.record import BackfillRecord, BatchRecord, QualityRecord, RunRecord
from sluice.runs.summary import RecordedInterval
from tests.unit.runs.test_record import make_record

INTERVAL = RecordedInterval("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")


def record(*batches: dict[str, Any], **changes: Any) -> RunRecord:
    made = tuple(
        BatchRecord(
            **{"batch_id": number, "kind": "data", "input_rows": 9, "output_rows": 6, "watermark": None} | found
        )
        for number, found in enumerate(batches)
    )
    return make_record("20260131T120000000Z-0f1e2d3c", batches=made, **changes)


def test_a_run_in_balance() -> None:
    found = balance_of(
        record(
            {"result_rows": 9, "quarantined_rows": 1, "dropped_rows": 2, "unmatched_rows": 0},
            {"unmatched_rows": 3},
            {"input_rows": None, "output_rows": 5, "was_in_sink": True},
        )
    )
    assert found is not None
    assert (found.text, found.is_broken) == (
        "18 rows read = 12 published + 1 put into quarantine + 2 dropped + 3 not matched by the transform",
        False,
    )


def test_what_is_not_known() -> None:
    """It is said that it is not; and a run that has read nothing has no balance."""
    found = balance_of(record({"result_rows": 7, "dropped_rows": 1}, {"unmatched_rows": 3}))
    assert found is not None
    assert found.text == (
        "18 rows read; 13 made of them = 12 published + 0 put into quarantine + 1 dropped; what the transform left out"
        " is not known"
    )
    unknown = balance_of(record({"output_rows": None}))
    assert unknown is not None
    assert unknown.text.startswith("9 rows read; ? made of them = ? published")
    assert balance_of(record()) is None


@pytest.mark.parametrize(
    "broken",
    [
        {"result_rows": 7},
        {"result_rows": 5},
        {"unmatched_rows": 0},
        {"result_rows": 6, "unmatched_rows": 0},
        {"result_rows": 7, "quarantined_rows": 1, "unmatched_rows": 0},
    ],
)
def test_a_run_out_of_balance(broken: dict[str, Any]) -> None:
    """The batches are named."""
    problem = broken_balance(record({"unmatched_rows": 3}, broken))
    assert problem is not None
    assert "\u2260 12 published" in problem.cause
    assert problem.cause.endswith(": batch 1 not in balance")
    assert broken_balance(record({"unmatched_rows": 3})) is None


@pytest.mark.parametrize(("written", "is_broken"), [(4, False), (3, True), (5, True)])
def test_a_backfill(written: int, *, is_broken: bool) -> None:
    quality = QualityRecord(verdict="warn", rows=7, dropped=1, quarantined=2)
    backfill = BackfillRecord(attempt=1, version=3, rows_written=written)
    found = balance_of(record(interval=INTERVAL, quality=quality, backfill=backfill))
    assert found is not None
    assert (found.is_broken, "\u2260" in found.text) == (is_broken, is_broken)
    assert found.text.startswith("7 rows of the interval")
    assert balance_of(record(interval=INTERVAL, backfill=backfill)) is None
