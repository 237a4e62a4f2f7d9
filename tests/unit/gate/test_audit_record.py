"""What a run is compared with: the figures of runs before it, as their records have them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from sluice.gate.audit_record import runs_before
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.quality.compile import compile_suite
from sluice.quality.judgement import judge_run
from sluice.runs.record import QualityRecord, RunRecord, RunRecords, new_run_id
from sluice.runs.summary import RecordedInterval
from sluice.storage import Storage
from tests.unit.quality.suites import suite

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
RULE = {"metric": "row_count", "last": 2, "max_value": 100}
PLAN = compile_suite(suite(history=[RULE]), "id INT")


def save(home: StreamHome, number: int, rows: int | None, interval: RecordedInterval | None = None) -> str:
    """The record of a run that brought so many rows, as it is judged; without a verdict when it is None."""
    at = NOW + timedelta(hours=number)
    judged = judge_run(PLAN, [{PLAN.rows: rows}], [], now=at)
    quality = QualityRecord(verdict=judged.verdict, checks=tuple(result.record for result in judged.results))
    record = RunRecord(run_id=new_run_id(at, None), stream="s", generation=1, planned_at=at, plan=PlanDocument(),
                       interval=interval, status="succeeded", quality=None if rows is None else quality)  # fmt: skip
    RunRecords(home).save(record)
    return record.run_id


def test_runs_before(tmp_path: Path) -> None:
    """The newest ones before this run, oldest first: no backfills, none without a verdict, none that came later."""
    home = StreamHome(str(tmp_path), Storage())
    for number, rows in enumerate((1, 2, 3)):
        save(home, number, rows)
    save(home, 3, 500, RecordedInterval(NOW, NOW + timedelta(days=1)))
    save(home, 4, None)
    this = save(home, 5, 6)
    save(home, 6, 7)

    assert runs_before(home, this, PLAN) == [{"row_count": 2}, {"row_count": 3}]
    assert runs_before(home, this, compile_suite(suite(), "id INT")) == []
