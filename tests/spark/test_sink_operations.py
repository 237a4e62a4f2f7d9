"""Every pair of operations on a sink, the one between any two steps of the other: exact, or refused with the reason.

The table of what each does to each is in docs/backfill.md.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice import sinks
from sluice.errors import DeclarationError, LeaseTakenError, RefusedError, SluiceError
from sluice.gate.returned_rows import Moved, read_returns
from sluice.interval import Interval
from sluice.running import backfill
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.sinks.delta.sink import DeltaSink
from tests.builders import clean_log
from tests.campaign import in_campaigns
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_files
from tests.spark.sink_operations import SECOND, Meanwhile, Numbers, killed

pytestmark = pytest.mark.spark

OURS = ("live", "backfill", "release", "audit")
OTHERS = ("backfill_other_day", "compact", "vacuum", "delete", "update", "merge", "restore", "forbid", "add_column")
WRITERS = ("write_otherwise", "run_another_stream")
"""Others that write the table: a streaming query, and a stream of the project."""
FOR_GOOD: dict[str, tuple[type[SluiceError], str]] = {
    **dict.fromkeys(WRITERS, (RefusedError, "writes this table, too")),
    "add_column": (DeclarationError, "columns are not the table's"),
}
"""After what a backfill is refused until a person has decided."""


def run_interleaved(numbers: Numbers, first: str, second: str, step: int | str, patch: pytest.MonkeyPatch) -> Meanwhile:
    """Do `second` just before a step of `first`; what is refused, or fails, is tried again once the other is done."""
    meanwhile = Meanwhile(step, getattr(numbers, second))
    failed: SluiceError | None = None
    with patch.context() as patched:
        meanwhile.watch(patched)
        try:
            getattr(numbers, first)()
        except SluiceError as exc:
            failed = exc
    for name, error in ((second, meanwhile.refused), (first, failed)):
        if error is None:
            continue
        assert error.remedy or isinstance(error, RefusedError)
        if name == "backfill" and second in FOR_GOOD:
            refusal, said = FOR_GOOD[second]
            with pytest.raises(refusal, match=said):
                numbers.backfill()
        else:
            getattr(numbers, name)()
    return meanwhile


def check(numbers: Numbers, first: str, second: str, place: str) -> None:
    """Every number is there once; but for what others have changed, and rows of theirs."""
    sink, quarantine = numbers.held("out"), numbers.held("out_quarantine")
    expected = Counter(range(1, 11 if "live" in {first, second} else 9))
    if "release" in {first, second}:
        assert not quarantine, place
    found = sink + quarantine
    if second in WRITERS:
        assert found[100] == 1 or first == "backfill", place
        del found[100]
    if second in {"delete", "update"}:
        # A backfill computes it anew.
        assert found[5] + found[105] == 1 or (second == "delete" and not found[5]), place
        del found[105]
        found[5] = 1
    if second == "merge":
        expected += Counter([106, 200])
        del expected[6]
    if second == "restore":
        assert found.keys() <= expected.keys(), place
        assert max(found.values()) == 1, place
    else:
        assert found == expected, place


PAIRS = [
    *[("metadata", first, second) for first in OURS for second in (*OURS, *OTHERS, *WRITERS)],
    *[("Spark", "backfill", second) for second in (*OURS, *OTHERS, *WRITERS)],
    *[("Spark", first, "backfill") for first in OURS if first != "backfill"],
    *[("publish", "live", second) for second in ("backfill", "audit", *OTHERS, *WRITERS)],
]
"""How the table is written, and which two operations."""
DECISIVE = [("backfill", "live", "publish"), ("release", "delete", "delete"), ("live", "forbid", "write_batch")]
"""One of each kind, just before the commit that counts."""
SAMPLED = [name for name in (*OURS, *OTHERS, *WRITERS) if name not in {second for _, second, _ in DECISIVE}]
STEPS = {"live": 3, "backfill": 3, "release": 5, "audit": 0}
SAMPLE = [(first, second, STEPS[first]) for first, second in zip(itertools.cycle(OURS), SAMPLED, strict=False)]
"""Every other operation once, before one of the last steps of another one."""


def check_pair(lab: Lab, patch: pytest.MonkeyPatch, how: str, first: str, second: str) -> int:
    """Do one between any two steps of the other; gives the number of steps."""
    policy = "fail" if how == "publish" else "quarantine"
    numbers = Numbers(lab, () if how == "Spark" else ("day",), policy)
    numbers.begin()
    with numbers.starting_over() as start_over:
        for step in itertools.count():
            meanwhile = run_interleaved(numbers, first, second, step, patch)
            if not meanwhile.is_done:
                return step
            check(numbers, first, second, f"before step {step}, {meanwhile.taken[step]}; {meanwhile.refused}")
            start_over()
    raise AssertionError


@in_campaigns
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("how", "first", "second"), PAIRS)
def test_every_pair_at_every_step(lab: Lab, monkeypatch: pytest.MonkeyPatch, how: str, first: str, second: str) -> None:
    """As many times as the first has steps."""
    assert check_pair(lab, monkeypatch, how, first, second) > 0


@pytest.fixture(scope="module")
def begun(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Numbers, Callable[[], None]]]:
    """The numbers after their first batch, and what makes them so again."""
    numbers = Numbers(Lab(spark, tmp_path_factory.mktemp("pairs")))
    numbers.begin()
    with numbers.starting_over() as start_over:
        yield numbers, start_over


@pytest.mark.parametrize(("first", "second", "step"), [*DECISIVE, *SAMPLE])
def test_a_pair(
    begun: tuple[Numbers, Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    second: str,
    step: int | str,
) -> None:
    """Every operation once; every pair at every step is a part of `make campaign`."""
    numbers, start_over = begun
    start_over()

    meanwhile = run_interleaved(numbers, first, second, step, monkeypatch)

    assert meanwhile.is_done
    check(numbers, first, second, f"before {step}; {meanwhile.refused}")


def test_a_backfill_after_a_new_column(lab: Lab) -> None:
    """The remedy does what it says: once the transform has the column, the interval is recomputed."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.add_column()
    with pytest.raises(DeclarationError, match=r"columns are not the table's.*those that the table generates, too"):
        numbers.backfill()

    wider = sinks.delta("out_quarantine", schema_evolution="add")
    numbers.editing(transform="tests.spark.sink_operations:with_a_column", quarantine=wider).backfill()

    assert (numbers.held("out"), numbers.held("out_quarantine")) == (Counter(range(1, 8)), Counter([8]))


