"""What is planned of live runs: Spark decides their batches, and what can't be run so is told before Spark starts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from sluice.planning.explain import explain
from sluice.planning.planner import Limits
from sluice.planning.triggers import triggered
from sluice.planning.verdict import Request, plan_stream
from sluice.project import Project
from sluice.running.live_time import LiveTime
from sluice.running.observers import Lines
from sluice.runs.record import BatchRecord, LiveRecord, RunRecords
from sluice.trigger import LiveTrigger, duration
from tests.builders import ManualClock, offsets_bytes, put
from tests.unit.engine_lab import leave_pending, make_lab

OTHER = sources.other("rate")
NUMBERS = sources.files("in", format="json", schema="id bigint")


def limits(trigger: str = "processing-time=10s", run_for: str = "5m", **others: Any) -> Limits:
    return triggered(Limits(**others), trigger, run_for, names=("--trigger", "--for"))


def test_what_a_live_run_does(tmp_path: Path) -> None:
    """What waits is told, batch by batch; none of it is a stage, for Spark takes what there is by then."""
    lab = make_lab(tmp_path, max_files_per_batch=1)
    lab.arrive(1)
    lab.arrive(2)

    plan = lab.plan(limits())

    assert (plan.verdict, plan.strategy, len(plan.batches), plan.size_bytes) == ("run", "live", 2, None)
    assert plan.reason == "live, processing-time=10s for 5m: Spark decides the batches; `landing`: 2 new files"
    assert [stage.kind for stage in plan.stages] == [
        "lease",
        "session",
        "begin",
        "no_data",
        "live",
        "no_data",
        "record",
    ]
    assert "  strategy live, 2 batches" in list(explain(plan))
    document = msgspec.to_builtins(plan.document)
    assert document["trigger"] == {"kind": "processing-time", "interval_ms": 10_000, "run_for_ms": 300_000}


def test_a_pending_batch_comes_first(tmp_path: Path) -> None:
    """It runs as it was logged, before Spark goes on by itself."""
    lab = make_lab(tmp_path)
    leave_pending(lab)

    plan = lab.plan(limits())

    assert plan.verdict == "resume"
    assert [(stage.kind, stage.batch_id) for stage in plan.stages][2:4] == [("begin", None), ("batch", 0)]


def test_nothing_new_is_no_reason_to_skip(tmp_path: Path) -> None:
    """What comes while it is at work is what it is for."""
    assert make_lab(tmp_path).plan(limits()).verdict == "run"


def test_a_retry_keeps_the_trigger(tmp_path: Path) -> None:
    """And how long it goes on, whatever it is given itself: that stands in the record, by which a driver is started."""
    lab = make_lab(tmp_path)
    first = lab.prepare(limits(), run_key="key")
    assert (first.status, first.strategy, first.trigger) == ("planned", "live", limits().trigger)

    again = lab.prepare(Limits(), run_key="key")

    assert (again.run_id, again.plan.strategy, again.trigger) == (first.run_id, "live", limits().trigger)
    kept = RunRecords(lab.project.stream_home(lab.stream)).read(first.run_id)
    assert kept is not None
    assert kept.plan.trigger == limits().trigger


def test_triggers_that_a_run_has_anyway() -> None:
    """`available-now` is drained, `once` is a planned run of one batch, and no trigger changes nothing."""
    names = ("--trigger", "--for")
    assert triggered(Limits(), "available-now", None, names=names) == Limits(strategy="drain")
    assert triggered(Limits(), "once", "", names=names) == Limits(max_batches=1)
    assert triggered(Limits(max_batches=3), None, None, names=names) == Limits(max_batches=3)


@pytest.mark.parametrize(
    ("trigger", "run_for", "milliseconds"),
    [
        ("processing-time=0s", "1s", 0),
        ("processing-time=500ms", timedelta(seconds=3), 500),
        ("continuous=1s", "1m", 1000),
        ("real-time", "1h", 300_000),
        ("real-time", "1m", 60_000),
        ("real-time", "1s", 5000),
        ("real-time=7s", "1m", 7000),
    ],
)
def test_intervals(trigger: str, run_for: Any, milliseconds: int) -> None:
    """A batch of the real-time mode lasts as long as the run, unless it is told, but for what Spark has as limits."""
    live = limits(trigger, run_for).trigger
    assert live is not None
    assert live.interval_ms == milliseconds


@pytest.mark.parametrize("milliseconds", [0, 1, 500, 1500, 60_000, 90_000, 3_600_000, 86_400_000])
def test_durations_are_read_as_they_are_written(milliseconds: int) -> None:
    """In the largest unit that is exact."""
    live = limits(f"processing-time={duration(milliseconds)}", "2d").trigger
    assert live is not None
    assert live.interval_ms == milliseconds
    assert live.word == f"processing-time={duration(milliseconds)}"


def stream(source: Any, sink: Any, **changes: Any) -> Stream:
    return Stream(name="s", sources={"n": source}, transform="tests.builders:anything", sink=sink, **changes)


@pytest.mark.parametrize(
    ("trigger", "declared", "why"),
    [
        ("continuous=1s", stream(NUMBERS, sinks.noop()), "does not read source `n`, of kind `files`"),
        ("continuous=1s", stream(OTHER, sinks.delta("out")), "does not write a sink of kind `delta`"),
        ("continuous=1s", stream(OTHER, sinks.memory()), "does not write a sink of kind `memory`"),
        ("continuous=1s", stream(OTHER, sinks.foreach("jobs:w")), "not write a sink of kind `foreach`"),
        ("continuous=1s", stream(OTHER, sinks.noop(), output_mode="complete"), "has no state"),
        ("real-time", stream(NUMBERS, sinks.console()), "does not read source `n`, of kind `files`"),
        (
            "real-time",
            stream(OTHER, sinks.noop(), output_mode="update"),
            "does not write a sink of kind `noop`",
        ),
        ("real-time", stream(OTHER, sinks.console()), '`real-time` takes `output_mode="update"`'),
        ("real-time=1s", stream(OTHER, sinks.console(), output_mode="update"), "at least 5s"),
    ],
)
def test_what_goes_with_no_trigger(tmp_path: Path, trigger: str, declared: Stream, why: str) -> None:
    """Spark refuses it later, or does something else."""
    (tmp_path / "in").mkdir()
    project = Project(str(tmp_path), "p", str(tmp_path / "home"), (), (str(tmp_path),))
    with pytest.raises(DeclarationError, match="the run can't be live") as caught:
        plan_stream(project, Request(project.resolve(declared), limits(trigger)))
    assert why in caught.value.problem


def test_two_sources_of_a_continuous_query(tmp_path: Path) -> None:
    """Spark reads one."""
    project = Project(str(tmp_path), "p", str(tmp_path / "home"), (), (str(tmp_path),))
    two = replace(stream(OTHER, sinks.noop()), sources={"a": OTHER, "b": OTHER})
    with pytest.raises(DeclarationError, match="the run can't be live"):
        plan_stream(project, Request(project.resolve(two), limits("continuous=1s")))


def test_an_epoch_that_is_not_committed(tmp_path: Path) -> None:
    """A continuous query begins it anew: it is no batch that would be run as it was logged."""
    project = Project(str(tmp_path), "p", str(tmp_path / "home"), (), (str(tmp_path),))
    declared = project.resolve(stream(OTHER, sinks.noop()))
    checkpoint = Path(project.stream_home(declared).checkpoint_location(1))
    put(checkpoint / "metadata", '{"id":"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"}')
    put(checkpoint / "offsets" / "0", b'v1\n\n{"0":{"value":-1,"runTimeMs":1}}')

    plan = plan_stream(project, Request(declared, limits("continuous=1s")))

    assert (plan.verdict, plan.batches) == ("run", ())
    # Spark's other engine writes what a plan can go on from.
    put(checkpoint / "offsets" / "0", offsets_bytes("5"))
    refused = plan_stream(project, Request(declared, limits("continuous=1s"))).problem
    assert refused is not None
    assert refused.code == "CHECKPOINT_OF_BATCHES"


def kept(clock: ManualClock, before: LiveRecord | None = None) -> tuple[LiveTime, list[LiveRecord]]:
    told: list[LiveRecord] = []
    trigger = LiveTrigger(kind="processing-time", interval_ms=1000, run_for_ms=60_000)
    return LiveTime.begin(trigger, before, clock, told.append), told


def test_the_time_of_a_run() -> None:
    """It is over when it is; a retry has what is left of it, whenever that begins."""
    clock = ManualClock()
    time, told = kept(clock)
    clock.move(59)
    assert (time.is_over(), time.left_seconds) == (False, 1)
    again, _ = kept(clock, told[-1])
    clock.move(1)
    assert (time.is_over(), again.is_over(), again.told.began_at) == (True, True, told[0].began_at)
    assert time.left_seconds > 0


def test_what_the_record_tells_meanwhile() -> None:
    """What Spark says where it is new, and every ten seconds that it was looked at: so it shows when nothing moves."""
    clock = ManualClock()
    time, told = kept(clock)
    time.note_doing("Waiting for data to arrive")
    for _ in range(3):
        clock.move(4)
        time.note_doing("Waiting for data to arrive")
    time.note_commit()
    clock.move(1)
    time.note_doing("Processing new data")

    assert [record.doing for record in told] == ["", *2 * ["Waiting for data to arrive"], "Processing new data"]
    assert [record.committed_at is None for record in told] == [True, True, True, False]
    assert told[2].seen_at > told[1].seen_at


def test_nobody_knows_how_many_batches_are_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What waited as it began is not all: a driver's log counts what is done."""
    lab = make_lab(tmp_path)
    lab.arrive(1)
    lines = Lines("numbers")
    lines.planned(lab.plan(limits()))
    lines.committed(BatchRecord(batch_id=0, kind="data", input_rows=1, output_rows=1, watermark=None))

    planned, done = capsys.readouterr().err.splitlines()
    assert planned.endswith("`landing`: 1 new file; strategy live")
    assert done == "sluice numbers: batch 0 (data): 1 rows in, 1 out, 0.0 s; 1 so far"
