"""Backfills and releases that somebody undoes by a `RESTORE` or an older copy; what follows is killed or edited, too.

Each row is in one table, once; or whatever would send rows is refused until what was undone is done again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable

from sluice import sinks
from sluice.errors import QualityFailedError, RefusedError
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillPreparation, BackfillRequest
from sluice.sinks.delta import parquet_aside
from sluice.sinks.delta.sink import DeltaSink
from sluice.spark.left_behind import forget_tables
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_files
from tests.spark.sink_operations import Numbers, killed
from tests.spark.test_restored_halves import QUARANTINE, SINK, restore, version

pytestmark = pytest.mark.spark

BEGUN_AGAIN, UNDONE = "was begun again", "the table was restored to before"


def both(numbers: Numbers) -> tuple[Counter[int], Counter[int]]:
    """The rows of the sink, and those of the quarantine."""
    return numbers.held(SINK), numbers.held(QUARANTINE)


def first_try_whose_quarantine_is_restored(numbers: Numbers) -> None:
    before = version(numbers, QUARANTINE)
    numbers.allow(2)
    with killed(DeltaSink, "replace_where", call=2):
        numbers.backfill("key")
    restore(numbers, QUARANTINE, before)


def second_try_behind_a_restored_quarantine(numbers: Numbers) -> None:
    first_try_whose_quarantine_is_restored(numbers)
    with killed(DeltaSink, "publish" if numbers.partitions else "replace_rows"):
        numbers.backfill("key")


def second_try_that_fails(numbers: Numbers) -> None:
    first_try_whose_quarantine_is_restored(numbers)
    numbers.allow(2, "fail")
    with pytest.raises(QualityFailedError):
        numbers.backfill("key")


def second_try_behind_a_restored_sink(numbers: Numbers) -> None:
    before = version(numbers, SINK)
    with killed(BackfillPreparation, "close"):
        numbers.backfill("key")
    restore(numbers, SINK, before)
    with killed(DeltaSink, "publish" if numbers.partitions else "replace_rows"):
        numbers.backfill("key")


def sink_behind_one_that_empties(numbers: Numbers) -> None:
    before = version(numbers, SINK)
    numbers.backfill("key")
    restore(numbers, SINK, before)


def sink_behind_one_that_fills(numbers: Numbers) -> None:
    numbers.release()
    before = version(numbers, SINK)
    numbers.allow(2)
    numbers.backfill("key")
    restore(numbers, SINK, before)


def quarantine_to_an_empty_one(numbers: Numbers) -> None:
    numbers.release()
    empty = version(numbers, QUARANTINE)
    numbers.allow(2)
    numbers.backfill("key")
    restore(numbers, QUARANTINE, empty)


def behind_one_that_moves_nothing(numbers: Numbers) -> None:
    before = version(numbers, QUARANTINE)
    numbers.backfill("key")
    numbers.backfill("another")
    restore(numbers, QUARANTINE, before)


def sink_behind_one_that_moves_nothing(numbers: Numbers) -> None:
    before = version(numbers, SINK)
    numbers.backfill("key")
    restore(numbers, SINK, before)
    before = version(numbers, SINK)
    numbers.backfill("another")
    restore(numbers, SINK, before)


def one_with_another_quarantine(numbers: Numbers) -> None:
    numbers.backfill_other_day()
    before = version(numbers, QUARANTINE)
    numbers.backfill("key")
    numbers.editing(quarantine=sinks.delta("another_quarantine")).backfill("another")
    restore(numbers, QUARANTINE, before)


@pytest.mark.parametrize(
    ("history", "told"),
    [
        (second_try_behind_a_restored_quarantine, BEGUN_AGAIN),
        (second_try_that_fails, BEGUN_AGAIN),
        (second_try_behind_a_restored_sink, UNDONE),
        (sink_behind_one_that_empties, UNDONE),
        (sink_behind_one_that_fills, UNDONE),
        (quarantine_to_an_empty_one, "the quarantine was restored"),
        (behind_one_that_moves_nothing, "the quarantine was restored"),
        (sink_behind_one_that_moves_nothing, UNDONE),
        (one_with_another_quarantine, "the quarantine was restored"),
    ],
)
@pytest.mark.parametrize("partitions", [("day",), *rarely(())])
def test_a_backfill(lab: Lab, history: Callable[[Numbers], None], told: str, partitions: tuple[str, ...]) -> None:
    """What it had moved would be there twice, or in none: nothing is sent until the interval is backfilled again."""
    numbers = Numbers(lab, partitions)
    numbers.begin()
    numbers.allow(100)
    history(numbers)
    numbers.allow(100)
    with pytest.raises(RefusedError, match=told) as refused:
        numbers.release()
    read_remedy(refused.value, "BACKFILL_UNFINISHED", "backfill the interval again, then release the rows")
    numbers.backfill("again")
    numbers.release()
    assert both(numbers) == (Counter(range(1, 9)), Counter())


@pytest.mark.parametrize("is_first_try_shown", [False, True])
def test_a_backfill_that_is_undone_in_both_tables(lab: Lab, *, is_first_try_shown: bool) -> None:
    """All is as it was before: nothing is in the way of a release, but what a try had left that died."""
    numbers = Numbers(lab)
    numbers.begin()
    if is_first_try_shown:
        numbers.allow(2)
        with killed(DeltaSink, "publish"):
            numbers.backfill("key")
    numbers.allow(100)
    before = {path: version(numbers, path) for path in (SINK, QUARANTINE)}
    numbers.backfill("key")
    for path, to in before.items():
        restore(numbers, path, to)
    if is_first_try_shown:
        with pytest.raises(RefusedError, match="the quarantine was restored"):
            numbers.release()
        numbers.backfill("again")
    numbers.release()
    assert both(numbers) == (Counter(range(1, 9)), Counter())


def test_copies_that_are_back_in_a_quarantine(lab: Lab) -> None:
    """A release had taken out what a killed backfill had put there; to before that, the quarantine was restored."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(2)
    with killed(DeltaSink, "publish"):
        numbers.backfill("key")
    before = version(numbers, QUARANTINE)
    numbers.release()
    restore(numbers, QUARANTINE, before)
    numbers.allow(100)
    with pytest.raises(RefusedError) as refused:
        numbers.release()
    read_remedy(refused.value, "BACKFILL_UNFINISHED", "backfill the interval again, then release the rows")
    numbers.backfill("again")
    numbers.release()
    assert both(numbers) == (Counter(range(1, 9)), Counter())


