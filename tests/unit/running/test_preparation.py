"""What a run does before Spark: skips, refusals, and what a retry keeps of the first try."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sluice import sources
from sluice.documents import encode_document
from sluice.errors import BatchFailedError, LeaseLostError, Problem, RefusedError
from sluice.plan import Plan
from sluice.planning.planner import Limits
from sluice.running.preparation import prepare_run, reserve_run
from sluice.runs.driver import Driver
from sluice.runs.process import Process, boot_id, machine, process
from sluice.runs.record import BatchRecord, RunRecord, RunRecords
from tests.unit.engine_lab import EPOCH, EVERYTHING, KilledError, Lab, leave_pending, make_lab, make_stream, until


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A stream of one source, one file to a batch; nothing has arrived."""
    return make_lab(tmp_path, max_files_per_batch=1)


def refuse(lab: Lab) -> None:
    """Make the sink another one than the stream has written."""
    lab.arrive()
    lab.run()
    Path(lab.sink.path, "identity").write_text("another")


class Watcher:
    """An observer that does something when the plan is made, and whenever a batch is done."""

    def __init__(
        self, on_commit: Callable[[], None] = lambda: None, *, on_plan: Callable[[], None] = lambda: None
    ) -> None:
        self.on_commit, self.on_plan = on_commit, on_plan

    def planned(self, plan: Plan) -> None:
        self.on_plan()

    def phase(self, text: str) -> None:
        """Nothing to do."""

    def warned(self, warning: Problem) -> None:
        """Nothing that is looked at."""

    def committed(self, batch: BatchRecord) -> None:
        self.on_commit()


def die_in_second_batch(lab: Lab, limits: Limits = EVERYTHING) -> None:
    """Try the run `key` on two files: the first batch is done, the driver is killed in the second."""
    lab.arrive(1)
    lab.arrive(2)

    def die() -> None:
        lab.dies_at = "before the sink"

    with pytest.raises(KilledError):
        lab.run(limits, "key", observer=Watcher(die))


class TestSkip:
    def test_a_skip_is_done_without_spark(self, lab: Lab) -> None:
        """The record says so, and is not written."""
        record = lab.prepare(until(5))
        assert record is not None
        assert (record.status, record.plan.verdict, record.until) == ("skipped", "skip", until(5).bound.until)
        assert record.ended_at is not None
        assert lab.records() == []

    def test_skips_are_counted(self, lab: Lab) -> None:
        """`checked.json` has the last one: when, why, and how many since the last run."""
        lab.prepare()
        lab.prepare(until(5))
        checked = json.loads((lab.home / "checked.json").read_bytes())
        assert checked == {
            "format": 1,
            "checked_at": "2026-01-01T01:00:00.004Z",
            "reason": "nothing new before 2026-01-01T00:00:05+00:00",
            "skips": 2,
            "sources": {},
            "until": "2026-01-01T00:00:05Z",
        }

    def test_a_bound_in_the_future_is_reached_when_it_is_there(self, lab: Lab) -> None:
        """What arrives after the look was not looked at."""
        lab.prepare(until(10**9))
        checked = json.loads((lab.home / "checked.json").read_bytes())
        assert checked["until"][:19] == checked["checked_at"][:19] == "2026-01-01T01:00:00"

    def test_a_run_counts_anew(self, lab: Lab) -> None:
        """A run that does something forgets the skips before it."""
        lab.prepare()
        lab.arrive()
        lab.run()
        assert not (lab.home / "checked.json").exists()
        assert lab.run().status == "skipped"
        assert json.loads((lab.home / "checked.json").read_bytes())["skips"] == 1

    def test_a_skip_needs_no_lease(self, lab: Lab) -> None:
        """Nothing is taken, so that a skip beside a running driver does not disturb it."""
        assert lab.run().status == "skipped"
        assert not (lab.home / "leases").exists()

    def test_it_imports_no_spark(self, lab: Lab) -> None:
        """Doing so is for a process that has no JVM and wants none."""
        code = f"""
import sys
sys.path[:0] = {[str(path) for path in sys.path]!r}
from sluice.project import Project
from sluice.planning.verdict import Request
from sluice.running.preparation import prepare_run
from sluice import Stream, sinks, sources
source = sources.files({lab.stream.sources["landing"].location!r}, format="json", schema="id bigint")
stream = Stream(name="s", sources={{"s": source}}, transform="tests.builders:anything", sink=sinks.noop())
project = Project({str(lab.root)!r}, "p", {str(lab.root / "home")!r}, (), ())
assert prepare_run(project, Request(stream)).status == "skipped"
assert "pyspark" not in sys.modules
"""
        subprocess.run([sys.executable, "-c", code], check=True)


