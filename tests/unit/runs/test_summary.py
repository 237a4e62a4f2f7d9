"""The summary of a stream's newest runs: an aid that is never believed over the records."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.home import StreamHome
from sluice.plan_document import BatchDocument, PlanDocument
from sluice.runs.record import (
    BackfillRecord,
    BatchRecord,
    QualityRecord,
    RecordedInterval,
    RunRecord,
    RunRecords,
    new_run_id,
)
from sluice.runs.summary import RUNS, compare_lines, keep_summary, read_lines
from sluice.storage import Storage
from tests.builders import NOW, put
from tests.unit.conftest import BUCKET


class CountingStorage(Storage):
    """Says which files were read."""

    def __init__(self) -> None:
        super().__init__()
        self.was_read: list[str] = []

    def read(self, location: str, **limits: Any) -> bytes | None:
        self.was_read.append(Path(location).name)
        return super().read(location, **limits)


@pytest.fixture
def counting() -> CountingStorage:
    """A storage that counts."""
    return CountingStorage()


@pytest.fixture
def home(tmp_path: Path, counting: CountingStorage) -> StreamHome:
    """The home of a stream, with nothing in it."""
    return StreamHome(str(tmp_path / "home" / "visits"), counting)


def make_record(hour: int = 0, **changes: Any) -> RunRecord:
    """A run of one batch."""
    at = NOW + timedelta(hours=hour)
    batch = BatchRecord(batch_id=hour, kind="data", input_rows=10, output_rows=10, watermark=None)
    known: dict[str, Any] = {
        "run_id": new_run_id(at, f"dag/run {hour}/visits/-1/0"), "stream": "visits", "generation": 1,
        "run_key": f"dag/run {hour}/visits/-1/0", "planned_at": at, "status": "succeeded", "batches": (batch,),
        "plan": PlanDocument(batches=(BatchDocument(batch_id=0), BatchDocument(batch_id=1))),
        "started_at": at.isoformat(), "ended_at": at.isoformat(),
    }  # fmt: skip
    return RunRecord(**known | changes)


def save(home: StreamHome, count: int, **changes: Any) -> list[str]:
    """Save so many records; their ids, newest first."""
    made = [make_record(hour, **changes) for hour in range(count)]
    for record in made:
        RunRecords(home).save(record)
    return [record.run_id for record in reversed(made)]


def summary(home: StreamHome) -> Path:
    return Path(home.summary_file())


def test_a_line_has_what_lists_show(home: StreamHome) -> None:
    """Of a run of the live stream, and of a backfill."""
    quality = QualityRecord(verdict="warn")
    RunRecords(home).save(make_record(1, quality=quality))
    month = RecordedInterval(NOW, NOW + timedelta(days=31))
    done = BackfillRecord(attempt=0, version=1, rows_written=77)
    RunRecords(home).save(make_record(2, status="failed", interval=month, backfill=done, batches=()))

    backfill, live = read_lines(home)

    assert (live.status, live.rows, live.batches, live.planned_batches) == ("succeeded", 10, 1, 2)
    assert (live.verdict, live.run_key, live.interval) == ("warn", "dag/run 1/visits/-1/0", None)
    assert backfill.interval is not None
    assert (backfill.status, backfill.rows, backfill.interval.end) == ("failed", 77, month.end)


def test_a_line_tells_of_rows_out_of_balance(home: StreamHome) -> None:
    """As the run's page does, of live runs and of backfills; a line from before lines told of it is not believed."""
    lost = BatchRecord(batch_id=1, kind="data", input_rows=10, output_rows=8, result_rows=9, watermark=None)
    quality = QualityRecord(verdict="pass", rows=5)
    month = RecordedInterval(NOW, NOW + timedelta(days=31))
    written = BackfillRecord(attempt=0, version=1, rows_written=4)
    RunRecords(home).save(make_record(1))
    RunRecords(home).save(make_record(2, batches=(lost,)))
    RunRecords(home).save(make_record(3, batches=(), interval=month, backfill=written, quality=quality))

    assert [line.is_unbalanced for line in read_lines(home)] == [True, True, False]

    keep_summary(home)
    kept = json.loads(summary(home).read_text())
    before = [{key: value for key, value in line.items() if key != "is_unbalanced"} for line in kept["lines"]]
    summary(home).write_text(json.dumps({"format": 1, "runs": before}))
    assert [line.is_unbalanced for line in read_lines(home)] == [True, True, False]


def test_a_list_reads_one_file(home: StreamHome, counting: CountingStorage) -> None:
    """However many records there are: a run that began or ended has brought the summary up to date."""
    run_ids = save(home, RUNS + 5)
    counting.was_read.clear()

    assert [line.run_id for line in read_lines(home)] == run_ids[:RUNS]
    assert counting.was_read == ["summary.json"]


