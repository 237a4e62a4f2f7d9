"""A driver that stood still wakes up, and commits its batch, while the one that has taken over from it is starting."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, LeaseLostError, RefusedError, SluiceError, StorageError
from sluice.running import analysed_query, batches, repeated_batch, runner, woken_drivers
from sluice.running.query_starts import QueryStarts
from sluice.runs.lease import Lease
from sluice.sinks.contract import Sink
from sluice.sinks.delta.merged import MergedDeltaSink
from sluice.sinks.delta.sink import DeltaSink
from sluice.spark.query import run_through
from sluice.storage import Storage
from tests.remedies import read_remedy
from tests.spark.lab import FIRST_MTIME, Lab, ids, write_files, write_numbers
from tests.spark.power_cuts import let_leases_run_out

pytestmark = pytest.mark.spark


def once_each(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["id"])


def plain(numbers: DataFrame) -> DataFrame:
    return numbers


def declared(transform: str, sink: Sink | None = None, **options: Any) -> Stream:
    return Stream(
        name="s",
        sources={"numbers": sources.files("land", format="json", schema="id bigint", **options)},
        transform=f"{__name__}:{transform}",
        sink=sink or sinks.delta("out"),
    )


class Sleeper:
    """A run that stands still as it publishes its batch, behind its last look at its lease."""

    def __init__(self, lab: Lab, stream: Stream, patch: pytest.MonkeyPatch) -> None:
        self.failed: list[SluiceError] = []
        self._asleep, self._wake = threading.Event(), threading.Event()
        publish, sleeps = DeltaSink.publish_batch, [True]

        def publishing(sink: DeltaSink, *args: Any, **kwargs: Any) -> Any:
            if sleeps:
                sleeps.clear()
                self._asleep.set()
                assert self._wake.wait(200)
            return publish(sink, *args, **kwargs)

        def run() -> None:
            try:
                lab.run(stream)
            except SluiceError as exc:
                self.failed.append(exc)

        check_lease = QueryStarts._check_lease

        def looking(starts: QueryStarts, query: Any) -> None:
            # Who waits for the batch stands still, too, however long it takes.
            if threading.current_thread() is not self._thread or not self._asleep.is_set():
                check_lease(starts, query)

        patch.setattr(DeltaSink, "publish_batch", publishing)
        patch.setattr(QueryStarts, "_check_lease", looking)
        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert self._asleep.wait(200)
        let_leases_run_out(lab.root / "home")

    def wake(self) -> None:
        """Let it come to its end."""
        self._wake.set()
        self._thread.join(200)


def begin(lab: Lab, transform: str, patch: pytest.MonkeyPatch) -> tuple[Stream, Sleeper]:
    """A batch that is done, one whose driver stands still, and a file behind it."""
    stream = declared(transform)
    write_numbers(lab.root / "land", 1, rows=3)
    lab.run(stream)
    write_numbers(lab.root / "land", 1, first=1, rows=3)
    sleeper = Sleeper(lab, stream, patch)
    write_numbers(lab.root / "land", 1, first=2, rows=3)
    return stream, sleeper


def check(lab: Lab, stream: Stream) -> None:
    """What comes next is as if nobody had stood still: no state is lost, no row is there twice."""
    write_files(lab.root / "land", {"again.json": '{"id": 4}\n{"id": 99}'}, first=9)
    lab.run(stream)
    # A state that was lost would let 4 through again.
    assert ids(lab.table("out")) == sorted([*range(9), *([] if stream == declared("once_each") else [4]), 99])


@pytest.mark.parametrize("transform", ["once_each", "plain"])
def test_while_spark_starts(lab: Lab, transform: str) -> None:
    """What it has done is done; the run that took over goes on behind it, and deletes nothing of it."""
    with pytest.MonkeyPatch.context() as patch:
        stream, sleeper = begin(lab, transform, patch)
        build_query = analysed_query.build_query

        def building(*args: Any) -> Any:
            query = build_query(*args)
            sleeper.wake()
            return query

        patch.setattr(analysed_query, "build_query", building)
        record = lab.run(stream)
    assert (record.status, [batch.batch_id for batch in record.batches]) == ("succeeded", [2])
    check(lab, stream)


@pytest.mark.parametrize(("transform", "step"), [("once_each", "clear"), ("plain", "start")])
def test_just_before_the_batch_is_done_again(lab: Lab, transform: str, step: str) -> None:
    """Then the run ends, with a word that leads to nothing wrong; the next one goes on."""
    with pytest.MonkeyPatch.context() as patch:
        stream, sleeper = begin(lab, transform, patch)
        clear, start = repeated_batch.clear_state_of_try, QueryStarts.start

        def clearing(*args: Any, **kwargs: Any) -> None:
            sleeper.wake()
            clear(*args, **kwargs)

        def starting(*args: Any, **kwargs: Any) -> Any:
            sleeper.wake()
            return start(*args, **kwargs)

        if step == "clear":
            patch.setattr(runner, "clear_state_of_try", clearing)
        else:
            patch.setattr(QueryStarts, "start", starting)
        with pytest.raises(BatchFailedError, match="was done by the driver of a try before"):
            lab.run(stream)
    lab.run(stream)
    check(lab, stream)


WEIGHTS = {"table": ""}


def weighed(numbers: DataFrame) -> DataFrame:
    weight = numbers.sparkSession.read.format("delta").load(WEIGHTS["table"]).alias("w")
    joined = numbers.alias("n").join(weight, F.expr("n.id % 8 = w.k"))
    return joined.groupBy(F.col("w.k").alias("k")).agg(F.sum("w.weight").alias("sum"))


@dataclass
class Beside:
    """A stream whose driver stands still in batch 1, when tasks of its have written state of other weights."""

    lab: Lab
    stream: Stream
    left: dict[Path, bytes]
    """Its files of the state of one partition."""

    @property
    def home(self) -> Path:
        return self.lab.root / "home" / "s"

    def weigh(self, weight: int) -> None:
        rows = pa.table({"k": list(range(8)), "weight": [weight] * 8})
        write_deltalake(WEIGHTS["table"], rows, mode="overwrite")

    def wake(self, **changes: Any) -> None:
        """What its tasks were amid of comes through, and its lease tells."""
        for file, content in self.left.items():
            file.write_bytes(content)
        lease = self.home / "leases" / "0001" / "2.json"
        lease.write_text(json.dumps(json.loads(lease.read_bytes()) | changes))

    def wake_at_the_start(self, patch: pytest.MonkeyPatch) -> None:
        start = QueryStarts.start

        def starting(*args: Any, **kwargs: Any) -> Any:
            self.wake(expires_at="2036-01-01T00:00:00Z")
            return start(*args, **kwargs)

        patch.setattr(QueryStarts, "start", starting)

    def check_next(self) -> None:
        """One more batch: the state before it was that of the rows in the sink."""
        self.weigh(1)
        write_numbers(self.lab.root / "land", 1, first=2, rows=8)
        self.lab.run(self.stream)
        assert {row["sum"] for row in self.lab.table("out").collect()} == {102}


@pytest.fixture
def beside(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Beside:
    stream = replace(declared("weighed", sinks.delta("out", merge_on="k")), output_mode="update")
    monkeypatch.setitem(WEIGHTS, "table", str(lab.root / "weight"))
    found = Beside(lab, stream, {})
    found.weigh(1)
    write_numbers(lab.root / "land", 1, rows=8)
    lab.run(stream)
    write_numbers(lab.root / "land", 1, first=1, rows=8)
    found.weigh(10)
    with monkeypatch.context() as patch:

        def standing_still(_sink: MergedDeltaSink, frame: DataFrame, *_: Any, **__: Any) -> None:
            run_through(frame)
            raise ConnectionError

        def leaving(lease: Lease, *_: object) -> None:
            lease._ended.set()

        patch.setattr(MergedDeltaSink, "write_batch", standing_still)
        patch.setattr(Lease, "__exit__", leaving)
        with pytest.raises(BatchFailedError):
            lab.run(stream)
    state = found.home / "generations" / "0001" / "state" / "0"
    found.left = {file: file.read_bytes() for file in state.glob("0/*2.delta*")}
    assert found.left
    let_leases_run_out(lab.root / "home")
    found.weigh(100)
    return found


@pytest.mark.parametrize("step", ["clear", "start"])
def test_its_tasks_write_state_while_the_batch_is_done_again(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It had read other values: its files of the state must not be among those of the run that took over."""
    clear = repeated_batch.clear_state_of_try

    def clearing(*args: Any, **kwargs: Any) -> None:
        clear(*args, **kwargs)
        beside.wake(is_released=True)

    with monkeypatch.context() as patch:
        if step == "clear":
            patch.setattr(runner, "clear_state_of_try", clearing)
        else:
            beside.wake_at_the_start(patch)
        with pytest.raises(BatchFailedError, match="woke up while its batch 1 was done again"):
            beside.lab.run(beside.stream)
    assert not (beside.home / "generations" / "0001" / "commits" / "1").exists()

    assert [batch.was_in_sink for batch in beside.lab.run(beside.stream).batches] == [True]
    beside.check_next()


