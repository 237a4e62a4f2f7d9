"""A `RESTORE` of a table between the kill of a release or a backfill and what follows: each row is in one table, once.

What a table's log says of a write does not count once its rows are taken back.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice import sinks
from sluice.auditing import return_rows
from sluice.errors import BatchFailedError, RefusedError
from sluice.running.backfill_preparation import BackfillPreparation
from sluice.sinks.delta.sink import DeltaSink
from sluice.spark.left_behind import forget_tables
from tests.builders import edit_commit
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab
from tests.spark.sink_operations import Numbers, killed
from tests.spark.test_edits_after_kills import ALL, documents, killed_release, places
from tests.spark.test_split_batches import cut

pytestmark = pytest.mark.spark

SINK, QUARANTINE = "out", "out_quarantine"


def version(numbers: Numbers, path: str) -> int:
    return DeltaTable(numbers.table(path)).version()


def restore(numbers: Numbers, path: str, to: int) -> None:
    DeltaTable(numbers.table(path)).restore(to)


def append(numbers: Numbers, path: str, number: int) -> None:
    """Somebody writes a row of the second day."""
    day = pa.array(["2026-01-02"]).cast(pa.date32())
    rows = pa.table({"n": pa.array([number], pa.int64()), "day": day})
    write_deltalake(numbers.table(path), rows, mode="append", schema_mode="merge")


def killed_backfill(lab: Lab, most: int, partitions: tuple[str, ...] = ("day",)) -> tuple[Numbers, dict[str, int]]:
    """A backfill of the second day that died before it was done with the quarantine; and the versions before it."""
    numbers = Numbers(lab, partitions)
    numbers.begin()
    numbers.allow(most)
    before = {path: version(numbers, path) for path in (SINK, QUARANTINE)}
    with killed(DeltaSink, "replace_where", call=2):
        numbers.backfill("key")
    return numbers, before


@pytest.mark.parametrize("others", [False, True])
def test_the_sink_of_a_release(lab: Lab, *, others: bool) -> None:
    """Its rows are sent again, whatever somebody has written since; and no more, once they are there."""
    numbers = killed_release(lab, "after the append")
    restore(numbers, SINK, version(numbers, SINK) - 1)
    assert places(numbers)[0] == Counter(range(1, 7))
    if others:
        append(numbers, SINK, 50)

    numbers.release()
    assert places(numbers) == (ALL[0] + Counter([50] * others), ALL[1])
    numbers.release()
    assert places(numbers) == (ALL[0] + Counter([50] * others), ALL[1])


def test_the_quarantine_of_a_release(lab: Lab) -> None:
    """Rows that are in the sink, and lost their marks, are not sent again: it is refused until they have them."""
    numbers = killed_release(lab, "after the append")
    restore(numbers, QUARANTINE, 0)

    with pytest.raises(RefusedError) as refused:
        numbers.release()
    (found,) = documents(numbers)
    read_remedy(refused.value, "RELEASE_MARKS_GONE", f"by `RESTORE` to version {found.quarantine_version}")
    assert places(numbers)[0] == ALL[0]

    restore(numbers, QUARANTINE, found.quarantine_version or 0)
    numbers.release()
    assert places(numbers) == ALL


def test_the_sink_of_a_release_that_names_a_time(lab: Lab) -> None:
    """To one at which its rows were there: they are not sent again."""
    numbers = killed_release(lab, "after the append")
    append(numbers, SINK, 50)
    restore(numbers, SINK, version(numbers, SINK) - 1)
    edit_commit(Path(numbers.table(SINK)), version(numbers, SINK), {"operationParameters": {"datetime": "2026-01-01"}})

    numbers.release()
    assert places(numbers) == ALL


def test_the_sink_of_a_release_whose_rows_have_left_the_quarantine(lab: Lab) -> None:
    """They are in neither table: it is refused until they are back."""
    numbers = Numbers(lab)
    numbers.begin()
    with killed(return_rows, "keep_return", call=3):
        numbers.release()
    sent = version(numbers, SINK)
    restore(numbers, SINK, sent - 1)

    with pytest.raises(RefusedError) as refused:
        numbers.release()
    read_remedy(
        refused.value, "SINK_RESTORED", rf"by `RESTORE` to the version before \({sent}\), and release rows again"
    )
    restore(numbers, SINK, sent)
    numbers.release()
    assert places(numbers) == ALL


def test_a_release_that_is_killed_again_once_the_sink_was_restored(lab: Lab) -> None:
    """What it had sent, and is there again, would be there twice: refused until it is taken back again."""
    numbers = killed_release(lab, "after the append")
    sent = version(numbers, SINK)
    restore(numbers, SINK, sent - 1)
    with killed(DeltaSink, "write_batch"):
        numbers.release()
    restore(numbers, SINK, sent)

    with pytest.raises(RefusedError) as refused:
        numbers.release()
    read_remedy(refused.value, "RELEASE_MARKS_GONE", "take the sink back to before them again, by `RESTORE`")
    restore(numbers, SINK, sent - 1)
    numbers.release()
    assert places(numbers) == ALL


@pytest.mark.parametrize("then", ["retry", *rarely("release")])
def test_the_quarantine_of_a_backfill_that_had_tidied_it(lab: Lab, then: str) -> None:
    """The retry begins anew; a release is refused: what the live stream had put there is elsewhere by now."""
    numbers, _ = killed_backfill(lab, 2)
    put_aside = version(numbers, QUARANTINE)
    with killed(BackfillPreparation, "close"):
        numbers.backfill("key")
    restore(numbers, QUARANTINE, put_aside)

    if then == "release":
        with pytest.raises(RefusedError) as refused:
            numbers.release()
        read_remedy(refused.value, "BACKFILL_UNFINISHED", "backfill the interval again, then release the rows")
    numbers.backfill("key")
    numbers.release()
    assert places(numbers) == (Counter([1, 2, 4, 6]), Counter([3, 5, 7, 8]))


def test_the_quarantine_of_a_backfill_that_is_done(lab: Lab) -> None:
    """What it had taken out is there again, and in the sink as well: a release is refused until it is done again."""
    numbers = Numbers(lab)
    numbers.begin()
    before = version(numbers, QUARANTINE)
    numbers.backfill("key")
    restore(numbers, QUARANTINE, before)

    with pytest.raises(RefusedError) as refused:
        numbers.release()
    read_remedy(refused.value, "BACKFILL_UNFINISHED", "backfill the interval again, then release the rows")
    numbers.backfill()
    numbers.release()
    assert places(numbers) == ALL


def test_the_sink_of_a_backfill_that_had_tidied_the_quarantine(lab: Lab) -> None:
    """What it had moved is in no table: a release is refused until the interval is backfilled again."""
    numbers, before = killed_backfill(lab, 100)
    with killed(BackfillPreparation, "close"):
        numbers.backfill("key")
    restore(numbers, SINK, before[SINK])

    with pytest.raises(RefusedError) as refused:
        numbers.release()
    read_remedy(refused.value, "BACKFILL_UNFINISHED", "backfill the interval again, then release the rows")
    numbers.backfill("key")
    numbers.release()
    assert places(numbers) == ALL


def test_the_quarantine_of_a_release_that_is_done(lab: Lab) -> None:
    """Its rows are there again, and in the sink as well: none is sent once more."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.release()
    restore(numbers, QUARANTINE, 0)

    with pytest.raises(RefusedError) as refused:
        numbers.release()
    (found,) = documents(numbers)
    read_remedy(refused.value, "RELEASE_MARKS_GONE", f"by `RESTORE` to version {found.quarantine_version}")
    restore(numbers, QUARANTINE, found.quarantine_version or 0)
    numbers.release()
    assert places(numbers) == ALL


