"""Rows of a quarantine that go back into the sink: those that pass by now, exactly once, whatever is killed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame

from sluice import Stream, sinks
from sluice.auditing.return_rows import RowsReturned, return_rows
from sluice.errors import BatchFailedError, DeclarationError, LeaseTakenError
from sluice.gate.returned_rows import read_returns
from sluice.runs.lease import acquire
from sluice.sinks.contract import SinkBatch
from sluice.sinks.delta.sink import DeltaSink
from sluice.storage import Storage
from tests.campaign import rarely
from tests.spark.lab import Lab, write_numbers
from tests.spark.test_quality_gates import declare_suite, ids, stream, up_to

pytestmark = pytest.mark.spark


def quarantined(lab: Lab, count: int = 10, most: int = 5) -> None:
    """Run a stream of `count` numbers, those above `most` of which go to the quarantine."""
    declare_suite(lab, up_to(most, "quarantine"))
    write_numbers(lab.root / "land", 1, rows=count)
    lab.run(stream())


def release(lab: Lab, where: str | None = None, declared: Stream | None = None) -> RowsReturned:
    resolved = lab.project.resolve(declared or stream())
    return return_rows(lab.project, resolved, where, "ada", session=lab.spark)


def edit(lab: Lab, condition: str, **values: str) -> None:
    """Edit rows of the quarantine, as a person does."""
    table = DeltaTable.forPath(lab.spark, str(lab.root / "out_quarantine"))
    table.update(condition, dict(values))


def test_rows_that_were_edited_go_back(lab: Lab) -> None:
    """The others stay; the columns of the quarantine do not reach the sink."""
    quarantined(lab)
    edit(lab, "id = 9", id="0")

    done = release(lab)

    assert (done.returned.rows, done.returned.left, done.returned.returned_by) == (1, 3, "ada")
    assert ids(lab) == [0, 0, 1, 2, 3, 4, 5]
    assert ids(lab, "out_quarantine") == [6, 7, 8]
    assert lab.table("out").columns == ["id"]
    assert [(found.state, found.rows) for found in read_returns(lab.project.stream_home(stream()))] == [("done", 1)]


def test_rows_pass_once_the_suite_is_corrected(lab: Lab) -> None:
    """A condition picks among them; a second release finds the rest; a third finds nothing."""
    quarantined(lab)
    declare_suite(lab, up_to(8, "quarantine"))

    first, second, third = release(lab, "id >= 7"), release(lab), release(lab)

    assert [(found.returned.rows, found.returned.left) for found in (first, second, third)] == [(2, 1), (1, 1), (0, 1)]
    assert ids(lab) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert ids(lab, "out_quarantine") == [9]


def test_the_stream_goes_on(lab: Lab) -> None:
    """After a release, its next batches are split as before."""
    quarantined(lab, count=5, most=3)
    declare_suite(lab, up_to(4, "quarantine"))
    release(lab)
    write_numbers(lab.root / "land", 1, first=1, rows=5)

    record = lab.run(stream())

    assert record.status == "succeeded"
    assert ids(lab) == [0, 1, 2, 3, 4]
    assert ids(lab, "out_quarantine") == [5, 6, 7, 8, 9]


class Killed(BaseException):
    """A kill at a certain place."""


@dataclass(frozen=True)
class KilledSink(DeltaSink):
    """A table whose driver is killed before or after it has written a batch of a release."""

    is_written: bool = True

    def write_batch(self, frame: DataFrame, batch: SinkBatch, **more: Any) -> None:
        if self.is_written:
            super().write_batch(frame, batch, **more)
        raise Killed


@pytest.mark.parametrize("moment", [*rarely("before"), "after"])
def test_a_killed_release_is_finished_once(lab: Lab, moment: str) -> None:
    """Its rows are in one of the two tables each, and it is not lost who asked for it."""
    quarantined(lab)
    declare_suite(lab, up_to(8, "quarantine"))
    path = str(lab.root / "out")
    with pytest.raises(Killed):
        release(lab, declared=stream(sink=KilledSink(path, (), is_written=moment == "after")))
    assert ids(lab, "out_quarantine") == [6, 7, 8, 9]
    edit(lab, "id = 9", id="-1")

    done = release(lab)

    assert [(found.rows, found.returned_by) for found in done.finished] == [(3, "ada")]
    assert done.returned.rows == 1
    assert ids(lab) == [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert ids(lab, "out_quarantine") == []


@pytest.mark.parametrize("writes", [*rarely(0, 1), 2])
def test_a_release_killed_between_its_steps(lab: Lab, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """Before anything, with rows claimed that its document does not tell of, and with all done but that."""
    quarantined(lab)
    declare_suite(lab, up_to(8, "quarantine"))
    left = [writes]
    write = Storage.replace

    def write_or_die(storage: Storage, location: str, content: bytes) -> None:
        if "/releases/" in location:
            if not left[0]:
                raise Killed
            left[0] -= 1
        write(storage, location, content)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "replace", write_or_die)
        with pytest.raises(Killed):
            release(lab)

    done = release(lab)

    sent = [found.rows for found in (*done.finished, done.returned)]
    assert sent == [[3], [3, 0], [3, 0]][writes]
    assert ids(lab) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert ids(lab, "out_quarantine") == [9]


def test_a_sink_that_refuses_the_rows(lab: Lab) -> None:
    """They are in the quarantine as before, and the next release goes on: with others, or once they are corrected."""
    quarantined(lab)
    lab.spark.sql(f"ALTER TABLE delta.`{lab.root}/out` ADD CONSTRAINT small CHECK (id < 7)")
    declare_suite(lab, up_to(8, "quarantine"))

    with pytest.raises(BatchFailedError, match=r"the sink refused the rows.*CHECK constraint.*- id : [?] \[stream"):
        release(lab)
    assert (ids(lab), ids(lab, "out_quarantine")) == ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9])

    assert release(lab, "id = 6").returned.rows == 1
    edit(lab, "id >= 7", id="1")
    assert release(lab).returned.rows == 3
    assert (ids(lab), ids(lab, "out_quarantine")) == ([0, 1, 1, 1, 1, 2, 3, 4, 5, 6], [])
    states = [found.state for found in read_returns(lab.project.stream_home(stream()))]
    assert states == ["refused", "done", "done"]


def test_a_run_keeps_a_release_waiting(lab: Lab) -> None:
    """They write the same two tables: one has the lease at a time."""
    quarantined(lab)
    home = lab.project.stream_home(stream())

    with (
        acquire(home.storage, home.lease_folder(1), run_id="r", sink_is_idempotent=True),
        pytest.raises(LeaseTakenError),
    ):
        release(lab)
    assert read_returns(home) == []


@pytest.mark.parametrize("where", ["nothing = 1", "id +", "id", "id = 1) OR (true", "id IN (SELECT 1)", "rand() < 2"])
def test_a_wrong_condition(lab: Lab, where: str) -> None:
    """It is refused with Spark's words, nothing moves, and no release is left that holds a backfill up."""
    quarantined(lab)

    with pytest.raises(DeclarationError, match="the condition is wrong"):
        release(lab, where)

    assert len(ids(lab, "out_quarantine")) == 4
    assert read_returns(lab.project.stream_home(stream())) == []


def test_no_quarantine_yet(lab: Lab) -> None:
    """There is nothing to send back, and no Spark is needed to say so."""
    declare_suite(lab, up_to(5, "quarantine"))

    assert release(lab).returned.rows == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"quality": None}, "has no suite"), ({"sink": sinks.files("out", format="json")}, "has no quarantine")],
)
def test_a_stream_without_quarantine(lab: Lab, changes: dict[str, Any], problem: str) -> None:
    """It is said what is missing."""
    declare_suite(lab, up_to(5, "warn"))
    with pytest.raises(DeclarationError, match=problem):
        release(lab, declared=stream(**changes))


def test_a_table_that_is_no_quarantine(lab: Lab) -> None:
    """No row of somebody else's table is deleted."""
    declare_suite(lab, up_to(5, "quarantine"))
    lab.spark.range(3).write.format("delta").save(str(lab.root / "out_quarantine"))

    with pytest.raises(DeclarationError, match="no quarantine"):
        release(lab)

    assert ids(lab, "out_quarantine") == [0, 1, 2]