class DiedError(BaseException):
    """The driver that took over is gone, too."""


@pytest.mark.parametrize("dies", ["before it looks", "as it looks", "before the commit is gone", "before the state is"])
def test_who_took_over_dies_before_it_knows(beside: Beside, monkeypatch: pytest.MonkeyPatch, dies: str) -> None:
    """That nobody has proved the state is noted before the batch is begun: the next run computes it anew."""

    def die(*_: Any, **__: Any) -> None:
        raise DiedError

    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("the lease could not be read", where="here", remedy="try again")

    delete = Storage.delete

    def deleting(storage: Storage, location: str) -> None:
        if "/commits/" in location:
            raise StorageError("it could not be deleted", where=location, remedy="try again")
        delete(storage, location)

    with monkeypatch.context() as patch:
        beside.wake_at_the_start(patch)
        patch.setattr(runner._Run, "_close_failed", lambda *_: None)
        match dies:
            case "before it looks":
                patch.setattr(batches, "check_own_state", die)
            case "as it looks":
                patch.setattr(woken_drivers, "renewed_since", fail)
            case "before the commit is gone":
                patch.setattr(Storage, "delete", deleting)
            case _:
                patch.setattr(woken_drivers, "clear_state_of", die)
        with pytest.raises((DiedError, StorageError)):
            beside.lab.run(beside.stream)

    write_numbers(beside.lab.root / "land", 1, first=9, rows=0)
    first, *_ = beside.lab.run(beside.stream).batches
    assert (first.batch_id, first.was_in_sink) == (1, True)
    beside.check_next()
    assert beside.lab.run(beside.stream).status == "skipped"


