"""Files that were read and get another name between our plan and Spark's own listing: a drained run sees them, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, RefusedError, SluiceError
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.query_starts import QueryStarts
from tests.remedies import read_remedy
from tests.spark.lab import Lab, bounded, ids, touch, uncommit, write_files, write_numbers
from tests.spark.power_cuts import Cut, power_cut

pytestmark = pytest.mark.spark

CALLS: list[int] = []
DRAIN = bounded(strategy="drain")
GUARDED = ["published", "function", "judged"]
BY_ITSELF = ["delta", "files", "noop"]


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def dated(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("id", "DATE'2026-01-02' AS day")


def take(frame: DataFrame, batch_id: int) -> None:
    CALLS.extend(row["id"] for row in frame.collect())


@pytest.fixture(autouse=True)
def calls() -> Iterator[None]:
    CALLS.clear()
    yield
    CALLS.clear()


AtStart = Callable[[Callable[[], object]], None]


@pytest.fixture
def at_start(monkeypatch: pytest.MonkeyPatch) -> AtStart:
    """Something that happens between the last look before a drained run, and Spark's own listing."""

    def set_up(happens: Callable[[], object]) -> None:
        start = QueryStarts.start

        def after(starts: QueryStarts, query: Any, *, trigger: Any) -> Any:
            if trigger != "once":
                happens()
            return start(starts, query, trigger=trigger)

        monkeypatch.setattr(QueryStarts, "start", after)

    return set_up


def stream_of(lab: Lab, kind: str, **options: Any) -> Stream:
    """A stream into a sink of a kind."""
    sink: Any = {
        "published": sinks.delta("out"),
        "judged": sinks.delta("out"),
        "delta": sinks.delta("out", optimize_write=False),
        "files": sinks.files("out", format="parquet"),
        "function": sinks.foreach_batch(f"{__name__}:take"),
        "noop": sinks.noop(),
    }[kind]
    source = sources.files("in", format="json", schema="id bigint", **({"max_files_per_batch": 1} | options))
    stream = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sink)
    if kind != "judged":
        return stream
    (lab.root / "suite.json").write_text(
        '{"name": "s", "expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}}]}'
    )
    return replace(stream, quality="suite.json")


def kept(lab: Lab, kind: str) -> list[int] | None:
    """What the sink has; None where it keeps nothing."""
    if kind == "noop":
        return None
    if kind == "function":
        return sorted(CALLS)
    return ids(lab.spark.read.parquet(str(lab.root / "out")) if kind == "files" else lab.table("out"))


def is_same(kind: str, found: list[int] | None, expected: list[int]) -> bool:
    return kind == "noop" or found == expected


def rename(lab: Lab, old: str, new: str) -> Path:
    return (lab.root / "in" / old).rename(lab.root / "in" / new)


def test_a_file_that_spark_knows_by_its_path(lab: Lab) -> None:
    """Spark never reads another file of a taken name, whatever its time and size are."""
    stream = stream_of(lab, "published")
    write_numbers(lab.root / "in", 2)
    lab.run(stream)
    rename(lab, "0001.json", "_away")
    write_files(lab.root / "in", {"0001.json": '{"id": 77}'}, first=50)

    assert [problem.code for problem in lab.plan(stream).warnings] == ["FILE_CHANGED"]
    lab.run(stream, DRAIN)
    assert ids(lab.table("out")) == [0, 1]


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("kind", GUARDED)
def test_before_the_batch_counts(lab: Lab, at_start: AtStart, kind: str, *, is_replaced: bool) -> None:
    """Nothing is written of a batch that reads a file again; done as it says, every row is there once."""
    stream = stream_of(lab, kind)
    write_numbers(lab.root / "in", 2)
    lab.run(stream)
    write_numbers(lab.root / "in", 1, first=2)

    def rotate() -> None:
        rename(lab, "0001.json", "z0001.json")
        if is_replaced:
            write_files(lab.root / "in", {"0001.json": '{"id":5}'}, first=50)

    at_start(rotate)
    with pytest.raises(BatchFailedError, match="1 input files of batch 2 were read before, under another name") as told:
        lab.run(stream, DRAIN)

    assert (told.value.where, kept(lab, kind)) == (f"file://{lab.root}/in/z0001.json", [0, 1])
    for limits in (DRAIN, bounded()):
        with pytest.raises(RefusedError) as refused:
            lab.run(stream, limits)
        read_remedy(refused.value, "INPUT_RENAMED", "its old name back, and put an empty file in its place")
    if is_replaced:
        rename(lab, "0001.json", "5.json")
    rename(lab, "z0001.json", "0001.json")
    (lab.root / "in" / "z0001.json").touch()
    lab.run(stream)
    assert kept(lab, kind) == ([0, 1, 2, 5] if is_replaced else [0, 1, 2])
    assert (lab.plan(stream).verdict, lab.plan(stream).warnings) == ("skip", ())


@pytest.mark.parametrize("kind", [*GUARDED, *BY_ITSELF])
def test_another_file_that_looks_like_it(lab: Lab, at_start: AtStart, kind: str) -> None:
    """Touched, it is read where it was not; a sink that Spark writes has it already."""
    stream = stream_of(lab, kind)
    write_numbers(lab.root / "in", 2)
    lab.run(stream)
    write_numbers(lab.root / "in", 1, first=2)

    def another() -> None:
        (lab.root / "in" / "0001.json").unlink()
        touch(write_files(lab.root / "in", {"7.json": '{"id": 7}'})[0], 1)

    at_start(another)
    with pytest.raises(BatchFailedError, match="under another name"):
        lab.run(stream, DRAIN)
    if kind in GUARDED:
        touch(lab.root / "in" / "7.json", 60)
    lab.run(stream)
    assert is_same(kind, kept(lab, kind), [0, 1, 2, 7])


