"""The worked demos by which Spark's engine is taught, by their numbers, as runs of Sluice where that can be.

4.1 is their list: a table at the end of `docs/engine-tour.md`.
"""

from __future__ import annotations

import json
import re
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError
from sluice.runs.record import StateRecord
from sluice.spark.session import SHUFFLE_PARTITIONS
from sluice.spark_setting import spark_setting
from tests.draw_tour import PAGE
from tests.spark import test_engine_systems, test_golden_windows
from tests.spark.lab import Lab, available_now, reader, rows, watermarks, write_files

pytestmark = pytest.mark.spark

CALLS: list[list[tuple[Any, ...]]] = []
"""The rows of each batch that came to `collect`, in their order."""


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def collect(frame: DataFrame, batch_id: int) -> None:
    CALLS.append([tuple(row) for row in frame.collect()])


def demo(transform: Callable[..., DataFrame], schema: str = "id bigint, value bigint", **changes: Any) -> Stream:
    known: dict[str, Any] = {
        "name": "demo",
        "sources": {"numbers": sources.files("numbers", format="json", schema=schema, max_files_per_batch=1)},
        "transform": f"{transform.__module__}:{transform.__name__}",
        "sink": sinks.foreach_batch(f"{__name__}:collect"),
    }
    return Stream(**known | changes)


def arrive(lab: Lab, *events: tuple[object, ...], columns: tuple[str, ...] = ("id", "value")) -> None:
    """One file of events, which comes after those that are there."""
    number = len(list((lab.root / "numbers").glob("*")))
    lines = "\n".join(json.dumps(dict(zip(columns, event, strict=True))) for event in events)
    write_files(lab.root / "numbers", {f"{number}.json": lines}, first=number)


def states_of(lab: Lab, stream: Stream) -> list[StateRecord]:
    """Run a stream; what its batches say of their state."""
    return [state for batch in lab.run(stream).batches for state in batch.state]


def test_demo_4_1_the_list() -> None:
    """Each of the others has a test, by which the page names it."""
    section = PAGE.read_text("utf-8").partition("\n## The demos\n")[2]
    listed = re.findall(r"^\| (4\.\d+) \| .* \| \[(.*)\]\(\.\./(.*)\) \|$", section, re.MULTILINE)
    assert [number for number, _, _ in listed] == [f"4.{number}" for number in range(2, 14)]
    repository = PAGE.parents[1]
    gone = [
        name
        for _, name, file in listed
        if f"def test_{name.replace(' ', '_')}(" not in (repository / file).read_text("utf-8")
    ]
    assert gone == []


def test_demo_4_2_time_outs_of_groups(lab: Lab) -> None:
    """The watermark stands at 5, 5, 7 and 8 s; one row is late, and two groups time out once it has passed them."""
    stream, runs = demo(test_engine_systems.quiet), []
    for events in ([(1, 1), (2, 15)], [(1, 1), (3, 6)], [(3, 17)], [(3, 18)]):
        arrive(lab, *events)
        record = lab.run(stream)
        runs.append((watermarks(lab.checkpoint(stream))[record.batches[-1].batch_id], record.batches[-1].kind))
        late = [batch.late_rows for batch in record.batches if batch.late_rows]
        assert late == ([1] if len(runs) == 2 else [])
    assert runs == [(5000, "no_data"), (5000, "data"), (7000, "no_data"), (8000, "no_data")]
    assert [sorted(found) for found in CALLS if found] == [
        [(1, 1), (2, 1)],
        [(3, 1)],
        [(3, 2)],
        [(1, -1), (2, -1)],
        [(3, 3)],
    ]
    assert (lab.checkpoint(stream) / "state" / "0" / "0").is_dir()


def signals(numbers: DataFrame) -> DataFrame:
    """How often each value came from a device so far, and how many groups of rows are left to read behind the last."""

    def count(key, frames, state):  # noqa: ANN001, ANN202 - pyspark takes type hints for those of a pandas function
        counts = Counter(json.loads(state.get[0])) if state.exists else Counter()
        for frame in frames:
            counts.update(frame["value"].astype(str))
        state.update((json.dumps(counts),))
        yield pd.DataFrame({"device": [key[0]], "signals": [counts.total()], "left": [len(list(frames))]})

    output = "device long, signals long, left long"
    return numbers.groupBy("id").applyInPandasWithState(count, output, "counts string", "append", "NoTimeout")


def with_a_map(numbers: DataFrame) -> DataFrame:
    def nothing(key, frames, state):  # noqa: ANN001, ANN202 - pyspark takes type hints for those of a pandas function
        yield pd.DataFrame({"device": [key[0]]})

    kept = "counts map<string,bigint>"
    return numbers.groupBy("id").applyInPandasWithState(nothing, "device long", kept, "append", "NoTimeout")


