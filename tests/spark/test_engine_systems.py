"""Systems of Spark's streaming engine that no other test is about: each does in a run of Sluice what it does alone."""

from __future__ import annotations

import json
import re
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, DeclarationError, QueryRefusedError
from sluice.monitoring.state_document import state_document, stateful_operators
from sluice.runs.stop import StopEvent
from sluice.spark.first_batch_check import ROCKSDB, STATE_STORE
from sluice.spark.session import SHUFFLE_PARTITIONS
from sluice.spark.state_rows import StateView
from sluice.spark_setting import spark_setting
from tests.spark.lab import Lab, available_now, reader, uncommit, watermarks, write_files
from tests.spark.test_live_runs import live, run_live
from tests.spark.test_resumed_state import stop_stores

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, value bigint"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
CALLS: list[tuple[int, list[tuple[Any, ...]]]] = []
"""What `collect` was called with: a batch, and its rows."""
WITHIN: list[Callable[[DataFrame], object]] = []
"""What `collect` does before it takes the rows."""


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()
    WITHIN.clear()


def collect(frame: DataFrame, batch_id: int) -> None:
    for ask in WITHIN:
        ask(frame)
    CALLS.append((batch_id, sorted(map(tuple, frame.collect()), key=repr)))


def arrive(lab: Lab, *events: tuple[int, int], source: str = "numbers") -> None:
    """One file of rows `(id, value)`, which comes after those that are there."""
    number = len(list((lab.root / source).glob("*")))
    lines = "\n".join(json.dumps({"id": id_, "value": value}) for id_, value in events)
    write_files(lab.root / source, {f"{number}.json": lines}, first=number)


def declared(transform: Callable[..., DataFrame], *names: str, **changes: Any) -> Stream:
    """A stream of JSON files, one per batch, into `collect`."""
    found = {
        name: sources.files(name, format="json", schema=SCHEMA, max_files_per_batch=1) for name in names or ("numbers",)
    }
    known: dict[str, Any] = {
        "name": "s",
        "sources": found,
        "transform": f"{__name__}:{transform.__name__}",
        "sink": sinks.foreach_batch(f"{__name__}:collect"),
    }
    return Stream(**known | changes)


def kept(lab: Lab, stream: Stream, **view: Any) -> list[dict[str, Any]]:
    """What `sluice state` shows of a stream."""
    resolved = lab.project.resolve(stream)
    checkpoint, _ = stateful_operators(lab.project.stream_home(resolved))
    found = state_document(lab.project, resolved, checkpoint, StateView(**view), most=100, session=lab.spark)
    return sorted(found["rows"], key=str)


def committed(lab: Lab, stream: Stream) -> list[int]:
    return sorted(int(file.name) for file in (lab.checkpoint(stream) / "commits").iterdir() if file.name.isdigit())


def timed(numbers: DataFrame) -> DataFrame:
    return numbers.select("id", F.current_timestamp().alias("at"))


def test_the_clock_of_a_batch_that_runs_again(lab: Lab) -> None:
    """`current_timestamp()` is the time that the offset log has of the batch, whenever it runs."""
    stream = declared(timed)
    arrive(lab, (1, 1))
    lab.run(stream, clock=lambda: NOON)
    uncommit(lab.checkpoint(stream), 0)
    lab.run(stream, clock=lambda: NOON + timedelta(hours=1))

    (_, first), (_, again) = CALLS
    logged = json.loads((lab.checkpoint(stream) / "offsets" / "0").read_text().split("\n")[1])["batchTimestampMs"]
    assert first == again
    assert first[0][1].timestamp() * 1000 == logged == NOON.timestamp() * 1000


def windows(numbers: DataFrame) -> DataFrame:
    events = numbers.select(F.timestamp_seconds("value").alias("at")).withWatermark("at", "60 seconds")
    return events.groupBy(F.window("at", "5 seconds")).count().select("window.start", "count")


