"""A transform whose state does not fit its checkpoint: refused before a batch is planned, and nothing else is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from sluice.project import Project
from sluice.running.check import check_project
from sluice.spark import state_check
from sluice.spark_setting import spark_setting
from tests.builders import put
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, uncommit, write_numbers

pytestmark = pytest.mark.spark

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def plain(a: DataFrame) -> DataFrame:
    return a


def by_id(a: DataFrame) -> DataFrame:
    return a.dropDuplicates(["id"])


def by_id_of_other_rows(a: DataFrame) -> DataFrame:
    return a.where("id >= 0").withColumn("more", F.lit(1)).dropDuplicates(["id"]).drop("more")


def by_text(a: DataFrame) -> DataFrame:
    return a.withColumn("text", F.col("id").cast("string")).dropDuplicates(["text"]).drop("text")


def by_id_and_text(a: DataFrame) -> DataFrame:
    return a.withColumn("text", F.col("id").cast("string")).dropDuplicates(["id", "text"]).drop("text")


def totals(a: DataFrame) -> DataFrame:
    return a.groupBy((F.col("id") % 2).alias("id")).agg(F.sum("id").alias("total"))


def totals_and_counts(a: DataFrame) -> DataFrame:
    grouped = a.groupBy((F.col("id") % 2).alias("id"))
    return grouped.agg(F.sum("id").alias("total"), F.max("id").alias("largest"))


class _Remembers(StatefulProcessor):
    """Emits each row, and keeps its id in a variable."""

    def __init__(self, kept: str = "kept long", *more: str, as_list: bool = False, name: str = "newest") -> None:
        self._kept, self._as_list, self._name, self._more = kept, as_list, name, more

    def init(self, handle: StatefulProcessorHandle) -> None:
        kind = handle.getListState if self._as_list else handle.getValueState
        self._state = kind(self._name, self._kept)
        for name in self._more:
            handle.getValueState(name, "kept long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803 - Spark's name
        for row in rows:
            value = (str(row.id) if "string" in self._kept else row.id,)
            if self._as_list:
                self._state.put([value])
            else:
                self._state.update(value)
            yield Row(id=row.id)

    def close(self) -> None:
        pass


def remembers(a: DataFrame) -> DataFrame:
    return a.groupBy("id").transformWithState(_Remembers(), "id long", "append", "None")


def remembers_text(a: DataFrame) -> DataFrame:
    return a.groupBy("id").transformWithState(_Remembers("kept string"), "id long", "append", "None")


def remembers_all(a: DataFrame) -> DataFrame:
    return a.groupBy("id").transformWithState(_Remembers(as_list=True), "id long", "append", "None")


def remembers_elsewhere(a: DataFrame) -> DataFrame:
    return a.groupBy("id").transformWithState(_Remembers(name="latest"), "id long", "append", "None")


def remembers_more(a: DataFrame) -> DataFrame:
    return a.groupBy("id").transformWithState(_Remembers("kept long", "first"), "id long", "append", "None")


def _grouped(a: DataFrame, time_out: str) -> DataFrame:
    timed = a.withColumn("at", F.timestamp_seconds("id")).withWatermark("at", "0 seconds")
    return timed.groupBy("id").applyInPandasWithState(_nothing, "id long", "n long", "append", time_out)


def _nothing(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    state.update((1,))
    yield from (frame[["id"]] for frame in frames)


def grouped_by_event_time(a: DataFrame) -> DataFrame:
    return _grouped(a, "EventTimeTimeout")


def grouped_by_the_clock(a: DataFrame) -> DataFrame:
    return _grouped(a, "ProcessingTimeTimeout")


def remembers_with_timers(a: DataFrame) -> DataFrame:
    return a.groupBy("id").transformWithState(_Remembers(), "id long", "append", "ProcessingTime")


def remembers_as_updates(a: DataFrame) -> DataFrame:
    return a.groupBy("id").transformWithState(_Remembers(), "id long", "update", "None")


def declared(transform: Any, mode: str = "append") -> Stream:
    return Stream(
        name="s",
        sources={"a": sources.files("a", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform.__name__}",
        sink=sinks.delta("out"),
        output_mode=mode,
    )


_PLACED = [
    (by_id, by_id_and_text, "append", "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"),
    (totals, totals_and_counts, "complete", "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"),
    *rarely(
        (by_id, by_text, "append", "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"),
        (by_id, plain, "append", "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"),
        (plain, by_id, "append", "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"),
    ),
]
_OF_PROCESSORS = [
    (remembers, remembers_text, "append", "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"),
    (remembers, remembers_with_timers, "append", "STATE_STORE_INVALID_CONFIG_AFTER_RESTART"),
    (remembers, remembers_elsewhere, "append", "had the variables `newest`, and has not now"),
    (grouped_by_event_time, grouped_by_the_clock, "append", "with EventTimeTimeout.* with ProcessingTimeTimeout"),
    *rarely(
        (remembers, remembers_all, "append", "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE"),
        (remembers, remembers_as_updates, "append", "STATE_STORE_INVALID_CONFIG_AFTER_RESTART"),
        (remembers_more, remembers, "append", "had the variables `first`, and has not now"),
        (grouped_by_the_clock, grouped_by_event_time, "append", "with ProcessingTimeTimeout.* with EventTimeTimeout"),
    ),
]
_CHANGES = [
    *((*case, provider) for provider in (_HDFS, *rarely(_ROCKSDB)) for case in _PLACED),
    *((*case, _ROCKSDB) for case in _OF_PROCESSORS),
]


def _called(case: tuple[Any, ...]) -> str:
    return f"{case[0].__name__}-{case[1].__name__}-{'HDFS' if case[4] == _HDFS else 'RocksDB'}"


@pytest.mark.parametrize("case", _CHANGES, ids=_called)
def test_changed_state(lab: Lab, case: tuple[Any, ...], caplog: pytest.LogCaptureFixture) -> None:
    """No batch is planned, a retry would not help, and the stream goes on with the old transform, without a warning."""
    before, after, mode, condition, provider = case
    stream = declared(before, mode)
    write_numbers(lab.root / "a", 3)
    with spark_setting(lab.spark, _PROVIDER, provider), spark_setting(lab.spark, "spark.sql.shuffle.partitions", "2"):
        planned = [str(batch.batch_id) for batch in lab.run(stream).batches]
        write_numbers(lab.root / "a", 2, first=3)
        changed = replace(stream, transform=declared(after).transform)
        with pytest.raises(RefusedError, match=condition) as refused:
            lab.run(changed)
        offsets = sorted(file.name for file in (lab.checkpoint(stream) / "offsets").iterdir() if file.name.isdigit())

        says = "restore the keys, the types and the order.* variables and modes.*; or declare a new stream with a sink"
        read_remedy(refused.value, "STATE_CHANGED", says)
        assert offsets == planned
        assert lab.records(stream)[-1]["status"] == "refused"
        assert not lab.records(stream)[-1]["error"]["retryable"]
        assert lab.run(stream).status == "succeeded"
        before_that = lab.table("out").count()
        anew = replace(changed, name="anew", sink=sinks.delta("anew"))
        assert lab.run(anew).status == "succeeded"
        assert lab.table("anew").count() == (5 if mode == "append" else 2)
        assert (lab.plan(stream).verdict, lab.table("out").count()) == ("skip", before_that)
        assert not [record for record in caplog.records if record.name == state_check.__name__]


def text_key(a: DataFrame) -> DataFrame:
    return a.groupBy(F.col("id").cast("string").alias("id")).agg(F.sum("id").alias("total"))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (text_key, "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"),
        (totals_and_counts, "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"),
    ],
)
def test_check_tells_it_as_the_next_run_does(lab: Lab, after: Any, words: str) -> None:
    """Of a stream that has run, in equal words; of one whose first batch counts nowhere, nothing is wrong."""

    def declare(transform: Any) -> Project:
        put(
            lab.root / "streams" / "totals.py",
            "from sluice import Stream, sinks, sources\n"
            "s = Stream(name='s', sources={'a': sources.files('a', format='json', schema='id bigint')},"
            f" transform='{__name__}:{transform.__name__}', sink=sinks.delta('out'), output_mode='complete')\n",
        )
        return replace(lab.project, stream_folders=(str(lab.root / "streams"),))

    def told(transform: Any) -> str:
        (finding,) = check_project(declare(transform))
        return str(finding.error or "")

    write_numbers(lab.root / "a", 3)
    lab.run(declare(totals).stream("s"))
    assert told(totals) == ""
    changed = told(after)
    write_numbers(lab.root / "a", 2, first=3)
    with pytest.raises(RefusedError, match=words) as refused:
        lab.run(declare(after).stream("s"))
    assert changed == str(refused.value)

    uncommit(lab.checkpoint(declared(totals, "complete")), 0)
    shutil.rmtree(lab.root / "out")
    assert told(after) == ""


def in_a_struct(a: DataFrame, *fields: str) -> DataFrame:
    return a.selectExpr("*", f"named_struct({', '.join(fields)}) AS s")


def by_struct(a: DataFrame) -> DataFrame:
    return in_a_struct(a, "'p'", "id", "'q'", "-id").dropDuplicates(["s"]).select("id")


def by_exchanged_struct(a: DataFrame) -> DataFrame:
    return in_a_struct(a, "'q'", "-id", "'p'", "id").dropDuplicates(["s"]).select("id")


def by_renamed_struct(a: DataFrame) -> DataFrame:
    return in_a_struct(a, "'p'", "id", "'r'", "-id").dropDuplicates(["s"]).select("id")


def largest(a: DataFrame) -> DataFrame:
    rows = in_a_struct(a, "'p'", "id", "'q'", "-id")
    return rows.groupBy((F.col("id") % 2).alias("id")).agg(F.max("s.p").alias("p"), F.max_by("s", "id").alias("s"))


def largest_otherwise(a: DataFrame) -> DataFrame:
    rows = in_a_struct(a, "'r'", "id", "'p'", "-id")
    return rows.groupBy((F.col("id") % 2).alias("id")).agg(F.max("s.p").alias("p"), F.max_by("s", "id").alias("s"))


def by_span(a: DataFrame) -> DataFrame:
    """Of a window's names, and no window."""
    return in_a_struct(a, "'start'", "id", "'end'", "-id").dropDuplicates(["s"]).select("id")


