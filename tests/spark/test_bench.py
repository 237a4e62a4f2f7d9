"""The test bench for users: what its page does not show, as whole histories on real Spark."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, RefusedError, SluiceError
from sluice.project import Project
from sluice.sinks.contract import Sink
from sluice.spark.active_session import active
from sluice.testing import Bench, Moment, bench
from tests.campaign import CAMPAIGN, rarely

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

__all__ = ["bench"]

SCHEMA = "id bigint, at timestamp"
START = datetime(2026, 1, 1, 9, tzinfo=UTC)
MOMENTS: tuple[Moment, ...] = get_args(Moment)
IN_BATCH = ("before the sink's commit", "between the sink's commit and Spark's")


def same(visits: DataFrame) -> DataFrame:
    return visits


def counted(visits: DataFrame) -> DataFrame:
    return visits.groupBy("id").count()


def by_minute(visits: DataFrame) -> DataFrame:
    windows = visits.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute"))
    return windows.count().select(F.col("window.start").alias("minute"), "count")


def joined(visits: DataFrame, orders: DataFrame) -> DataFrame:
    left, right = visits.withWatermark("at", "1 minute"), orders.withWatermark("ordered_at", "1 minute")
    within = "id = order_id AND ordered_at BETWEEN at AND at + INTERVAL 1 MINUTE"
    return left.join(right, F.expr(within), "leftOuter").select("id", "order_id")


def stream(transform: str = "by_minute", **changes: Any) -> Stream:
    declared: dict[str, Any] = {
        "name": "visits",
        "sources": {"visits": sources.files("in", format="json", schema=SCHEMA, max_files_per_batch=1)},
        "transform": f"{__name__}:{transform}",
        "sink": sinks.delta("out"),
    }
    return Stream(**declared | changes)


class Model:
    """What `by_minute` must give of files whose rows are never late, whatever runs they were read by."""

    def __init__(self) -> None:
        self.open: Counter[datetime] = Counter()
        self.closed: Counter[datetime] = Counter()
        self.watermark = START

    def take(self, chance: random.Random) -> list[datetime]:
        """The times of a file's rows; what counts as late depends on the batches that there were."""
        times = [self.watermark + timedelta(seconds=chance.randrange(300)) for _ in range(3)]
        self.open.update(at.replace(second=0) for at in times)
        self.watermark = max(self.watermark, max(times) - timedelta(minutes=1))
        for minute in [found for found in self.open if found + timedelta(minutes=1) <= self.watermark]:
            self.closed[minute] = self.open.pop(minute)
        return times


@pytest.mark.parametrize("seed", [1, *rarely(*range(2, 31))])
def test_histories(bench: Bench, seed: int) -> None:
    """However often it is killed and stopped: rows, state and watermark are those of the files that were given."""
    chance, model = random.Random(seed), Model()
    chosen = chance.choice([sinks.delta("out"), sinks.files("out", format="parquet")])
    bench.open(stream(sink=chosen), state_store=chance.choice(["hdfs", "rocksdb", "rocksdb-changelog"]))
    for _ in range(3 if CAMPAIGN else 2):
        for _ in range(chance.randrange(1, 3)):
            bench.add("visits", [(1, at) for at in model.take(chance)])
        bench.advance(timedelta(seconds=chance.randrange(1, 90)))
        for _ in range(chance.randrange(3)):
            try:
                bench.crash(at=chance.choice(MOMENTS), batch=chance.randrange(1, 3))
            except AssertionError as exc:
                if "could be killed" not in str(exc):
                    raise
    bench.run()
    assert bench.run().status == "skipped"
    bench.check_rows([{"minute": minute, "count": count} for minute, count in model.closed.items()])
    bench.check_watermark(model.watermark)
    bench.check_state([{"window": {"start": minute}, "count": count} for minute, count in model.open.items()])


@pytest.mark.parametrize(
    ("sink", "at"),
    [*zip((sinks.memory(), sinks.delta("out")), IN_BATCH, strict=True), *rarely((sinks.delta("out"), IN_BATCH[0]))],
    ids=lambda given: getattr(given, "kind", given),
)
def test_results_that_take_the_place_of_those_before(bench: Bench, sink: Sink, at: Moment) -> None:
    """A sink in memory keeps what it had when the run died; one of a whole result has the newest."""
    bench.open(stream("counted", sink=sink, output_mode="complete"))
    bench.add("visits", [(1, None)])
    bench.run()
    bench.add("visits", [(1, None), (2, None)])
    bench.crash(at=at)
    bench.check_rows([(1, 1)] if at == IN_BATCH[0] else [(1, 2), (2, 1)])
    assert bench.restart().batches[0].was_in_sink is (at == IN_BATCH[1] and sink.kind == "delta")
    bench.check_rows([(1, 2), (2, 1)])
    bench.check_state([{"id": 1, "count": 2}, {"id": 2, "count": 1}])