def test_a_backfill_that_is_undone_and_moved(lab: Lab) -> None:
    """The retry looks at the quarantine where it is by now."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(100)
    before = version(numbers, QUARANTINE)
    numbers.backfill("key")
    restore(numbers, QUARANTINE, before)
    shutil.move(numbers.table(QUARANTINE), numbers.table("moved"))
    forget_tables(lab.spark)
    moved = numbers.editing(quarantine=sinks.delta("moved"))
    moved.backfill("key")
    moved.release()
    assert (moved.held(SINK), moved.held("moved")) == (Counter(range(1, 9)), Counter())


def test_a_restore_that_undoes_nothing(lab: Lab) -> None:
    """The backfill had put rows into the quarantine, and then found none to take out: to that it is taken back."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(100)
    numbers.release()
    numbers.allow(2)
    numbers.backfill("key")
    restore(numbers, QUARANTINE, version(numbers, QUARANTINE) - 1)
    numbers.allow(100)
    numbers.release()
    assert both(numbers) == (Counter(range(1, 9)), Counter())


def test_a_backfill_that_several_stand_for(lab: Lab) -> None:
    """What it had moved is recomputed day by day."""
    numbers = Three(lab)
    numbers.begin()
    numbers.allow(100)
    before = version(numbers, QUARANTINE)
    numbers.fill(days(1, 4), "all")
    restore(numbers, QUARANTINE, before)
    for day in (3, 1):
        numbers.fill(days(day, day + 1), f"day {day}")
    with pytest.raises(RefusedError, match="the quarantine was restored"):
        numbers.release()
    numbers.fill(days(2, 3), "day 2")
    numbers.release()
    assert both(numbers) == (Counter(range(1, 10)), Counter())


