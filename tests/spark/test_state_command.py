"""`sluice state` and `sluice diff`, and what records tell of state, on runs of real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from sluice.monitoring.batch_difference import batch_difference
from sluice.monitoring.explained_query import explained_batch, explained_query
from sluice.monitoring.inspection import inspect_stream
from sluice.monitoring.state_document import state_document, stateful_operators
from sluice.spark.first_batch_check import ROCKSDB, STATE_STORE
from sluice.spark.state_rows import StateView
from sluice.times import system_clock
from tests.spark.lab import Lab, write_files

pytestmark = pytest.mark.spark


def timed(frame: DataFrame, name: str) -> DataFrame:
    return frame.select("id", F.timestamp_seconds("id").alias(name)).withWatermark(name, "2 seconds")


def windows(numbers: DataFrame) -> DataFrame:
    counted = timed(numbers, "at").groupBy(F.window("at", "5 seconds")).agg(F.count("*").alias("count"))
    return counted.select(F.unix_seconds("window.start").alias("start"), "count")


def joined(numbers: DataFrame, others: DataFrame) -> DataFrame:
    left, right = timed(numbers, "at"), timed(others, "other_at").withColumnRenamed("id", "other")
    return left.join(right, F.expr("id = other AND at = other_at")).select("id")


class Remembers(StatefulProcessor):
    """Counts the rows of each key, and the distinct ones; wakes up a minute later."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n bigint")
        self._seen = handle.getMapState("seen", "k bigint", "v string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803
        count = (self._count.get()[0] if self._count.exists() else 0) + sum(1 for _ in rows)
        self._count.update((count,))
        self._seen.updateValue((count,), (f"{key[0]}",))
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 60_000)
        yield Row(id=key[0])

    def close(self) -> None:
        pass