def test_the_plan_of_a_windowed_count(lab: Lab) -> None:
    """The watermark, and the state between two halves of the aggregate; it is the plan of a query that nobody ran."""
    stream = declared(windows)
    arrive(lab, (1, 1))

    explain = lab.run(stream).explain

    assert explain is not None
    tree = explain.partition("\n\n")[0]
    operators = re.findall(r"(HashAggregate|StateStoreSave|StateStoreRestore|Exchange)\b", tree)
    assert operators == [
        "HashAggregate", "StateStoreSave", "HashAggregate", "StateStoreRestore", "HashAggregate", "Exchange",
        "HashAggregate",
    ]  # fmt: skip
    assert "EventTimeWatermark" in tree
    assert re.search(r"Keys \[1\]: \[window#\d+-T60000ms\]", explain)
    assert "state info [ checkpoint = <?>" in explain


def with_names(numbers: DataFrame) -> DataFrame:
    names = numbers.sparkSession.createDataFrame([(1, "one"), (2, "two")], "id bigint, name string")
    return numbers.join(names, "id").select("id", "name")


def with_every_name(numbers: DataFrame) -> DataFrame:
    names = numbers.sparkSession.createDataFrame([(1, "one"), (2, "two")], "id bigint, name string")
    return numbers.join(names, "id", "right_outer").select("id", "name")


def test_a_join_with_what_stands_still(lab: Lab) -> None:
    """It keeps no state; one that would have to keep every row of it is refused."""
    stream = declared(with_names)
    arrive(lab, (1, 0), (3, 0))
    arrive(lab, (2, 0))

    record = lab.run(stream)

    assert CALLS == [(0, [(1, "one")]), (1, [(2, "two")])]
    assert [batch.state for batch in record.batches] == [(), ()]
    assert not (lab.checkpoint(stream) / "state").exists()
    with pytest.raises(QueryRefusedError, match=r"RightOuter join with a streaming DataFrame.* on the left"):
        lab.run(replace(declared(with_every_name), name="t"))


def pairs(numbers: DataFrame, others: DataFrame) -> DataFrame:
    left = numbers.select("id", F.timestamp_seconds("value").alias("at")).withWatermark("at", "10 seconds")
    right = others.select(F.col("id").alias("other"), F.timestamp_seconds("value").alias("other_at"))
    right = right.withWatermark("other_at", "10 seconds")
    within = "id = other AND other_at BETWEEN at AND at + INTERVAL 5 SECONDS"
    return left.join(right, F.expr(within), "left_outer").select("id", "other")


def test_state_of_a_join(lab: Lab) -> None:
    """What the watermark has passed leaves it, unmatched rows once; what comes too late changes nothing of it."""
    stream = declared(pairs, "numbers", "others")
    arrive(lab, (1, 1), (2, 2))
    arrive(lab, (1, 3), source="others")
    arrive(lab, (9, 100))
    arrive(lab, (9, 101), source="others")

    states = [state for batch in lab.run(stream).batches for state in batch.state]

    assert {state.operator for state in states} == {"symmetricHashJoin"}
    assert [state.rows for state in states] == [3, 5, 2]
    assert [state.removed_rows > 0 for state in states] == [False, False, True]
    assert [rows for _, rows in CALLS] == [[(1, 1)], [(9, 9)], [(2, None)]]
    stores = {path.name for path in (lab.checkpoint(stream) / "state" / "0" / "0").iterdir() if path.name[0] != "_"}
    assert stores == {
        f"{side}-{kind}" for side in ("left", "right") for kind in ("keyToNumValues", "keyWithIndexToValue")
    }

    before = [kept(lab, stream, side=side) for side in ("left", "right")]
    arrive(lab, (5, 5))
    arrive(lab, (5, 6), source="others")
    (late,) = (state for batch in lab.run(stream).batches for state in batch.state)
    assert (late.late_rows, late.updated_rows, late.rows) == (2, 0, 2)
    assert [kept(lab, stream, side=side) for side in ("left", "right")] == before


def either(numbers: DataFrame, others: DataFrame) -> DataFrame:
    timed = [frame.select(F.timestamp_seconds("value").alias("at")) for frame in (numbers, others)]
    left, right = (frame.withWatermark("at", "60 seconds") for frame in timed)
    return left.union(right).groupBy(F.window("at", "5 seconds")).count()