@pytest.mark.parametrize("undone", [SINK, QUARANTINE])
def test_a_backfill_that_is_asked_for_again(lab: Lab, undone: str) -> None:
    """A retry of one that is done does nothing, unless somebody has undone it."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(100)
    before = version(numbers, undone)
    numbers.backfill("key")
    written = {path: version(numbers, path) for path in (SINK, QUARANTINE)}
    numbers.backfill("key")
    assert {path: version(numbers, path) for path in (SINK, QUARANTINE)} == written
    restore(numbers, undone, before)
    numbers.backfill("key")
    numbers.release()
    assert both(numbers) == (Counter(range(1, 9)), Counter())


@pytest.mark.parametrize(
    ("step", "undone"),
    [((DeltaSink, "write_batch"), SINK), ((DeltaSink, "write_batch"), QUARANTINE), ((SparkTable, "delete"), SINK)],
)
def test_a_killed_release_behind_a_backfill_that_is_undone(lab: Lab, step: tuple[type, str], undone: str) -> None:
    """Each would wait for the other: the release ends without sending, and a backfill may begin."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(100)
    before = version(numbers, undone)
    numbers.backfill("key")
    with killed(*step):
        numbers.release()
    restore(numbers, undone, before)
    with pytest.raises(RefusedError) as refused:
        numbers.release()
    read_remedy(refused.value, "BACKFILL_UNFINISHED", "backfill the interval again, then release the rows")
    numbers.backfill("again")
    numbers.release()
    assert both(numbers) == (Counter(range(1, 9)), Counter())


