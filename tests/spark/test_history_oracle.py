"""The oracle of whole histories sees what it is for: faults that are planted, each of them after a cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.builders import clean_log, put
from tests.spark.histories import History
from tests.spark.history_inputs import DAYS, Inputs
from tests.spark.history_oracle import Oracle
from tests.spark.history_readers import Reader
from tests.spark.history_steps import as_json, draw_history, kept_histories
from tests.spark.history_streams import Declared
from tests.spark.lab import Lab

QUERY = "q"
FIRST = Declared(transform=1, policy="quarantine")
"""By which row 3 is bad."""
SECOND = Declared(transform=2, policy="quarantine")
"""By which row 2 is."""


@dataclass
class Case:
    """A history of two batches, of which a cut leaves the first decided and the second not."""

    root: Path
    batches: dict[int, list[int]] = field(default_factory=lambda: {0: [0, 1, 2, 3], 1: [4, 5]})

    def __post_init__(self) -> None:
        self.days = {number: DAYS[number % 2] for number in range(6)}
        self.oracle = Oracle(self.root, self.days, lambda: "a story")

    def write(self, table: str, *numbers: int, mark: int = 1, batch: int | None = None) -> None:
        rows = pa.table({"n": pa.array(numbers, pa.int64()), "v": pa.array([mark] * len(numbers), pa.int32())})
        of = None if batch is None else [Transaction(QUERY, batch)]
        told = CommitProperties(app_transactions=of)
        write_deltalake(str(self.root / table), rows, mode="append", commit_properties=told)

    def drop(self, table: str, number: int) -> None:
        DeltaTable(str(self.root / table)).delete(f"n = {number}")

    def note(self, declared: Declared, *, committed: int, staged: tuple[int, ...] = ()) -> None:
        self.oracle.note_step(declared, self.batches, committed=committed, staged=staged, query_id=QUERY)

    def cut(self) -> None:
        """The quarantine has its part of the first batch, and the sink has not."""
        self.write("out_quarantine", 3, batch=0)
        self.note(FIRST, committed=-1, staged=(0,))
        self.oracle.check(self.batches, is_complete=False)

    def resume(self) -> None:
        """The sink gets its part, as it was decided; the second batch is decided by what is declared now."""
        self.write("out", 0, 1, 2, batch=0)
        self.write("out", 4, 5, mark=2, batch=1)
        self.note(SECOND, committed=1)

    def check(self) -> None:
        self.oracle.check(self.batches, is_complete=True)


def test_what_is_right_passes(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.cut()
    case.resume()

    case.check()

    assert case.oracle.known[3] == ("out_quarantine", 1)
    assert case.oracle.known[4] == ("out", 2)


FAULTS: dict[str, tuple[Callable[[Case], None], str]] = {
    "all rows twice": (lambda case: case.write("out", 0, 1, 2), "row 0: it is there 2 times"),
    "a row in both tables": (lambda case: case.write("out", 3), "row 3: it is there 2 times"),
    "a row in two quarantines": (lambda case: case.write("elsewhere", 3), "row 3: it is there 2 times"),
    "a row that is lost": (lambda case: case.drop("out", 1), r"row 1: it is in None, not in \{\('out', 1\)\}"),
    "a row that was there, and is lost": (lambda case: case.drop("out_quarantine", 3), "row 3: it was in"),
    "a row of nobody": (lambda case: case.write("out", 99), "row 99: no batch has read it"),
    "a row that no batch has read": (lambda case: case.days.update({6: DAYS[0]}), r"no batch has read \[6\]"),
}


@pytest.mark.parametrize(("plant", "told"), FAULTS.values(), ids=FAULTS)
def test_a_fault_after_a_cut(tmp_path: Path, plant: Callable[[Case], None], told: str) -> None:
    """It is seen at once, by the look after the run that goes on."""
    case = Case(tmp_path)
    case.cut()
    case.resume()
    plant(case)

    with pytest.raises(AssertionError, match=told):
        case.check()


@pytest.mark.parametrize(("plant", "told"), FAULTS.values(), ids=FAULTS)
def test_a_fault_between_two_runs(tmp_path: Path, plant: Callable[[Case], None], told: str) -> None:
    """What was seen once is where it was."""
    case = Case(tmp_path)
    case.cut()
    case.resume()
    case.check()
    plant(case)

    with pytest.raises(AssertionError, match=told.partition(" it ")[0]):
        case.check()


def test_rows_that_are_doubled_while_a_batch_is_pending(tmp_path: Path) -> None:
    """A cut excuses nothing: what the tables have then is right, if it is not all."""
    case = Case(tmp_path)
    case.cut()
    case.write("out_quarantine", 3)

    with pytest.raises(AssertionError, match="row 3: it is there 2 times"):
        case.oracle.check(case.batches, is_complete=False)


@pytest.mark.parametrize("staged", [(), (0,)], ids=["by a commit", "on disk"])
def test_a_batch_that_is_decided_twice(tmp_path: Path, staged: tuple[int, ...]) -> None:
    """The one declaration decided it; by that of today the row would be elsewhere, or have another mark."""
    case = Case(tmp_path)
    if not staged:
        case.write("out_quarantine", batch=0)
    case.note(FIRST, committed=-1, staged=staged)
    case.write("out_quarantine", 2, mark=2)
    case.write("out", 0, 1, 3, mark=2, batch=0)
    case.write("out", 4, 5, mark=2, batch=1)
    case.note(SECOND, committed=1)

    with pytest.raises(AssertionError, match=r"row 0: it is in \('out', 2\), not in \{\('out', 1\)\}"):
        case.check()


def test_a_batch_that_nothing_has_decided(tmp_path: Path) -> None:
    """What is declared when it is decided counts, not what was when it was planned."""
    case = Case(tmp_path)
    case.note(FIRST, committed=-1)
    case.write("out_quarantine", 2, mark=2)
    case.write("out", 0, 1, 3, mark=2, batch=0)
    case.write("out", 4, 5, mark=2, batch=1)
    case.note(SECOND, committed=1)

    case.check()


def test_a_decision_that_was_taken_back(tmp_path: Path) -> None:
    """A table has refused the rows: the batch is decided anew."""
    case = Case(tmp_path)
    case.note(FIRST, committed=-1, staged=(0,))
    case.note(FIRST, committed=-1)
    case.note(SECOND, committed=0)

    assert case.oracle.decided == {0: SECOND}


def test_a_row_behind_a_gate(tmp_path: Path) -> None:
    """A bad row of a batch that nobody has released is nowhere, whichever table has it."""
    case = Case(tmp_path, {0: [3]})
    case.days = case.oracle.arrived = {3: DAYS[0]}
    case.write("out", 3, batch=0)
    case.note(Declared(policy="fail"), committed=0)

    with pytest.raises(AssertionError, match="row 3: it is in"):
        case.check()


def test_a_replaced_day(tmp_path: Path) -> None:
    """Its rows are as they are computed now, and those of other days as they were."""
    case = Case(tmp_path)
    case.cut()
    case.resume()
    case.check()
    for number in (0, 2):
        case.drop("out", number)
    case.drop("out", 4)
    case.write("out", 0, 4, mark=2)
    case.write("out_quarantine", 2, mark=2)

    case.oracle.replaced(SECOND, [0, 2, 4], case.batches)

    case.drop("out", 1)
    with pytest.raises(AssertionError, match="row 1: it was in"):
        case.oracle.replaced(SECOND, [0, 2, 4], case.batches)
    case.write("out", 1)
    case.write("out_quarantine", 0, mark=2)
    with pytest.raises(AssertionError, match="row 0: it is there 2 times"):
        case.oracle.replaced(SECOND, [0, 2, 4], case.batches)


def test_a_row_that_came_too_late(tmp_path: Path) -> None:
    """It is in no table, unless it was recomputed: then it is where it was put."""
    case = Case(tmp_path)
    case.cut()
    case.resume()
    case.days[6] = DAYS[0]
    case.oracle.check(case.batches, is_complete=True, dropped=[6])
    case.write("out", 6)
    with pytest.raises(AssertionError, match="row 6: no batch has read it"):
        case.oracle.check(case.batches, is_complete=True, dropped=[6])

    case.oracle.replaced(FIRST, [6], case.batches)
    case.oracle.check(case.batches, is_complete=True)


def test_what_is_late_is_late_by_the_batches_before(tmp_path: Path) -> None:
    """By those before the one before it, as Spark does: and it is late each time, or it is the later batch's."""
    checkpoint = tmp_path / "checkpoint"
    inputs = Inputs(tmp_path, checkpoint)
    inputs.begin(has_table=False, has_watermark=True)
    inputs.make_rows([0, 1, 0, 0])
    # By hours: row 1 at 45, so that what is before 29 is late for the third batch, and not for the second one.
    for numbers, hours in (([0, 1], [3, 21]), ([2], [5]), ([0, 2, 3], [3, 5, 15]), ([3], [15])):
        inputs.write_file(numbers, hours=hours)
    for log_id in range(4):
        offsets, log = checkpoint / "offsets", checkpoint / "sources" / "0"
        put(offsets / str(log_id), f'v1\n{{}}\n{{"logOffset":{log_id}}}')
        put(log / str(log_id), f'v1\n{{"path":"file:///{log_id + 1:04d}.json","timestamp":0,"batchId":{log_id}}}')

    assert inputs.batches() == {0: [0, 1], 1: [2], 2: [], 3: []}
    assert (inputs.late(), inputs.read_to(1), inputs.watermark_of(1)) == ({3}, {0, 1, 2}, 29)