@pytest.mark.parametrize(("policy", "seconds"), [("min", 60), ("max", 1740)])
def test_the_watermark_of_several(lab: Lab, policy: str, seconds: int) -> None:
    """The smallest of all inputs, or the largest, as the checkpoint has pinned it."""
    stream = declared(either, "numbers", "others")
    arrive(lab, (1, 120))
    arrive(lab, (1, 1800), source="others")

    with spark_setting(lab.spark, "spark.sql.streaming.multipleWatermarkPolicy", policy):
        lab.run(stream)

    assert watermarks(lab.checkpoint(stream))[0] == seconds * 1000


def first_of_each(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["value"])


def test_duplicates(lab: Lab) -> None:
    """A key comes out once, whatever batch and run it is in again; a batch that runs again gives the same."""
    stream = declared(first_of_each)
    arrive(lab, (1, 1), (1, 1))
    arrive(lab, (4, 1), (5, 2))
    first = lab.run(stream)
    uncommit(lab.checkpoint(stream), 1)
    arrive(lab, (6, 2))
    lab.run(stream)

    assert CALLS == [(0, [(1, 1)]), (1, [(5, 2)]), (1, [(5, 2)]), (2, [])]
    assert [state.operator for batch in first.batches for state in batch.state] == ["dedupe", "dedupe"]
    assert [row["value"] for row in kept(lab, stream)] == [1, 2]


def first_four(numbers: DataFrame) -> DataFrame:
    return numbers.limit(4)


def test_a_limit(lab: Lab) -> None:
    """It counts over the whole life of the stream."""
    stream = declared(first_four)
    for file in range(3):
        arrive(lab, *((3 * file + row, 0) for row in range(3)))

    record = lab.run(stream)

    assert [len(rows) for _, rows in CALLS] == [3, 1, 0]
    assert {state.operator for batch in record.batches for state in batch.state} == {"globalLimit"}
    assert [list(row.values())[-1] for row in kept(lab, stream)] == [4]


def sessions(numbers: DataFrame) -> DataFrame:
    events = numbers.select("id", F.timestamp_seconds("value").alias("at")).withWatermark("at", "0 seconds")
    counted = events.groupBy("id", F.session_window("at", "10 seconds").alias("session")).count()
    return counted.select("id", F.unix_timestamp("session.start"), F.unix_timestamp("session.end"), "count")


def test_session_windows(lab: Lab) -> None:
    """Events that follow each other closely are one window, also over two batches."""
    arrive(lab, (1, 100), (2, 104))
    arrive(lab, (1, 105))
    arrive(lab, (3, 200))

    record = lab.run(declared(sessions))

    assert [row for _, rows in CALLS for row in rows] == [(1, 100, 115, 2), (2, 104, 114, 1)]
    assert {state.operator for batch in record.batches for state in batch.state} == {"sessionWindowStateStoreSaveExec"}


def up_to_two(numbers: DataFrame) -> DataFrame:
    """Fails in the task that has the state of a row above 2, once that state is updated."""
    return first_of_each(numbers).select(
        F.when(F.col("value") > 2, F.raise_error(F.lit("too large"))).otherwise(F.col("value")).alias("value")
    )


def versions(checkpoint: Path, version: int) -> int:
    """How many partitions have a version of the state."""
    return len(list((checkpoint / "state" / "0").glob(f"*/{version}.delta")))


def test_a_task_that_fails_leaves_no_state(lab: Lab) -> None:
    """Neither the batch nor its partition's state is committed; the retry writes both."""
    stream = declared(up_to_two)
    arrive(lab, (1, 1), (1, 2))
    lab.run(stream)
    every = versions(lab.checkpoint(stream), 1)
    assert every > 1
    arrive(lab, (1, 3))

    with pytest.raises(BatchFailedError):
        lab.run(stream)
    assert (committed(lab, stream), versions(lab.checkpoint(stream), 2) < every) == ([0], True)
    assert lab.spark.streams.active == []

    mended = replace(stream, transform=f"{__name__}:first_of_each")
    assert [batch.batch_id for batch in lab.run(mended).batches] == [1]
    assert (committed(lab, stream), versions(lab.checkpoint(stream), 2)) == ([0, 1], every)
    assert CALLS[-1] == (1, [(1, 3)])
    assert lab.spark.streams.active == []