def test_a_release_beside_a_backfill(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused until the backfill is done, and then finds nothing of that day to send: no row is doubled."""
    numbers = Numbers(lab)
    numbers.begin()
    write_aside = DeltaSink.write_aside

    def beside_a_release(*args: Any, **kwargs: Any) -> Any:
        with pytest.raises(LeaseTakenError, match="is being run by"):
            numbers.release()
        return write_aside(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(DeltaSink, "write_aside", beside_a_release)
        numbers.backfill()
    done = numbers.release()

    assert done.returned.rows == 1
    assert numbers.held("out") == Counter(range(1, 9))
    assert not numbers.held("out_quarantine")
    assert [found.state for found in read_returns(lab.project.stream_home(numbers.stream))] == ["done"]


def test_a_row_whose_day_was_repaired(lab: Lab) -> None:
    """A backfill of that day leaves it in the quarantine; once it was sent, one that would lose it is refused.

    The remedy does what it says: with the correction in the source, the day is recomputed.
    """
    numbers = Numbers(lab)
    numbers.allow(6)
    numbers.arrive(1, 6)
    write_files(lab.root / "land", {"0007.json": json.dumps({"n": 7, "day": "1900-01-01"})}, first=7)
    lab.run(numbers.stream)
    edit = DeltaTable.forPath(lab.spark, numbers.table("out_quarantine"))
    edit.update("n = 7", {"day": "DATE'2026-01-02'"})
    numbers.allow(100)

    numbers.backfill()
    assert (numbers.held("out"), numbers.held("out_quarantine")) == (Counter(range(1, 7)), Counter([7]))

    done = numbers.release()
    assert done.returned.moved == (Moved(date(1900, 1, 1), date(2026, 1, 2)),)
    with pytest.raises(RefusedError, match="had corrected from 1900-01-01 to 2026-01-02") as caught:
        numbers.backfill()
    says = "put the correction into the transform or the sources, then"
    read_remedy(caught.value, "BACKFILL_MOVED_ROWS", says)
    assert numbers.held("out") == Counter(range(1, 8))

    Path(caught.value.finding.file).unlink()
    stream = replace(numbers.stream, transform=f"{__name__}:corrected")
    backfill_stream(lab.project, BackfillRequest(stream, SECOND), session=lab.spark)
    assert (numbers.held("out"), numbers.held("out_quarantine")) == (Counter(range(1, 8)), Counter())


@pytest.mark.parametrize("partitions", [("day",), ()], ids=["metadata", "Spark"])
def test_from_the_first_year_on(lab: Lab, partitions: tuple[str, ...]) -> None:
    """Years before 1000 have four digits in SQL and in the names of partitions."""
    numbers = Numbers(lab, partitions)
    numbers.allow(100)
    numbers.arrive(1, 2)
    write_files(lab.root / "land", {"0003.json": json.dumps({"n": 3, "day": "0001-01-01"})}, first=3)
    lab.run(numbers.stream)
    always = Interval(datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    stream = replace(numbers.stream, transform="tests.spark.sink_operations:times_ten")
    backfill_stream(lab.project, BackfillRequest(stream, always), session=lab.spark)
    assert numbers.held("out") == Counter([1, 20, 30])


def corrected(days: DataFrame) -> DataFrame:
    return days.withColumn("day", F.when(F.col("n") == 7, F.lit("2026-01-02").cast("date")).otherwise(F.col("day")))


@in_campaigns
@pytest.mark.parametrize(("name", "call"), [("publish", 1), ("replace_where", 2)])
@pytest.mark.parametrize("is_retried", [False, True])
def test_a_release_after_a_backfill_that_was_killed(lab: Lab, name: str, call: int, *, is_retried: bool) -> None:
    """Killed before its rows were replaced, or after that: what it left in the quarantine is sent by nobody twice."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(2)  # so that it puts rows into the quarantine
    with killed(DeltaSink, name, call=call):
        numbers.backfill()
    numbers.allow(100)

    if is_retried:
        numbers.backfill()
    numbers.release()

    assert numbers.held("out") == Counter(range(1, 9))
    assert not numbers.held("out_quarantine")


def test_a_release_after_a_killed_backfill_that_no_commit_tells_of(lab: Lab) -> None:
    """Once log clean-up has deleted its commit, nobody knows what its rows in the quarantine stand for."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(2)  # so that it puts rows into the quarantine
    with killed(backfill, "tidy_quarantine"):
        numbers.backfill()
    lab.spark.sql(f"ALTER TABLE delta.`{lab.root}/out` SET TBLPROPERTIES ('a' = 'b')")
    clean_log(lab.root / "out")
    numbers.allow(100)

    with pytest.raises(RefusedError) as refused:
        numbers.release()
    read_remedy(refused.value, "BACKFILL_UNFINISHED", "backfill the interval again, then release the rows")
    numbers.backfill()
    numbers.release()

    assert numbers.held("out") == Counter(range(1, 9))
    assert not numbers.held("out_quarantine")


@in_campaigns
def test_a_backfill_that_is_retried_after_a_later_one(lab: Lab) -> None:
    """Killed before it was done with the quarantine: the retry leaves what the later one has put there."""
    numbers = Numbers(lab)
    numbers.begin()
    request = BackfillRequest(numbers.stream, SECOND, "the first")
    with killed(backfill, "tidy_quarantine"):
        backfill_stream(lab.project, request, session=lab.spark)
    numbers.allow(2)
    numbers.backfill()
    assert numbers.held("out_quarantine") == Counter([3, 5, 7, 8])

    backfill_stream(lab.project, request, session=lab.spark)

    assert (numbers.held("out"), numbers.held("out_quarantine")) == (Counter([1, 2, 4, 6]), Counter([3, 5, 7, 8]))


@in_campaigns
def test_a_backfill_after_a_release_that_was_killed(lab: Lab) -> None:
    """It is refused until the release is finished, as the reason says."""
    numbers = Numbers(lab)
    numbers.begin()
    with killed(DeltaSink, "write_batch"):
        numbers.release()

    with pytest.raises(RefusedError, match="is not finished") as caught:
        numbers.backfill()
    read_remedy(caught.value, "RELEASE_UNFINISHED", "finish it with `sluice quality release s --rows`, then backfill")
    numbers.release()
    numbers.backfill()

    assert (numbers.held("out"), numbers.held("out_quarantine")) == (Counter(range(1, 9)), Counter())
