"""What quality says of a stream: how far its newest judged run reached, and what it says nothing of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.gate.outcome import QualityOutcome, quality_outcome
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.runs.record import BatchRecord, QualityRecord, RunRecord, RunRecords, new_run_id
from sluice.runs.summary import RecordedInterval
from sluice.storage import Storage

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
UNTIL = NOW - timedelta(hours=1)


@pytest.fixture
def home(tmp_path: Path) -> StreamHome:
    return StreamHome(str(tmp_path / "home"), Storage())


def save(home: StreamHome, number: int = 0, *, batches: int = 1, kind: str = "data", **changes: Any) -> str:
    """A judged run with so many batches."""
    at = NOW + timedelta(minutes=number)
    done = tuple(
        BatchRecord(batch_id=batch_id, kind=kind, input_rows=1, output_rows=1, watermark=None)
        for batch_id in range(batches)
    )
    record = RunRecord(run_id=new_run_id(at, None), stream="s", generation=1, planned_at=at, plan=PlanDocument(),
                       batches=done,
                       **{"status": "succeeded", "quality": QualityRecord(verdict="pass")} | changes)  # fmt: skip
    RunRecords(home).save(record)
    return record.run_id


def outcome(home: StreamHome) -> QualityOutcome:
    found = quality_outcome(home)
    assert found is not None
    return found


def test_a_run_reaches_its_bound(home: StreamHome) -> None:
    """Without one, the moment at which it looked."""
    save(home)
    assert outcome(home).reaches == NOW
    save(home, 1, until=UNTIL)

    assert outcome(home).reaches == UNTIL
    assert outcome(home).has_reached(UNTIL)
    assert not outcome(home).has_reached(NOW)


def test_a_run_does_not_reach_what_is_yet_to_come(home: StreamHome) -> None:
    """A bound in the future takes what is there, as no bound does: what arrives after the look is not judged."""
    save(home, until=NOW + timedelta(days=3650))

    assert outcome(home).reaches == NOW
    assert not outcome(home).has_reached(NOW + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("batches", "kind", "limits", "reaches"),
    [
        (2, "data", {"max_batches": 2}, False),
        (2, "data", {"max_batches": 3}, True),
        (2, "uncommitted", {"max_batches": 2}, False),
        (2, "no_data", {"max_batches": 2}, True),
        (1, "data", {"to_version": 7}, False),
        (1, "data", {"to_version": 7, "max_batches": 9}, False),
    ],
)
def test_a_run_with_a_limit(
    home: StreamHome, batches: int, kind: str, limits: dict[str, int], *, reaches: bool
) -> None:
    """One that may have left something has judged no moment, until somebody looks and finds nothing new."""
    save(home, batches=batches, kind=kind, until=UNTIL, **limits)

    assert outcome(home).reaches == (UNTIL if reaches else None)
    assert outcome(home).has_reached(UNTIL) is reaches
    assert outcome(home).has_reached(None)
    home.keep_skip("nothing new", NOW, until=NOW)
    assert outcome(home).has_reached(NOW)


def test_what_does_not_count(home: StreamHome) -> None:
    """Backfills, runs without a suite, and runs that broke off."""
    assert quality_outcome(home) is None
    counted = save(home)
    save(home, 1, interval=RecordedInterval(UNTIL, NOW))
    save(home, 2, quality=None)
    save(home, 3, status="failed")
    save(home, 4, status="stopped")
    assert outcome(home).run_id == counted

    failed = save(home, 5, status="failed", quality=QualityRecord(verdict="fail"))

    assert (outcome(home).run_id, outcome(home).standing) == (failed, "fail")
