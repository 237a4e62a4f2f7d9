"""A driver that stood still wakes up, and commits its batch, while the one that has taken over from it is starting."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, SluiceError
from sluice.running import runner, try_before
from sluice.running.query_starts import QueryStarts
from sluice.sinks.delta.sink import DeltaSink
from tests.spark.lab import Lab, ids, write_files, write_numbers
from tests.spark.power_cuts import let_leases_run_out

pytestmark = pytest.mark.spark


def once_each(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["id"])


def plain(numbers: DataFrame) -> DataFrame:
    return numbers


def declared(transform: str) -> Stream:
    return Stream(
        name="s",
        sources={"numbers": sources.files("land", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out"),
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

        patch.setattr(DeltaSink, "publish_batch", publishing)
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
        build_query = runner.build_query

        def building(*args: Any) -> Any:
            query = build_query(*args)
            sleeper.wake()
            return query

        patch.setattr(runner, "build_query", building)
        record = lab.run(stream)
    assert (record.status, [batch.batch_id for batch in record.batches]) == ("succeeded", [2])
    check(lab, stream)


@pytest.mark.parametrize(("transform", "step"), [("once_each", "clear"), ("plain", "start")])
def test_just_before_the_batch_is_done_again(lab: Lab, transform: str, step: str) -> None:
    """Then the run ends, with a word that leads to nothing wrong; the next one goes on."""
    with pytest.MonkeyPatch.context() as patch:
        stream, sleeper = begin(lab, transform, patch)
        clear, start = try_before.clear_state_of_try, QueryStarts.start

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
