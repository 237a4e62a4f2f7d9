"""A file of a batch that fails is mended in its place, and read as it is then."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import QualityFailedError, RefusedError, SluiceError
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.query_starts import QueryStarts
from sluice.spark.left_behind import forget_tables
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import NO_LIMITS, Lab, bounded, ids, touch, write_files, write_numbers
from tests.spark.power_cuts import Cut, power_cut
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def dated(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("id", "DATE'2026-01-02' AS day")


def cut_run(lab: Lab, stream: Stream, cut: Cut, limits: Limits = NO_LIMITS) -> str | None:
    """Let the power go at a write of a run; tells at which, None where it had no such."""
    with power_cut(cut, lab.root) as writes:
        try:
            lab.run(stream, limits)
        except BaseException:
            assert writes.at is not None
    for leases in (lab.root / "home").rglob("leases"):
        leases.rename(leases.with_name(f"earlier-{uuid4().hex}"))
    forget_tables(lab.spark)
    return writes.at


def backfill(lab: Lab, stream: Stream) -> None:
    day = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    backfill_stream(lab.project, BackfillRequest(lab.project.resolve(stream), day), session=lab.spark)


def by_day(stream: Stream) -> Stream:
    return replace(
        stream,
        transform=f"{__name__}:dated",
        sink=sinks.delta("out", partition_by=["day"]),
        interval_column="day",
    )


def failing(lab: Lab, limits: Limits, *, first: int, is_dated: bool = False) -> tuple[Stream, Path]:
    """A stream whose newest batch fails, for one of its two files is broken; and that file."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint", mode="FAILFAST")},
        transform=f"{__name__}:same",
        sink=sinks.delta("out"),
    )
    stream = by_day(stream) if is_dated else stream
    if first:
        write_numbers(lab.root / "in", first)
        lab.run(stream)
    write_numbers(lab.root / "in", 1, first=first)
    (broken,) = write_files(lab.root / "in", {f"{first + 1:04d}.json": '{"id": 1'}, first=first + 1)
    with pytest.raises(SluiceError):
        lab.run(stream, limits)
    assert lab.plan(stream).verdict == "resume"
    return stream, broken


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("strategy", ["exact", "drain"])
def test_a_file_that_is_mended(lab: Lab, strategy: str, first: int) -> None:
    """No plan says that it is never read, before the batch or after: whoever believed that doubled its rows."""
    stream, broken = failing(lab, bounded(strategy=strategy), first=first)
    broken.write_text(f'{{"id": {first + 1}}}\n{{"id": 100}}')
    touch(broken, 60)
    assert (lab.plan(stream).verdict, lab.plan(stream).warnings) == ("resume", ())

    assert [batch.kind for batch in lab.run(stream).batches] == ["uncommitted"]

    assert ids(lab.table("out")) == [*range(first + 2), 100]
    assert (lab.plan(stream).verdict, lab.plan(stream).warnings) == ("skip", ())

    broken.rename(broken.with_name("renamed.json"))
    assert [found.code for found in lab.plan(stream).warnings] == ["FILE_RENAMED"]
    assert lab.plan(stream).verdict == "skip"
    broken.with_name("renamed.json").rename(broken)
    with broken.open("a") as file:
        file.write('\n{"id": 101}')
    (warning,) = lab.plan(stream).warnings
    assert (warning.code, "another size now" in warning.cause) == ("FILE_CHANGED", True)


def test_a_file_that_is_touched_only_after_its_batch(lab: Lab) -> None:
    """What was mended is known as it was read, and nothing else."""
    stream, broken = failing(lab, bounded(), first=0)
    broken.write_text('{"id": 1}')
    touch(broken, 60)
    lab.run(stream)
    touch(broken, 90)
    (warning,) = lab.plan(stream).warnings
    assert (warning.code, "another time now" in warning.cause) == ("FILE_CHANGED", True)
    touch(broken, 60)
    assert lab.plan(stream).warnings == ()


def test_a_file_that_is_mended_before_its_batch_is_in_the_offset_log(lab: Lab) -> None:
    """The source's own log has taken it, and the next run makes a batch of that."""
    stream, broken = failing(lab, bounded(), first=1)
    checkpoint = lab.checkpoint(stream)
    (checkpoint / "offsets" / "1").unlink()
    (checkpoint / "offsets" / ".1.crc").unlink(missing_ok=True)
    broken.write_text('{"id": 2}')
    touch(broken, 60)
    assert lab.plan(stream).warnings == ()
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 2]
    assert (lab.plan(stream).verdict, lab.plan(stream).warnings) == ("skip", ())