def test_a_version_that_can_not_be_written(lab: Lab) -> None:
    """The run fails, the batch is not committed; with the way clear, the same batch runs."""
    stream = declared(first_of_each)
    arrive(lab, (1, 1))
    lab.run(stream)
    arrive(lab, (2, 2))
    folder = lab.checkpoint(stream) / "state" / "0" / "0"

    def block(_: DataFrame) -> None:
        folder.rename(lab.root / "aside")
        folder.write_text("a file in place of the folder")

    WITHIN.append(block)
    with pytest.raises(BatchFailedError, match="FileAlreadyExists"):
        lab.run(stream)
    assert committed(lab, stream) == [0]

    WITHIN.clear()
    folder.unlink()
    (lab.root / "aside").rename(folder)
    assert [batch.batch_id for batch in lab.run(stream).batches] == [1]
    assert CALLS[-1] == (1, [(2, 2)])


def test_a_change_of_state_that_is_lost(lab: Lab) -> None:
    """A plan says so before anything runs; Spark fails once it has to load what it needs."""
    stream = declared(first_of_each)
    for number in range(3):
        arrive(lab, (number, number))
    lab.run(stream)
    folder = lab.checkpoint(stream) / "state" / "0" / "0"
    (folder / "2.delta").unlink()
    (folder / ".2.delta.crc").unlink()
    stop_stores(lab)
    arrive(lab, (9, 9))

    plan = lab.plan(stream)
    assert (plan.verdict, plan.problem and plan.problem.code) == ("refuse", "STATE_VERSION_LOST")
    frame = first_of_each(reader(lab.spark, SCHEMA).json(str(lab.root / "numbers")))
    with pytest.raises(StreamingQueryException, match="CANNOT_READ_DELTA_FILE_NOT_EXISTS"):
        available_now(frame, lab.checkpoint(stream))


def test_the_store_that_a_checkpoint_began_with(lab: Lab) -> None:
    """Whatever is declared later: its files stay of one kind, and so does the number of its partitions."""
    stream = declared(first_of_each, conf={SHUFFLE_PARTITIONS: 1})
    arrive(lab, (1, 1))
    with spark_setting(lab.spark, SHUFFLE_PARTITIONS, "1"), spark_setting(lab.spark, STATE_STORE, ROCKSDB):
        lab.run(stream)
    arrive(lab, (1, 1), (2, 2))
    changed = replace(stream, conf={SHUFFLE_PARTITIONS: 3})

    assert [warning.code for warning in lab.plan(changed).warnings] == ["SETTING_PINNED"]
    version = "spark.sql.streaming.aggregation.stateFormatVersion"
    with spark_setting(lab.spark, SHUFFLE_PARTITIONS, "3"), spark_setting(lab.spark, version, "1"):
        lab.run(changed)

    assert CALLS[-1] == (1, [(2, 2)])
    offsets = [(lab.checkpoint(stream) / "offsets" / str(batch)).read_text().split("\n")[1] for batch in range(2)]
    assert [json.loads(line)["conf"][version] for line in offsets] == ["2", "2"]
    folders = [path for path in (lab.checkpoint(stream) / "state" / "0").iterdir() if path.name.isdigit()]
    assert [path.name for path in folders] == ["0"]
    assert {"1.zip", "2.zip"} <= {path.name for path in folders[0].iterdir()}
    assert not list(folders[0].glob("*.delta"))


def test_snapshots_of_state(lab: Lab) -> None:
    """Each commit rolls up what is due, however short the run is; from then on the changes need not be there."""
    stream = declared(first_of_each)
    for number in range(4):
        arrive(lab, (number, number))
    with spark_setting(lab.spark, "spark.sql.streaming.stateStore.minDeltasForSnapshot", "1"):
        lab.run(stream)

    for folder in (lab.checkpoint(stream) / "state" / "0").glob("[0-9]"):
        newest = max(int(file.stem) for file in folder.glob("*.snapshot"))
        for version in range(1, newest + 1):
            for name in (f"{version}.delta", f".{version}.delta.crc"):
                (folder / name).unlink(missing_ok=True)
    stop_stores(lab)
    arrive(lab, (1, 1), (7, 7))
    lab.run(stream)
    assert CALLS[-1] == (4, [(7, 7)])