def test_batches_do_not_write_it(home: StreamHome, counting: CountingStorage) -> None:
    """A run under way saves its record with every batch: a list reads that record, and no other."""
    save(home, 3)
    kept = summary(home).read_bytes()
    going_on = make_record(3, status="running")
    for _ in range(2):
        RunRecords(home).save(going_on)
    counting.was_read.clear()

    assert summary(home).read_bytes() == kept
    assert read_lines(home)[0].status == "running"
    assert counting.was_read == ["summary.json", f"{going_on.run_id}.json"]


def change(record: Path, home: StreamHome) -> None:
    """Write another status into a record, as an editor does that keeps the file."""
    record.write_text(record.read_text().replace('"succeeded"', '"failed"'))


def touch(record: Path, home: StreamHome) -> None:
    """Write another status, of the same length, at another time."""
    record.write_text(record.read_text().replace('"succeeded"', '"failed"   '))
    os.utime(record, ns=(0, 1_000_000_000))


def add(record: Path, home: StreamHome) -> None:
    """A record that came without a word to the summary."""
    new = json.loads(record.read_text()) | {"status": "failed"}
    put(Path(home.runs_folder()) / f"{new_run_id(NOW + timedelta(days=9), None)}.json", json.dumps(new))


@pytest.mark.parametrize("happens", [change, touch, add])
def test_records_are_believed_over_the_summary(home: StreamHome, happens: Any) -> None:
    """What was written beside it is read."""
    run_ids = save(home, 3)
    happens(Path(home.runs_folder()) / f"{run_ids[0]}.json", home)

    assert read_lines(home)[0].status == "failed"


def test_a_record_that_is_gone_is_in_no_list(home: StreamHome) -> None:
    """Deleted by a person, or forgotten by a run that had nothing to do."""
    run_ids = save(home, 3)
    RunRecords(home).forget(run_ids[0])
    (Path(home.runs_folder()) / f"{run_ids[1]}.json").unlink()

    assert [line.run_id for line in read_lines(home)] == [run_ids[2]]


@pytest.mark.parametrize(
    "content",
    [None, "", "{", "[]", '{"format": 99}', '{"format": 1}', '{"format": 1, "lines": [{"run_id": 3}]}', "\xff" * 9],
)
def test_a_summary_that_is_no_good_is_made_anew(home: StreamHome, content: str | None) -> None:
    """Missing, torn, of a newer Sluice, of another shape: the records tell the same, and the next run mends it."""
    save(home, 3)
    expected = read_lines(home)
    summary(home).unlink() if content is None else put(summary(home), content)

    assert read_lines(home) == expected
    keep_summary(home)
    assert json.loads(summary(home).read_text())["lines"][0]["run_id"] == expected[0].run_id


def test_a_summary_of_other_runs_tells_nothing(home: StreamHome) -> None:
    """Such as one that was restored from a backup, or copied from elsewhere."""
    save(home, 2)
    old = summary(home).read_bytes()
    save(home, 4, status="failed")
    summary(home).write_bytes(old)

    assert {line.status for line in read_lines(home)} == {"failed"}


def test_a_damaged_record_has_a_line(home: StreamHome) -> None:
    """Which says so, and hides no other; it is looked at again each time."""
    run_ids = save(home, 2)
    put(Path(home.runs_folder()) / f"{run_ids[0]}.json", "{half of a rec")
    keep_summary(home)

    damaged, fine = read_lines(home)

    assert "does not parse" in damaged.error
    assert fine.status == "succeeded"
    put(Path(home.runs_folder()) / "2notes.json")
    assert len(read_lines(home)) == 2


def test_no_run_fails_for_its_summary(home: StreamHome, caplog: pytest.LogCaptureFixture) -> None:
    """It can't be written where a folder is in its place: the record is saved, and the log says what lists do."""
    (summary(home) / "in the way").mkdir(parents=True)

    run_ids = save(home, 2)

    assert [record.run_id for record in RunRecords(home).newest(5)] == run_ids
    assert "lists read the records instead" in caplog.text
    assert [line.run_id for line in read_lines(home)] == run_ids


def test_known_lines_are_compared_without_a_listing(home: StreamHome, counting: CountingStorage) -> None:
    """Only what was edited in place is read, and what is gone is left out."""
    run_ids = save(home, 4)
    known = read_lines(home)
    change(Path(home.runs_folder()) / f"{run_ids[2]}.json", home)
    (Path(home.runs_folder()) / f"{run_ids[3]}.json").unlink()
    counting.was_read.clear()

    assert [line.status for line in compare_lines(home, known)] == ["succeeded", "succeeded", "failed"]
    assert counting.was_read == [f"{run_ids[2]}.json"]


def test_on_an_object_store(object_storage: Storage) -> None:
    """There the listing brings sizes and times along."""
    home = StreamHome(f"{BUCKET}/home/visits", object_storage)
    assert read_lines(home) == ()

    run_ids = save(home, 3)

    assert [line.run_id for line in read_lines(home)] == run_ids