def test_the_sink_of_a_release_that_is_done(lab: Lab) -> None:
    """Its rows are gone with the version, as somebody has wanted; later releases are not held up by that."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.release()
    restore(numbers, SINK, version(numbers, SINK) - 1)

    numbers.release()
    assert places(numbers) == (Counter(range(1, 7)), Counter())


@pytest.mark.parametrize(("then", "partitions"), [("retry", ("day",)), *rarely(("release", ("day",)), ("retry", ()))])
def test_the_sink_of_a_backfill_that_empties_the_quarantine(lab: Lab, then: str, partitions: tuple[str, ...]) -> None:
    """What it had put into the sink is in the quarantine still: the retry begins anew, and a release takes nothing."""
    numbers, before = killed_backfill(lab, 100, partitions)
    restore(numbers, SINK, before[SINK])

    if then == "retry":
        numbers.backfill("key")
        assert places(numbers) == (Counter(range(1, 8)), Counter([8]))
    numbers.release()
    assert places(numbers) == ALL


@pytest.mark.parametrize("restored", [QUARANTINE, SINK])
def test_a_backfill_that_fills_the_quarantine(lab: Lab, restored: str) -> None:
    """Of the second day, all but 1 goes there: the retry begins anew where one of its halves is gone."""
    numbers, before = killed_backfill(lab, 2)
    restore(numbers, restored, before[restored])

    numbers.backfill("key")
    assert places(numbers) == (Counter([1, 2, 4, 6]), Counter([3, 5, 7, 8]))


def test_a_release_behind_a_backfill_whose_quarantine_is_restored(lab: Lab) -> None:
    """Rows are in no table: it is refused until the interval is backfilled again."""
    numbers, before = killed_backfill(lab, 2)
    restore(numbers, QUARANTINE, before[QUARANTINE])

    with pytest.raises(RefusedError) as refused:
        numbers.release()
    read_remedy(refused.value, "BACKFILL_UNFINISHED", "backfill the interval again, then release the rows")
    numbers.backfill()
    numbers.release()
    assert places(numbers) == (Counter([1, 2, 4, 6]), Counter([3, 5, 7, 8]))


def test_the_quarantine_of_a_decided_batch_that_others_have_written_since(lab: Lab) -> None:
    """The stream is not to stand for good: the run says what is missing, and how to bring it back."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(6)
    numbers.arrive(9, 10)
    with cut(QUARANTINE), pytest.raises(BatchFailedError):
        lab.run(numbers.stream)
    restore(numbers, QUARANTINE, version(numbers, QUARANTINE) - 1)
    append(numbers, QUARANTINE, 70)

    record = lab.run(numbers.stream)
    (said,) = [warning for warning in record.plan.warnings if warning.code == "SINK_RESTORED"]
    assert said.file.startswith(numbers.table(QUARANTINE))