def test_a_damaged_lease_of_long_ago(lab: Lab) -> None:
    """Who does a batch of a stream without state again asks nobody who may wake up."""
    stream = declared("plain")
    write_numbers(lab.root / "land", 1)
    lab.run(stream)
    write_numbers(lab.root / "land", 1, first=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaSink, "publish_batch", fail_to_publish)
        with pytest.raises(BatchFailedError):
            lab.run(stream)
    (lab.root / "home" / "s" / "leases" / "0001" / "1.json").write_bytes(b"")

    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1]


def fail_to_publish(*_: Any, **__: Any) -> None:
    raise ConnectionError


def stand_still_at_the_start(lab: Lab, stream: Stream, meanwhile: Callable[[], object]) -> SluiceError:
    """Let a run stand still once all of its checks are done, just before Spark starts; gives what it ends by."""
    start = QueryStarts.start

    def starting(*args: Any, **kwargs: Any) -> Any:
        patch.setattr(QueryStarts, "start", start)
        let_leases_run_out(lab.root / "home")
        meanwhile()
        return start(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueryStarts, "start", starting)
        with pytest.raises(SluiceError) as raised:
            lab.run(stream)
    return raised.value


@pytest.mark.parametrize("sink", [sinks.files("out", format="parquet"), sinks.delta("out")], ids=lambda sink: sink.kind)
@pytest.mark.parametrize("sleeps", ["once", "twice"])
def test_spark_does_no_batch_of_its_own(lab: Lab, monkeypatch: pytest.MonkeyPatch, sink: Sink, sleeps: str) -> None:
    """Where its batch is done, Spark would take all that lies there: what is set aside, and from before the start."""
    if sleeps == "twice":
        # Then nobody sees in time that the lease is lost.
        monkeypatch.setattr(QueryStarts, "_check_lease", lambda *_: None)
    stream = declared("plain", sink, starting=datetime.fromtimestamp(FIRST_MTIME, UTC))
    write_numbers(lab.root / "land", 1, rows=3)
    lab.run(stream)
    write_numbers(lab.root / "land", 1, first=1, rows=3)

    def take_over() -> None:
        (lab.root / "land" / "0000.json").rename(lab.root / "land" / "renamed.json")
        assert [batch.batch_id for batch in lab.run(stream).batches] == [1]

    failed = stand_still_at_the_start(lab, stream, take_over)

    assert isinstance(failed, LeaseLostError)
    found = lab.spark.read.parquet(str(lab.root / "out")) if sink.kind == "files" else lab.table("out")
    assert ids(found) == list(range(6))
    assert not (lab.checkpoint(stream) / "commits" / "2").exists()


