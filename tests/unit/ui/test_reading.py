"""What pages are made from, also where it is damaged."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.runs.lease import acquire
from sluice.runs.record import RunRecord, RunRecords, new_run_id
from sluice.storage import Storage
from sluice_airflow.ui.reading import (
    find_runs,
    read_batches,
    read_generations,
    read_lease,
    read_run,
    read_runs,
)
from tests.builders import NOW, ManualClock, make_checkpoint, put


@pytest.fixture
def home(tmp_path: Path) -> StreamHome:
    """The home of a stream, with nothing in it."""
    return StreamHome(str(tmp_path / "home"), Storage())


def make_record(run_id: str, run_key: str | None = None) -> RunRecord:
    return RunRecord(
        run_id=run_id,
        stream="s",
        generation=1,
        planned_at=NOW,
        plan=PlanDocument(),
        status="succeeded",
        run_key=run_key,
    )


def test_a_damaged_record_hides_no_other(home: StreamHome) -> None:
    """Half-written, of a newer format, or not ours: each is said in its place."""
    good, torn, newer = (new_run_id(NOW + timedelta(hours=hour), None) for hour in range(3))
    RunRecords(home).save(make_record(good))
    put(Path(home.runs_folder()) / f"{torn}.json", '{"format": 1, "run_id": "')
    put(Path(home.runs_folder()) / f"{newer}.json", '{"format": 99}')
    put(Path(home.runs_folder()) / "2notes.json", "{}")

    runs = read_runs(home, 10)

    assert [run.run_id for run in runs] == [newer, torn, good]
    assert [run.record is None for run in runs] == [True, True, False]
    assert "upgrade Sluice" in (runs[0].error or "")
    assert "does not parse" in (runs[1].error or "")


@pytest.mark.parametrize("run_id", ["../current", "20260131T120000000Z-00000000/../../current", "", "x" * 5000])
def test_only_a_runs_name_is_read(home: StreamHome, run_id: str) -> None:
    """The name comes out of an address that anybody may have written."""
    put(Path(home.location) / "current.json", '{"format": 1, "generation": 1}')

    assert read_run(home, run_id) is None


def test_a_missing_home_has_no_runs(home: StreamHome) -> None:
    """A stream that never ran."""
    assert read_runs(home, 5) == []
    assert read_batches(home, 1, 5) == []
    assert read_generations(home) == ([], [])
    assert read_lease(home, home.lease_folder(1), NOW) is None


def test_old_runs_are_found_by_their_key(home: StreamHome) -> None:
    """Whatever came since; a run whose name only ends alike is not taken."""
    key = "flights/run/task/-1/0"
    RunRecords(home).save(make_record(new_run_id(NOW, key), key))
    RunRecords(home).save(make_record(new_run_id(NOW + timedelta(hours=1), key), "another/run/task/-1/0"))
    for hour in range(2, 9):
        RunRecords(home).save(make_record(new_run_id(NOW + timedelta(hours=hour), None)))

    assert [run.run_id for run in find_runs(home, [key, "flights/run/task/-1/1"])] == [new_run_id(NOW, key)]


def test_batches_come_from_both_logs(home: StreamHome) -> None:
    """A batch that is planned only, a damaged one, and one whose files are gone."""
    root = make_checkpoint(Path(home.checkpoint_location(1)), planned=4, committed=3)
    put(root / "offsets" / "1", "v1")
    (root / "offsets" / "0").unlink()

    batches = read_batches(home, 1, 10)

    assert [(batch.batch_id, batch.planned is not None, batch.committed is not None) for batch in batches] == [
        (3, True, False), (2, True, True), (1, False, False), (0, False, True),
    ]  # fmt: skip
    assert "source's offset" in (batches[2].error or "")
    assert [batch.batch_id for batch in read_batches(home, 1, 2)] == [3, 2]


def test_lease_states(home: StreamHome) -> None:
    """Held while it is renewed, expired after, free once it was given back."""
    clock = ManualClock()
    lease = acquire(home.storage, home.lease_folder(1), run_id="r", sink_is_idempotent=True, clock=clock)
    states = []
    for now in (NOW, NOW + timedelta(minutes=2)):
        owner = read_lease(home, home.lease_folder(1), now)
        assert owner is not None
        states.append(owner.state)
    with lease:
        pass
    owner = read_lease(home, home.lease_folder(1), NOW)
    assert owner is not None

    assert [*states, owner.state] == ["taken", "expired", "free"]
    assert owner.lease.run_id == "r"
