"""A driver that dies behind Spark's commit of a batch, before it has noted where that went: no row stays behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, RefusedError
from sluice.generation_notes import WrittenBatch
from sluice.interval import Interval
from sluice.planning.generation_sink import check_sink
from sluice.planning.planner import Limits
from sluice.running import runner
from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
from sluice.running.known_generation import KnownGeneration
from sluice.sinks.contract import Sink
from tests.remedies import read_remedy
from tests.spark.lab import Lab, ids, write_numbers

pytestmark = pytest.mark.spark


class PowerCutError(BaseException):
    """The driver is gone."""


@contextmanager
def dying_behind_the_commit() -> Iterator[None]:
    """The driver dies when Spark has committed a batch, and has noted nothing of it."""

    def die(*_: object) -> None:
        raise PowerCutError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner._Run, "_keep_what_was_written", die)
        patch.setattr(runner._Run, "_close_failed", lambda *_: None)
        with pytest.raises(PowerCutError):
            yield


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def ordered(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("seq", F.col("id"))


def counted(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").count()


def dated(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("day", F.lit(date(2026, 1, 1)))


def split(numbers: DataFrame) -> dict[str, DataFrame]:
    return {"even": numbers.where("id % 2 = 0"), "odd": numbers.where("id % 2 = 1")}


FORMS: dict[str, tuple[str, Callable[[str], Sink], dict[str, Any]]] = {
    "published": ("same", sinks.delta, {}),
    "by Spark": ("same", lambda path: sinks.delta(path, optimize_write=True), {}),
    "merged": ("same", lambda path: sinks.delta(path, merge_on="id"), {}),
    "changes": ("ordered", lambda path: sinks.delta(path, changes=sinks.changes(keys=["id"], sequence_by="seq")), {}),
    "complete": ("counted", sinks.delta, {"output_mode": "complete"}),
}
"""By how a table is written: the transform, the sink, and what else is declared."""


def declared(form: str, path: str = "out") -> Stream:
    transform, sink, more = FORMS[form]
    return Stream(
        name="numbers",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform}",
        sink=sink(path),
        **more,
    )


def die_behind(lab: Lab, stream: Stream) -> None:
    write_numbers(lab.root / "in", 2)
    with dying_behind_the_commit():
        lab.run(stream)
    write_numbers(lab.root / "in", 2, first=2)


def refused(lab: Lab, stream: Stream) -> Any:
    """What a plan, a run and a release say."""
    problem = lab.plan(stream).problem
    with pytest.raises(RefusedError) as by_run:
        lab.run(stream)
    resolved = lab.project.resolve(stream)
    with pytest.raises(RefusedError) as by_release:
        check_sink(lab.project, resolved, lab.project.stream_home(resolved))
    assert by_run.value.finding.code == by_release.value.finding.code == problem.code
    return problem


@pytest.mark.parametrize("other", ["new", "of others"])
@pytest.mark.parametrize("form", FORMS)
def test_a_sink_that_moves(lab: Lab, form: str, other: str) -> None:
    """Refused wherever it is declared, until the table is there."""
    stream, moved = declared(form), declared(form, "moved")
    die_behind(lab, stream)
    if other == "of others":
        lab.run(replace(moved, name="others"))

    problem = refused(lab, moved)
    assert problem.code in {"SINK_MOVED", "SINK_REPLACED"}
    if other == "of others":
        return
    assert not (lab.root / "moved").exists()
    for table in list(lab.root.glob("out*")):
        table.rename(lab.root / table.name.replace("out", "moved"))
    lab.run(moved)
    assert ids(lab.table("moved")) == [0, 1, 2, 3]


@pytest.mark.parametrize("form", FORMS)
def test_a_sink_that_is_dropped(lab: Lab, form: str) -> None:
    """Refused until it is back."""
    stream = declared(form)
    die_behind(lab, stream)
    (lab.root / "out").rename(lab.root / "gone")
    problem = refused(lab, stream)
    read_remedy(problem, "SINK_REPLACED", "restore the table")
    (lab.root / "gone").rename(lab.root / "out")
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 2, 3]


def test_a_table_of_others_in_its_place(lab: Lab) -> None:
    """One that Spark's own writer had made, and the home had not noted, is told by its log."""
    stream = declared("by Spark")
    die_behind(lab, stream)
    shutil.rmtree(lab.root / "out")
    lab.spark.range(1).write.format("delta").save(str(lab.root / "out"))
    problem = refused(lab, stream)
    assert (problem.code, problem.cause) == (
        "SINK_REPLACED",
        "this generation has committed batches up to 0, and the table has none of them",
    )