def test_a_file_that_is_mended_with_the_time_that_it_had(lab: Lab) -> None:
    """As `cp -p`, `tar` and `rsync -t` do it: known by its size, also where it is shorter than it was."""
    stream, broken = failing(lab, bounded(), first=0, is_dated=True)
    broken.write_text('{"id": 1}\n{"id": 100}')
    touch(broken, 1)
    lab.run(stream)
    broken.rename(broken.with_name("renamed.json"))
    assert ([found.code for found in lab.plan(stream).warnings], lab.plan(stream).verdict) == (["FILE_RENAMED"], "skip")
    broken.with_name("renamed.json").rename(broken)

    (longer,) = write_files(lab.root / "in", {"0005.json": '{"id": 5}\n{"id": 5,,,,,,,,,,,,,,,,,,,,,,,,}'}, first=5)
    with pytest.raises(SluiceError):
        lab.run(stream)
    longer.write_text('{"id": 5}')
    touch(longer, 5)
    lab.run(stream)
    backfill(lab, stream)
    assert ids(lab.table("out")) == [0, 1, 5, 100]


def test_a_backfill_of_a_mended_file_that_was_rotated(lab: Lab) -> None:
    """Another file is in its place: its rows are not those that were read."""
    stream, broken = failing(lab, bounded(), first=0, is_dated=True)
    broken.write_text('{"id": 1}\n{"id": 100}')
    touch(broken, 60)
    lab.run(stream)
    broken.rename(broken.with_name("0001.json.1"))
    write_files(lab.root / "in", {"0001.json": '{"id": 7}\n{"id": 888}\n{"id": 9999}'}, first=90)
    with pytest.raises(RefusedError) as refused:
        backfill(lab, stream)
    assert refused.value.finding.code == "BACKFILL_INPUT_GONE"
    assert ids(lab.table("out")) == [0, 1, 100]


def test_a_backfill_of_a_mended_file_that_looks_like_another(lab: Lab) -> None:
    """Both are where they were read."""
    stream, broken = failing(lab, bounded(), first=0, is_dated=True)
    broken.write_text('{"id": 1}')
    touch(broken, 60)
    lab.run(stream)
    write_files(lab.root / "in", {"0002.json": '{"id": 2}'}, first=60)
    lab.run(stream)
    backfill(lab, stream)
    assert ids(lab.table("out")) == [0, 1, 2]


@pytest.mark.parametrize(
    "cut", [Cut("Spark's commit"), Cut("times", 1, "after"), Cut("taken", 2, "after"), Cut("commit out", 1, "after")]
)
def test_a_kill_after_it_was_mended(lab: Lab, cut: Cut) -> None:
    """What was read is noted before it is: nobody reads it once more, under whichever name."""
    stream, broken = failing(lab, bounded(), first=0)
    broken.write_text('{"id": 1}\n{"id": 100}')
    touch(broken, 60)
    assert cut_run(lab, stream, cut) is not None
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 100]
    assert lab.plan(stream).warnings == ()
    broken.rename(broken.with_name("renamed.json"))
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 100]


def test_a_file_that_changes_while_the_retry_reads_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of the two was read, nobody knows, and the batch's record says so."""
    stream, broken = failing(lab, bounded(), first=0)
    broken.write_text('{"id": 1}')
    touch(broken, 60)
    start = QueryStarts.start

    def after(starts: QueryStarts, query: Any, **how: Any) -> Any:
        broken.write_text('{"id": 1}\n{"id": 100}')
        touch(broken, 70)
        return start(starts, query, **how)

    monkeypatch.setattr(QueryStarts, "start", after)
    (warning,) = lab.run(stream).batches[0].warnings
    assert "while batch 0 was at work: which of the two it has read, nobody knows" in warning
    assert str(broken) in warning


def test_a_file_that_is_mended_beside_its_backup(lab: Lab) -> None:
    """Nothing says that the mended one is never read."""
    stream, broken = failing(lab, bounded(), first=0)
    backup = broken.with_name("0001.json.bak")
    shutil.copy2(broken, backup)
    broken.write_text('{"id": 1}\n{"id": 100}')
    touch(broken, 60)
    plan = lab.plan(stream)
    assert (plan.verdict, "FILE_CHANGED" in {found.code for found in plan.warnings}) == ("refuse", False)
    backup.unlink()
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 100]
    assert lab.plan(stream).warnings == ()


def test_a_file_that_changes_once_its_rows_are_decided(lab: Lab) -> None:
    """What was put aside is published, and the plan tells that what is in the file now was not read."""
    suite = document(row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=50))
    (lab.root / "suite.json").write_bytes(suite)
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:same",
        sink=sinks.delta("out"),
        quality="suite.json",
    )
    write_files(lab.root / "in", {"0000.json": '{"id": 9}'})
    lab.run(stream)
    (file,) = write_files(lab.root / "in", {"0001.json": '{"id": 1}\n{"id": 99}'}, first=1)
    assert cut_run(lab, stream, Cut("commit out", 1)) is not None
    file.write_text('{"id": 3}\n{"id": 98}')
    touch(file, 60)
    lab.run(stream)
    assert (ids(lab.table("out")), ids(lab.table("out_quarantine"))) == ([1, 9], [99])
    assert [found.code for found in lab.plan(stream).warnings] == ["FILE_CHANGED"]