def test_a_backfill_that_did_harm_and_was_begun_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction just before its commit left rows twice; it died in the next attempt, which was to put that right."""
    numbers = Numbers(lab, ("day",))
    numbers.begin()
    numbers.allow(100)
    numbers.live()
    find_added, calls = parquet_aside.find_added, []

    def compacting(*args: Any, **named: Any) -> Any:
        if not calls:
            DeltaTable(numbers.table(SINK)).optimize.compact()
        calls.append(args)
        return find_added(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(parquet_aside, "find_added", compacting)
        with killed(DeltaSink, "write_aside", call=2):
            numbers.backfill("key")
    assert max(both(numbers)[0].values()) == 2
    with pytest.raises(RefusedError) as refused:
        numbers.release()
    read_remedy(refused.value, "BACKFILL_UNFINISHED", "backfill the interval again, then release the rows")
    numbers.backfill("again")
    numbers.release()
    assert both(numbers) == (Counter(range(1, 11)), Counter())


def days(first: int, end: int) -> Interval:
    return Interval(datetime(2026, 1, first, tzinfo=UTC), datetime(2026, 1, end, tzinfo=UTC))


@dataclass(frozen=True)
class Three(Numbers):
    """Numbers 1 to 9 on three days, the remainder by 3 tells which; of two intervals, both have the second."""

    def begin(self) -> None:
        self.allow(6)
        rows = [json.dumps({"n": n, "day": f"2026-01-{1 + n % 3:02d}"}) for n in range(1, 10)]
        write_files(self.lab.root / "land", {"0001.json": "\n".join(rows)}, first=1)
        self.lab.run(self.stream)

    def fill(self, interval: Interval, key: str) -> None:
        backfill_stream(self.lab.project, BackfillRequest(self.stream, interval, key), session=self.lab.spark)


@pytest.mark.parametrize("tight", ["first", *rarely("second")])
@pytest.mark.parametrize("partitions", [("day",), *rarely(())])
def test_two_backfills_that_overlap(lab: Lab, tight: str, partitions: tuple[str, ...]) -> None:
    """The first was killed before it was done with the quarantine; the second, done since, is undone in the sink."""
    numbers = Three(lab, partitions)
    numbers.begin()
    numbers.allow(2 if tight == "first" else 100)
    with killed(DeltaSink, "replace_where", call=2):
        numbers.fill(days(1, 3), "first")
    before = version(numbers, SINK)
    numbers.allow(2 if tight == "second" else 100)
    numbers.fill(days(2, 4), "second")
    restore(numbers, SINK, before)
    numbers.fill(days(1, 3), "first")
    numbers.allow(100)
    with pytest.raises(RefusedError, match=UNDONE):
        numbers.release()
    numbers.fill(days(2, 4), "again")
    numbers.release()
    assert both(numbers) == (Counter(range(1, 10)), Counter())


def put_back(numbers: Numbers, path: str) -> None:
    """An older copy of a table takes its place."""
    shutil.rmtree(numbers.table(path))
    shutil.copytree(numbers.table(f"{path}_copy"), numbers.table(path))
    forget_tables(numbers.lab.spark)


@pytest.mark.parametrize("lost", ["an older copy", *rarely("deleted"), "made anew"])
def test_a_killed_backfill_whose_quarantine_is_lost(lab: Lab, lost: str) -> None:
    """Rows that it has put there are in no table: its retry begins anew."""
    numbers = Numbers(lab, ("day",))
    numbers.begin()
    shutil.copytree(numbers.table(QUARANTINE), numbers.table(f"{QUARANTINE}_copy"))
    numbers.allow(2)
    with killed(DeltaSink, "replace_where", call=2):
        numbers.backfill("key")
    arrived = Counter[int]()
    if lost == "an older copy":
        put_back(numbers, QUARANTINE)
    else:
        shutil.rmtree(numbers.table(QUARANTINE))
        forget_tables(lab.spark)
    if lost == "made anew":
        numbers.allow(9)
        numbers.arrive(9, 10)
        lab.run(numbers.stream)
        numbers.allow(2)
        arrived = Counter([9, 10])
    numbers.backfill("key")
    sink, quarantine = both(numbers)
    # Of the table that is given up, the live stream's row of the other day is gone.
    assert sink + quarantine == Counter(range(1, 9 if lost == "an older copy" else 8)) + arrived
    assert {3, 5, 7} <= quarantine.keys()


def fewer_rows_sent_again(numbers: Numbers) -> None:
    with killed(SparkTable, "delete"):
        numbers.release()
    sent = version(numbers, SINK)
    restore(numbers, SINK, sent - 1)
    numbers.allow(7)
    with killed(SparkTable, "delete"):
        numbers.release()
    restore(numbers, SINK, sent)


def forward_behind_a_part(numbers: Numbers) -> None:
    numbers.release()
    sent = version(numbers, SINK)
    restore(numbers, SINK, sent - 1)
    restore(numbers, QUARANTINE, 0)
    numbers.release("n = 7")
    restore(numbers, SINK, sent)


def freed_and_forward(numbers: Numbers) -> None:
    numbers.release()
    sent = version(numbers, SINK)
    restore(numbers, SINK, sent - 1)
    restore(numbers, QUARANTINE, version(numbers, QUARANTINE) - 1)
    numbers.release("n = 7")
    restore(numbers, SINK, sent)


def begun_again_and_forward(numbers: Numbers) -> None:
    with killed(SparkTable, "delete"):
        numbers.release()
    sent = version(numbers, SINK)
    restore(numbers, SINK, sent - 1)
    restore(numbers, QUARANTINE, 0)
    numbers.release("n = 0")
    restore(numbers, SINK, sent)


def older_copy_behind_one_that_was_killed(numbers: Numbers) -> None:
    shutil.copytree(numbers.table(QUARANTINE), numbers.table(f"{QUARANTINE}_copy"))
    with killed(SparkTable, "delete"):
        numbers.release()
    put_back(numbers, QUARANTINE)


def older_copy_behind_one_that_is_done(numbers: Numbers) -> None:
    shutil.copytree(numbers.table(QUARANTINE), numbers.table(f"{QUARANTINE}_copy"))
    numbers.release()
    put_back(numbers, QUARANTINE)


def older_copy_that_was_written_on(numbers: Numbers) -> None:
    shutil.copytree(numbers.table(QUARANTINE), numbers.table(f"{QUARANTINE}_copy"))
    numbers.release()
    marked = version(numbers, QUARANTINE)
    put_back(numbers, QUARANTINE)
    while version(numbers, QUARANTINE) <= marked:
        DeltaTable(numbers.table(QUARANTINE)).alter.set_table_properties(
            {"delta.logRetentionDuration": "interval 30 days"}
        )


@pytest.mark.parametrize(
    "history",
    [
        fewer_rows_sent_again,
        forward_behind_a_part,
        freed_and_forward,
        begun_again_and_forward,
        older_copy_behind_one_that_was_killed,
        older_copy_behind_one_that_is_done,
        older_copy_that_was_written_on,
    ],
)
def test_a_release(lab: Lab, history: Callable[[Numbers], None]) -> None:
    """Its rows are in the sink, and in the quarantine without its mark: they are not sent again."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(100)
    history(numbers)
    numbers.allow(100)
    with pytest.raises(RefusedError) as refused:
        numbers.release()
    read_remedy(refused.value, "RELEASE_MARKS_GONE", "release rows again")
    assert both(numbers)[0] == Counter(range(1, 9))