def test_a_drain(lab: Lab) -> None:
    """Spark has committed batches by itself, of which nothing was noted."""
    stream = replace(
        declared("by Spark"),
        sources={"numbers": sources.files("in", format="json", schema="id bigint", max_files_per_batch=1)},
    )
    write_numbers(lab.root / "in", 3)
    with dying_behind_the_commit():
        lab.run(stream, Limits(strategy="drain"))
    moved = replace(stream, sink=sinks.delta("moved", optimize_write=True))
    assert refused(lab, moved).code == "SINK_MOVED"
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 2]


@pytest.mark.parametrize("part", ["even", "odd"])
def test_one_of_several(lab: Lab, part: str) -> None:
    """Each of them counts, not the first alone."""
    places = {"even": "even", "odd": "odd"}

    def several(places: dict[str, str]) -> Stream:
        parts = {name: sinks.delta(path) for name, path in places.items()}
        return replace(declared("published"), transform=f"{__name__}:split", sink=None, sinks=parts)

    die_behind(lab, several(places))
    moved = several(places | {part: "moved"})
    assert refused(lab, moved).code in {"SINK_MOVED", "SINK_REPLACED"}
    (lab.root / part).rename(lab.root / "moved")
    assert refused(lab, several(places)).code == "SINK_REPLACED"
    lab.run(moved)
    assert ids(lab.table("moved")) == ([0, 2] if part == "even" else [1, 3])


@pytest.mark.parametrize("form", [name for name in FORMS if name != "complete"])
def test_an_older_copy(lab: Lab, form: str) -> None:
    """Of a table that somebody had made beforehand: brought back once the first batch counts, it lacks that one."""
    stream = declared(form)
    columns = "id BIGINT" if form != "changes" else "id BIGINT, seq BIGINT"
    lab.spark.sql(f"CREATE TABLE delta.`{lab.root / 'out'}` ({columns}) USING delta")
    shutil.copytree(lab.root / "out", lab.root / "copy")
    die_behind(lab, stream)
    shutil.rmtree(lab.root / "out")
    (lab.root / "copy").rename(lab.root / "out")

    assert refused(lab, stream).code == "SINK_REPLACED"


@pytest.mark.parametrize("part", ["even", "odd"])
def test_an_older_copy_of_one_of_several(lab: Lab, part: str) -> None:
    """Each of them is known by what it has."""
    parts = {name: sinks.delta(name) for name in ("even", "odd")}
    stream = replace(declared("published"), transform=f"{__name__}:split", sink=None, sinks=parts)
    lab.spark.sql(f"CREATE TABLE delta.`{lab.root / part}` (id BIGINT) USING delta")
    shutil.copytree(lab.root / part, lab.root / "copy")
    die_behind(lab, stream)
    shutil.rmtree(lab.root / part)
    (lab.root / "copy").rename(lab.root / part)

    assert refused(lab, stream).code == "SINK_REPLACED"