def quiet(numbers: DataFrame) -> DataFrame:
    """For each key how many rows came; then its count below zero, five seconds behind the watermark."""

    def follow(key, frames, state):  # noqa: ANN001, ANN202 - pyspark takes type hints for those of a pandas function
        count = state.get[0] if state.exists else 0
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"id": [key[0]], "count": [-count]})
            return
        count += sum(map(len, frames))
        state.update((count,))
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 5000)
        yield pd.DataFrame({"id": [key[0]], "count": [count]})

    events = numbers.select("id", F.timestamp_seconds("value").alias("at")).withWatermark("at", "10 seconds")
    return events.groupBy("id").applyInPandasWithState(
        follow, "id long, count long", "count long", "append", "EventTimeTimeout"
    )


def test_state_of_a_function(lab: Lab) -> None:
    """New rows first, then the keys whose time is over, once each; late rows do not reach the function."""
    stream = declared(quiet)
    states = []
    for events in ([(1, 1), (2, 15)], [(1, 1), (3, 6)], [(3, 17)]):
        arrive(lab, *events)
        states.append([state for batch in lab.run(stream).batches for state in batch.state])

    assert [rows for _, rows in CALLS if rows] == [[(1, 1), (2, 1)], [(3, 1)], [(3, 2)], [(1, -1), (2, -1)]]
    assert [sum(state.late_rows for state in run) for run in states] == [0, 1, 0]
    assert {state.operator for run in states for state in run} == {"applyInPandasWithState"}
    (left,) = kept(lab, stream)
    assert (left["groupState"]["count"], left["timeoutTimestamp"]) == (2, 10_000)
    conf = json.loads((lab.checkpoint(stream) / "offsets" / "0").read_text().split("\n")[1])["conf"]
    assert conf["spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion"] == "2"


def test_the_order_of_calls(lab: Lab) -> None:
    """In one batch a function gets new rows first, then the keys whose time is over."""
    stream = declared(quiet, conf={SHUFFLE_PARTITIONS: 1})
    calls: list[tuple[int, int]] = []
    with spark_setting(lab.spark, SHUFFLE_PARTITIONS, "1"):
        arrive(lab, (2, 1), (1, 15))
        lab.run(stream)
        arrive(lab, (3, 17))
        # The batch without data, in which the first two are over, is left to the next run, which has a row as well.
        assert lab.run(stream, stop_after=1).status == "stopped"
        arrive(lab, (9, 18))
        WITHIN.append(lambda frame: calls.extend(map(tuple, frame.collect())))
        lab.run(stream, stop_after=1)

    assert calls[0] == (9, 1)
    assert sorted(calls[1:]) == [(1, -1), (2, -1)]


def misused(numbers: DataFrame) -> DataFrame:
    """What the handle of a key says to each wrong use of it."""

    def misuse(key, frames, state):  # noqa: ANN001, ANN202 - pyspark takes type hints for those of a pandas function
        said = []
        for use in (
            lambda: state.get,
            lambda: state.update(None),
            lambda: state.setTimeoutDuration(1000),
            lambda: state.setTimeoutTimestamp(0),
        ):
            try:
                use()
            except PySparkException as exc:
                said.append(str(exc))
        yield pd.DataFrame({"said": said})

    events = numbers.select("id", F.timestamp_seconds("value").alias("at")).withWatermark("at", "10 seconds")
    return events.groupBy("id").applyInPandasWithState(misuse, "said string", "n long", "append", "EventTimeTimeout")


def test_a_key_s_state_that_is_used_wrongly(lab: Lab) -> None:
    arrive(lab, (1, 1))

    lab.run(declared(misused))

    said = "\n".join(row[0] for row in CALLS[0][1])
    for condition in ("STATE_NOT_EXISTS", "CANNOT_BE_NONE", "Cannot set timeout duration", "VALUE_NOT_POSITIVE"):
        assert condition in said


