"""What a server keeps in mind of the runs of many streams."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from obstore.store import MemoryStore

from sluice.documents import encode_document
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.runs.record import RunRecord, RunRecords, new_run_id
from sluice.runs.summary import RUNS, keep_summary
from sluice.storage import Folder, Storage
from sluice_airflow.ui.known_runs import RunsInMind
from tests.builders import NOW, put
from tests.unit.conftest import BUCKET

STREAMS, RECORDS = 30, 25


class CountingStorage(Storage):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.listings = self.stats = 0

    def read(self, location: str, **limits: Any) -> bytes | None:
        self.reads += 1
        return super().read(location, **limits)

    def list_folder(self, location: str) -> Folder | None:
        self.listings += 1
        return super().list_folder(location)

    def stat(self, location: str) -> Any:
        self.stats += 1
        return super().stat(location)

    def counts(self) -> tuple[int, int, int]:
        """Files read, folders listed, and files looked at since the last call."""
        found = self.reads, self.listings, self.stats
        self.reads = self.listings = self.stats = 0
        return found


class Seconds:
    """Seconds that pass when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def make_record(hour: int, **changes: Any) -> RunRecord:
    """A run."""
    at = NOW + timedelta(hours=hour)
    known: dict[str, Any] = {"run_id": new_run_id(at, f"key {hour}"), "stream": "s", "generation": 1,
                             "planned_at": at, "plan": PlanDocument(), "status": "succeeded"}  # fmt: skip
    return RunRecord(**known | changes)


def run(home: StreamHome, hour: int, **changes: Any) -> str:
    """Save a run, and return its id."""
    record = make_record(hour, **changes)
    RunRecords(home).save(record)
    return record.run_id


@pytest.fixture
def counting() -> CountingStorage:
    """A storage that counts."""
    return CountingStorage()


@pytest.fixture
def homes(tmp_path: Path, counting: CountingStorage) -> dict[str, StreamHome]:
    """Streams that ran for a day."""
    homes = {f"s{number}": StreamHome(str(tmp_path / f"s{number}"), counting) for number in range(STREAMS)}
    for home in homes.values():
        for record in map(make_record, range(RECORDS)):
            put(Path(RunRecords(home).file(record.run_id)), encode_document(record))
        keep_summary(home)
    return homes


def test_what_a_list_costs(homes: dict[str, StreamHome], counting: CountingStorage) -> None:
    """A server that begins reads one file for each stream; then a `stat` each, until something happens to a stream."""
    seconds = Seconds()
    mind = RunsInMind(seconds)
    counting.counts()

    first = mind.all(homes)
    assert counting.counts() == (STREAMS, STREAMS, STREAMS)
    seconds.now += 4
    assert {name: known.lines for name, known in mind.all(homes).items()} == {n: k.lines for n, k in first.items()}
    assert counting.counts() == (0, STREAMS, STREAMS)
    mind.all(homes)
    assert counting.counts() == (0, 0, STREAMS)

    run_id = run(homes["s7"], RECORDS, status="running")
    counting.counts()
    found = mind.all(homes)
    assert counting.counts() == (1, 1, STREAMS)
    assert found["s7"].lines[0].run_id == run_id
    assert len(found["s7"].lines) == RUNS


def test_a_time_that_stands_still_is_not_believed_at_once(homes: dict[str, StreamHome]) -> None:
    """A file system that counts in seconds: two records within one of them leave the folder with one time."""
    seconds, home = Seconds(), homes["s0"]
    mind = RunsInMind(seconds)
    mind.all(homes)
    folder = home.runs_folder()
    before = os.stat(folder).st_mtime_ns
    run_id = run(home, RECORDS)
    os.utime(folder, ns=(before, before))
    seconds.now += 1

    assert mind.all(homes)["s0"].lines[0].run_id == run_id


def test_a_record_that_was_edited_in_place_is_noticed(homes: dict[str, StreamHome]) -> None:
    """Within half a minute: no folder's time tells of it."""
    seconds, home = Seconds(), homes["s0"]
    mind = RunsInMind(seconds)
    newest = mind.all(homes)["s0"].lines[0].run_id
    seconds.now += 4
    mind.all(homes)
    file = Path(home.runs_folder()) / f"{newest}.json"
    file.write_text(file.read_text().replace('"succeeded"', '"failed"'))
    seconds.now += 31

    assert mind.all(homes)["s0"].lines[0].status == "failed"


def test_a_folder_that_can_not_be_listed_hides_no_other(homes: dict[str, StreamHome]) -> None:
    """It is said why, beside what was known before, and what is known again afterwards."""
    mind = RunsInMind()
    before = mind.all(homes)
    folder = Path(homes["s0"].runs_folder())
    away = folder.rename(folder.with_name("away"))
    folder.symlink_to(folder)

    found = mind.all(homes)
    folder.unlink()
    away.rename(folder)

    assert "could not" in found["s0"].error
    assert found["s0"].lines == before["s0"].lines
    assert {known.error for name, known in found.items() if name != "s0"} == {""}
    assert mind.all(homes)["s0"].error == ""


def test_homes_on_an_object_store(counting: CountingStorage) -> None:
    """Whose folders have no times: all are listed at once, and a quarter of a minute later; what goes on, each time."""
    counting._stores[BUCKET] = MemoryStore()
    homes = {name: StreamHome(f"{BUCKET}/home/{name}", counting) for name in ("a", "b", "c")}
    run(homes["a"], 1)
    run(homes["c"], 1, status="running")
    seconds = Seconds()
    mind = RunsInMind(seconds)
    counting.counts()

    assert [len(known.lines) for known in mind.all(homes).values()] == [1, 0, 1]
    assert counting.counts()[1] == 3
    run(homes["b"], 1)
    counting.counts()
    assert [len(known.lines) for known in mind.all(homes).values()] == [1, 0, 1]
    assert counting.counts()[1] == 1
    seconds.now += 16
    assert [len(known.lines) for known in mind.all(homes).values()] == [1, 1, 1]
    assert counting.counts()[1] == 3


def test_a_listing_that_is_late(homes: dict[str, StreamHome], counting: CountingStorage) -> None:
    """What was known is shown meanwhile, what the listing has found so far, and how old it is once it is old."""
    seconds = Seconds()
    mind = RunsInMind(seconds)
    first = {name: homes[name] for name in ("s0", "s1")}
    before = mind.all(first)
    assert mind.knows(first.values())
    assert not mind.knows(homes.values())
    asked, go_on = Event(), Event()
    list_folder = counting.list_folder

    def hang(location: str) -> Folder | None:
        if "/s3/" in location:
            asked.set()
            assert go_on.wait(60)
        return list_folder(location)

    counting.list_folder = hang  # type: ignore[method-assign]
    listing = Thread(target=mind.all, args=[homes])
    listing.start()
    try:
        assert asked.wait(60)

        assert mind.last_known(homes["s0"]).lines == before["s0"].lines
        assert len(mind.last_known(homes["s2"]).lines) == RUNS
        assert mind.last_known(homes["s2"]).error == ""
        assert "could not be read in time" in mind.last_known(homes["s4"]).error
        seconds.now += 100
        assert "could not be read for 100 seconds" in mind.last_known(homes["s0"]).error
        assert mind.last_known(homes["s0"]).lines == before["s0"].lines
    finally:
        go_on.set()
        listing.join()