class TestSparkIsNeeded:
    def test_the_plan_is_kept_for_the_driver(self, lab: Lab) -> None:
        """Where there is work, the record is on disk before a driver starts, and the driver's run goes on with it."""
        lab.arrive()
        planned = lab.prepare(run_key="key")
        assert (planned.status, planned.tries, planned.plan.verdict) == ("planned", 0, "run")
        assert [record["run_id"] for record in lab.records()] == [planned.run_id]

        record = lab.run(run_key="key")
        assert (record.run_id, record.status, record.tries) == (planned.run_id, "succeeded", 1)

    def test_done_by_another_run_in_the_meantime(self, lab: Lab) -> None:
        """What was planned and never begun leaves no record when there is nothing left to do."""
        lab.arrive()
        lab.prepare(run_key="key")
        lab.run()
        assert lab.run(run_key="key").status == "skipped"
        assert [record["run_key"] for record in lab.records()] == [None]

    def test_a_pending_batch_ends_nothing(self, lab: Lab) -> None:
        """A batch to resume is work."""
        leave_pending(lab)
        assert lab.prepare().status == "planned"

    def test_an_unknown_order_of_sources_is_the_runs_business(self, tmp_path: Path) -> None:
        """The one refusal that Spark mends is not mended without it."""
        lab = make_lab(tmp_path, names=("a", "b"))
        lab.arrive(source="a")
        lab.engine().once()
        lab.arrive(source="a")
        assert lab.plan().verdict == "refuse"
        assert lab.prepare().status == "planned"


class TestRefusal:
    def test_it_leaves_a_record(self, lab: Lab) -> None:
        """The record has the plan and the error, and the error names the record."""
        refuse(lab)
        with pytest.raises(RefusedError) as refused:
            lab.prepare(run_key="key")
        record = lab.records()[-1]
        assert refused.value.run_id == record["run_id"]
        assert (record["status"], record["run_key"], record["plan"]["verdict"]) == ("refused", "key", "refuse")
        assert record["plan"]["problem"]["code"] == "SINK_REPLACED"
        assert (record["error"]["type"], record["error"]["retryable"]) == ("RefusedError", False)
        assert record["ended_at"] is not None

    def test_a_run_refuses_before_it_takes_the_lease(self, lab: Lab) -> None:
        """A run that may not go on does not keep others from it."""
        refuse(lab)
        with pytest.raises(RefusedError):
            lab.run()
        assert [file.name for file in (lab.home / "leases").rglob("*.json")] == ["1.json"]

    def test_once_it_is_mended_the_same_run_goes_on(self, lab: Lab) -> None:
        """The retry of a refused run writes on in the same record."""
        refuse(lab)
        lab.arrive()
        with pytest.raises(RefusedError):
            lab.run(run_key="key")
        assert lab.state().planned_id == 0
        generation = json.loads((lab.home / "generations" / "0001.json").read_bytes())
        Path(lab.sink.path, "identity").write_text(generation["sink_identity"])
        record = lab.run(run_key="key")
        assert (record.status, record.tries, record.error) == ("succeeded", 2, None)
        assert len(lab.records()) == 2


