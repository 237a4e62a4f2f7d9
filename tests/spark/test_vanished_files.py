"""Files that vanish between the plan and Spark's listing: Spark takes them for empty, and Sluice notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, RefusedError
from sluice.interval import Interval
from sluice.running import backfill_as_stream as bounded_stream
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.batches import BatchRunner
from sluice.running.query_starts import QueryStarts
from tests.spark.lab import Lab, ids, uncommit, write_numbers

pytestmark = pytest.mark.spark

CALLS: list[list[int]] = []


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def once(numbers: DataFrame) -> DataFrame:
    """Spark refuses this in a batch, so a backfill runs it as a stream."""
    timed = numbers.selectExpr("id", "DATE'2026-01-02' AS day", "TIMESTAMP'2026-01-02' AS at")
    return timed.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id", "day"])


def take(frame: DataFrame, batch_id: int) -> None:
    CALLS.append(sorted(row["id"] for row in frame.collect()))


@pytest.fixture
def calls() -> Iterator[list[list[int]]]:
    """What the function was called with."""
    CALLS.clear()
    yield CALLS
    CALLS.clear()


def declared(sink: Any, **options: Any) -> Stream:
    source = sources.files("in", format="json", schema="id bigint", **options)
    return Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sink)


@pytest.fixture
def at_start(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Something that happens between the last check before a batch, and Spark's start."""

    def set_up(happens: Callable[[], None]) -> None:
        start = QueryStarts.start

        def after(starts: QueryStarts, query: Any, **how: Any) -> Any:
            happens()
            return start(starts, query, **how)

        monkeypatch.setattr(QueryStarts, "start", after)

    return set_up


def test_after_the_last_check(lab: Lab, at_start: Callable[[Callable[[], None]], None]) -> None:
    """Delta's own writer commits before anybody can look; the run fails right after, and says what brings them back."""
    write_numbers(lab.root / "in", 3)
    gone = lab.root / "in" / "0001.json"
    content = gone.read_text()
    at_start(lambda: gone.unlink(missing_ok=True))
    stream = declared(sinks.delta("out", merge_schema=True))

    with pytest.raises(BatchFailedError, match="vanished just before Spark read them: batch 0 is committed") as caught:
        lab.run(stream)

    assert caught.value.where == f"file://{gone}"
    assert ids(lab.table("out")) == [0, 2]
    (record,) = lab.records(stream)
    assert [(batch["batch_id"], batch["output_rows"]) for batch in record["batches"]] == [(0, 2)]
    assert (record["status"], record["error"]["type"]) == ("failed", "BatchFailedError")
    gone.with_name("0001-again.json").write_text(content)
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 2]


def test_before_a_batch_is_published(lab: Lab, at_start: Callable[[Callable[[], None]], None]) -> None:
    """A table that is there gets nothing of a batch that lacks files; once they are back, it runs as planned."""
    stream = declared(sinks.delta("out"))
    write_numbers(lab.root / "in", 1)
    lab.run(stream)
    write_numbers(lab.root / "in", 2, first=1)
    gone = lab.root / "in" / "0002.json"
    aside = gone.with_name("_aside")
    at_start(lambda: gone.rename(aside) if gone.exists() and not aside.exists() else None)  # type: ignore[func-returns-value]

    with pytest.raises(BatchFailedError, match="1 planned input files of batch 1 vanished before Spark read them"):
        lab.run(stream)

    assert ids(lab.table("out")) == [0]
    aside.rename(gone)
    aside.touch()
    assert [batch.kind for batch in lab.run(stream).batches] == ["uncommitted"]
    assert ids(lab.table("out")) == [0, 1, 2]


def test_before_a_function_is_called(
    lab: Lab, calls: list[list[int]], at_start: Callable[[Callable[[], None]], None]
) -> None:
    """A function that writes batches is not called with less than was planned; once they are back, the batch runs."""
    write_numbers(lab.root / "in", 2)
    gone = lab.root / "in" / "0001.json"
    aside = gone.with_name("_aside")
    at_start(lambda: gone.rename(aside) if gone.exists() and not aside.exists() else None)  # type: ignore[func-returns-value]
    stream = declared(sinks.foreach_batch(f"{__name__}:take"))

    with pytest.raises(BatchFailedError, match="1 planned input files of batch 0 vanished before Spark read them"):
        lab.run(stream)

    assert calls == []
    assert lab.plan(stream).problem is not None
    Path(aside).rename(gone)
    aside.touch()
    assert [batch.kind for batch in lab.run(stream).batches] == ["uncommitted"]
    assert calls == [[0, 1]]


def test_between_the_plan_and_a_resumed_batch(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that was planned by a former run is checked again just before Spark starts."""
    write_numbers(lab.root / "in", 2)
    stream = declared(sinks.files("out", format="parquet"))
    lab.run(stream)
    write_numbers(lab.root / "in", 1, first=2)
    lab.run(stream)
    uncommit(lab.checkpoint(stream), 1)
    run = BatchRunner.run

    def after(runner: BatchRunner, plan: Any) -> Any:
        (lab.root / "in" / "0002.json").unlink()
        return run(runner, plan)

    monkeypatch.setattr(BatchRunner, "run", after)
    with pytest.raises(RefusedError) as caught:
        lab.run(stream)
    assert caught.value.finding.code == "INPUT_GONE"
    assert not (lab.checkpoint(stream) / "commits" / "1").exists()


def test_in_a_backfill_that_runs_as_a_stream(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its interval is not replaced by what is left; once the file is back, it is replaced by all."""
    write_numbers(lab.root / "in", 2)
    stream = replace(
        declared(sinks.delta("out", partition_by="day")), transform=f"{__name__}:once", interval_column="day"
    )
    lab.run(stream)
    gone = lab.root / "in" / "0001.json"
    aside = gone.with_name("_aside")
    interval = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    request = BackfillRequest(lab.project.resolve(stream), interval)
    run_one = bounded_stream._run_one

    def without_a_file(*args: Any) -> Any:
        gone.rename(aside)
        return run_one(*args)

    with monkeypatch.context() as patch:
        patch.setattr(bounded_stream, "_run_one", without_a_file)
        with pytest.raises(BatchFailedError, match="1 input files vanished before Spark read them") as caught:
            backfill_stream(lab.project, request, session=lab.spark)

    assert caught.value.where == f"file://{gone}"
    assert ids(lab.table("out")) == [0, 1]
    aside.rename(gone)
    backfill_stream(lab.project, request, session=lab.spark)
    assert ids(lab.table("out")) == [0, 1]
