"""Files that give their name to another one between the plan and Spark's reading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, DeclarationError, RefusedError
from sluice.running.batches import BatchRunner
from sluice.running.query_starts import QueryStarts
from tests.remedies import read_remedy
from tests.spark.lab import Lab, bounded, ids, write_files, write_numbers

pytestmark = pytest.mark.spark

DRAIN = bounded(strategy="drain")


def same(numbers: DataFrame) -> DataFrame:
    return numbers


@pytest.fixture
def at_start(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Something that happens between the last look before a batch, and Spark's start."""

    def set_up(happens: Callable[[], object]) -> None:
        start = QueryStarts.start
        left = [happens]

        def after(starts: QueryStarts, query: Any, **how: Any) -> Any:
            if left:
                left.pop()()
            return start(starts, query, **how)

        monkeypatch.setattr(QueryStarts, "start", after)

    return set_up


def begun(lab: Lab, sink: Any, **options: Any) -> Stream:
    """A stream that has run once, and before which another file lies."""
    source = sources.files("in", format="json", schema="id bigint", **options)
    stream = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sink)
    write_numbers(lab.root / "in", 1)
    lab.run(stream)
    write_numbers(lab.root / "in", 1, first=1)
    return stream


def rotate(lab: Lab) -> Path:
    """Give file 1 another name, and its name to another file of its size."""
    old = lab.root / "in" / "0001.json"
    old.rename(old.with_name("0001.json.1"))
    write_files(lab.root / "in", {"0001.json": '{"id": 5}'}, first=50)
    return old


def test_before_the_batch_is_written(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing counts as taken; the next try takes both."""
    stream = begun(lab, sinks.delta("out"))
    run = BatchRunner.run

    def after(runner: BatchRunner, plan: Any) -> Any:
        rotate(lab)
        return run(runner, plan)

    monkeypatch.setattr(BatchRunner, "run", after)
    with pytest.raises(BatchFailedError, match="1 planned input files vanished, or have changed, before batch 1"):
        lab.run(stream)
    monkeypatch.setattr(BatchRunner, "run", run)
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 5]


def test_before_spark_reads_it(lab: Lab, at_start: Callable[[Callable[[], object]], None]) -> None:
    """Nothing is published; done as it says, every content is there once."""
    stream = begun(lab, sinks.delta("out"))
    at_start(lambda: rotate(lab))
    with pytest.raises(BatchFailedError, match="1 planned input files of batch 1 were replaced") as failed:
        lab.run(stream)
    assert failed.value.where == f"file://{lab.root}/in/0001.json"

    for limits in (bounded(), DRAIN):
        with pytest.raises(RefusedError) as refused:
            lab.run(stream, limits)
        problem = read_remedy(refused.value, "INPUT_GONE", "and the other one under a name of its own")
        assert f"it is probably file://{lab.root}/in/0001.json.1 now" in problem.cause
    old = lab.root / "in" / "0001.json"
    old.rename(old.with_name("5.json"))
    old.with_name("0001.json.1").rename(old)
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 5]
    assert (lab.plan(stream).verdict, lab.plan(stream).warnings) == ("skip", ())


def test_a_sink_that_commits_by_itself(lab: Lab, at_start: Callable[[Callable[[], object]], None]) -> None:
    """Which of the two was read, nobody knows: the record says so, and the next plan tells of both names."""
    stream = begun(lab, sinks.files("out", format="parquet"))
    at_start(lambda: rotate(lab))

    (batch,) = lab.run(stream).batches

    (warning,) = batch.warnings
    assert "1 input files were replaced, or have changed, while batch 1 was at work" in warning
    assert [found.code for found in lab.plan(stream).warnings] == ["FILE_RENAMED", "FILE_CHANGED"]


def test_a_path_that_spark_has_forgotten(lab: Lab) -> None:
    """With `max_file_age` Spark forgets what is older, and would read it again once it has another time."""
    stream = begun(lab, sinks.delta("out"), max_file_age="10s")
    write_numbers(lab.root / "in", 1, first=40)
    lab.run(stream)
    write_numbers(lab.root / "in", 1, first=41)
    write_files(lab.root / "in", {"0001.json": '{"id": 1}'}, first=50)

    assert [found.code for found in lab.plan(stream).warnings] == ["FILE_CHANGED"]
    with pytest.raises(DeclarationError, match="can't be drained: Spark would read a file again"):
        lab.run(stream, DRAIN)
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 40, 41]


@pytest.mark.parametrize("is_touched", [False, True])
def test_one_that_spark_has_forgotten_and_finds_again(
    lab: Lab, at_start: Callable[[Callable[[], object]], None], *, is_touched: bool
) -> None:
    """Before its batch counts, somebody has to say whether it is another file."""
    stream = begun(lab, sinks.delta("out"), max_file_age="10s")
    write_numbers(lab.root / "in", 1, first=40)
    lab.run(stream)
    write_numbers(lab.root / "in", 1, first=41)
    again = '{"id": 1}' if is_touched else '{"id": 5}'
    at_start(lambda: write_files(lab.root / "in", {"0001.json": again}, first=50))
    with pytest.raises(BatchFailedError, match=r"were read before, .*0001\.json under this name"):
        lab.run(stream, DRAIN)

    with pytest.raises(RefusedError) as refused:
        lab.run(stream)
    read_remedy(refused.value, "INPUT_RENAMED", "^put an empty file in its place; or touch it, if it is another file")
    (lab.root / "in" / "0001.json").write_text("" if is_touched else again)
    lab.run(stream)
    assert ids(lab.table("out")) == ([0, 1, 40, 41] if is_touched else [0, 1, 5, 40, 41])
