"""Time-outs and timers in processing time: a run begins when one is due, and not before."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from sluice.planning.planner import Limits
from sluice.running.due_timers import DueTimers
from sluice.spark.first_batch_check import ROCKSDB, STATE_STORE
from tests.spark.lab import Lab, ids, write_files

START = datetime(2026, 3, 1, tzinfo=UTC)
SECONDS = 1
"""After how long without a row a key has timed out."""


def quiet_keys(numbers: DataFrame) -> DataFrame:
    """Each id, then 0 - id when nothing came for it for a while."""

    def follow(key, frames, state):  # noqa: ANN001, ANN202 - pyspark takes type hints for those of a pandas function
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"id": [-key[0]]})
        else:
            state.update((1,))
            state.setTimeoutDuration(SECONDS * 1000)
            yield from ([pd.DataFrame({"id": [key[0]]})] if list(frames) else [])

    return numbers.groupBy("id").applyInPandasWithState(
        follow, "id long", "seen int", "append", "ProcessingTimeTimeout"
    )


class Quiet(StatefulProcessor):
    """The same with a timer, which is set anew with each row."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._due = handle.getValueState("due", "at long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803
        assert list(rows)
        if self._due.exists():
            self._handle.deleteTimer(self._due.get()[0])
        due = timerValues.getCurrentProcessingTimeInMs() + SECONDS * 1000
        self._handle.registerTimer(due)
        self._due.update((due,))
        yield Row(id=key[0])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N803
        self._due.clear()
        yield Row(id=-key[0])

    def close(self) -> None:
        pass


class Forgetful(StatefulProcessor):
    """What is kept for a while in processing time, without a timer."""

    def init(self, handle: Any) -> None:
        self._seen = handle.getValueState("seen", "n long", ttlDurationMs=SECONDS * 1000)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803
        is_new = not self._seen.exists()
        self._seen.update((sum(1 for _ in rows),))
        yield Row(id=key[0] if is_new else -key[0])

    def close(self) -> None:
        pass