def remembered(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").transformWithState(Remembers(), "id long", "append", "ProcessingTime")


def plain(numbers: DataFrame) -> DataFrame:
    return numbers


def declared(transform: str, *names: str, **others: Any) -> Stream:
    given = {name: sources.files(name, format="json", schema="id bigint") for name in names or ("numbers",)}
    return Stream(name="s", sources=given, transform=f"{__name__}:{transform}", sink=sinks.delta("out"), **others)


def arrive(lab: Lab, *ids: int, source: str = "numbers") -> None:
    number = len(list((lab.root / source).glob("*"))) if (lab.root / source).exists() else 0
    write_files(lab.root / source, {f"{number}.json": "\n".join(f'{{"id": {key}}}' for key in ids)}, first=number)


def document(lab: Lab, stream: Stream, view: StateView, *, most: int) -> dict[str, Any]:
    resolved = lab.project.resolve(stream)
    checkpoint, _ = stateful_operators(lab.project.stream_home(resolved))
    return state_document(lab.project, resolved, checkpoint, view, most=most, session=lab.spark)


def rows(lab: Lab, stream: Stream, **view: Any) -> list[dict[str, Any]]:
    found = document(lab, stream, StateView(**view), most=100)
    assert found["columns"] == list(found["rows"][0])
    return sorted(found["rows"], key=str)


def test_windows(lab: Lab) -> None:
    """Their rows, as each batch left them and as it changed them; and what records tell."""
    stream = declared("windows")
    arrive(lab, 1, 2, 6)
    first = lab.run(stream)
    arrive(lab, 7, 12, 1)
    second = lab.run(stream)
    kept = [(state.operator, state.rows, state.updated_rows) for batch in first.batches for state in batch.state]
    assert kept == [("stateStoreSave", 2, 2)] * 1 + [("stateStoreSave", 2, 0)]
    assert [(state.rows, state.removed_rows, state.late_rows) for batch in second.batches for state in batch.state] == [
        (3, 0, 0),
        (1, 2, 0),
    ]
    assert all(state.memory_bytes > 0 for batch in second.batches for state in batch.state)

    assert [(row["window"]["start"], row["count"]) for row in rows(lab, stream)] == [("1970-01-01T00:00:10.000Z", 1)]
    assert [row["count"] for row in rows(lab, stream, batch=0)] == [2, 1]
    changes = rows(lab, stream, changes_since=2)
    assert {(row["batch_id"], row["change_type"]) for row in changes} == {(2, "update"), (3, "delete")}
    with pytest.raises(DeclarationError, match=r"there is no operator 1 \[sluice state\]; with a state are: 0 \(state"):
        rows(lab, stream, operator=1)
    with pytest.raises(DeclarationError, match=r"operator 0 \(stateStoreSave\) has none: joins have sides"):
        rows(lab, stream, side="left")
    with pytest.raises(DeclarationError, match="Spark does not read the state of operator 0 so"):
        rows(lab, stream, batch=99)

    told = inspect_stream(lab.project.resolve(stream), lab.project.stream_home(stream), system_clock())
    assert [operator["latest_version"] for operator in told["operators"]] == [4]
    assert [(kept["rows"], kept["removed_rows"]) for kept in told["state"]] == [(1, 2)]
    assert [found["input"] for found in told["watermarks"]["inputs"]] == ["numbers.at"]
    limited = document(lab, stream, StateView(batch=0), most=1)
    assert (len(limited["rows"]), limited["has_more"]) == (1, True)

    for file in (lab.checkpoint(stream) / "state").rglob("*.delta"):
        file.with_name(f".{file.name}.crc").unlink()
        file.write_bytes(b"no state")
    with pytest.raises(DeclarationError, match=r"Spark does not read the state of operator 0 so: .*CANNOT_LOAD_STATE"):
        rows(lab, stream)


def test_a_join_has_sides(lab: Lab) -> None:
    """Each is looked at by itself."""
    stream = declared("joined", "numbers", "others")
    arrive(lab, 1, 2)
    arrive(lab, 2, 3, source="others")
    lab.run(stream)
    assert [row["id"] for row in rows(lab, stream, side="left")] == [1, 2]
    assert [row["other"] for row in rows(lab, stream, side="right")] == [2, 3]
    with pytest.raises(DeclarationError, match=r"a join has sides: say which \(`left` or `right`\)"):
        rows(lab, stream)


def test_a_processor_has_variables_and_timers(lab: Lab) -> None:
    """Which there are, the checkpoint tells without Spark."""
    stream = declared("remembered", conf={STATE_STORE: ROCKSDB})
    arrive(lab, 1, 1, 2)
    lab.run(stream)
    home = lab.project.stream_home(lab.project.resolve(stream))
    assert [operator.variables for operator in stateful_operators(home)[1]] == [("count", "seen")]
    assert [(row["id"], row["n"]) for row in rows(lab, stream, variable="count")] == [(1, 2), (2, 1)]
    assert [(row["k"], row["v"]) for row in rows(lab, stream, variable="seen")] == [(2, "1"), (1, "2")]
    assert [row["id"] for row in rows(lab, stream, timers=True)] == [1, 2]
    with pytest.raises(DeclarationError, match=r"a processor has variables, and timers: say which \(count, seen\)"):
        rows(lab, stream)


def test_a_stream_without_state(lab: Lab) -> None:
    """There is nothing to look at, and Spark is not started."""
    arrive(lab, 1)
    lab.run(declared("plain"))
    checkpoint, _ = stateful_operators(lab.project.stream_home(declared("plain")))
    with pytest.raises(DeclarationError, match="the stream keeps no state"):
        state_document(lab.project, declared("plain"), checkpoint, StateView(), most=1)


def test_what_happened_between_two_batches(lab: Lab) -> None:
    """By the logs and the records, without Spark."""
    stream = declared("windows")
    home = lab.project.stream_home(lab.project.resolve(stream))
    for ids in ((1, 2, 6), (7, 12, 1), (21, 2)):
        arrive(lab, *ids)
        lab.run(stream)
    edited = replace(stream, sources={"numbers": replace(stream.sources["numbers"], max_files_per_batch=7)})
    arrive(lab, 30)
    lab.run(edited)
    newest = lab.records(edited)[-1]["batches"][-1]["batch_id"]

    found = batch_difference("s", home, 1, newest)

    assert found["sources"] == {"numbers": {"from": {"logOffset": 0}, "to": {"logOffset": 3}}}
    assert found["watermark"] == {"from": "1970-01-01T00:00:04.000Z", "to": "1970-01-01T00:00:28.000Z"}
    assert [batch["batch_id"] for batch in found["batches"]] == list(range(2, newest + 1))
    assert (found["totals"]["input_rows"], found["totals"]["late_rows"], found["conf"]) == (6, 1, {})
    assert found["state"] == {"stateStoreSave": {"from": 2, "to": 1}}
    assert found["not_known"] == []
    told = explained_batch("s", home, 3)
    assert (told["kind"], told["ran_with_watermark"]) == ("no_data", "1970-01-01T00:00:10.000Z")
    assert [(kept["loaded_version"], kept["left_version"], kept["rows"]) for kept in told["state"]] == [(3, 4, 1)]
    assert "StateStoreSave" in told["physical"]
    with pytest.raises(DeclarationError, match=rf"no record has batch 99 .*: the newest that one has is {newest}"):
        explained_batch("s", home, 99)
    assert "StateStoreSave" in explained_query(lab.project, lab.project.resolve(stream), session=lab.spark)["physical"]
    everything = batch_difference("s", home, -1, newest)
    assert everything["sources"] == {"numbers": {"from": None, "to": {"logOffset": 3}}}
    assert everything["totals"]["input_rows"] == 9

    (lab.root / "home" / "s" / "runs" / f"{lab.records(stream)[0]['run_id']}.json").unlink()
    (lab.checkpoint(stream) / "offsets" / "0").unlink()
    assert batch_difference("s", home, 0, newest)["not_known"] == [
        "the offset log has no batch 0 any more: Spark keeps the newest hundred",
        "no record has the batches 1: Spark alone has run them, or it was deleted",
    ]
    with pytest.raises(DeclarationError, match=rf"behind 5, up to 3 .*; the newest .* {newest}"):
        batch_difference("s", home, 5, 3)
