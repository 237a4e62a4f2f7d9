"""Another run takes the lease over while Spark is at work: it is ended, whoever decides its batches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import LeaseLostError
from sluice.planning.planner import Limits
from sluice.sinks.contract import Sink
from tests.spark.lab import Lab, ids, write_numbers

pytestmark = pytest.mark.spark

CALLED: list[int] = []
"""The batches that `keep` was called with."""
TAKE_OVER: list[Callable[[], object]] = []
"""What `keep` does in its first batch."""


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def slow(numbers: DataFrame) -> DataFrame:
    """Takes a tenth of a second for each row."""
    return numbers.withColumn("slow", F.expr("reflect('java.lang.Thread', 'sleep', 100L)"))


def endless(numbers: DataFrame) -> DataFrame:
    """Takes longer than any test may."""
    return numbers.withColumn("slow", F.expr("reflect('java.lang.Thread', 'sleep', 3600000L)"))


def keep(frame: DataFrame, batch_id: int) -> None:
    CALLED.append(batch_id)
    frame.collect()
    for take_over in TAKE_OVER:
        take_over()


def declared(transform: str, sink: Sink, *, most: int | None = 1) -> Stream:
    land = sources.files("land", format="json", schema="id bigint", max_files_per_batch=most)
    return Stream(name="numbers", sources={"numbers": land}, transform=f"{__name__}:{transform}", sink=sink)


def take_over(lab: Lab) -> Path:
    """Take the lease of the run that took the first one, as a run does that takes it for dead."""
    first = lab.root / "home" / "numbers" / "leases" / "0001" / "1.json"
    lease = json.loads(first.read_bytes()) | {"token": 2, "run_id": "another"}
    second = first.with_name("2.json")
    second.write_text(json.dumps(lease))
    return second


def give_back(lease: Path) -> None:
    lease.write_text(json.dumps(json.loads(lease.read_bytes()) | {"is_released": True}))


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """Thirty files, one of them a batch."""
    write_numbers(lab.root / "land", 30)
    CALLED.clear()
    TAKE_OVER.clear()
    return lab


@pytest.mark.parametrize("strategy", ["drain", "exact"])
def test_a_function_is_not_called_again(lab: Lab, strategy: str) -> None:
    """Nothing but the lease keeps two writers out of what a function writes to."""
    TAKE_OVER.append(lambda: take_over(lab))
    with pytest.raises(LeaseLostError, match="the lease 1 was taken over by 2"):
        lab.run(declared("same", sinks.foreach_batch(f"{__name__}:keep")), Limits(strategy=strategy))
    assert CALLED == [0]


def test_a_drained_query_is_ended(lab: Lab) -> None:
    """Spark would go on to the last batch; ended, it leaves them to the other run, which has every row once."""
    stream = declared("slow", sinks.delta("out"))
    taker = _when((lab.checkpoint(stream) / "commits" / "0").exists, lambda: take_over(lab))
    with pytest.raises(LeaseLostError):
        lab.run(stream, Limits(strategy="drain"))
    assert not (lab.checkpoint(stream) / "commits" / "29").exists()

    give_back(taker())
    lab.run(declared("slow", sinks.delta("out"), most=None))
    assert ids(lab.table("out")) == list(range(30))


def test_a_long_batch_is_ended(lab: Lab) -> None:
    """It would write at some time, whatever the other run has done meanwhile."""
    stream = declared("endless", sinks.delta("out"))
    _when((lab.checkpoint(stream) / "offsets" / "0").exists, lambda: take_over(lab))
    with pytest.raises(LeaseLostError):
        lab.run(stream)
    assert not (lab.root / "out" / "_delta_log").exists()
    assert not lab.spark.streams.active


def _when(condition: Callable[[], bool], then: Callable[[], Path]) -> Callable[[], Path]:
    """Do something once a condition holds; gives what waits for it."""
    done: list[Path] = []

    def wait() -> None:
        while not condition():
            time.sleep(0.01)
        done.append(then())

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()

    def result() -> Path:
        thread.join(60)
        return done[0]

    return result
