"""Run records: what a run planned, did, measured and decided."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import LeaseLostError, RefusedError
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.runs.record import BatchRecord, RecordedError, RunRecord, RunRecords, new_run_id
from sluice.runs.stop import request_stop
from sluice.storage import Storage
from tests.builders import NOW, QUERY_ID, put


def make_records(folder: Path) -> RunRecords:
    return RunRecords(StreamHome(str(folder), Storage()))


def make_record(run_id: str = "20260131T120000000Z-0f1e2d3c", **changes: Any) -> RunRecord:
    values: dict[str, Any] = {
        "run_id": run_id,
        "stream": "visits",
        "generation": 1,
        "planned_at": NOW,
        "plan": PlanDocument(verdict="run"),
        "status": "planned",
    }
    return RunRecord(**values | changes)


def test_round_trip(tmp_path: Path) -> None:
    """A record with everything in it reads back as it was."""
    batch = BatchRecord(
        batch_id=3,
        kind="data",
        input_rows=10,
        output_rows=None,
        watermark="2026-01-31T12:00:00.000Z",
        duration_ms={"addBatch": 5},
        observed={"quality": {"rows": 10, "max_at": None}},
    )
    record = make_record(
        query_id=QUERY_ID,
        token=4,
        until=NOW,
        batches=(batch,),
        status="succeeded",
        error=RecordedError(type="T", message="m", retryable=False, log="/l"),
    )
    records = make_records(tmp_path)
    records.save(record)

    assert records.read(record.run_id) == record


def test_json(tmp_path: Path) -> None:
    """The file lies in `runs`, has a format number, and times in ISO 8601."""
    make_records(tmp_path).save(make_record(until=datetime(2026, 2, 1, tzinfo=UTC)))
    document = json.loads((tmp_path / "runs" / "20260131T120000000Z-0f1e2d3c.json").read_bytes())

    assert (document["format"], document["planned_at"], document["until"]) == (
        1,
        "2026-01-31T12:00:00Z",
        "2026-02-01T00:00:00Z",
    )
    assert (document["tries"], document["query_id"], document["error"]) == (1, None, None)
    assert (document["status"], document["batches"], document["plan"]) == (
        "planned",
        [],
        {
            "verdict": "run",
            "reason": "",
            "stream": "",
            "generation": 0,
            "strategy": "",
            "batches": [],
            "problem": None,
            "warnings": [],
            "quality": None,
        },
    )


def test_saving_again(tmp_path: Path) -> None:
    """A record follows its run: the newest state replaces the one before."""
    records = make_records(tmp_path)
    records.save(make_record())
    records.save(make_record(status="failed"))

    found = records.read(make_record().run_id)
    assert found is not None
    assert found.status == "failed"
    assert records.run_ids() == [make_record().run_id]


class TestFence:
    """A driver that was stopped somewhere, and wakes up, does not write over the record of its retry."""

    @pytest.mark.parametrize("token", [None, 1])
    def test_a_stale_driver(self, tmp_path: Path, token: int | None) -> None:
        """What the driver with the newest lease wrote stays."""
        records = make_records(tmp_path)
        records.save(make_record(token=1, status="running"))
        records.save(make_record(token=2, status="succeeded"))
        with pytest.raises(LeaseLostError, match="another try of run 20260131T120000000Z-0f1e2d3c has taken over"):
            records.save(make_record(token=token, status="failed"))

        found = records.read(make_record().run_id)
        assert found is not None
        assert (found.token, found.status) == (2, "succeeded")

    def test_a_crowd(self, tmp_path: Path) -> None:
        """Of many that write at once, the one with the newest lease has the last word."""
        start = threading.Barrier(12)

        def write(token: int) -> None:
            start.wait()
            for _ in range(5):
                with contextlib.suppress(LeaseLostError):
                    make_records(tmp_path).save(make_record(token=token))

        threads = [threading.Thread(target=write, args=(token,)) for token in range(1, 13)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = make_records(tmp_path).read(make_record().run_id)
        assert found is not None
        assert found.token == 12
        assert len(list((tmp_path / "runs").iterdir())) == 1

    def test_a_damaged_record(self, tmp_path: Path) -> None:
        """It tells of no newer try, and is written anew."""
        records = make_records(tmp_path)
        file = put(tmp_path / "runs" / f"{make_record().run_id}.json", b"{")
        records.save(make_record())
        assert json.loads(file.read_bytes())["status"] == "planned"


def test_no_records(tmp_path: Path) -> None:
    """A stream without runs has none, and none is found."""
    records = make_records(tmp_path / "absent")

    assert (records.run_ids(), list(records.newest(5)), records.find("key"), records.read("x")) == ([], [], None, None)


def test_newest_first(tmp_path: Path) -> None:
    """Runs are listed by time, newest first; other files are not."""
    records = make_records(tmp_path)
    run_ids = [new_run_id(NOW + timedelta(seconds=count), None) for count in (5, 1, 9)]
    for run_id in run_ids:
        records.save(make_record(run_id))
    for name in (".20260131T120009000Z-a.json.0f.tmp", "notes.json", "x0260131.json", "20270101T000000000Z-a.txt"):
        put(tmp_path / "runs" / name)

    assert records.run_ids() == sorted(run_ids, reverse=True)
    assert [record.run_id for record in records.newest(2)] == sorted(run_ids, reverse=True)[:2]


def test_find_by_key(tmp_path: Path) -> None:
    """A retry finds the record of its first try by the run key, among runs with and without one."""
    records = make_records(tmp_path)
    for count, key in enumerate([None, "visits|2026-01-30", "visits|2026-01-31", None]):
        records.save(make_record(new_run_id(NOW + timedelta(hours=count), key), run_key=key))

    found = records.find("visits|2026-01-30")
    assert found is not None
    assert (found.run_key, found.run_id[:18]) == ("visits|2026-01-30", "20260131T130000000")
    assert records.find("visits|2026-02-01") is None


def test_find_by_key_is_exact(tmp_path: Path) -> None:
    """Eight digits of a hash may collide: the key itself decides."""
    records = make_records(tmp_path)
    records.save(make_record(new_run_id(NOW, "mine"), run_key="somebody else's"))

    assert records.find("mine") is None


def test_find_by_key_reads_no_other_record(tmp_path: Path) -> None:
    """Only records whose id can bear the key are opened: there may be thousands, and damaged ones."""
    records = make_records(tmp_path)
    put(tmp_path / "runs" / f"{new_run_id(NOW, 'other')}.json", b"damaged")
    records.save(make_record(new_run_id(NOW, "mine"), run_key="mine"))

    assert records.find("mine") is not None


@pytest.mark.parametrize(
    ("status", "tries", "is_forgotten"), [("planned", 0, True), ("planned", 1, False), ("running", 1, False)]
)
def test_what_nobody_has_begun_is_forgotten(tmp_path: Path, status: Any, tries: int, *, is_forgotten: bool) -> None:
    """Not what was tried before, nor what is not there."""
    records = make_records(tmp_path)
    record = make_record(status=status, tries=tries)
    records.save(record)

    assert records.end_planned(record.run_id, NOW) == (record if is_forgotten else None)
    assert (records.read(record.run_id) is None) == is_forgotten
    assert records.end_planned("20260131T120000000Z-0000000f", NOW) is None


@pytest.mark.parametrize(("tries", "token"), [(0, None), (1, 3)], ids=["first try", "retry"])
def test_what_was_stopped_before_it_had_begun(tmp_path: Path, tries: int, token: int | None) -> None:
    """It is kept, with who wanted it to end."""
    records = make_records(tmp_path)
    record = make_record(status="planned", tries=tries, token=token)
    records.save(record)
    request_stop(StreamHome(str(tmp_path), Storage()), record.run_id, requested_by="ada", now=NOW)

    ended = records.end_planned(record.run_id, NOW)

    assert ended is not None
    assert ended == records.read(record.run_id)
    assert (ended.status, ended.tries, ended.token) == ("stopped", tries, token)
    assert ended.error is not None
    assert ended.error.message == "stopped by ada before it had begun; a retry runs it"


def test_run_id() -> None:
    """An id sorts by time; with a key its end is always the same, without one it never is."""
    assert re.fullmatch(r"20260131T120000000Z-[0-9a-f]{8}", new_run_id(NOW, None))
    assert re.fullmatch(r"20260131T120000000Z-[0-9a-f]{8}", new_run_id(NOW, "key"))
    assert new_run_id(NOW, None) != new_run_id(NOW, None)
    assert new_run_id(NOW, "key") == new_run_id(NOW, "key")
    assert new_run_id(NOW, "key")[-9:] == new_run_id(NOW + timedelta(days=1), "key")[-9:]
    assert new_run_id(NOW, "key")[-9:] != new_run_id(NOW, "other")[-9:]


@given(st.lists(st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1)), min_size=2, max_size=5))  # noqa: DTZ001
def test_run_ids_sort_by_time(moments: list[datetime]) -> None:
    """The order of ids is the order of times, to the millisecond."""
    moments = sorted(moment.replace(tzinfo=UTC) for moment in moments)
    stamps = [new_run_id(moment, None)[:19] for moment in moments]

    assert stamps == sorted(stamps)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"format":7}'])
def test_damage(tmp_path: Path, content: bytes) -> None:
    """A damaged record refuses, and is named; it does not hide among the others."""
    records = make_records(tmp_path)
    file = put(tmp_path / "runs" / f"{new_run_id(NOW, 'key')}.json", content)

    for read in (lambda: records.find("key"), lambda: list(records.newest(3))):
        with pytest.raises(RefusedError) as caught:
            read()
        assert caught.value.finding.file == str(file)


@pytest.mark.parametrize("key", ["plan", "error"])
@pytest.mark.parametrize("found", [[], "x", {"batches": 1, "type": 1}, {"batches": [{}], "retryable": "yes"}])
def test_a_part_of_another_shape(tmp_path: Path, key: str, found: Any) -> None:
    """A record whose plan or error is none is damaged, and refused as such."""
    records = make_records(tmp_path)
    record = make_record(status="failed")
    put(Path(records.file(record.run_id)), msgspec.json.encode(msgspec.to_builtins(record) | {key: found}))

    with pytest.raises(RefusedError, match="the file does not parse") as caught:
        records.read(record.run_id)
    assert caught.value.finding.file == records.file(record.run_id)


def test_a_record_that_tells_little(tmp_path: Path) -> None:
    """What an older Sluice has not written has a default: a failure is one, though nobody says why."""
    records = make_records(tmp_path)
    record = make_record(status="failed")
    told = msgspec.to_builtins(record) | {"plan": {}, "error": {}}
    put(Path(records.file(record.run_id)), msgspec.json.encode(told))

    read = records.read(record.run_id)

    assert read is not None
    assert read.plan == PlanDocument()
    assert read.error == RecordedError(type="", message="its record does not say why", retryable=True)
