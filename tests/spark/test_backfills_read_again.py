"""A backfill looks at its sources again once Spark has read them: they may have become others since the plan."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, DeclarationError, RefusedError
from sluice.interval import Interval
from sluice.running import backfill as running
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.observers import Silent
from sluice.runs.record import RunRecord
from sluice.spark.left_behind import forget_tables
from tests.spark.lab import Lab, ids, touch, write_files
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

DAY = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
ASIDE, ALONE = "writing the rows aside", "computing the rows"


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def once(numbers: DataFrame) -> DataFrame:
    """Spark refuses this in a batch, so a backfill runs it as a stream."""
    timed = numbers.selectExpr("*", "TIMESTAMP'2026-01-02' AS at").withWatermark("at", "1 hour")
    return timed.dropDuplicatesWithinWatermark(["id", "day"])


class _At(Silent):
    """Does something whenever a phase begins."""

    def __init__(self, phase: str, act: Callable[[], object]) -> None:
        self._phase, self._act = phase, act

    def phase(self, text: str) -> None:
        if text.startswith(self._phase):
            self._act()


def backfill(lab: Lab, stream: Stream, phase: str, act: Callable[[], object]) -> RunRecord:
    request = BackfillRequest(lab.project.resolve(stream), DAY)
    return backfill_stream(lab.project, request, observer=_At(phase, act), session=lab.spark)


def of_files(lab: Lab, transform: str = "same", *, by_day: bool = True, **changes: Any) -> Stream:
    """A stream that has read three files of one number each: 0, 1, 2."""
    for number in range(3):
        write_files(lab.root / "in", {f"{number}.json": content(number)}, first=number)
    source = sources.files("in", format="json", schema="id bigint, day date", ignore_missing_files=True)
    stream = Stream(
        name="s",
        sources={"numbers": source},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out", partition_by=["day"] if by_day else []),
        interval_column="day",
        **changes,
    )
    lab.run(stream)
    return stream


def content(number: int) -> str:
    return json.dumps({"id": number, "day": "2026-01-02"})


def mend(lab: Lab, number: int, second: float) -> None:
    """Put another row into the second file, in its place: it is as long as before."""
    file = lab.root / "in" / "1.json"
    file.write_text(content(number))
    touch(file, second)


@pytest.mark.parametrize("how", ["beside", "alone", "audited", "as a stream"])
@pytest.mark.parametrize("what", ["gone", "emptied"])
def test_files_that_lose_rows_while_they_are_read(lab: Lab, how: str, what: str) -> None:
    """Spark takes them for empty: refused, as the plan of the next backfill is."""
    (lab.root / "suite.json").write_bytes(
        document(row("expect_column_values_to_not_be_null", policy="warn", column="id"))
    )
    stream = of_files(
        lab,
        "once" if how == "as a stream" else "same",
        by_day=how in {"beside", "as a stream"},
        **({"quality": "suite.json"} if how == "audited" else {}),
    )
    file = lab.root / "in" / "1.json"
    at = {"alone": ALONE, "audited": "auditing", "as a stream": "running it as a stream"}.get(how, ASIDE)
    # What a stream of its own does not find, that one tells by itself.
    told = BatchFailedError if (how, what) == ("as a stream", "gone") else RefusedError

    with pytest.raises(told) as failed:
        backfill(lab, stream, at, file.unlink if what == "gone" else lambda: file.write_text(""))

    assert ids(lab.table("out")) == [0, 1, 2]
    if isinstance(failed.value, RefusedError):
        assert lab.records(stream)[-1]["status"] == "refused"
        with pytest.raises(RefusedError) as planned:
            backfill(lab, stream, "", lambda: None)
        assert planned.value.finding == failed.value.finding
        assert failed.value.finding.code == "BACKFILL_INPUT_GONE"


def test_a_file_that_is_mended_while_it_is_read(lab: Lab) -> None:
    """The plan takes it as it is: it begins again, and gives up where that does not end."""
    stream = of_files(lab)
    left = [1]
    record = backfill(lab, stream, ASIDE, lambda: left and mend(lab, 5, 60 + left.pop()))

    assert ids(lab.table("out")) == [0, 2, 5]
    assert record.backfill is not None
    assert record.backfill.attempt == 1
    assert [phase.text for phase in record.phases] == [
        ASIDE, "starting again: source `numbers` has other input now than was planned", ASIDE, "publishing",
    ]  # fmt: skip
    seconds = iter(range(100, 200))
    with pytest.raises(BatchFailedError, match="or their input, were changed by others 5 times"):
        backfill(lab, stream, ASIDE, lambda: mend(lab, 6, next(seconds)))
    assert ids(lab.table("out")) == [0, 2, 5]


def test_a_file_that_goes_once_the_rows_are_computed(lab: Lab) -> None:
    """Spark replaces the rows itself: it does not read them once more for that."""
    stream = of_files(lab, by_day=False)

    backfill(lab, stream, "replacing the rows", (lab.root / "in" / "1.json").unlink)

    assert ids(lab.table("out")) == [0, 1, 2]


def test_a_file_that_goes_before_spark_lists_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's reader refuses a batch of it, and says so by an error of its own."""
    stream = of_files(lab)
    before_reading(monkeypatch, (lab.root / "in" / "1.json").unlink)

    with pytest.raises(DeclarationError, match=r"source `numbers` can't be read: .*1\.json"):
        backfill(lab, stream, "", lambda: None)

    assert ids(lab.table("out")) == [0, 1, 2]


def test_a_table_that_is_made_again_before_it_is_read(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has versions of the same numbers, and other rows."""
    stream = of_table(lab)

    def make_again() -> None:
        shutil.rmtree(lab.root / "up")
        append(lab, 101)
        append(lab, 102)
        forget_tables(lab.spark)

    before_reading(monkeypatch, make_again)

    with pytest.raises(RefusedError) as refused:
        backfill(lab, stream, "", lambda: None)

    assert refused.value.finding.code == "SOURCE_TABLE_REPLACED"
    assert ids(lab.table("out")) == [1, 2, 3]


def test_a_table_that_goes_on_while_it_is_read(lab: Lab) -> None:
    """What is added, or rewritten, makes no other rows of the version that is read: nothing begins again."""
    stream = of_table(lab)

    def go_on() -> None:
        append(lab, 4)
        lab.run(stream)
        DeltaTable(str(lab.root / "up")).optimize.compact()
        append(lab, 5)

    record = backfill(lab, stream, ASIDE, go_on)

    assert record.backfill is not None
    assert record.backfill.attempt == 0
    lab.run(stream)
    assert ids(lab.table("out")) == [1, 2, 3, 4, 5]


def before_reading(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something once, when the backfill is planned and Spark is about to read."""
    build_batch, left = running.build_batch, [act]

    def building(*args: Any) -> DataFrame:
        while left:
            left.pop()()
        return build_batch(*args)

    monkeypatch.setattr(running, "build_batch", building)


def of_table(lab: Lab) -> Stream:
    """A stream that has read two versions of a table: 1 and 2, and 3."""
    append(lab, 1, 2)
    append(lab, 3)
    stream = Stream(
        name="s",
        sources={"numbers": sources.delta("up")},
        transform=f"{__name__}:same",
        sink=sinks.delta("out", partition_by=["day"]),
        interval_column="day",
    )
    lab.run(stream)
    return stream


def append(lab: Lab, *numbers: int) -> None:
    rows = pa.table({"id": pa.array(numbers, pa.int64()), "day": pa.array([date(2026, 1, 2)] * len(numbers))})
    write_deltalake(str(lab.root / "up"), rows, mode="append")
