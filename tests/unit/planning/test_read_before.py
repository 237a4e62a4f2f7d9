"""What a stream had read by a time, by what was written then."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.checkpoint.reader import read_checkpoint
from sluice.home import SourceLine, StreamHome
from sluice.plan_document import BatchDocument, PlanDocument, RangeDocument
from sluice.planning.read_before import read_before
from sluice.planning.survey import Survey
from sluice.runs.record import RunRecord, RunRecords, new_run_id
from sluice.runs.summary import RecordedInterval
from sluice.storage import Storage
from sluice.times import iso_time
from tests.builders import NOW_MS, make_checkpoint, make_stream

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> StreamHome:
    """Three batches, an hour apart from noon on; the clock of their files stands still, as that of retries does."""
    home = StreamHome(str(tmp_path / "home"), Storage())
    checkpoint = make_checkpoint(tmp_path / "home" / "generations" / "0001")
    for batch_id in range(3):
        written = (NOON + timedelta(hours=batch_id)).timestamp()
        os.utime(checkpoint / "offsets" / str(batch_id), (written, written))
    assert NOON.timestamp() * 1000 > NOW_MS
    return home


def look(home: StreamHome) -> Survey:
    checkpoint = read_checkpoint(home.checkpoint_location(1), storage=home.storage)
    return Survey(make_stream(), 1, None, checkpoint, (SourceLine("visits", "0"),), {}, {}, {})


def known(home: StreamHome, hours: float, source: str = "visits") -> list[str]:
    return list(read_before(look(home), home, source, NOON + timedelta(hours=hours)))


def keep_record(home: StreamHome, hours: float, *ends: Any, **changes: Any) -> None:
    """A record of a run that took half an hour."""
    begun = NOON + timedelta(hours=hours)
    batches = [BatchDocument(batch_id=number, sources={"visits": RangeDocument(end=end)}) for number, end in ends]
    record = {
        "run_id": new_run_id(begun, None), "stream": "s", "generation": 1, "planned_at": begun, "status": "succeeded",
        "plan": PlanDocument(batches=tuple(batches)), "ended_at": iso_time(begun + timedelta(minutes=30)),
    }  # fmt: skip
    RunRecords(home).save(RunRecord(**record | changes))


def test_the_offset_log(home: StreamHome) -> None:
    """The newest batch whose file is older counts, whichever clock the batch bears."""
    logged = {hours: known(home, hours) for hours in (-1, 0, 0.5, 1.5, 9)}
    assert logged == {
        -1: [], 0: [], 0.5: ['{"logOffset":0}'], 1.5: ['{"logOffset":1}'], 9: ['{"logOffset":2}']
    }  # fmt: skip


def test_a_checkpoint_that_has_no_batches(tmp_path: Path) -> None:
    assert known(StreamHome(str(tmp_path / "home"), Storage()), 9) == []


def test_run_records(home: StreamHome) -> None:
    """The newest run that was over by then, and that planned something; of this generation's live stream alone."""
    keep_record(home, -9, (0, {"t": {"0": 1}}), (1, {"t": {"0": 2}}))
    keep_record(home, -8)
    keep_record(home, -7, (0, {"t": {"0": 3}}), generation=2)
    keep_record(home, -6, (0, {"t": {"0": 4}}), interval=RecordedInterval(NOON, NOON))
    keep_record(home, -5, (0, {"t": {"0": 5}}), ended_at=None, status="running")
    keep_record(home, -4, (0, None))
    runs = Path(home.runs_folder())
    (runs / "20260301T100000000Z-00000000.json").write_text("{")

    assert [known(home, hours) for hours in (-9.1, -8.6, -8.4, -0.5)] == [[], [], *[['{"t":{"0":2}}']] * 2]
