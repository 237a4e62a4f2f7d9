"""Files that vanish between the plan and Spark's listing: Spark takes them for empty, and Sluice notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, RefusedError
from sluice.interval import Interval
from sluice.plan import PlannedBatch
from sluice.running import backfill_as_stream as bounded_stream
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.batch_logs import BatchLogs
from sluice.running.batches import BatchRunner
from sluice.running.drained_files import DrainedFiles
from sluice.running.query_starts import QueryStarts
from sluice.spark.query import Query
from tests.remedies import read_remedy
from tests.spark.lab import Lab, bounded, ids, uncommit, write_files, write_numbers

pytestmark = pytest.mark.spark

CALLS: list[list[int]] = []
DRAIN = bounded(strategy="drain")


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def dated(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("id", "DATE'2026-01-02' AS day")


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
    stream = declared(sinks.delta("out", optimize_write=False))

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


def test_one_that_is_back_under_its_name(lab: Lab, at_start: Callable[[Callable[[], None]], None]) -> None:
    """It counts as read, and the plan says that it was not; renamed, with the time that it had, it is read."""
    write_numbers(lab.root / "in", 4)
    away = {lab.root / "in" / f"{number:04d}.json": lab.root / "in" / f"_{number}" for number in (1, 2)}
    at_start(lambda: [file.rename(aside) for file, aside in away.items() if file.exists()][:0] and None)
    stream = replace(
        declared(sinks.delta("out", optimize_write=False, partition_by="day")),
        transform=f"{__name__}:dated",
        interval_column="day",
    )
    with pytest.raises(BatchFailedError, match="2 planned input files vanished just before") as caught:
        lab.run(stream)
    assert [f"{lab.root}/in/000{number}.json" in caught.value.problem for number in range(4)] == [0, 1, 1, 0]
    for file, aside in away.items():
        aside.rename(file)

    (warning,) = lab.plan(stream).warnings
    read_remedy(warning, "FILE_NOT_READ", "rename them: under new names they are read")
    assert lab.plan(stream).verdict == "skip"
    for number, file in enumerate(away):
        file.rename(file.with_name(f"again-{number}.json"))
    away.clear()
    lab.run(stream)
    assert (ids(lab.table("out")), lab.plan(stream).warnings) == ([0, 1, 2, 3], ())
    interval = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    backfill_stream(lab.project, BackfillRequest(lab.project.resolve(stream), interval), session=lab.spark)
    assert ids(lab.table("out")) == [0, 1, 2, 3]


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
    """A batch that was planned by an earlier run is checked again just before Spark starts."""
    write_numbers(lab.root / "in", 2)
    stream = declared(sinks.foreach_batch(f"{__name__}:take"))
    lab.run(stream)
    write_numbers(lab.root / "in", 1, first=2)
    lab.run(stream)
    uncommit(lab.checkpoint(stream), 1)
    run = BatchRunner.run

    def after(runner: BatchRunner, batch: PlannedBatch) -> Any:
        (lab.root / "in" / "0002.json").unlink()
        return run(runner, batch)

    monkeypatch.setattr(BatchRunner, "run", after)
    with pytest.raises(RefusedError) as caught:
        lab.run(stream)
    assert caught.value.finding.code == "INPUT_GONE"
    assert not (lab.checkpoint(stream) / "commits" / "1").exists()


def test_between_the_plan_and_an_entry_without_its_batch(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the source's own log has, and no batch yet, is looked for once more before the batch is written."""
    stream = declared(sinks.foreach_batch(f"{__name__}:take"))
    for number in range(2):
        write_numbers(lab.root / "in", 1, first=number)
        lab.run(stream)
    uncommit(lab.checkpoint(stream), 1)
    (lab.checkpoint(stream) / "offsets" / "1").unlink()
    (lab.checkpoint(stream) / "offsets" / ".1.crc").unlink(missing_ok=True)
    run = BatchRunner.run

    def after(runner: BatchRunner, batch: PlannedBatch) -> Any:
        assert [source.added.is_there for source in batch.sources.values()] == [True]
        (lab.root / "in" / "0001.json").unlink()
        return run(runner, batch)

    monkeypatch.setattr(BatchRunner, "run", after)
    with pytest.raises(RefusedError) as caught:
        lab.run(stream)
    assert (caught.value.finding.code, caught.value.finding.file) == ("INPUT_GONE", f"file://{lab.root}/in/0001.json")
    assert not (lab.checkpoint(stream) / "offsets" / "1").exists()


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