def test_demo_4_3_signals_of_devices(lab: Lab) -> None:
    """The count of each device grows from run to run; rows are read once. The map is kept as text."""
    stream = demo(signals)
    for values in ([(1, 7), (2, 7)], [(1, 7), (1, 8)], [(2, 9), (1, 9)]):
        arrive(lab, *values)
        lab.run(stream)
    assert [sorted(found) for found in CALLS] == [[(1, 1, 0), (2, 1, 0)], [(1, 3, 0)], [(1, 4, 0), (2, 2, 0)]]
    # PySpark 4.2.0 does not find the key in its schema of a map. Once it does, the demo is to have one.
    with pytest.raises(BatchFailedError, match=r"KeyError.*pyspark/sql/types\.py"):
        lab.run(replace(demo(with_a_map), name="map"))


def open_windows(events: DataFrame) -> DataFrame:
    timed = events.select(F.timestamp_seconds("second").alias("at")).withWatermark("at", "10 seconds")
    return timed.groupBy(F.window("at", "5 seconds")).count()


def test_demo_4_4_state_in_a_checkpoint(lab: Lab) -> None:
    """Spark's readers show the windows that are open, as each batch left them, and which stores there are."""
    stream = demo(open_windows, "second bigint, id bigint")
    stream = replace(stream, sources={"events": stream.sources["numbers"]})
    for events in test_golden_windows.FILES[:2]:
        arrive(lab, *events, columns=("second", "id"))
    lab.run(stream)
    checkpoint = str(lab.checkpoint(stream))

    def windows(batch_id: int) -> list[tuple[int, int]]:
        state = lab.spark.read.format("statestore").option("batchId", batch_id).load(checkpoint)
        return rows(state.select(F.unix_timestamp("key.window.start"), "value.count"))

    assert [windows(batch_id) for batch_id in range(3)] == [[(0, 1), (15, 1)], [(15, 2), (35, 1)], [(35, 1)]]
    (store,) = lab.spark.read.format("state-metadata").load(checkpoint).collect()
    told = (store["operatorName"], store["stateStoreName"], store["minBatchId"], store["maxBatchId"])
    assert told == ("stateStoreSave", "default", 0, 2)


def words(lines: DataFrame) -> DataFrame:
    split = lines.select(F.explode(F.split("value", r"\W+")).alias("word")).where("word <> ''")
    return split.groupBy("word").count()


class Sentence(socketserver.BaseRequestHandler):
    """Sends one line to whoever connects, and keeps the connection."""

    def handle(self) -> None:
        self.request.sendall(b"hello, hello world\n")
        self.request.recv(1)


def test_demo_4_6_running_counts_of_words(lab: Lab) -> None:
    """Every run gives every word; from a socket, there is no second run, for nothing brings its lines back."""
    stream = demo(words, output_mode="complete")
    stream = replace(stream, sources={"lines": sources.files("numbers", format="text")})
    for number, line in enumerate(("hello, hello world", "world")):
        write_files(lab.root / "numbers", {f"{number}.txt": line}, first=number)
        lab.run(stream)
    assert [sorted(found) for found in CALLS] == [[("hello", 2), ("world", 1)], [("hello", 2), ("world", 2)]]

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Sentence) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.server_address
        lines = lab.spark.readStream.format("socket").option("host", host).option("port", port).load()
        writer = words(lines).writeStream.outputMode("complete").option("checkpointLocation", str(lab.root / "socket"))
        seen = threading.Event()
        query = writer.foreachBatch(lambda frame, _: seen.set() if frame.count() == 2 else None).start()
        assert seen.wait(60)
        query.processAllAvailable()
        query.stop()
        with pytest.raises(StreamingQueryException, match=r"Offsets committed out of order: \d+ followed by -1"):
            writer.format("noop").start().awaitTermination()
        server.shutdown()


