"""What happens between the plan and the batch: a file vanishes, the disk is full."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sluice.errors import BatchFailedError, StorageError
from sluice.plan import Plan
from sluice.running.observers import Silent
from tests.unit.engine_lab import KilledError, Lab, make_lab


class Watcher(Silent):
    """Removes a file once the plan that takes it is made."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def planned(self, plan: Plan) -> None:
        assert plan.verdict == "run"
        self._file.unlink()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Two files that wait."""
    lab = make_lab(tmp_path, max_files_per_batch=1)
    for second in range(2):
        lab.arrive(second, f"{second}.json")
    return lab


def test_a_file_that_vanishes_after_the_plan(lab: Lab) -> None:
    """Nothing is written for its batch, the file is named, and the next run plans without it."""
    gone = Path(lab.stream.sources["landing"].location, "1.json")
    with pytest.raises(
        BatchFailedError, match="1 planned input files vanished, or have changed, before batch 1"
    ) as caught:
        lab.run(observer=Watcher(gone))
    assert caught.value.where == f"file://{gone}"
    assert (lab.state().planned_id, lab.state().source_logs["0"].latest_id) == (0, 0)

    lab.arrive(2)
    lab.run()
    assert lab.sink.ids() == Counter([0, 2])


@pytest.mark.parametrize("write", range(23))
def test_a_full_disk(lab: Lab, write: int) -> None:
    """Whichever write finds no space (but that of the lease's release): the run says so, and the next one goes on."""
    lab.fault.kind, lab.fault.countdown = "error", write
    with pytest.raises((StorageError, BatchFailedError)) as caught:
        lab.run(run_key="key")
    assert caught.value.exit_code == 1
    assert not list(lab.root.rglob("*.tmp"))

    lab.run(run_key="key")
    assert lab.sink.ids() == Counter(range(2))
    assert lab.plan().verdict == "skip"


@pytest.mark.parametrize("write", range(23))
def test_a_kill_after_which_spark_itself_goes_on(lab: Lab, write: int) -> None:
    """Wherever the first run was killed: what a person then does without Sluice is gone on with."""
    lab.fault.kind, lab.fault.countdown = "kill", write
    with pytest.raises(KilledError):
        lab.run()

    lab.engine().available_now()
    lab.arrive(2)
    lab.run()

    assert lab.sink.ids() == Counter(range(3))