def by_hour(numbers: DataFrame) -> DataFrame:
    at = F.timestamp_seconds("id").alias("at")
    windows = numbers.select(at).withWatermark("at", "0 seconds").groupBy(F.window("at", "100 seconds")).count()
    return windows.select(F.unix_seconds("window.start").alias("id"), "count")


@pytest.mark.parametrize("cut", [Cut("Spark's commit"), Cut("commit out", 1, "after"), *rarely(Cut("commit out"))])
def test_a_file_that_changes_once_its_rows_are_in_the_sink(lab: Lab, cut: Cut) -> None:
    """The watermark and the state would be those of other rows: refused, until it is as it was."""
    rules = row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=5000)
    (lab.root / "suite.json").write_bytes(document(rules))
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:by_hour",
        sink=sinks.delta("out"),
        quality="suite.json",
    )
    for second, number in enumerate((2, 130, 240)):
        write_files(lab.root / "in", {f"{second}.json": f'{{"id": {number}}}'}, first=second)
        lab.run(stream)
    (file,) = write_files(lab.root / "in", {"3.json": '{"id": 245}\n{"id": 350}'}, first=3)
    assert cut_run(lab, stream, cut) is not None
    file.write_text('{"id": 7000}')
    touch(file, 60)

    assert lab.plan(stream).verdict == "refuse"
    with pytest.raises(RefusedError) as refused:
        lab.run(stream)

    read_remedy(refused.value, "INPUT_CHANGED", "bring it back as it was, with that time.*under a name of its own")
    write_files(lab.root / "in", {"3.json": '{"id": 245}\n{"id": 350}'}, first=3)
    lab.run(stream)
    write_files(lab.root / "in", {"4.json": '{"id": 355}\n{"id": 460}'}, first=70)
    lab.run(stream)
    write_files(lab.root / "in", {"5.json": '{"id": 900}'}, first=71)
    lab.run(stream)
    assert sorted(map(tuple, lab.table("out").collect())) == [(0, 1), (100, 1), (200, 2), (300, 2), (400, 1)]


def halved(numbers: DataFrame) -> DataFrame:
    return numbers.select((F.col("id") % 100).alias("id"))


def at_most(numbers: DataFrame) -> DataFrame:
    """It reads, as it starts, what the largest number may be."""
    return numbers.select(F.least(F.col("id"), F.lit(int(os.environ.get("MOST", "9999")))).alias("id"))


@pytest.mark.parametrize("what", ["file", "transform", "what it reads", "neither"])
def test_a_verdict_on_what_was_written(lab: Lab, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite asks for more by now: the rows that are in the sink are looked at, not what is read by now."""
    (lab.root / "suite.json").write_bytes(
        document(row("expect_column_values_to_not_be_null", policy="warn", column="id"))
    )
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:at_most",
        sink=sinks.delta("out"),
        quality="suite.json",
    )
    write_files(lab.root / "in", {"0.json": '{"id": 1}'})
    lab.run(stream)
    (file,) = write_files(lab.root / "in", {"1.json": '{"id": 2}\n{"id": 5000}'}, first=1)
    assert cut_run(lab, stream, Cut("Spark's commit")) is not None
    fails = row("expect_column_values_to_be_between", policy="fail", column="id", max_value=999)
    (lab.root / "suite.json").write_bytes(document(fails))
    if what == "file":
        file.write_text('{"id": 2}\n{"id": 3}')
        touch(file, 60)
    elif what == "what it reads":
        monkeypatch.setenv("MOST", "900")

    with pytest.raises(QualityFailedError):
        lab.run(replace(stream, transform=f"{__name__}:halved") if what == "transform" else stream)

    assert ids(lab.table("out")) == [1, 2, 5000]
    quality = lab.records(stream)[-1]["quality"]
    assert quality["verdict"] == "fail"
    assert lab.plan(stream).verdict == "refuse"


def test_a_mended_file_that_was_read_is_not_doubted(lab: Lab) -> None:
    """A run died behind its commit; the file is as it was read then, though not as it was when it was taken."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint", mode="FAILFAST")},
        transform=f"{__name__}:same",
        sink=sinks.delta("out"),
    )
    write_files(lab.root / "in", {"0.json": '{"id": 1}'})
    lab.run(stream)
    (file,) = write_files(lab.root / "in", {"1.json": '{"id": 2'}, first=1)
    with pytest.raises(SluiceError):
        lab.run(stream)
    file.write_text('{"id": 2}\n{"id": 3}')
    touch(file, 60)
    assert cut_run(lab, stream, Cut("Spark's commit")) is not None

    record = lab.run(stream)

    assert (ids(lab.table("out")), [batch.warnings for batch in record.batches]) == ([1, 2, 3], [()])
    file.rename(file.with_name("renamed.json"))
    assert [found.code for found in lab.plan(stream).warnings] == ["FILE_RENAMED"]
    lab.run(stream)
    assert ids(lab.table("out")) == [1, 2, 3]