@pytest.mark.parametrize("kind", BY_ITSELF)
def test_a_sink_that_commits_by_itself(lab: Lab, at_start: AtStart, kind: str) -> None:
    """The run fails and names the file whose rows are there twice; no later one reads it again."""
    stream = stream_of(lab, kind, max_files_per_batch=4)
    write_numbers(lab.root / "in", 2)
    lab.run(stream)
    write_numbers(lab.root / "in", 2, first=2)
    at_start(lambda: [rename(lab, "0000.json", "z0000.json"), rename(lab, "0001.json", "z0001.json")])

    with pytest.raises(BatchFailedError, match="committed with rows that are there twice") as told:
        lab.run(stream, DRAIN)

    for name in ("z0000.json", "z0001.json"):
        assert f"{lab.root}/in/{name}" in told.value.problem
    noted = [warning for batch in lab.records(stream)[-1]["batches"] for warning in batch["warnings"]]
    assert len(noted) == 1
    lab.run(stream)
    assert is_same(kind, kept(lab, kind), [0, 0, 1, 1, 2, 3])


def test_a_backfill_of_rows_that_were_there_twice(lab: Lab, at_start: AtStart) -> None:
    """Once there is an empty file under the old name, as the message says, it reads the rows once."""
    stream = replace(
        stream_of(lab, "delta", max_files_per_batch=4),
        sink=sinks.delta("out", partition_by="day", optimize_write=False),
        transform=f"{__name__}:dated",
        interval_column="day",
    )
    write_numbers(lab.root / "in", 2)
    lab.run(stream)
    write_numbers(lab.root / "in", 1, first=2)
    at_start(lambda: rename(lab, "0001.json", "z0001.json"))
    with pytest.raises(BatchFailedError, match="put an empty file in the place of the old one"):
        lab.run(stream, DRAIN)
    assert ids(lab.table("out")) == [0, 1, 1, 2]
    interval = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    request = BackfillRequest(lab.project.resolve(stream), interval)
    with pytest.raises(RefusedError):
        backfill_stream(lab.project, request, session=lab.spark)

    (lab.root / "in" / "0001.json").touch()
    backfill_stream(lab.project, request, session=lab.spark)
    assert ids(lab.table("out")) == [0, 1, 2]


@pytest.mark.parametrize("is_in_sink", [False, True])
def test_after_a_kill(lab: Lab, at_start: AtStart, *, is_in_sink: bool) -> None:
    """A batch that nobody has looked at is looked at before it is repeated; one that the sink holds is told of."""
    stream = stream_of(lab, "delta", max_files_per_batch=2)
    write_numbers(lab.root / "in", 2)
    lab.run(stream)
    write_numbers(lab.root / "in", 1, first=2)
    at_start(lambda: rename(lab, "0001.json", "z0001.json"))
    with suppress(SluiceError):
        lab.run(stream, DRAIN)
    for file in (lab.root / "home" / "s" / "taken" / "0001" / "0").glob("1.json"):
        file.unlink()
    uncommit(lab.checkpoint(stream), 1)
    if is_in_sink:
        (warning,) = lab.plan(stream).warnings
        assert (warning.code, warning.consequence) == ("INPUT_RENAMED", "its rows are in the sink twice")
        lab.run(stream)
        assert lab.records(stream)[-1]["plan"]["warnings"][0]["code"] == "INPUT_RENAMED"
        assert ids(lab.table("out")) == [0, 1, 1, 2]
    else:
        stream = replace(stream, sink=sinks.delta("out", optimize_write=False))
        newest = max((lab.root / "out" / "_delta_log").glob("*.json"))
        newest.unlink()
        for checksum in (lab.root / "out" / "_delta_log").glob(f"*{newest.stem}*"):
            checksum.unlink()
        assert lab.plan(stream).problem.code == "INPUT_RENAMED"  # type: ignore[union-attr]


def test_entries_without_their_batch(lab: Lab, at_start: AtStart) -> None:
    """What Spark has logged of a source, before it died, is looked at before it is adopted."""
    stream = stream_of(lab, "published")
    write_numbers(lab.root / "in", 2)
    lab.run(stream)
    write_numbers(lab.root / "in", 1, first=2)
    at_start(lambda: rename(lab, "0001.json", "z0001.json"))
    with pytest.raises(BatchFailedError):
        lab.run(stream, DRAIN)
    for name in ("2", ".2.crc"):
        (lab.checkpoint(stream) / "offsets" / name).unlink()

    assert lab.plan(stream).problem.code == "INPUT_RENAMED"  # type: ignore[union-attr]
    rename(lab, "z0001.json", "0001.json")
    (lab.root / "in" / "z0001.json").touch()
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 2]


@pytest.mark.parametrize("nth", range(1, 10))
def test_kills_in_a_drain_after_a_rename(lab: Lab, nth: int) -> None:
    """Wherever a drained run is killed, a file that it took and that is renamed then is not read twice."""
    stream = stream_of(lab, "published")
    write_numbers(lab.root / "in", 1)
    lab.run(stream)
    write_numbers(lab.root / "in", 2, first=1)
    with power_cut(Cut("", nth), lab.root), suppress(Exception):
        lab.run(stream, DRAIN)
    for file in (lab.root / "home" / "s" / "leases").glob("*/*.json"):
        file.unlink()
    rename(lab, "0001.json", "r.json")

    with suppress(RefusedError):
        lab.run(stream)
    found = ids(lab.table("out"))
    assert found in ([0], [0, 1], [0, 1, 2])
    if 2 not in found:
        rename(lab, "r.json", "0001.json")
        lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 2]
