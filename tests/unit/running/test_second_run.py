"""Somebody else runs the stream at any moment of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sluice.errors import LeaseTakenError, RefusedError, SluiceError
from tests.engine_model import HeldRows
from tests.remedies import read_remedy
from tests.unit.engine_lab import Lab, make_lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Three files for three batches, after one batch that is done; the watermark holds the last row back."""
    lab = make_lab(tmp_path, max_files_per_batch=1, operator=HeldRows(delay_ms=10))
    lab.arrive(0)
    lab.run()
    for second in range(1, 4):
        lab.arrive(second, at_ms=second * 100)
    return lab


def second_runs(lab: Lab, run_key: str | None, *, after: int) -> list[str]:
    """Run the stream, and a second time at each change but the first few; what the second runs came to."""
    outcomes: list[str] = []

    def run_again(_: str) -> None:
        try:
            outcomes.append("early" if len(outcomes) < after else lab.run(run_key=run_key).status)
        except SluiceError as exc:
            outcomes.append(type(exc).__name__)

    lab.fault.beside = run_again
    try:
        lab.run(run_key="key")
    finally:
        lab.fault.beside = None
    return outcomes[after:]


def test_a_second_run_is_held_off(lab: Lab) -> None:
    """From the lease on, a second run is held off until there is nothing left to do; it never refuses."""
    outcomes = second_runs(lab, None, after=1)
    assert set(outcomes) == {"LeaseTakenError", "skipped"}
    assert outcomes == sorted(outcomes)
    assert lab.sink.ids() == Counter(range(3))
    assert [record["status"] for record in lab.records()] == ["succeeded", "succeeded"]


def test_who_takes_the_lease_does_the_work(lab: Lab) -> None:
    """A second run that takes the lease first does all of it, and the first run is held off."""
    with pytest.raises(LeaseTakenError):
        second_runs(lab, None, after=0)
    assert lab.sink.ids() == Counter(range(3))


def test_a_retry_waits_for_the_end_of_the_first_try(lab: Lab) -> None:
    """Until its record is closed, the first try is alive: its retry is held off also when no batch is left."""
    *outcomes, last = second_runs(lab, "key", after=1)
    assert (set(outcomes), last) == ({"LeaseTakenError"}, "succeeded")


@pytest.mark.parametrize("name", ["sources/0/1", "offsets/1"])
def test_a_foreign_writer_is_noticed(lab: Lab, name: str) -> None:
    """A file that somebody else put in the place of a planned one is left alone, and the run refuses."""
    foreign = lab.checkpoint / name

    def write(change: str) -> None:
        if change == str(foreign):
            foreign.write_text("foreign")

    lab.fault.beside = write
    with pytest.raises(RefusedError, match="appeared while") as refused:
        lab.run()
    says = "find the other writer .* and stop it"
    assert read_remedy(refused.value, "CHECKPOINT_CHANGED", says).file == str(foreign)
    assert foreign.read_text() == "foreign"
    assert lab.sink.ids() == {}
    assert lab.records()[-1]["status"] == "refused"

    # It has stopped; its file, which says nothing, is taken away.
    lab.fault.beside = None
    foreign.unlink()
    lab.run()
    assert lab.sink.ids() == Counter(range(3))