def per_value(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("value").count()


def per_value_in_order(numbers: DataFrame) -> DataFrame:
    return per_value(numbers).orderBy("value")


def test_demo_4_8_orders_per_zip_code(lab: Lab) -> None:
    """In update mode come the counts that have changed. Scala's `groupByKey` is not there in Python."""
    stream = demo(per_value, output_mode="update")
    for events in ([(1, 10001), (2, 10002)], [(3, 10002)]):
        arrive(lab, *events)
        lab.run(stream)
    assert [sorted(found) for found in CALLS] == [[(10001, 1), (10002, 1)], [(10002, 2)]]
    assert not hasattr(DataFrame, "groupByKey")


def test_demo_4_9_the_state_in_complete_mode(lab: Lab) -> None:
    """A new key and a changed one are two updates (none, in older Sparks); all keys come out, sorted."""
    # To cut sorted rows into several partitions, Spark computes them twice, and counts both.
    stream = demo(per_value_in_order, output_mode="complete", conf={SHUFFLE_PARTITIONS: 1})
    with spark_setting(lab.spark, SHUFFLE_PARTITIONS, "1"):
        arrive(lab, (1, 1), (2, 2))
        first = states_of(lab, stream)
        arrive(lab, (3, 3), (4, 2))
        second = states_of(lab, stream)
    assert [(state.rows, state.updated_rows) for state in first + second] == [(2, 2), (3, 2)]
    assert CALLS == [[(1, 1), (2, 1)], [(1, 1), (2, 2), (3, 1)]]


def test_demo_4_10_the_state_in_update_mode(lab: Lab) -> None:
    """The second run gives the two keys that it touches, and keeps three."""
    stream = demo(per_value, output_mode="update")
    arrive(lab, (1, 1), (2, 2))
    lab.run(stream)
    arrive(lab, (3, 3), (4, 2))
    (state,) = states_of(lab, stream)
    assert (state.rows, state.updated_rows) == (3, 2)
    assert sorted(CALLS[1]) == [(2, 2), (3, 1)]


class Noting(DataSourceStreamWriter):
    """Leaves a file for each batch that it commits."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        Path(self.folder, f"commit-{batchId}.json").write_text(json.dumps({"tasks": len(messages)}))


class Notes(DataSource):
    """A sink of a user's own."""

    @classmethod
    def name(cls) -> str:
        return "notes"

    def streamWriter(self, schema: Any, overwrite: bool) -> Noting:  # noqa: FBT001
        return Noting(self.options["path"])


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def executions(spark: SparkSession) -> dict[int, int]:
    """Of each execution in the list that the SQL tab shows, which forgets old ones, the one that it is a part of."""
    jvm: Any = spark._jsparkSession
    jvm.sparkContext().listenerBus().waitUntilEmpty()
    found = jvm.sharedState().statusStore().executionsList()
    listed = [found.apply(index) for index in range(found.size())]
    return {one.executionId(): one.rootExecutionId() for one in listed}


def test_demo_4_11_a_custom_sink(lab: Lab) -> None:
    """One commit per batch, and two SQL executions (once three): the batch, and in it the writing."""
    lab.spark.dataSource.register(Notes)
    arrive(lab, (1, 1))
    arrive(lab, (2, 2))
    for folder in ("ours", "plain"):
        (lab.root / folder).mkdir()
    lab.run(demo(same, sink=sinks.other("notes", path=str(lab.root / "ours"))))
    frame = reader(lab.spark, maxFilesPerTrigger=1).json(str(lab.root / "numbers"))
    before = max(executions(lab.spark))
    available_now(frame, lab.root / "checkpoint", lab.root / "plain", sink="notes")

    first, second, third, fourth = (root for one, root in sorted(executions(lab.spark).items()) if one > before)
    assert first == second < third == fourth
    for folder in ("ours", "plain"):
        found = sorted(file.name for file in (lab.root / folder).iterdir())
        assert found == ["commit-0.json", "commit-1.json"]
    with pytest.raises(AnalysisException, match="checkpointLocation must be specified either through option"):
        frame.writeStream.format("notes").option("path", str(lab.root / "plain")).start()


class Endings(StreamingQueryListener):
    """Hears which queries have ended."""

    def __init__(self) -> None:
        self.ended: Queue[str] = Queue()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.ended.put(str(event.id))


def test_demo_4_13_queries_that_end(lab: Lab) -> None:
    """The session remembers that one has ended until it is reset; a listener hears of each; none is left."""
    streams, endings = lab.spark.streams, Endings()
    streams.resetTerminated()
    streams.addListener(endings)
    rate = lab.spark.readStream.format("rate").load()
    first, second = (rate.writeStream.format("noop").start() for _ in range(2))
    assert streams.awaitAnyTermination(1) is False
    first.stop()
    assert endings.ended.get(timeout=30) == first.id
    assert streams.awaitAnyTermination(30) is True
    assert streams.awaitAnyTermination(30) is True
    streams.resetTerminated()
    assert streams.awaitAnyTermination(1) is False
    assert [query.id for query in streams.active] == [second.id]
    waiting = threading.Thread(target=streams.awaitAnyTermination)
    waiting.start()
    second.stop()
    waiting.join(30)
    assert not waiting.is_alive()
    assert endings.ended.get(timeout=30) == second.id
    assert streams.active == []
    streams.removeListener(endings)
    streams.resetTerminated()
