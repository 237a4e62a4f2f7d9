"""Who tidies up the records of runs that have ended lets nothing go by that."""

from __future__ import annotations

import pytest

from sluice import sinks
from sluice.errors import HeldError, QualityFailedError
from sluice.gate.state import GateState, keep_gate, release_gate
from sluice.times import system_clock
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_numbers
from tests.spark.test_quality_gates import declare_suite, gate_of, ids, largest, stream
from tests.spark.test_quality_stopped import at_most

pytestmark = pytest.mark.spark

HELD = stream(sink=sinks.files("out", format="json"))
"""Its rows are in the sink before they are judged."""


def tidy_up(lab: Lab) -> None:
    for file in (lab.root / "home" / "s" / "runs").glob("*.json"):
        file.unlink()


def hold(lab: Lab) -> None:
    """Let rows be published that fail, and then the records be deleted."""
    declare_suite(lab, largest(1))
    write_numbers(lab.root / "land", 1, rows=3)
    with pytest.raises(QualityFailedError, match="is held"):
        lab.run(HELD)
    tidy_up(lab)
    write_numbers(lab.root / "land", 1, first=1, rows=3)


def test_a_held_stream_stays_held(lab: Lab) -> None:
    """Until the suite is corrected: it is judged by what the gate has kept, and the verdict is on disk again."""
    hold(lab)
    for _ in range(2):
        with pytest.raises(HeldError, match=r"has failed the suite.*sluice quality release s"):
            lab.run(HELD)
        tidy_up(lab)
    assert lab.spark.read.json(str(lab.root / "out")).count() == 3

    declare_suite(lab, largest(9))
    assert lab.run(HELD).status == "succeeded"
    assert lab.records(stream())[0]["quality"]["verdict"] == "pass"
    assert gate_of(lab) is None


def test_a_held_stream_is_released(lab: Lab) -> None:
    """By a person, as before."""
    hold(lab)
    says = "correct the suite, and it is judged anew; or let the stream go on with"
    read_remedy(lab.plan(HELD).problem, "HELD_BY_QUALITY", says)
    assert release_gate(lab.project.stream_home(HELD), "ada", system_clock()) is not None
    declare_suite(lab, largest(9))
    assert lab.run(HELD).status == "succeeded"
    assert gate_of(lab) is None


def test_what_a_stopped_run_has_published_counts(lab: Lab) -> None:
    """A total over it and the batch that was stopped stays what it was, however often it is tried."""
    declare_suite(lab, at_most(3), gate="cache")
    write_numbers(lab.root / "land", 2, rows=2)
    for _ in range(3):
        with pytest.raises(QualityFailedError, match="batch 1 was not published"):
            lab.run(stream())
        tidy_up(lab)
    assert ids(lab) == [0, 1]

    declare_suite(lab, at_most(4), gate="cache")
    record = lab.run(stream())
    assert record.quality is not None
    assert (record.quality.verdict, record.quality.rows, ids(lab)) == ("pass", 4, [0, 1, 2, 3])


def test_a_driver_that_died_before_its_rows_were_judged(lab: Lab) -> None:
    """Its record was deleted although it had never ended: nobody can say any more that its rows pass."""
    declare_suite(lab, largest(9))
    write_numbers(lab.root / "land", 1)
    home = lab.project.stream_home(stream())
    keep_gate(home, GateState(state="open", run_id="20260101T000000000Z-0f1e2d3c", generation=1, since=system_clock()))
    with pytest.raises(HeldError, match="its record is gone, and what it wrote was never judged"):
        lab.run(stream())
    assert not (lab.root / "out").exists()

    released = release_gate(home, "ada", system_clock())
    assert released is not None
    assert lab.run(stream()).status == "succeeded"
    assert ids(lab) == [0]
