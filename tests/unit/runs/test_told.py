"""Which runs the events of Airflow have told of."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluice.errors import RefusedError
from sluice.home import StreamHome
from sluice.runs.told import MOST_RUNS, RecordMark, Told, begin_told, keep_told, read_told, record_marks
from sluice.storage import Storage

MARK = RecordMark(10, 20)


@pytest.fixture
def home(tmp_path: Path) -> StreamHome:
    return StreamHome(str(tmp_path / "home"), Storage())


def run_id(number: int) -> str:
    return f"20260131T120{number:06d}Z-0f1e2d3c"


def test_those_that_tell_at_the_same_time_forget_nothing_of_each_other(home: StreamHome) -> None:
    """Intervals of a backfill end side by side."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: keep_told(home, {run_id(number): MARK}, Told()), range(12)))

    told = read_told(home)
    assert told is not None
    assert told.runs == {run_id(number): MARK for number in range(12)}


def test_it_begins_once(home: StreamHome) -> None:
    """Whoever comes later finds what there is."""
    assert read_told(home) is None
    begin_told(home, Told(up_to=run_id(3)))
    begin_told(home, Told(up_to=run_id(9)))
    keep_told(home, {run_id(5): MARK}, Told(up_to=run_id(9)))

    told = read_told(home)
    assert told is not None
    known = {number: told.has(run_id(number), MARK) for number in (2, 3, 4, 5, 9)}
    assert known == {2: True, 3: True, 4: False, 5: True, 9: False}
    # Its record was written since.
    assert not told.has(run_id(5), RecordMark(11, 20))


def test_it_does_not_grow_for_ever(home: StreamHome) -> None:
    """What is older than the newest runs counts as told."""
    keep_told(home, {run_id(number): MARK for number in range(MOST_RUNS + 2)}, Told())

    told = read_told(home)
    assert told is not None
    assert (told.up_to, len(told.runs)) == (run_id(1), MOST_RUNS)
    assert told.has(run_id(0), RecordMark(1, 1))


def test_only_records_are_marked(home: StreamHome) -> None:
    """Newest first; other files of the folder are none."""
    assert record_marks(home) == {}
    folder = Path(home.runs_folder())
    folder.mkdir(parents=True)
    for name in (f"{run_id(1)}.json", f"{run_id(2)}.json", "notes.json", f"{run_id(3)}.txt"):
        (folder / name).write_text("12345")

    found = record_marks(home)
    assert [*found] == [run_id(2), run_id(1)]
    assert {mark.size_bytes for mark in found.values()} == {5}


def test_a_damaged_file_says_what_to_do(home: StreamHome) -> None:
    """It is no more than an aid."""
    Path(home.location).mkdir()
    Path(home.told_file()).write_text("{")

    with pytest.raises(RefusedError, match="delete it"):
        keep_told(home, {run_id(1): MARK}, Told())
