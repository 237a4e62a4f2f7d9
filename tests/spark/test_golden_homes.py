"""Homes that earlier versions wrote (see `tests/golden_homes/record.py`), gone on with: each row is there once."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sluice.auditing.return_rows import return_rows
from sluice.errors import RefusedError
from sluice.gate.state import release_gate
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecord, RunRecords
from sluice.times import system_clock
from tests.golden_homes.unpacking import ARCHIVES, NAMES, GoldenHome, unpack

pytestmark = pytest.mark.spark

_DAY = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


@pytest.fixture(params=ARCHIVES, ids=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoldenHome:
    """One of them, unpacked."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "golden_transforms", raising=False)
    return unpack(request.param, tmp_path)


def go_on(golden: GoldenHome, spark: SparkSession) -> RunRecord:
    """What a person does about the state that the home is in; then one more file arrives, and the stream runs."""
    project, stream = golden.project, golden.stream
    if golden.name == "held":
        release_gate(golden.home, "somebody", system_clock())
    if golden.name in {"held", "stopped"}:
        suite = golden.root / "suite.json"
        suite.write_text(re.sub(r'"max_value": \d+', '"max_value": 1000', suite.read_text("utf-8")))
    if golden.name == "backfill_replaced":
        backfill_stream(project, BackfillRequest(stream, _DAY, "a backfill"), session=spark)
    if golden.name == "release_sent":
        return_rows(project, stream, None, "somebody", session=spark)
    run_stream(project, Request(stream, Limits()), session=spark)
    first = golden.expected["arrived"]
    rows = [
        {"n": n, "bad": n % 4 == 3, "day": "2026-01-01", "at": "2026-01-02T00:00:00Z"} for n in range(first, first + 4)
    ]
    file = golden.root / "in" / f"{first:04d}.json"
    file.write_text("\n".join(map(json.dumps, rows)))
    os.utime(file, (1_767_300_000, 1_767_300_000))
    return run_stream(project, Request(stream, Limits()), session=spark)


def test_every_row_is_there_once(golden: GoldenHome, spark: SparkSession) -> None:
    """Also those of a run, a backfill or a release that the version before was killed in."""
    if golden.name == "split" and golden.version == "2026-11-22":
        # That version kept no decision, and nothing is decided twice.
        with pytest.raises(RefusedError, match="what was decided is gone"):
            go_on(golden, spark)
        return
    record = go_on(golden, spark)

    assert record.status == "succeeded"
    arrived = list(range(golden.expected["arrived"] + 4))
    if golden.name == "windows":
        rows = DeltaTable(str(golden.root / "out")).to_pyarrow_table().to_pylist()
        assert sum(row["rows"] for row in rows) == golden.expected["arrived"]
        assert len({row["window"]["start"] for row in rows}) == len(rows)
    elif golden.name == "held":
        found = spark.read.schema("n bigint").json(str(golden.root / "out")).collect()
        assert sorted(row["n"] for row in found) == arrived
    else:
        quarantine = _numbers(golden.root / "out_quarantine")
        assert sorted(_numbers(golden.root / "out") + quarantine) == arrived
        assert all(n % 4 == 3 for n in quarantine)
    closed = {run.status for run in RunRecords(golden.home).newest(20)}
    assert closed <= {"succeeded", "failed"}


def _numbers(table: Path) -> list[int]:
    if not (table / "_delta_log").exists():
        return []
    return list(DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist())