def test_what_spark_has_planned_from_before_the_start(lab: Lab) -> None:
    """It is not done as logged; an empty file in its place lets the stream go on."""
    stream = declared("plain", starting=datetime.fromtimestamp(FIRST_MTIME, UTC))
    [old] = write_files(lab.root / "land", {"old.json": '{"id": -7}'}, first=-9)
    write_numbers(lab.root / "land", 1, rows=3)
    lab.run(stream)
    write_numbers(lab.root / "land", 1, first=1, rows=3)
    with pytest.MonkeyPatch.context() as patch:
        # As if the driver stood still once more, before it saw that its lease was lost.
        patch.setattr(QueryStarts, "_check_lease", lambda *_: None)
        stand_still_at_the_start(lab, stream, lambda: lab.run(stream))
    assert ids(lab.table("out")) == list(range(6))
    if not (lab.checkpoint(stream) / "offsets" / "2").exists():
        pytest.fail("Spark has planned nothing: the case has gone")
    with pytest.raises(RefusedError) as refused:
        lab.run(stream)
    said = read_remedy(refused.value, "INPUT_BEFORE_START", "move the file away, and put an empty one of the same name")
    assert said.file == f"file://{old}"
    assert lab.plan(stream).problem == said

    old.rename(lab.root / "kept.json")
    write_files(lab.root / "land", {"old.json": ""}, first=-9)
    write_numbers(lab.root / "land", 1, first=2, rows=3)
    lab.run(stream)
    assert ids(lab.table("out")) == list(range(9))
    assert lab.plan(stream).verdict == "skip"


@pytest.mark.parametrize("transform", ["plain", "once_each"])
def test_spark_s_own_writers_run_what_was_planned(lab: Lab, transform: str) -> None:
    """What tells the planned batch from another one changes nothing of it."""
    stream = declared(transform, sinks.files("out", format="parquet"), max_files_per_batch=1)
    write_numbers(lab.root / "land", 3, rows=3)
    assert [batch.output_rows for batch in lab.run(stream).batches] == [3, 3, 3]
    assert ids(lab.spark.read.parquet(str(lab.root / "out"))) == list(range(9))


def test_a_taker_whose_batch_is_done_as_it_starts(lab: Lab) -> None:
    """It still has its lease, and says what has happened."""
    stream = declared("plain", sinks.files("out", format="parquet"))
    write_numbers(lab.root / "land", 1, rows=3)
    lab.run(stream)
    write_numbers(lab.root / "land", 1, first=1, rows=3)
    start = QueryStarts.start

    def starting(*args: Any, **kwargs: Any) -> Any:
        patch.setattr(QueryStarts, "start", start)
        start(*args, **kwargs).awaitTermination()
        write_numbers(lab.root / "land", 1, first=2, rows=3)
        return start(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueryStarts, "start", starting)
        with pytest.raises(BatchFailedError, match="was done by the driver of a try before"):
            lab.run(stream)
    lab.run(stream)
    assert ids(lab.spark.read.parquet(str(lab.root / "out"))) == list(range(9))
