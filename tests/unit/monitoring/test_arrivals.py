"""What waits for a stream: every arrival makes another state, and what was taken leaves it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sluice.errors import RefusedError
from sluice.monitoring.arrivals import Arrivals, find_arrivals
from tests.engine_model import HeldRows
from tests.unit.engine_lab import Lab, leave_pending, make_lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A stream of two sources that the query reads in the other order."""
    return make_lab(tmp_path, names=("a", "b"), lines=("b", "a"))


def look(lab: Lab) -> Arrivals:
    return find_arrivals(lab.stream, lab.project.stream_home(lab.stream), lab.now)


def test_nothing_waits(lab: Lab) -> None:
    """No arrivals have no digest."""
    assert look(lab) == Arrivals(frozenset(), is_pending=False, sources={})
    assert look(lab).digest is None


def test_every_arrival_makes_another_state(lab: Lab) -> None:
    """In either source; the same state has the same digest."""
    lab.arrive(source="a")
    first = look(lab)
    lab.arrive(source="b")
    second = look(lab)

    assert first.ids < second.ids
    assert look(lab).digest == second.digest != first.digest
    assert {name: found["files"] for name, found in second.sources.items()} == {"a": 1, "b": 1}


def test_a_run_takes_all(lab: Lab) -> None:
    """What was planned does not wait."""
    lab.arrive(source="a")
    lab.run()

    assert look(lab).digest is None


def test_a_batch_that_is_not_committed_is_pending(lab: Lab) -> None:
    """A run is under way, or has died: what it took does not wait, and it says so."""
    leave_pending(lab, by_sluice=True)

    assert look(lab).is_pending


def test_a_damaged_checkpoint_is_refused(lab: Lab) -> None:
    """It is not taken for a stream without arrivals."""
    lab.arrive(source="a")
    lab.run()
    (lab.checkpoint / "offsets" / "0").write_bytes(b"")

    with pytest.raises(RefusedError) as caught:
        look(lab)
    assert caught.value.finding.code == "FILE_DAMAGED"


def test_a_time_out_that_is_due(tmp_path: Path) -> None:
    """It is something to do, as what arrives is; once it has fired there is nothing."""
    lab = make_lab(tmp_path, operator=HeldRows(delay_ms=10), has_timers=True)
    lab.arrive()
    lab.timer_ms = int((lab.now + timedelta(minutes=1)).timestamp() * 1000)
    lab.run()
    assert look(lab).digest is None
    lab.now += timedelta(minutes=2)
    assert look(lab).ids == {f"time-out\0{lab.timer_ms}"}
    lab.timer_ms = None
    lab.run()
    assert look(lab).digest is None