def test_rows_that_are_given_up_in_the_quarantine(lab: Lab) -> None:
    """The other remedy, where the version that has the marks can't be restored any more."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(100)
    older_copy_behind_one_that_is_done(numbers)
    with pytest.raises(RefusedError) as refused:
        numbers.release()
    says = r"take out of the quarantine what the sink has of this release, and delete the file (\S+) in the"
    problem = read_remedy(refused.value, "RELEASE_MARKS_GONE", says)
    file = re.search(says, problem.remedy)
    assert file is not None
    DeltaTable(numbers.table(QUARANTINE)).delete("n in (7, 8)")
    numbers.release()
    numbers.allow(9)
    numbers.arrive(9, 10)
    lab.run(numbers.stream)
    numbers.allow(100)
    with pytest.raises(RefusedError, match="restored to before they were marked"):
        numbers.release()
    (lab.root / "home" / "s" / file[1]).unlink()
    numbers.release()
    assert both(numbers) == (Counter(range(1, 11)), Counter())


def test_a_sink_that_is_taken_back_again(lab: Lab) -> None:
    """The remedy: the rows are in the quarantine alone, and are sent."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(100)
    begun_again_and_forward(numbers)
    with pytest.raises(RefusedError, match="taken forward again"):
        numbers.release()
    restore(numbers, SINK, 0)
    numbers.release()
    assert both(numbers) == (Counter(range(1, 9)), Counter())


def test_a_release_whose_quarantine_is_made_anew(lab: Lab) -> None:
    """Killed before its rows were sent: they are in no table, whatever lies in the quarantine's place by now."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(100)
    with killed(DeltaSink, "write_batch"):
        numbers.release()
    shutil.rmtree(numbers.table(QUARANTINE))
    forget_tables(lab.spark)
    numbers.allow(9)
    numbers.arrive(9, 10)
    lab.run(numbers.stream)
    with pytest.raises(RefusedError) as refused:
        numbers.release()
    assert refused.value.finding.code == "RELEASE_QUARANTINE_GONE"