class TestRetry:
    def test_it_keeps_the_clock(self, lab: Lab) -> None:
        """A batch of the second try has the first try's `current_timestamp()`."""
        die_in_second_batch(lab)
        planned_at = lab.now
        lab.now += timedelta(days=1)
        lab.arrive(3)
        record = lab.run(run_key="key")
        assert record.planned_at < planned_at
        state = lab.state()
        assert state.planned is not None
        assert (state.planned_id, state.planned.timestamp_ms) == (2, int(record.planned_at.timestamp() * 1000))

    def test_it_keeps_the_bound(self, lab: Lab) -> None:
        """What arrived at or after the first try's bound waits, whatever bound the retry comes with."""
        die_in_second_batch(lab, until(5))
        lab.arrive(4)
        lab.arrive(5)
        record = lab.run(until(9), "key")
        assert lab.sink.ids() == {0: 1, 1: 1, 2: 1}
        assert record.until == EPOCH + timedelta(seconds=5)

    def test_it_keeps_the_strategy(self, lab: Lab) -> None:
        """What was left to Spark is left to it again, whoever retries without saying so."""
        lab.arrive(1)
        with pytest.raises(KilledError):
            lab.run(Limits(strategy="drain"), "key", observer=Watcher(on_plan=lab.fault.kill))
        assert lab.prepare(run_key="key").plan.strategy == "drain"

    def test_without_a_bound_it_takes_what_was_there_at_first(self, lab: Lab) -> None:
        """A first try without a bound is bounded by its own time."""
        die_in_second_batch(lab)
        planned_at = datetime.fromisoformat(lab.records()[0]["planned_at"])
        lab.arrive((planned_at - EPOCH).total_seconds())
        lab.run(run_key="key")
        assert lab.sink.ids() == {0: 1, 1: 1}

    def test_it_is_one_record(self, lab: Lab) -> None:
        """The record counts the tries and has every batch."""
        die_in_second_batch(lab)
        first = lab.records()[0]
        assert (first["status"], first["tries"], [batch["batch_id"] for batch in first["batches"]]) == (
            "running",
            1,
            [0],
        )
        record = lab.run(run_key="key")
        assert (record.status, record.tries, record.run_id) == ("succeeded", 2, first["run_id"])
        assert [(batch.batch_id, batch.kind) for batch in record.batches] == [(0, "data"), (1, "uncommitted")]
        assert len(lab.records()) == 1

    def test_what_is_kept_for_the_next_driver(self, lab: Lab) -> None:
        """The tries count on, and the driver of the try before, which may yet wake up, writes the record no more."""
        die_in_second_batch(lab)
        records = RunRecords(lab.project.stream_home(lab.stream))
        earlier = records.read(lab.records()[0]["run_id"])
        assert earlier is not None

        kept = lab.prepare(run_key="key")

        assert (kept.run_id, kept.status, kept.tries) == (earlier.run_id, "planned", 1)
        assert (earlier.token, kept.token) == (1, 2)
        with pytest.raises(LeaseLostError):
            records.save(earlier)
        assert records.read(kept.run_id) == kept
        assert lab.run(run_key="key").token == 2

    def test_an_earlier_success_is_the_answer(self, lab: Lab) -> None:
        """The retry of a run that succeeded gives its record, and takes nothing new."""
        lab.arrive(1)
        first = lab.run(until(5), "key")
        lab.arrive(2)
        assert lab.prepare(until(5), "key") == first
        assert lab.run(until(5), "key") == first
        assert lab.sink.ids() == {0: 1}

    def test_an_earlier_try_that_did_all_is_closed(self, lab: Lab) -> None:
        """A driver that died after its last commit has left nothing to do: its record is closed as a success."""
        lab.arrive(1)
        lab.dies_at = "after the commit"
        with pytest.raises(KilledError):
            lab.run(run_key="key")
        record = lab.prepare(run_key="key")
        assert record is not None
        assert record.status == "succeeded"
        assert [found["status"] for found in lab.records()] == ["succeeded"]
        assert not (lab.home / "checked.json").exists()

    def test_another_key_is_another_run(self, lab: Lab) -> None:
        """A run under another key has its own record, bound and clock; it finishes what is pending first."""
        die_in_second_batch(lab, until(5))
        lab.arrive(6)
        record = lab.run(until(9), "other")
        assert [batch.kind for batch in record.batches] == ["uncommitted", "data"]
        assert lab.sink.ids() == {0: 1, 1: 1, 2: 1}
        assert [found["run_key"] for found in lab.records()] == ["key", "other"]

    def test_keys_that_share_a_suffix_are_told_apart(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        """The end of a run id is only a hint: the record's own key decides."""
        monkeypatch.setattr("sluice.runs.record._key_suffix", lambda key: "-00000000")
        lab.arrive(1)
        first = lab.run(run_key="key")
        lab.arrive(2)
        second = lab.run(run_key="other")
        assert (first.run_key, second.run_key) == ("key", "other")
        assert lab.sink.ids() == {0: 1, 1: 1}

    def test_an_error_of_spark_is_in_the_record(self, lab: Lab) -> None:
        """A batch that Spark fails fails the run, with Spark's words, and the retry repeats it as planned."""
        lab.arrive(1)
        lab.fails_at = "before the commit"
        with pytest.raises(BatchFailedError, match="before the commit"):
            lab.run(run_key="key")
        lab.fails_at = None
        (record,) = lab.records()
        assert (record["status"], record["error"]["type"], record["error"]["retryable"]) == (
            "failed",
            "BatchFailedError",
            True,
        )
        lab.run(run_key="key")
        (record,) = lab.records()
        assert (record["status"], record["error"]) == ("succeeded", None)
        assert lab.sink.ids() == {0: 1}


class TestSecondTry:
    """What a retry does about what the first try left."""

    def test_max_batches_holds_for_the_run(self, lab: Lab) -> None:
        """The batches of all tries together are no more than the run may have."""
        lab.arrive(3)
        die_in_second_batch(lab, Limits(max_batches=2))
        lab.run(Limits(max_batches=2), "key")
        assert lab.state().planned_id == 1

    def test_max_batches_holds_for_any_number_of_tries(self, lab: Lab) -> None:
        """A batch that two tries died in still counts as one of the run's own."""
        lab.arrive(3)
        die_in_second_batch(lab, Limits(max_batches=2))
        lab.dies_at = "before the sink"
        with pytest.raises(KilledError):
            lab.run(Limits(max_batches=2), "key")
        lab.run(Limits(max_batches=2), "key")
        assert lab.state().planned_id == 1

    def test_a_batch_of_another_run_is_not_this_ones(self, lab: Lab) -> None:
        """What another run did between two tries stands in that run's record only."""
        lab.arrive(1)
        with pytest.raises(KilledError):
            lab.run(run_key="key", observer=Watcher(on_plan=lab.fault.kill))
        assert lab.state().planned_id is None
        lab.run()
        lab.run(run_key="key")
        batches = {record["run_key"]: [batch["batch_id"] for batch in record["batches"]] for record in lab.records()}
        assert batches == {"key": [], None: [0]}

    def test_the_record_has_every_batch_that_was_committed(self, lab: Lab) -> None:
        """Also the one whose commit was the last thing that the driver did."""
        lab.arrive(1)
        lab.arrive(2)
        lab.dies_at = "after the commit"
        with pytest.raises(KilledError):
            lab.run(run_key="key")
        record = lab.run(run_key="key")
        assert [batch.batch_id for batch in record.batches] == [0, 1]

    def test_a_success_has_no_error(self, lab: Lab) -> None:
        """A retry that finds all done closes the record without the first try's error."""
        lab.arrive(1)

        def fail() -> None:
            raise BatchFailedError("lost the connection")

        with pytest.raises(BatchFailedError):
            lab.run(run_key="key", observer=Watcher(fail))
        record = lab.prepare(run_key="key")
        assert record is not None
        assert (record.status, record.error) == ("succeeded", None)

    def test_a_drained_run_can_be_tried_again(self, tmp_path: Path) -> None:
        """A run whose batches Spark decides is not bounded by its retry either."""
        write_deltalake(tmp_path / "table", pa.table({"id": [0]}))
        declared = {"table": sources.delta(str(tmp_path / "table"), with_event_time_order=True)}
        lab = Lab(tmp_path, make_stream(tmp_path, declared))
        lab.dies_at = "before the sink"
        with pytest.raises(KilledError):
            lab.run(run_key="key")
        assert lab.run(run_key="key").status == "succeeded"


class TestItWaitsForOthers:
    """A run whose plan is made by its driver, once the streams that it reads are done."""

    def reserve(self, lab: Lab, limits: Limits = EVERYTHING) -> RunRecord:
        return reserve_run(lab.project, lab.request(limits, "key"), ["a", "b"], clock=lab.clock)

    def test_it_is_planned_by_its_own_time(self, lab: Lab) -> None:
        """It takes what has come since it was asked for, with the limits it was asked for with."""
        asked = self.reserve(lab, Limits(max_batches=1))
        assert (asked.status, asked.tries, asked.after) == ("planned", 0, ("a", "b"))
        assert asked.plan.reason == "planned when `a`, `b` are done"
        assert self.reserve(lab, Limits(max_batches=1)).run_id == asked.run_id
        lab.now += timedelta(minutes=1)
        lab.arrive(3630)
        lab.arrive(3640)

        record = lab.run(run_key="key")

        assert (record.run_id, record.status, record.after) == (asked.run_id, "succeeded", ())
        assert len(record.batches) == 1
        assert record.planned_at >= asked.planned_at + timedelta(minutes=1)

    @pytest.mark.parametrize("was", ["planned by itself", "to wait for another one"])
    def test_what_nobody_has_begun_is_reserved_anew(self, lab: Lab, was: str) -> None:
        """Whoever asked before died; by now, other streams have something to do, and another limit may be given."""
        if was == "planned by itself":
            lab.arrive(3600)
            before = prepare_run(lab.project, lab.request(EVERYTHING, "key"), clock=lab.clock)
        else:
            before = reserve_run(lab.project, lab.request(EVERYTHING, "key"), ["c"], clock=lab.clock)
        lab.now += timedelta(minutes=1)
        lab.arrive(3630)

        asked = self.reserve(lab, Limits(max_batches=7))

        assert (asked.run_id, asked.status, asked.tries) == (before.run_id, "planned", 0)
        assert (asked.after, asked.max_batches) == (("a", "b"), 7)
        assert [record["run_id"] for record in lab.records()] == [asked.run_id]
        record = lab.run(run_key="key")
        # All that there is by its turn: also what came after it was planned first.
        assert len(record.batches) == (2 if was == "planned by itself" else 1)

    @pytest.mark.parametrize("status", ["planned", "failed", "succeeded"])
    def test_what_was_tried_before_is_left_as_it_is(self, lab: Lab, status: Any) -> None:
        """Its own task goes on with it, or tells what came of it."""
        records = RunRecords(lab.project.stream_home(lab.stream))
        records.save(before := msgspec.structs.replace(self.reserve(lab), status=status, tries=1, after=()))

        assert self.reserve(lab, Limits(max_batches=7)) == before == records.read(before.run_id)

    def test_a_retry_keeps_the_bound_of_the_first_try(self, lab: Lab) -> None:
        """That is the time when it was planned, not when it was asked for."""
        self.reserve(lab)
        lab.now += timedelta(minutes=1)
        lab.arrive(3630)
        lab.fails_at = "before the sink"
        with pytest.raises(BatchFailedError):
            lab.run(run_key="key")
        lab.fails_at = None
        lab.now += timedelta(minutes=1)
        lab.arrive(3700)

        record = lab.run(run_key="key")

        assert (record.status, record.tries, len(record.batches)) == ("succeeded", 2, 1)

    def test_nothing_has_come_of_them(self, lab: Lab) -> None:
        """Then it is a skip, which leaves no record."""
        self.reserve(lab)
        assert lab.run(run_key="key").status == "skipped"
        assert lab.records() == []


class TestPlannedAndLost:
    """A run that was planned for a driver, and that nobody is going to begin: nobody else would ever say so."""

    def plan(self, lab: Lab, **driver: Any) -> RunRecord:
        """A run of another task, whose worker, and whose driver, if there was one, have gone since."""
        lab.arrive()
        planned = prepare_run(lab.project, lab.request(EVERYTHING, "another"), clock=lab.clock)
        if driver:
            started = {"machine": machine(), "boot_id": boot_id(), "log": "", "submitted_at": lab.now, **driver}
            home = lab.project.stream_home(lab.stream)
            document = encode_document(Driver(run_id=planned.run_id, **started))
            home.storage.replace(f"{home.drivers_folder()}/{planned.run_id}.json", document)
        return planned

    @pytest.mark.parametrize(
        ("driver", "after"),
        [
            ({"process": Process(2**30, 1)}, timedelta()),
            ({"process": Process(1, 1), "machine": "another", "is_shared": True}, timedelta(days=2)),
            ({"process": None}, timedelta(days=2)),
            ({}, timedelta(days=2)),
        ],
        ids=["ended", "elsewhere, long ago", "never seen, long ago", "never started, long ago"],
    )
    def test_who_comes_next_tells_it(self, lab: Lab, driver: dict[str, Any], after: timedelta) -> None:
        """Its record is closed as that of a run that died is, under the lease; its own task may still run it."""
        planned = self.plan(lab, **driver)
        lab.now += after

        lab.run(run_key="key")

        first, second = lab.records()
        assert (first["run_id"], first["status"], first["tries"]) == (planned.run_id, "failed", 0)
        assert "nobody has begun it, and its driver is gone" in first["error"]["message"]
        assert second["status"] == "succeeded"
        lab.arrive()
        assert lab.run(run_key="another").run_id == planned.run_id

    def test_a_plan_whose_driver_is_about_to_be_started(self, lab: Lab) -> None:
        """The driver that is gone was that of a plan before."""
        before = lab.now - timedelta(seconds=1)
        planned = self.plan(lab, process=Process(2**30, 1), submitted_at=before)

        lab.run(run_key="key")

        assert {record["run_id"]: record["status"] for record in lab.records()}[planned.run_id] == "planned"

    @pytest.mark.parametrize(
        ("driver", "after"),
        [
            ({"process": process(os.getpid())}, timedelta(days=2)),
            ({"process": Process(1, 1), "machine": "another", "is_shared": True}, timedelta(hours=2)),
            ({}, timedelta(hours=2)),
        ],
        ids=["at work", "elsewhere", "not started yet"],
    )
    def test_what_may_yet_have_its_turn_is_left(self, lab: Lab, driver: dict[str, Any], after: timedelta) -> None:
        """A driver of several streams may be at work on another one, for as long as that takes."""
        planned = self.plan(lab, **driver)
        lab.now += after

        lab.run(run_key="key")

        first, _ = lab.records()
        assert (first["run_id"], first["status"]) == (planned.run_id, "planned")

    @pytest.mark.parametrize("folder", ["drivers", "runs"])
    def test_what_is_damaged_is_no_reason_to_fail(self, lab: Lab, folder: str) -> None:
        """Of a run that is not this one; a person has to look at it."""
        planned = self.plan(lab, process=None)
        damaged = lab.home / folder / f"{planned.run_id}.json"
        damaged.write_text("{")
        lab.now += timedelta(days=2)

        assert lab.run().status == "succeeded"
        assert damaged.read_text() == "{"

    def test_a_retry_is_not_lost(self, lab: Lab) -> None:
        """Whoever begins the run that was planned goes on with its record."""
        planned = self.plan(lab, process=Process(2**30, 1))
        lab.now += timedelta(days=2)

        record = lab.run(run_key="another")

        assert (record.run_id, record.status) == (planned.run_id, "succeeded")