def by_exchanged_span(a: DataFrame) -> DataFrame:
    return in_a_struct(a, "'end'", "-id", "'start'", "id").dropDuplicates(["s"]).select("id")


@pytest.mark.parametrize(
    ("before", "after", "mode"),
    [
        (by_struct, by_exchanged_struct, "append"),
        (largest, largest_otherwise, "complete"),
        (by_span, by_exchanged_span, "append"),
    ],
)
def test_fields_that_change_their_places(lab: Lab, before: Any, after: Any, mode: str) -> None:
    """Spark compares their types alone, and takes one for the other."""
    write_numbers(lab.root / "a", 3)
    lab.run(declared(before, mode))
    write_numbers(lab.root / "a", 2, first=3)

    with pytest.raises(
        RefusedError,
        match=r"the fields of a struct in it were (p, q, and are (q, p|r, p)|start, end, and are end, start)",
    ) as refused:
        lab.run(replace(declared(before, mode), transform=declared(after).transform))

    assert refused.value.finding is not None
    assert refused.value.finding.code == "STATE_CHANGED"
    assert lab.run(declared(before, mode)).status == "succeeded"


@pytest.mark.parametrize(
    ("before", "after"), [(by_id, by_id_of_other_rows), (by_struct, by_renamed_struct), (remembers, remembers_more)]
)
def test_a_change_that_keeps_the_state(lab: Lab, before: Any, after: Any) -> None:
    """Other rows before, other columns beside the keys, and other names of fields in their places fit the state."""
    write_numbers(lab.root / "a", 3)
    lab.run(declared(before))
    write_numbers(lab.root / "a", 2, first=3)

    assert lab.run(declared(after)).status == "succeeded"
    assert sorted(row.id for row in lab.table("out").collect()) == [0, 1, 2, 3, 4]
