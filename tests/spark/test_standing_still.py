"""An operation stands still past its lease, another one takes over and comes to its end, and the first wakes up."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from deltalake import DeltaTable

from sluice.checkpoint.offsets import OffsetFile
from sluice.errors import LeaseLostError, SluiceError
from sluice.plan import PlannedBatch
from sluice.running.batch_logs import BatchLogs
from sluice.running.read_inputs import ReadInputs
from sluice.runs.lease import acquire
from sluice.sinks.delta import parquet_aside
from sluice.sinks.delta.sink import DeltaSink
from tests.campaign import in_campaigns
from tests.spark.lab import Lab
from tests.spark.power_cuts import let_leases_run_out
from tests.spark.sink_operations import Meanwhile, Numbers, killed

pytestmark = pytest.mark.spark

PUT_ASIDE, TIDIED = 3, 5
"""The steps of a backfill that write its quarantine."""


def stand_still(
    numbers: Numbers, first: Callable[[], object], step: int | str, *others: Callable[[], object]
) -> Meanwhile:
    """Let one stand still before a step of its own, until the others are done."""

    def take_over() -> None:
        for other in others:
            let_leases_run_out(numbers.lab.root / "home")
            other()

    meanwhile = Meanwhile(step, take_over)
    with pytest.MonkeyPatch.context() as patch:
        meanwhile.watch(patch)
        with suppress(SluiceError):
            first()
    return meanwhile


def check(numbers: Numbers, place: str) -> None:
    """What is more than 6 fails, and is in the quarantine; every other number is in the sink, all of them once."""
    sink, quarantine = numbers.held("out"), numbers.held("out_quarantine")
    assert sink == Counter(range(1, 7)), place
    assert quarantine in (Counter([7, 8]), Counter([7, 8, 9, 10])), place


def begin(numbers: Numbers) -> None:
    numbers.begin()
    numbers.allow(6)


@pytest.mark.parametrize("step", [PUT_ASIDE, TIDIED])
def test_a_backfill_that_stood_still(lab: Lab, step: int) -> None:
    """Before it writes the quarantine: what another one has put there since stays, and nothing is there twice."""
    numbers = Numbers(lab)
    begin(numbers)

    meanwhile = stand_still(numbers, numbers.backfill, step, numbers.backfill)

    assert meanwhile.taken[step] == "replace_where"
    check(numbers, str(meanwhile.taken))


@pytest.mark.parametrize("order", ["live backfill", "backfill live"])
def test_a_backfill_by_spark_that_stood_still(lab: Lab, order: str) -> None:
    """Before Spark replaces the rows: others have added some to the interval since, and replaced it."""
    numbers = Numbers(lab, ())
    numbers.begin()

    others = [getattr(numbers, name) for name in order.split()]
    assert stand_still(numbers, numbers.backfill, "replace_rows", *others).is_done

    assert numbers.held("out") == Counter([1, 2, 3, 4, 5, 6, 7, 9, 10])
    assert numbers.held("out_quarantine") == Counter([8])


def test_a_backfill_of_nothing_that_stood_still(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its look at the log and its commit: where no file is replaced, Delta itself finds no conflict."""
    numbers = Numbers(lab)
    numbers.begin()
    DeltaTable(numbers.table()).delete("day = '2026-01-02'")
    find_added, left = parquet_aside.find_added, [numbers.backfill]

    def finding(*args: Any, **kwargs: Any) -> Any:
        while left:
            let_leases_run_out(lab.root / "home")
            left.pop()()
        return find_added(*args, **kwargs)

    monkeypatch.setattr(parquet_aside, "find_added", finding)
    with pytest.raises(SluiceError):
        numbers.backfill()

    assert numbers.held("out") == Counter(range(1, 8))


def test_a_release_that_stood_still(lab: Lab) -> None:
    """Before its rows are in the sink; by then they fail again, and another one has let go of them."""
    numbers = Numbers(lab)
    numbers.begin()

    assert stand_still(numbers, numbers.release, "publish_batch", lambda: numbers.allow(6), numbers.release).is_done

    assert (numbers.held("out"), numbers.held("out_quarantine")) == (Counter(range(1, 7)), Counter([7, 8]))
    numbers.allow(100)
    numbers.release()
    assert (numbers.held("out"), numbers.held("out_quarantine")) == (Counter(range(1, 9)), Counter())