@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("form", ["published", "merged"])
def test_a_table_that_is_dropped_before_anything_counts(lab: Lab, form: str, *, is_made_anew: bool) -> None:
    """The first batch was in it, its driver died before Spark's commit, and it is begun anew: nothing is missing.

    Elsewhere it is not begun: there, its rows would be twice.
    """
    stream, keep = declared(form), KnownGeneration.keep_first
    write_numbers(lab.root / "in", 2)

    def keeping(*args: Any) -> None:
        keep(*args)
        raise ConnectionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KnownGeneration, "keep_first", keeping)
        with pytest.raises(BatchFailedError):
            lab.run(stream)
    assert refused(lab, declared(form, "moved")).code == "SINK_MOVED"
    shutil.rmtree(lab.root / "out")
    if is_made_anew:
        lab.spark.sql(f"CREATE TABLE delta.`{lab.root / 'out'}` (id BIGINT) USING delta")

    lab.run(stream)
    write_numbers(lab.root / "in", 2, first=2)
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 2, 3]


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("form", [*FORMS, "several", "one of several"])
def test_a_first_batch_without_rows(lab: Lab, form: str, *, dies: bool) -> None:
    """It may leave no table, and nothing is missing from what the next batch makes."""
    if "several" in form:
        parts = {name: sinks.delta(name) for name in ("even", "odd")}
        stream = replace(declared("published"), transform=f"{__name__}:split", sink=None, sinks=parts)
    else:
        stream = declared(form)
    (lab.root / "in").mkdir(exist_ok=True)
    (lab.root / "in" / "first.json").write_text('{"id": 8}' if form == "one of several" else "")
    if dies:
        with dying_behind_the_commit():
            lab.run(stream)
    else:
        lab.run(stream)
    write_numbers(lab.root / "in", 4)

    record = lab.run(stream)
    assert (record.status, record.plan.warnings) == ("succeeded", ())
    if "several" in form:
        assert ids(lab.table("even")) == ([0, 2, 8] if form == "one of several" else [0, 2])
        assert ids(lab.table("odd")) == [1, 3]
    else:
        assert ids(lab.table("out")) == [0, 1, 2, 3]


@pytest.mark.parametrize("form", ["published", "by Spark"])
def test_a_backfill(lab: Lab, form: str) -> None:
    """It replaces no rows of a table that is not the stream's."""
    stream = replace(declared(form), transform=f"{__name__}:dated", interval_column="day")
    die_behind(lab, stream)
    moved = replace(stream, sink=declared(form, "moved").sink)
    dated(lab.spark.range(2)).write.format("delta").save(str(lab.root / "moved"))
    plan = plan_backfill(
        lab.project, BackfillRequest(lab.project.resolve(moved), Interval.parse("2026-01-01", "2026-01-02"))
    )
    assert plan.problem is not None
    assert plan.problem.code in {"SINK_MOVED", "SINK_REPLACED"}


def test_what_the_retry_of_a_run_notes(lab: Lab) -> None:
    """One that finds all of its work done notes the table, and an older copy of it is known from then on."""
    stream = declared("by Spark")
    write_numbers(lab.root / "in", 2)
    with dying_behind_the_commit():
        lab.run(stream, run_key="key")
    lab.run(stream, run_key="key")
    known = lab.project.stream_home(stream).generation(1)
    assert known is not None
    assert known.sink_identity is not None
    assert known.written == WrittenBatch(0, 0)


@pytest.mark.parametrize("output_mode", ["append", "complete"])
def test_a_checkpoint_of_plain_spark(lab: Lab, output_mode: str) -> None:
    """A sink that does not exist is refused; one without its batches is warned of; the writer's own goes on."""
    form = "published" if output_mode == "append" else "complete"
    write_numbers(lab.root / "in", 2)
    rows = lab.spark.readStream.schema("id bigint").json(str(lab.root / "in"))
    result = rows if output_mode == "append" else counted(rows)
    writer = result.writeStream.format("delta").outputMode(output_mode).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(lab.root / "spark")).start(str(lab.root / "out"))
    query.awaitTermination()
    write_numbers(lab.root / "in", 2, first=2)

    def adopting(path: str) -> Stream:
        return replace(declared(form, path), checkpoint=str(lab.root / "spark"))

    elsewhere = lab.plan(adopting("oot"))
    if output_mode == "append":
        says = "Where the table is to begin with what comes now, make it, without rows"
        read_remedy(elsewhere.problem, "SINK_LACKS_BATCHES", says)
        lab.spark.sql(f"CREATE TABLE delta.`{lab.root / 'oot'}` (id BIGINT) USING delta")
        warned = lab.plan(adopting("oot"))
        assert (warned.verdict, [found.code for found in warned.warnings]) == ("run", ["SINK_LACKS_BATCHES"])
    else:
        assert (elsewhere.verdict, elsewhere.warnings) == ("run", ())
    assert lab.plan(adopting("out")).warnings == ()
    lab.run(adopting("out"))
    assert ids(lab.table("out")) == [0, 1, 2, 3]