def losing(numbers: DataFrame) -> DataFrame:
    """Puts file 2 aside as soon as a row of file 1 is read: by then AvailableNow has listed both."""

    @udf("boolean")
    def lose(path):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - Spark takes typed ones for those of pandas
        folder, name = Path(urlsplit(path).path).parent, path.rpartition("/")[2]
        if name == "0001.json" and (folder / "0002.json").exists():
            (folder / "0002.json").rename(folder / "_aside")
        return True

    return numbers.where(lose("_metadata.file_path"))


def eating(numbers: DataFrame) -> DataFrame:
    """Puts aside the file after the next one of each that it reads."""

    @udf("boolean")
    def eat(path):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - as above
        file = Path(urlsplit(path).path)
        later = file.with_name(f"{int(file.stem) + 2:04d}.json") if file.stem in {"0001", "0002"} else file
        if later != file and later.exists():
            later.rename(later.with_name(f"_{later.stem}"))
        return True

    return numbers.where(eat("_metadata.file_path"))


def blinking(numbers: DataFrame) -> DataFrame:
    """Puts file 3 aside while file 2 is read, and back while file 4 is."""

    @udf("boolean")
    def blink(path):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - as above
        file = Path(urlsplit(path).path)
        there, away = file.with_name("0003.json"), file.with_name("_0003")
        if file.stem == "0002" and there.exists():
            there.rename(away)
        if file.stem == "0004" and away.exists():
            away.rename(there)
        return True

    return numbers.where(blink("_metadata.file_path"))