def in_turn(numbers: Numbers) -> Numbers:
    """One release after the other, and the sink is restored to between them."""
    numbers.release("n = 7")
    between = version(numbers, SINK)
    numbers.release("n = 8")
    restore(numbers, SINK, between)
    return numbers


def of_nothing(numbers: Numbers) -> Numbers:
    """A scheduled release finds nothing to send."""
    numbers.release()
    numbers.release()
    return numbers


def by_a_link(numbers: Numbers) -> Numbers:
    """The quarantine is declared by another name."""
    numbers.release()
    (numbers.lab.root / "link").symlink_to(numbers.table(QUARANTINE))
    return numbers.editing(quarantine=sinks.delta("link"))


def elsewhere(numbers: Numbers) -> Numbers:
    """The quarantine was moved, and is declared there."""
    numbers.release()
    Path(numbers.table(QUARANTINE)).rename(numbers.lab.root / "moved")
    (numbers.lab.root / QUARANTINE).symlink_to(numbers.lab.root / "moved")
    return numbers.editing(quarantine=sinks.delta("moved"))


@pytest.mark.parametrize("history", [in_turn, of_nothing, by_a_link, elsewhere])
def test_the_quarantine_of_releases_that_are_done(lab: Lab, history: Callable[[Numbers], Numbers]) -> None:
    """No row that an earlier one has sent is sent again, whatever came since, and whatever the quarantine is called."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers = history(numbers)
    restore(numbers, QUARANTINE, 0)

    with pytest.raises(RefusedError) as refused:
        numbers.release()
    first = documents(numbers)[0].quarantine_version or 0
    read_remedy(refused.value, "RELEASE_MARKS_GONE", f"by `RESTORE` to version {first}")
    restore(numbers, QUARANTINE, first)
    numbers.release()
    assert places(numbers) == ALL


def test_a_quarantine_that_was_made_again(lab: Lab) -> None:
    """Versions of the one that is gone say nothing of this one."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.release("n = 7")
    numbers.release("n = 8")
    shutil.rmtree(numbers.table(QUARANTINE))
    forget_tables(lab.spark)
    numbers.allow(8)
    numbers.arrive(9, 10)
    lab.run(numbers.stream)
    numbers.allow(100)
    numbers.release()
    restore(numbers, QUARANTINE, 0)

    with pytest.raises(RefusedError) as refused:
        numbers.release()
    newest = documents(numbers)[-1].quarantine_version or 0
    read_remedy(refused.value, "RELEASE_MARKS_GONE", f"by `RESTORE` to version {newest}")
    restore(numbers, QUARANTINE, newest)
    numbers.release()
    assert places(numbers) == (Counter(range(1, 11)), Counter())


def test_the_quarantine_of_a_backfill_by_another_name(lab: Lab) -> None:
    """It is the one that the backfill has tidied."""
    numbers = Numbers(lab)
    numbers.begin()
    before = version(numbers, QUARANTINE)
    numbers.backfill("key")
    restore(numbers, QUARANTINE, before)
    (lab.root / "link").symlink_to(numbers.table(QUARANTINE))

    with pytest.raises(RefusedError) as refused:
        numbers.editing(quarantine=sinks.delta("link")).release()
    assert refused.value.finding is not None
    assert refused.value.finding.code == "BACKFILL_UNFINISHED"


def test_a_time_before_files_were_noted_again(lab: Lab) -> None:
    """Delta adds each file once more, without taking it out, when a table is to track its rows."""
    numbers = killed_release(lab, "after the append")
    sent = version(numbers, SINK)
    append(numbers, SINK, 50)
    table = f"delta.`{numbers.table(SINK)}`"
    lab.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    lab.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {sent}")
    edit_commit(Path(numbers.table(SINK)), version(numbers, SINK), {"operationParameters": {"datetime": "2026-01-01"}})

    numbers.release()
    assert places(numbers) == ALL