def quiet_timers(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").transformWithState(Quiet(), "id long", "append", "ProcessingTime")


def forgetful(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").transformWithState(Forgetful(), "id long", "append", "ProcessingTime")


class Patient(StatefulProcessor):
    """Wakes up in event time, a day after its row."""

    def init(self, handle: Any) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803
        assert list(rows)
        self._handle.registerTimer(86_400_000)
        yield Row(id=key[0] + 100)

    def close(self) -> None:
        pass


class Plain(StatefulProcessor):
    """Goes by no time."""

    def init(self, handle: Any) -> None:
        self._seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803
        self._seen.update((sum(1 for _ in rows),))
        yield Row(id=key[0] + 200)

    def close(self) -> None:
        pass


def side_by_side(numbers: DataFrame) -> DataFrame:
    """Processors of all three kinds."""
    timed = numbers.select("id", F.timestamp_seconds("id").alias("at")).withWatermark("at", "1 second")
    patient = timed.groupBy("id").transformWithState(Patient(), "id long", "append", "EventTime")
    plain = numbers.groupBy("id").transformWithState(Plain(), "id long", "append", "None")
    return quiet_timers(numbers).union(patient).union(plain)


def word(numbers: DataFrame) -> DataFrame:
    """A state whose plan has the word in it, as a text."""
    dated = numbers.select("id", F.timestamp_seconds("id").alias("at"), F.lit("ProcessingTime").alias("mode"))
    return dated.withWatermark("at", "1 second").dropDuplicatesWithinWatermark(["id", "mode"]).select("id")


def declared(transform: str) -> Stream:
    return Stream(
        name="s",
        sources={"numbers": sources.files("land", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out"),
        conf={STATE_STORE: ROCKSDB} if transform in {"quiet_timers", "forgetful", "side_by_side"} else {},
    )


def at(seconds: float) -> Any:
    """A clock that stands at so many seconds."""
    return lambda: START + timedelta(seconds=seconds)


def kinds(lab: Lab, stream: Stream, seconds: float) -> list[str]:
    """The kinds of the batches of a run at a time; none for one that began no Spark."""
    record = lab.run(stream, clock=at(seconds))
    assert record.status == ("succeeded" if record.batches else "skipped")
    return [batch.kind for batch in record.batches]


def arrive(lab: Lab, *keys: int) -> None:
    """A file with a row of each key, the newest of all."""
    number = len(list((lab.root / "land").glob("*")))
    write_files(lab.root / "land", {f"{number}.json": "\n".join(json.dumps({"id": key}) for key in keys)}, first=number)


def out(lab: Lab) -> list[int]:
    return ids(lab.table("out"))


@pytest.mark.parametrize("transform", ["quiet_keys", "quiet_timers"])
def test_an_idle_stream_begins_a_run_once_a_time_out_is_due(lab: Lab, transform: str) -> None:
    """Until then it is skipped, without Spark; and again when none waits any more."""
    stream = declared(transform)
    arrive(lab, 1, 2)
    assert kinds(lab, stream, 0) == ["data"]
    plan = lab.plan(stream, clock=at(SECONDS))
    assert (plan.verdict, plan.reason) == ("skip", "nothing new; the next time-out is due at 2026-03-01T00:00:01.000Z")
    assert kinds(lab, stream, SECONDS) == []
    later = SECONDS + 0.001
    assert lab.plan(stream, clock=at(later)).reason == (
        "nothing new, but a time-out is due since 2026-03-01T00:00:01.000Z"
    )
    assert kinds(lab, stream, later) == ["no_data"]
    assert out(lab) == [-2, -1, 1, 2]
    assert (lab.plan(stream, clock=at(999)).verdict, lab.plan(stream, clock=at(999)).reason) == ("skip", "nothing new")


@pytest.mark.parametrize("transform", ["quiet_keys", "quiet_timers"])
def test_a_time_out_that_is_due_within_the_run_fires_in_it(lab: Lab, transform: str) -> None:
    """The clock goes on while Spark is at work."""
    stream = declared(transform)
    arrive(lab, 1)
    begun = at(0)()

    def clock() -> datetime:
        is_committed = (lab.checkpoint(stream) / "commits" / "0").exists()
        return begun + timedelta(seconds=SECONDS + 1 if is_committed else 0)

    assert [batch.kind for batch in lab.run(stream, clock=clock).batches] == ["data", "no_data"]
    assert out(lab) == [-1, 1]


@pytest.mark.parametrize("transform", ["quiet_keys", "quiet_timers"])
def test_a_history(lab: Lab, transform: str) -> None:
    """Arrivals and pauses drawn at random, against a model of the keys; a run begins only where it has something."""
    draw = random.Random(7)
    stream, now = declared(transform), 0.0
    (lab.root / "land").mkdir()
    due: dict[int, float] = {}
    expected: list[int] = []
    for _ in range(10):
        now += draw.choice([0.1, 0.4, 0.6, 1.1])
        arrived = draw.sample(range(1, 4), draw.choice([0, 0, 1, 2]))
        if arrived:
            arrive(lab, *arrived)
        out_of_time = [key for key, moment in due.items() if moment < now and key not in arrived]
        expected += [*arrived, *(-key for key in out_of_time)]
        due = {key: moment for key, moment in due.items() if key not in out_of_time}
        due |= dict.fromkeys(arrived, now + SECONDS)
        assert bool(kinds(lab, stream, now)) == bool(arrived or out_of_time)
    assert out(lab) == sorted(expected)
    assert any(key < 0 for key in expected)


def test_where_the_driver_died_before_it_looked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then one may be due, and the next run looks."""
    stream = declared("quiet_keys")
    arrive(lab, 1)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DueTimers, "take", die)
        with pytest.raises(KeyboardInterrupt):
            lab.run(stream, clock=at(0))
    assert lab.plan(stream, clock=at(0.1)).reason == (
        "nothing new, but time-outs may be due: nobody has looked since the last batch"
    )
    assert kinds(lab, stream, 0.1) == ["no_data"]
    assert kinds(lab, stream, 0.2) == []
    assert kinds(lab, stream, SECONDS + 1) == ["no_data"]
    assert out(lab) == [-1, 1]


def test_what_is_kept_for_a_while_alone_begins_no_run(lab: Lab) -> None:
    """Nothing comes out when it is forgotten: who asks for it then does not see it."""
    stream = declared("forgetful")
    arrive(lab, 1)
    assert kinds(lab, stream, 0) == ["data"]
    assert kinds(lab, stream, SECONDS + 1) == []
    arrive(lab, 1)
    assert kinds(lab, stream, SECONDS + 2) == ["data"]
    assert out(lab) == [1, 1]


def test_processors_that_go_by_another_time_or_none(lab: Lab) -> None:
    """Their timers are not asked for: of some there are none, and others wait for the watermark."""
    stream = declared("side_by_side")
    arrive(lab, 1)
    assert kinds(lab, stream, 0) == ["data"]
    assert kinds(lab, stream, SECONDS + 1) == ["no_data"]
    assert kinds(lab, stream, SECONDS + 2) == []
    assert out(lab) == [-1, 1, 101, 201]


def test_the_word_in_a_plan_is_no_timer(lab: Lab) -> None:
    """A text of the query says nothing of its operators."""
    stream = declared("word")
    arrive(lab, 1, 2)
    lab.run(stream, clock=at(0))
    assert kinds(lab, stream, 1) == []


def test_the_first_run_is_not_drained(lab: Lab) -> None:
    """AvailableNow would never end; nobody knows before Spark has read the query."""
    stream = declared("quiet_keys")
    arrive(lab, 1)
    with pytest.raises(DeclarationError, match="AvailableNow never ends on processing-time timers"):
        lab.run(stream, Limits(strategy="drain"))
    assert not (lab.checkpoint(stream) / "offsets").exists()
    assert kinds(lab, stream, 0) == ["data"]
    with pytest.raises(DeclarationError, match="AvailableNow never ends on processing-time timers"):
        lab.plan(stream, Limits(strategy="drain"))