class TestDrained:
    """AvailableNow lists files once, and Spark takes those that are gone when their batch comes for empty."""

    @pytest.mark.parametrize("is_back_at_once", [False, True])
    def test_before_a_batch_is_published(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch, *, is_back_at_once: bool
    ) -> None:
        """Nothing of a batch that lacks a file counts, and once the file is back, the batch runs as Spark logged it."""
        stream = self.begun(lab, sinks.delta("out"))
        files_of_batch = Query.files_of_batch

        def after(query: Query, started: Any) -> Any:
            found = files_of_batch(query, started)
            if is_back_at_once and (lab.root / "in" / "_aside").exists():
                self.bring_back(lab)
            return found

        monkeypatch.setattr(Query, "files_of_batch", after)
        with pytest.raises(BatchFailedError, match="1 planned input files of batch 2 vanished before Spark read them"):
            lab.run(stream, DRAIN)

        assert ids(lab.table("out")) == [0, 1]
        assert [batch["batch_id"] for batch in lab.records(stream)[-1]["batches"]] == [1]
        if not is_back_at_once:
            assert lab.plan(stream).verdict == "refuse"
            self.bring_back(lab)
        assert [batch.kind for batch in lab.run(stream).batches] == ["uncommitted"]
        assert ids(lab.table("out")) == [0, 1, 2]

    def test_before_a_function_is_called(self, lab: Lab, calls: list[list[int]]) -> None:
        """A function that writes batches is not called with less than Spark has logged."""
        stream = self.begun(lab, sinks.foreach_batch(f"{__name__}:take"))
        with pytest.raises(BatchFailedError, match="1 planned input files of batch 2 vanished before Spark read them"):
            lab.run(stream, DRAIN)
        assert calls == [[0], [1]]
        self.bring_back(lab)
        lab.run(stream, DRAIN)
        assert calls == [[0], [1], [2]]
        (lab.root / "in" / "0002.json").rename(lab.root / "in" / "renamed.json")
        assert lab.plan(stream).verdict == "skip"

    def test_a_sink_that_commits_by_itself(self, lab: Lab) -> None:
        """The run fails once it is over, and has recorded every batch that Spark committed."""
        stream = self.begun(lab, sinks.files("out", format="parquet"))
        with pytest.raises(
            BatchFailedError, match="vanished just before Spark read them: batch 2 is committed"
        ) as caught:
            lab.run(stream, DRAIN)
        assert caught.value.where == f"file://{lab.root}/in/0002.json"
        record = lab.records(stream)[-1]
        assert (record["status"], [batch["batch_id"] for batch in record["batches"]]) == ("failed", [1, 2])

    def test_a_batch_that_another_followed(self, lab: Lab) -> None:
        """Where nobody saw what Spark found for a batch, a file that is gone fails the run, too."""
        stream = self.begun(lab, sinks.files("out", format="parquet"), files=4)
        with pytest.raises(BatchFailedError, match=r"batch 2 is committed|right after batch 2"):
            lab.run(stream, DRAIN)
        assert not any(query.isActive for query in lab.spark.streams.active)
        assert lab.plan(stream).problem is None

    @pytest.mark.parametrize("how", ["renamed", "copied"])
    def test_a_batch_that_is_stopped_before_its_commit(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        """The sink has it, so that no run reads it again: what it lacks is told at once, and read when it is back."""
        stream = self.begun(lab, sinks.files("out", format="parquet"))
        self.stop_before_commit(monkeypatch, lab.checkpoint(stream), 2)

        with pytest.raises(BatchFailedError, match=r"batch 2 is committed|right after batch 2") as caught:
            lab.run(stream, DRAIN)

        assert f"file://{lab.root}/in/0002.json" in caught.value.problem
        assert lab.plan(stream).verdict == "resume"
        aside, back = lab.root / "in" / "_aside", lab.root / "in" / "again.json"
        aside.rename(back) if how == "renamed" else back.write_bytes(aside.read_bytes())
        assert [batch.kind for batch in lab.run(stream).batches] == ["uncommitted", "data"]
        assert ids(lab.spark.read.parquet(str(lab.root / "out"))) == [0, 1, 2]
        assert lab.plan(stream).verdict == "skip"

    @pytest.mark.parametrize("how", ["away", "copied", "renamed"])
    def test_a_driver_that_dies_before_the_commit(self, lab: Lab, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
        """Nobody saw what the batch has read, and the next run reads it no more: it says so, and what to look for."""
        stream = self.begun(lab, sinks.files("out", format="parquet"))
        self.stop_before_commit(monkeypatch, lab.checkpoint(stream), 2)
        monkeypatch.setattr(DrainedFiles, "check", lambda _files, _batch_id: [])
        lab.run(stream, DRAIN)
        aside, file = lab.root / "in" / "_aside", lab.root / "in" / "0002.json"
        if how == "copied":
            file.write_bytes(aside.read_bytes())
        else:
            (warning,) = lab.plan(stream).warnings
            assert (warning.code, warning.file, warning.is_blocking) == ("INPUT_GONE", f"file://{file}", False)
            assert "if the file was away when the batch was read, its rows are missing" in warning.consequence
            read_remedy(warning, "INPUT_GONE", "bring the file back under a new name, and the next run reads it")
        if how == "renamed":
            aside.rename(aside.with_name("again.json"))

        record = lab.run(stream)

        assert [batch.kind for batch in record.batches] == ["uncommitted", "data"][: 1 + (how == "renamed")]
        (warned,) = record.batches[0].warnings
        assert warned.startswith("1 input files of batch 2, which was in the sink before it was committed, are gone")
        assert f"file://{file}" in warned
        if how != "renamed":
            (aside if how == "away" else file).rename(aside.with_name("again.json"))
            lab.run(stream)
        assert ids(lab.spark.read.parquet(str(lab.root / "out"))) == [0, 1, 2]

    @pytest.mark.parametrize("how", ["renamed", "copied"])
    def test_two_that_vanish(self, lab: Lab, how: str) -> None:
        """Every one is named, and once each is back as it says, all rows are there once."""
        stream = replace(
            declared(sinks.files("out", format="parquet"), max_files_per_batch=1), transform=f"{__name__}:eating"
        )
        write_numbers(lab.root / "in", 1)
        lab.run(stream)
        write_numbers(lab.root / "in", 4, first=1)

        with pytest.raises(BatchFailedError) as caught:
            lab.run(stream, DRAIN)

        # What counts is what the sink has: Spark may have been stopped just before it committed the last batch.
        batches = str(lab.records(stream)[-1]["batches"])
        held = {int(file.name) for file in (lab.root / "out" / "_spark_metadata").glob("[0-9]*")}
        for number in (3, 4):
            name = f"file://{lab.root}/in/{number:04d}.json"
            is_committed = (lab.checkpoint(stream) / "commits" / str(number)).exists()
            assert (name in caught.value.problem) == (number in held)
            assert (name in batches) == is_committed
        for aside in (lab.root / "in").glob("_0*"):
            number = int(aside.name[1:])
            back = aside.with_name(f"again{number}.json" if number in held else f"{number:04d}.json")
            if how == "renamed":
                aside.rename(back)
            else:
                back.write_bytes(aside.read_bytes())
        for _ in range(2):
            lab.run(stream)
        assert ids(lab.spark.read.parquet(str(lab.root / "out"))) == [0, 1, 2, 3, 4]
        assert lab.plan(stream).verdict == "skip"

    def test_one_that_is_away_for_a_moment(self, lab: Lab) -> None:
        """It is there before and after; that it, or its name, was changed meanwhile is seen."""
        stream = replace(
            declared(sinks.files("out", format="parquet"), max_files_per_batch=1), transform=f"{__name__}:blinking"
        )
        write_numbers(lab.root / "in", 1)
        lab.run(stream)
        write_numbers(lab.root / "in", 4, first=1)

        with pytest.raises(BatchFailedError, match="batch 3") as caught:
            lab.run(stream, DRAIN)

        assert f"file://{lab.root}/in/0003.json" in caught.value.problem
        # A run that sees it under way ends before the file is back.
        assert 3 not in ids(lab.spark.read.parquet(str(lab.root / "out")))
        (file,) = (lab.root / "in").glob("*0003*")
        file.rename(file.with_name("again.json"))
        lab.run(stream)
        assert ids(lab.spark.read.parquet(str(lab.root / "out"))) == [0, 1, 2, 3, 4]

    def test_one_that_may_be_missing(self, lab: Lab) -> None:
        """Where the source ignores files that are missing, so does a drained run."""
        stream = self.begun(lab, sinks.delta("out"), ignore_missing_files=True)
        assert lab.run(stream, DRAIN).status == "succeeded"
        assert ids(lab.table("out")) == [0, 1]

    def test_a_pattern_that_arrives_after_the_plan(
        self, lab: Lab, at_start: Callable[[Callable[[], None]], None]
    ) -> None:
        """Spark reads other files twice for the sake of its name: the run says so once that is done, and of which."""
        stream = declared(sinks.delta("out"))
        write_numbers(lab.root / "in", 3)
        at_start(lambda: write_files(lab.root / "in", {"000[12].json": '{"id": 9}'}, first=9) and None)

        with pytest.raises(BatchFailedError, match="batch 0 is committed with rows that are there twice") as caught:
            lab.run(stream, DRAIN)

        assert caught.value.where == f"file://{lab.root}/in/000%5B12%5D.json"
        assert ids(lab.table("out")) == [0, 0, 1, 1, 2, 2, 9]
        assert lab.records(stream)[-1]["batches"][0]["output_rows"] == 7

    def test_what_its_files_were(self, lab: Lab) -> None:
        """The size of a file that Spark took by itself is noted: renamed, it is set aside, as any other."""
        stream = declared(sinks.delta("out"))
        write_numbers(lab.root / "in", 2)
        lab.run(stream, DRAIN)
        (lab.root / "in" / "0001.json").rename(lab.root / "in" / "renamed.json")
        plan = lab.plan(stream)
        assert (plan.verdict, [(found.code, found.cause[:35]) for found in plan.warnings]) == (
            "skip",
            [("FILE_RENAMED", "the file has the time and the size ")],
        )

    def begun(self, lab: Lab, sink: Any, *, files: int = 2, **options: Any) -> Stream:
        """A stream that has run once, and before which some files lie, of which one gets lost."""
        stream = replace(declared(sink, max_files_per_batch=1, **options), transform=f"{__name__}:losing")
        write_numbers(lab.root / "in", 1)
        lab.run(stream)
        write_numbers(lab.root / "in", files, first=1)
        return stream

    def stop_before_commit(self, monkeypatch: pytest.MonkeyPatch, checkpoint: Path, batch_id: int) -> None:
        """Let the next start end as one that is stopped between the sink's commit of a batch and Spark's own."""
        end, committed = QueryStarts.end, BatchLogs.committed

        def cut(starts: QueryStarts, query: Any) -> None:
            end(starts, query)
            if (checkpoint / "commits" / str(batch_id)).exists():
                uncommit(checkpoint, batch_id)
                monkeypatch.setattr(BatchLogs, "committed", committed)
                monkeypatch.setattr(QueryStarts, "end", end)

        def unseen(logs: BatchLogs, number: int) -> Any:
            return None if number == batch_id else committed(logs, number)

        monkeypatch.setattr(QueryStarts, "end", cut)
        monkeypatch.setattr(BatchLogs, "committed", unseen)

    def bring_back(self, lab: Lab) -> None:
        (lab.root / "in" / "_aside").rename(lab.root / "in" / "0002.json")