def test_a_row_that_is_being_moved(tmp_path: Path) -> None:
    """It may be in both tables meanwhile, never in neither; and in one alone when the move is over."""
    case = Case(tmp_path)
    case.cut()
    case.resume()
    case.check()
    case.oracle.loose = {3: [("out_quarantine", 1), ("out", 1)]}
    case.write("out", 3)
    case.check()
    case.write("out", 3)
    with pytest.raises(AssertionError, match="row 3: it is being moved"):
        case.check()
    case.drop("out", 3)
    case.write("out", 3)
    case.drop("out_quarantine", 3)
    case.check()
    case.drop("out", 3)

    with pytest.raises(AssertionError, match="row 3: it is being moved"):
        case.check()

    case.write("out", 3)
    case.oracle.settle({3: ("out", 1)})
    case.check()
    case.write("out_quarantine", 3)
    with pytest.raises(AssertionError, match="row 3: it is there 2 times"):
        case.check()


def test_what_a_second_stream_must_have(tmp_path: Path) -> None:
    """What was appended, version by version, whatever is cleaned up later; and nothing of those that take rows away."""
    case = Case(tmp_path)
    reader = Reader(Lab(None, tmp_path), case.days, lambda: "a story")
    case.write("out", 0, 1)
    reader.note("out")
    case.write("out", 2)
    case.drop("out", 0)
    DeltaTable(str(tmp_path / "out")).optimize.compact()
    case.write("out", 3, mark=2)
    reader.note("out")
    clean_log(tmp_path / "out")
    reader.note("out")

    assert reader.appended == {0: [(0, 1), (1, 1)], 1: [(2, 1)], 3: [], 4: [(3, 2)]}
    assert [file.name for file in sorted((tmp_path / "out" / "_delta_log").glob("*.json"))] == [f"{4:020}.json"]
    assert sorted(row["n"] for row in case.oracle.rows("out", "n")) == [1, 2, 3]


def test_a_stream_is_edited_between_a_cut_and_the_next_run_in_most_histories() -> None:
    """That is where batches were decided twice."""
    found = sum(_has_edited_resume([name for name, _ in draw_history(seed, 5)]) for seed in range(1000))

    assert found >= 500


def _has_edited_resume(names: list[str]) -> bool:
    for at, name in enumerate(names):
        between = names[at + 1 :]
        if name == "cut_run" and "run" in between and "edit" in between[: between.index("run")]:
            return True
    return False


def test_steps_are_kept_as_they_are() -> None:
    """From the file they are those that were drawn, and each one is there to be taken."""
    steps = draw_history(7, 14)

    assert [(name, how) for name, how in json.loads(as_json(steps))] == steps
    names = {name for kept in kept_histories() for name, _ in kept["steps"]}
    names |= {name for seed in range(300) for name, _ in draw_history(seed, 14)}
    assert all(callable(getattr(History, name)) for name in names)