def test_a_release_that_tidied_and_stood_still(lab: Lab) -> None:
    """Before it takes out what a dead backfill has put aside: a retry of that one has put more there since."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(6)
    with killed(DeltaSink, "publish"):
        numbers.backfill("K")

    assert stand_still(
        numbers, numbers.release, "replace_where", numbers.release, lambda: numbers.backfill("K")
    ).is_done

    assert (numbers.held("out"), numbers.held("out_quarantine")) == (Counter(range(1, 7)), Counter([7, 8]))


def test_a_release_beside_a_backfill_that_stands_still(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It wakes up while the release is at work, which has its interval's lease by then."""
    numbers = Numbers(lab)
    numbers.begin()
    asleep, wake, is_over = threading.Event(), threading.Event(), threading.Event()
    publish, publish_batch = DeltaSink.publish, DeltaSink.publish_batch
    failed: list[BaseException] = []

    def publishing(sink: DeltaSink, *args: Any, **kwargs: Any) -> Any:
        asleep.set()
        assert wake.wait(200)
        return publish(sink, *args, **kwargs)

    def publishing_batch(sink: DeltaSink, *args: Any, **kwargs: Any) -> Any:
        wake.set()
        assert is_over.wait(200)
        return publish_batch(sink, *args, **kwargs)

    def backfill() -> None:
        try:
            numbers.backfill()
        except SluiceError as exc:
            failed.append(exc)
        finally:
            asleep.set()
            is_over.set()

    monkeypatch.setattr(DeltaSink, "publish", publishing)
    monkeypatch.setattr(DeltaSink, "publish_batch", publishing_batch)
    thread = threading.Thread(target=backfill)
    thread.start()
    assert asleep.wait(200)
    let_leases_run_out(lab.root / "home")
    numbers.release()
    thread.join(200)

    assert [type(exc) for exc in failed] == [LeaseLostError]
    assert (numbers.held("out"), numbers.held("out_quarantine")) == (Counter(range(1, 9)), Counter())
    statuses = {record["status"] for record in lab.records(numbers.stream) if record.get("interval")}
    assert statuses == {"failed"}


def test_a_batch_that_stood_still(lab: Lab) -> None:
    """Before it is published, of a stream without a suite or a watermark: it is left to who has the lease by then."""
    numbers = Numbers(lab).editing(quality=None)
    numbers.arrive(1, 8)
    numbers.live()
    before = DeltaTable(numbers.table()).version()
    numbers.arrive(11, 12)
    home, check = lab.project.stream_home(numbers.stream), ReadInputs.check

    def stand_still(inputs: ReadInputs, batch_id: int) -> None:
        check(inputs, batch_id)
        let_leases_run_out(lab.root / "home")
        with acquire(home.storage, home.lease_folder(1), run_id="another", sink_is_idempotent=True):
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReadInputs, "check", stand_still)
        with pytest.raises(LeaseLostError):
            numbers.live()

    assert DeltaTable(numbers.table()).version() == before
    numbers.live()
    assert numbers.held("out") == Counter(range(1, 13))


def test_a_batch_that_another_run_has_done(lab: Lab) -> None:
    """Who wakes up finds that the logs have gone on: it is told of the run that took over, and of no stranger."""
    numbers = Numbers(lab).editing(quality=None)
    numbers.arrive(1, 8)
    numbers.live()
    numbers.arrive(11, 12)
    check, slept = BatchLogs.check_planned, list[int]()

    def stand_still(logs: BatchLogs, batch: PlannedBatch) -> OffsetFile:
        if not slept:
            slept.append(batch.batch_id)
            let_leases_run_out(lab.root / "home")
            numbers.live()
            numbers.arrive(21, 22)
            numbers.live()
        return check(logs, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchLogs, "check_planned", stand_still)
        with pytest.raises(LeaseLostError):
            numbers.live()
    numbers.live()
    assert numbers.held("out") == Counter([*range(1, 13), 21, 22])


@in_campaigns
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("second", ["live", "backfill", "release", "audit"])
@pytest.mark.parametrize("first", ["live", "backfill", "release"])
def test_every_step(lab: Lab, first: str, second: str) -> None:
    """As many times as the first has steps; what it has left undone, the next one of its kind does."""
    numbers = Numbers(lab)
    begin(numbers)
    with numbers.starting_over() as start_over:
        for step in itertools.count():
            meanwhile = stand_still(numbers, getattr(numbers, first), step, getattr(numbers, second))
            if not meanwhile.is_done:
                break
            place = f"before step {step}, {meanwhile.taken}; {meanwhile.refused}"
            if second in {"backfill", first}:
                check(numbers, place)
            getattr(numbers, first)()
            check(numbers, place)
            start_over()
    assert step > 0


def test_a_table_that_only_spark_may_write_is_sealed(lab: Lab) -> None:
    """As any other: what comes with a lower number is passed over."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.forbid()
    sink = numbers.stream.sink
    assert isinstance(sink, DeltaSink)
    storage = lab.project.storage()

    for after in (None, 5):
        assert sink.seal("a", 5, lambda: lab.spark, after=after, storage=storage)

    assert sink.state("a", storage=storage).last_batch == 5
    rows = lab.spark_table("out").limit(1)
    rows.write.format("delta").mode("append").option("txnAppId", "a").option("txnVersion", 4).save(numbers.table())
    assert numbers.held("out") == Counter(range(1, 7))