@pytest.mark.parametrize("at", IN_BATCH)
def test_a_batch_that_is_split(tmp_path: Path, at: Moment) -> None:
    """Its quarantine has its part by the time that the sink commits; what was decided holds."""
    (tmp_path / "suite.json").write_text(
        '{"name": "s", "expectations": [{"type": "expect_column_values_to_be_between",'
        ' "kwargs": {"column": "id", "max_value": 50}, "meta": {"sluice": {"policy": "quarantine"}}}]}',
        "utf-8",
    )
    project = Project(str(tmp_path), "p", str(tmp_path / "var"), (), (), "local[2]")
    with Bench(tmp_path / "bench", project) as bench:
        bench.open(stream("same", quality="suite.json"))
        bench.add("visits", [(1, None), (99, None)])
        bench.crash(at=at)
        bench.check_rows([] if at == IN_BATCH[0] else [{"id": 1}])
        bench.check_quarantine([{"id": 99}])
        assert bench.restart().batches[0].decided_by is not None
        bench.check_rows([{"id": 1}])
        bench.check_quarantine([{"id": 99}])
    assert not (tmp_path / "var").exists()


def test_a_join(bench: Bench) -> None:
    """The sides of its state, each by itself, and a watermark that a killed run was to keep."""
    both = {"visits": sources.files("in", format="csv", schema=SCHEMA), "orders": sources.delta("orders")}
    bench.open(stream("joined", sources=both))
    bench.add("visits", [(1, "2026-01-01T09:00:10Z")])
    bench.add("orders", [], schema="order_id bigint, ordered_at timestamp")
    bench.run()
    bench.check_watermark(None)
    bench.check_state([{"id": 1, "at": "2026-01-01T09:00:10Z"}], join_side="left")
    bench.check_state([], join_side="right")
    with pytest.raises(DeclarationError, match="a join has sides"):
        bench.check_state([])
    with pytest.raises(DeclarationError, match=r"with a state are: 0 \(symmetricHashJoin\)"):
        bench.check_state([], operator=4)
    bench.add("orders", [(7, "2026-01-01T09:30:10Z")])
    bench.run()
    bench.add("visits", [(8, "2026-01-01T09:40:10Z")])
    bench.crash(at="after Spark's commit")
    bench.restart()
    bench.check_watermark("2026-01-01T09:29:10Z")
    bench.check_rows([{"id": 1, "order_id": None}])


ROW = {
    "i": 1,
    "d": "2026-01-02",
    "t": "2026-03-29T02:30:00+01:00",
    "n": "2026-03-29T02:30:00",
    "e": "1.5",
    "b": "ab",
    "a": ["2026-10-25T00:30:00Z", None],
    "m": {"k": "2026-01-02"},
    "s": {"x": 1, "y": "2026-01-01"},
}
TYPES = (
    "i int, d date, t timestamp, n timestamp_ntz, e decimal(10,2), b binary, a array<timestamp>, m map<string,date>,"
    " s struct<x:int,y:timestamp>"
)


@pytest.mark.parametrize(
    "sink", [sinks.delta("out"), sinks.memory(), sinks.files("out", format="json")], ids=lambda sink: sink.kind
)
def test_values_of_every_type(bench: Bench, sink: Sink) -> None:
    """They come out as they went in, from wherever they are read."""
    bench.open(stream("same", sources={"visits": sources.files("in", format="parquet", schema=TYPES)}, sink=sink))
    bench.add("visits", [ROW, {}])
    with pytest.raises(DeclarationError, match=r"the rows are \{\}"):
        bench.check_rows({})
    bench.run()
    bench.check_rows([ROW, dict.fromkeys(ROW)])
    with pytest.raises(AssertionError, match=r"1 missing \(-\)"):
        bench.check_rows([{**ROW, "m": {}}, dict.fromkeys(ROW)])
    bench.check_new_rows([])
    typed = {"e": Decimal("1.50"), "t": datetime(2026, 3, 29, 1, 30, tzinfo=UTC), "d": date(2026, 1, 2)}
    bench.check_rows([typed, dict.fromkeys(typed)])


@pytest.mark.parametrize("format", [*rarely("orc", "xml"), "csv", "text", "avro"])
def test_formats(bench: Bench, format: str) -> None:  # noqa: A002 - Spark's word
    """By the options that the source declares, whatever they are."""
    options = {"csv": {"sep": ";", "header": True, "quote": "'"}, "xml": {"row_tag": "visit"}}.get(format, {})
    schema = None if format == "text" else "name string, n int, _corrupt_record string"
    schema = "name string, n int" if format in {"orc", "avro"} else schema
    source = sources.files("in/*/x-*.gz", format=format, schema=schema, path_glob_filter="x*", **options)
    bench.open(stream("same", sources={"visits": source}, sink=sinks.memory()))
    rows = [(" a;'b' ",)] if format == "text" else [{"name": " a;'b' ", "n": 1}, {"name": "c"}]
    bench.add("visits", rows)
    bench.run()
    bench.check_rows(rows)