class Keeping(DataSourceStreamWriter):
    """Notes what became of each batch."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        if any(row.value > 2 for row in iterator):
            raise ValueError("too large")
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        with Path(self.folder, "ends").open("a") as ends:
            ends.write(f"commit {batchId}\n")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        with Path(self.folder, "ends").open("a") as ends:
            ends.write(f"abort {batchId}\n")


class Kept(DataSource):
    """A sink in Python, as a user brings one."""

    @classmethod
    def name(cls) -> str:
        return "keeping"

    def streamWriter(self, schema: Any, overwrite: bool) -> Keeping:  # noqa: FBT001
        return Keeping(self.options["folder"])


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def test_a_sink_in_python(lab: Lab) -> None:
    """It commits each batch once, and aborts one of which a task fails."""
    lab.spark.dataSource.register(Kept)
    stream = declared(same, sink=sinks.other("keeping", folder=str(lab.root)))
    arrive(lab, (1, 1))
    arrive(lab, (3, 3))

    with pytest.raises(BatchFailedError):
        lab.run(stream)

    assert (lab.root / "ends").read_text() == "commit 0\nabort 1\n"
    assert committed(lab, stream) == [0]


def test_what_the_console_prints(lab: Lab) -> None:
    """Each batch with its number, its columns and its rows, on the driver's standard output."""
    jvm: Any = lab.spark._jvm
    printed = jvm.java.io.ByteArrayOutputStream()
    console = jvm.java.lang.Class.forName("scala.Console$").getField("MODULE$").get(None)
    # The thread of a query inherits it.
    console.setOutDirect(jvm.java.io.PrintStream(printed))
    try:
        arrive(lab, (1, 10))
        arrive(lab, (2, 20))
        lab.run(declared(same, sink=sinks.console()))
    finally:
        console.setOutDirect(jvm.java.lang.System.out)

    first, second = printed.toString().split("Batch: ")[1:]
    assert (first[0], second[0]) == ("0", "1")
    assert re.findall(r"^\|(.*)\|$", second, re.MULTILINE) == [" id|value", "  2|   20"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("no_such_format", "DATA_SOURCE_NOT_FOUND"), ("jdbc", "Data source jdbc does not support streamed reading")],
)
def test_a_format_that_gives_no_stream(lab: Lab, name: str, said: str) -> None:
    """It is told with Spark's words, before a batch is planned."""
    stream = replace(declared(same), sources={"numbers": sources.other(name)})

    with pytest.raises(DeclarationError, match=said):
        lab.run(stream)
    assert not (lab.checkpoint(stream) / "offsets").exists()


class Lines(socketserver.BaseRequestHandler):
    """Sends three lines to whoever connects, and keeps the connection."""

    def handle(self) -> None:
        self.request.sendall(b"a\nb\na\n")
        self.request.recv(1)


def words(lines: DataFrame) -> DataFrame:
    return lines.groupBy("value").count()


def test_a_socket(lab: Lab) -> None:
    """What a server sends is read by a live run; no checkpoint brings it back."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Lines) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.server_address
        lines = sources.other("socket", host=host, port=port)
        stream = replace(declared(words, output_mode="complete"), sources={"lines": lines})
        stop = StopEvent()
        # A batch may begin before the last line is there.
        WITHIN.append(lambda frame: stop.set() if sum(row["count"] for row in frame.collect()) == 3 else None)
        run_live(lab, stream, live("1m", "processing-time=100ms"), stop)
        server.shutdown()

    assert CALLS[-1][1] == [("a", 2), ("b", 1)]


def test_gauges_of_a_query(lab: Lab) -> None:
    """With Spark's own setting, its metrics system has them while the query is at work."""
    stream = declared(windows)
    arrive(lab, (1, 100))
    found: list[str] = []

    def look(frame: DataFrame) -> None:
        jvm: Any = frame.sparkSession._jvm
        query_id = json.loads((lab.checkpoint(stream) / "metadata").read_text())["id"]
        metrics = jvm.org.apache.spark.SparkEnv.get().metricsSystem()
        every = metrics.getSourcesByName(f"spark.streaming.{query_id}")
        for index in range(every.size()):
            found.extend(every.apply(index).metricRegistry().getGauges().keySet())

    WITHIN.append(look)
    with spark_setting(lab.spark, "spark.sql.streaming.metricsEnabled", "true"):
        lab.run(stream)

    assert {"inputRate-total", "processingRate-total", "latency", "eventTime-watermark", "states-rowsTotal"} <= set(
        found
    )