def test_a_stream_in_sql(bench: Bench) -> None:
    """It is opened as any other."""
    source = sources.files("in", format="json", schema=SCHEMA)
    query = "select id + 1 as next from stream(visits)"
    bench.open(Stream(name="visits", sources={"visits": source}, sql=query, sink=sinks.memory()))
    bench.add("visits", [(1, None)])
    bench.run()
    bench.check_rows([(2,)])


def test_times_of_tables(bench: Bench) -> None:
    """The commits of a table, those of another stream too, were made by the clock of the bench."""
    bench.open(stream("same"))
    bench.add("visits", [(1, None)])
    bench.crash(at=IN_BATCH[1])
    bench.advance("1 day")
    bench.add("visits", [(2, None)])
    bench.run()
    bench.advance("1 day")
    reader = bench.open(stream("same", name="reader", sources={"visits": sources.delta("out")}, sink=sinks.memory()))
    reader.run(until="2026-01-02")
    reader.check_rows([{"id": 1}])
    reader.run()
    reader.check_new_rows([{"id": 2}])
    reader.add("visits", [(3, None)])
    reader.run(until="2026-01-03")
    reader.check_new_rows([])


def test_a_run_that_fails(bench: Bench) -> None:
    """Its error says what was done before; another error than the expected one is told as it is."""
    strict = sources.files("in", format="json", schema=SCHEMA, mode="FAILFAST")
    bench.open(stream("same", sources={"visits": strict}))
    bench.add("visits", '{"id": 1}')
    with pytest.raises(AssertionError, match="was to fail, and did not"):
        bench.check_error()
    bench.add("visits", '{"id": ')
    with pytest.raises(SluiceError) as caught:
        bench.run()
    assert "4. add to `visits`: 7 bytes in 0002.json\n  5. run" in "".join(caught.value.__notes__)
    with pytest.raises(AssertionError, match="failed with another error: BatchFailedError"):
        bench.check_error(kind=RefusedError)
    (Path(bench.stream.sources["visits"].location) / "0002.json").write_text('{"id": 2}', "utf-8")
    bench.restart()
    bench.check_rows([{"id": 1}, {"id": 2}])


def test_kills_that_do_not_come(bench: Bench) -> None:
    """Where a run has no such batch, it has run; where Spark decides the batches, nobody knows."""
    bench.open(stream("same", sources={"visits": sources.delta("in", with_event_time_order=True)}))
    bench.add("visits", [(1, None)], schema=SCHEMA)
    with pytest.raises(AssertionError, match="batch 1 could be killed after the plan: it had those that Spark decides"):
        bench.crash(at="after the plan")
    bench.check_rows([{"id": 1}])
    with pytest.raises(DeclarationError, match="nothing was cut off"):
        bench.restart()


def test_settings_are_a_stream_s_own(bench: Bench) -> None:
    """Those of one bench are not another's; what Spark takes at its start alone is refused."""
    store = "spark.sql.streaming.stateStore.providerClass"
    other = bench.open(stream(), state_store="rocksdb", conf={"spark.sql.session.timeZone": "Asia/Tokyo"})
    assert "RocksDB" in other.spark.conf.get(store)
    second = bench.open(stream())
    assert "HDFS" in second.spark.conf.get(store)
    assert second.spark.conf.get("spark.sql.session.timeZone") == "UTC"
    sized = bench.open(stream(memory="3g"))
    sized.add("visits", [(1, None)])
    started = bench.open(stream(conf={"spark.jars": "/a.jar"}))
    with pytest.raises(DeclarationError, match=r"`spark.jars` is a setting that Spark takes only when it starts"):
        started.add("visits", [(1, None)])


def test_the_spark_of_others(bench: Bench, spark: SparkSession) -> None:
    """Who asked for "the" session before gets it again."""
    made = bench.open(stream())
    made.add("visits", [(1, None)])
    with active(spark):
        made.run()
        assert SparkSession.getActiveSession() is spark
        of_spark = SparkSession._get_j_spark_session_class(spark._jvm).getActiveSession()
        assert of_spark.get().equals(spark._jsparkSession)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "one"}], "not of the source's columns"),
        ([{"at": "yesterday"}], "not of the source's columns"),
        ([{"ids": 1}], "did you mean `id`?"),
        (5, "give a list of dicts"),
    ],
)
def test_rows_that_are_none(bench: Bench, rows: object, message: str) -> None:
    """They are refused, and nothing is written."""
    bench.open(stream())
    with pytest.raises(DeclarationError) as caught:
        bench.add("visits", rows)
    assert message in str(caught.value)
    assert list(Path(bench.stream.sources["visits"].location).glob("*")) == []
