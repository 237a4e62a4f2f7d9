"""Verdicts, reasons, strategies and batches."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sluice import sinks, sources
from sluice.errors import DeclarationError, StorageError
from sluice.planning.planner import Limits
from sluice.planning.verdict import plan_stream
from sluice.sources.contract import Bound
from tests.builders import put
from tests.engine_model import HeldRows
from tests.unit.engine_lab import (
    EPOCH,
    AppendingSink,
    Lab,
    TransactionalSink,
    change_json,
    leave_pending,
    make_lab,
    make_stream,
    until,
    write_v2_offsets,
)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A stream of one source; nothing has arrived."""
    return make_lab(tmp_path)


class TestDataBatches:
    def test_a_first_run_begins_at_batch_0(self, lab: Lab) -> None:
        """Everything that has arrived goes into batch 0, from no offset to log entry 0."""
        lab.arrive(1, rows=2)
        lab.arrive(2)
        plan = lab.plan()
        (batch,) = plan.batches
        source = batch.sources["landing"]
        assert (plan.verdict, plan.strategy, plan.reason) == ("run", "exact", "`landing`: 2 new files")
        assert (batch.batch_id, batch.kind) == (0, "data")
        assert (source.start, source.end, source.amount["files"]) == (None, '{"logOffset":0}', 2)

    def test_a_later_run_begins_after_the_committed_batch(self, lab: Lab) -> None:
        """The next batch starts where the newest one ended."""
        lab.arrive()
        lab.run()
        lab.arrive()
        (batch,) = lab.plan().batches
        source = batch.sources["landing"]
        assert (batch.batch_id, source.start, source.end) == (1, '{"logOffset":0}', '{"logOffset":1}')

    def test_limits_cut_batches_that_follow_each_other(self, tmp_path: Path) -> None:
        """With a limit of two files, five files make three batches, each starting at the end of the one before."""
        lab = make_lab(tmp_path, max_files_per_batch=2)
        for second in range(5):
            lab.arrive(second)
        batches = lab.plan().batches
        found = [batch.sources["landing"] for batch in batches]
        assert [batch.batch_id for batch in batches] == [0, 1, 2]
        assert [source.amount["files"] for source in found] == [2, 2, 1]
        assert [source.start for source in found[1:]] == [source.end for source in found[:-1]]

    def test_max_batches_counts_data_batches(self, tmp_path: Path) -> None:
        """A run of at most one batch plans one data batch, beside the one that is pending."""
        lab = make_lab(tmp_path, max_files_per_batch=1)
        leave_pending(lab)
        for _ in range(3):
            lab.arrive()
        kinds = [batch.kind for batch in lab.plan(Limits(max_batches=1)).batches]
        assert kinds == ["uncommitted", "data"]

    def test_a_source_with_nothing_more_repeats_its_offset(self, tmp_path: Path) -> None:
        """With two files here and one there, the second batch takes nothing from there."""
        lab = make_lab(tmp_path, names=("a", "b"), max_files_per_batch=1)
        lab.arrive(source="a")
        lab.arrive(source="a")
        lab.arrive(source="b")
        _, second = lab.plan().batches
        assert second.sources["a"].end == '{"logOffset":1}'
        assert second.sources["b"].is_empty
        assert second.sources["b"].end == '{"logOffset":0}'

    def test_a_source_that_never_had_anything_has_no_offset(self, tmp_path: Path) -> None:
        """A source without a file yet goes from none to none."""
        lab = make_lab(tmp_path, names=("a", "b"))
        lab.arrive(source="a")
        (batch,) = lab.plan().batches
        assert (batch.sources["b"].start, batch.sources["b"].end) == (None, None)

    def test_an_entry_that_only_the_source_log_has_is_adopted(self, lab: Lab) -> None:
        """After a crash between the two logs, the next batch takes what the source's log took, and logs it no more."""
        leave_pending(lab, point="before the offsets")
        lab.arrive()
        adopted, new = [batch.sources["landing"] for batch in lab.plan().batches]
        assert (adopted.end, adopted.added.is_there) == ('{"logOffset":0}', True)
        assert [Path(entry.path).stem for entry in adopted.added.entries] == ["00000"]
        assert (new.end, new.added.is_there) == ('{"logOffset":1}', False)

    def test_the_bound_is_exclusive(self, lab: Lab) -> None:
        """A file of exactly the bound's time waits for the next run."""
        lab.arrive(4)
        lab.arrive(5)
        plan = lab.plan(until(5))
        assert [batch.sources["landing"].amount["files"] for batch in plan.batches] == [1]
        assert plan.reason == "`landing`: 1 new file before 2026-01-01T00:00:05+00:00"

    def test_the_clock_of_the_batches_is_the_plans(self, lab: Lab) -> None:
        """Every batch runs with the time of planning."""
        lab.arrive()
        (batch,) = lab.plan().batches
        assert batch.timestamp_ms == int(lab.now.timestamp() * 1000)

    def test_the_clock_never_goes_back(self, lab: Lab) -> None:
        """A machine whose clock is behind plans with the time of the batch before."""
        lab.arrive()
        lab.run()
        planned = lab.state().planned
        assert planned is not None
        lab.now -= timedelta(days=1)
        lab.arrive()
        assert lab.plan().batches[0].timestamp_ms == planned.timestamp_ms

    def test_the_rows_of_a_batch_are_those_of_the_sources_that_move(self, tmp_path: Path) -> None:
        """A file source does not know its rows, so a batch that takes files of it does not either."""
        lab = make_lab(tmp_path, names=("a", "b"))
        lab.arrive(source="a")
        assert lab.plan().batches[0].rows is None


class TestSkip:
    def test_nothing_has_arrived(self, lab: Lab) -> None:
        """Without input there is nothing to do."""
        plan = lab.plan()
        assert (plan.verdict, plan.reason, plan.batches) == ("skip", "nothing new", ())

    def test_everything_was_taken(self, lab: Lab) -> None:
        """After a run there is nothing to do."""
        lab.arrive()
        lab.run()
        assert lab.plan().verdict == "skip"

    def test_nothing_below_the_bound(self, lab: Lab) -> None:
        """What arrived after the bound is not for this run, and the reason says so."""
        lab.arrive(7)
        plan = lab.plan(until(7))
        reason = "nothing new before 2026-01-01T00:00:07+00:00; left to a later run: 1 file that arrived after that"
        assert (plan.verdict, plan.reason) == ("skip", reason)


class TestResume:
    def test_a_planned_batch_runs_again_as_logged(self, lab: Lab) -> None:
        """The plan begins with the uncommitted batch: its offsets and its clock are those of the log."""
        leave_pending(lab)
        planned = lab.state().planned
        plan = lab.plan()
        (batch,) = plan.batches
        assert planned is not None
        assert (plan.verdict, plan.reason) == ("resume", "batch 0 was planned and not committed")
        assert (batch.batch_id, batch.kind, batch.timestamp_ms) == (0, "uncommitted", planned.timestamp_ms)
        assert (batch.sources["landing"].start, batch.sources["landing"].end) == (None, '{"logOffset":0}')

    def test_what_is_new_comes_after_it(self, lab: Lab) -> None:
        """The uncommitted batch takes nothing of what has arrived since."""
        leave_pending(lab)
        lab.arrive()
        plan = lab.plan()
        assert [batch.kind for batch in plan.batches] == ["uncommitted", "data"]
        assert plan.reason == "batch 0 was planned and not committed; `landing`: 1 new file"

    def test_it_runs_again_also_when_its_files_lie_beyond_the_bound(self, lab: Lab) -> None:
        """What was planned once is run, whatever the bound of the next run is."""
        leave_pending(lab, seconds=9)
        assert [batch.kind for batch in lab.plan(until(1)).batches] == ["uncommitted"]

    def test_a_lost_input_refuses(self, lab: Lab) -> None:
        """A planned file that is gone would be read as empty: the plan names it."""
        leave_pending(lab)
        file = next(Path(lab.stream.sources["landing"].location).iterdir())
        file.unlink()
        plan = lab.plan()
        assert plan.problem is not None
        assert (plan.verdict, plan.problem.code, plan.problem.file) == ("refuse", "INPUT_GONE", f"file://{file}")

    def test_a_committed_input_may_be_gone(self, lab: Lab) -> None:
        """Files of committed batches are not needed any more."""
        lab.arrive()
        lab.run()
        next(Path(lab.stream.sources["landing"].location).iterdir()).unlink()
        assert lab.plan().verdict == "skip"


class TestNoData:
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        """A stream with state, one batch of which has raised the watermark."""
        lab = make_lab(tmp_path, operator=HeldRows(delay_ms=10))
        lab.arrive(at_ms=100)
        lab.engine().once()
        return lab

    def test_a_watermark_that_passed_state_makes_one_due(self, lab: Lab) -> None:
        """Spark's Once leaves the last windows open; the plan closes them with a batch that takes nothing."""
        plan = lab.plan()
        (batch,) = plan.batches
        assert (plan.verdict, batch.kind, batch.batch_id) == ("run", "no_data", 1)
        assert batch.sources["landing"].start == batch.sources["landing"].end == '{"logOffset":0}'
        assert plan.reason.startswith("nothing new, but the watermark has passed state")

    def test_it_is_due_below_a_bound_too(self, lab: Lab) -> None:
        """The bound is about what arrives."""
        assert [batch.kind for batch in lab.plan(until(0)).batches] == ["no_data"]

    def test_data_comes_first(self, lab: Lab) -> None:
        """With new data no such batch is planned: the runner decides after the last one."""
        lab.arrive(at_ms=50)
        assert [batch.kind for batch in lab.plan().batches] == ["data"]

    def test_once_it_ran_nothing_is_due(self, lab: Lab) -> None:
        """After it the watermark of the newest batch is the committed one."""
        lab.run()
        assert lab.plan().verdict == "skip"

    def test_the_watermark_never_goes_back(self, lab: Lab) -> None:
        """A commit that says less than its batch ran with does not bring back rows that were late."""
        lab.run()
        before = lab.state().next_watermark_ms
        change_json(lab.checkpoint / "commits" / "1", {"nextBatchWatermarkMs": 0}, line=1)
        lab.arrive(at_ms=0)
        lab.run()
        planned = lab.state().planned
        assert planned is not None
        assert (planned.watermark_ms, before) == (90, 90)

    def test_without_state_none_is_due(self, tmp_path: Path) -> None:
        """A watermark that no operator waits for makes nothing due."""
        lab = make_lab(tmp_path)
        lab.arrive()
        lab.run()
        change_json(lab.checkpoint / "commits" / "0", {"nextBatchWatermarkMs": 5}, line=1)
        assert lab.plan().verdict == "skip"

    def test_in_complete_mode_none_is_due(self, lab: Lab) -> None:
        """Complete mode never closes anything."""
        lab.stream = replace(lab.stream, output_mode="complete")
        assert lab.plan().verdict == "skip"

    def test_a_timer_is_due_once_the_clock_has_passed_it(self, tmp_path: Path) -> None:
        """No JVM before: until then the plan skips, and says when."""
        lab = make_lab(tmp_path, operator=HeldRows(delay_ms=10), has_timers=True)
        due = lab.now + timedelta(minutes=1)
        lab.timer_ms = int(due.timestamp() * 1000)
        lab.arrive()
        assert [batch.kind for batch in lab.run().batches] == ["data"]
        assert lab.plan().verdict == "skip"
        assert "; the next time-out is due at 2026-01-01T01:01:00" in lab.plan().reason
        # Spark fires what is due before the clock of a batch.
        assert plan_stream(lab.project, lab.request(), clock=lambda: due).verdict == "skip"
        lab.now = due
        assert [batch.kind for batch in lab.plan().batches] == ["no_data"]
        assert lab.plan().reason == "nothing new, but a time-out is due since 2026-01-01T01:01:00.000Z"
        lab.timer_ms = None
        assert [batch.kind for batch in lab.run().batches] == ["no_data"]
        assert (lab.plan().verdict, lab.plan().reason) == ("skip", "nothing new")

    def test_a_timer_that_becomes_due_while_the_run_is_at_work(self, tmp_path: Path) -> None:
        """It fires in the same run, and once: what sets a time-out in the past would never end."""
        lab = make_lab(tmp_path, operator=HeldRows(delay_ms=10), has_timers=True, timer_ms=0)
        lab.arrive()
        assert [batch.kind for batch in lab.run().batches] == ["data", "no_data"]
        assert [batch.kind for batch in lab.plan().batches] == ["no_data"]

    def test_where_nobody_has_looked_for_timers(self, tmp_path: Path) -> None:
        """A driver that died behind its batch: there may be some."""
        lab = make_lab(tmp_path, operator=HeldRows(delay_ms=10), has_timers=True)
        lab.arrive()
        lab.run()
        home = lab.project.stream_home(lab.stream)
        known = home.generation(1)
        assert known is not None
        home.keep_generation(msgspec.structs.replace(known, timers=None))
        plan = lab.plan()
        assert [batch.kind for batch in plan.batches] == ["no_data"]
        assert plan.reason == "nothing new, but time-outs may be due: nobody has looked since the last batch"


class TestStrategy:
    def test_drain_when_it_is_asked_for(self, lab: Lab) -> None:
        """AvailableNow instead of planned batches; the plan still estimates."""
        lab.arrive()
        plan = lab.plan(Limits(strategy="drain"))
        assert (plan.verdict, plan.strategy, len(plan.batches)) == ("run", "drain", 1)

    @pytest.mark.parametrize("limits", [until(5), Limits(max_batches=1)])
    def test_drain_keeps_no_bound(self, lab: Lab, limits: Limits) -> None:
        """AvailableNow would take more than the bound allows."""
        with pytest.raises(DeclarationError, match="AvailableNow keeps no bound"):
            lab.plan(Limits(limits.bound, limits.max_batches, "drain"))

    def test_drain_never_ends_on_timers(self, tmp_path: Path) -> None:
        """Processing-time timers keep AvailableNow running for ever."""
        lab = make_lab(tmp_path, operator=HeldRows(delay_ms=10), has_timers=True)
        lab.arrive()
        lab.run()
        with pytest.raises(DeclarationError, match="never ends on processing-time timers"):
            lab.plan(Limits(strategy="drain"))

    def test_drain_does_not_know_where_a_source_starts(self, tmp_path: Path) -> None:
        """AvailableNow would take the files from before `starting` too."""
        lab = make_lab(tmp_path, starting=(EPOCH + timedelta(seconds=5)).isoformat())
        lab.arrive(9)
        with pytest.raises(DeclarationError, match="Spark takes every file"):
            lab.plan(Limits(strategy="drain"))

    def test_a_source_that_only_spark_can_plan(self, tmp_path: Path) -> None:
        """The offsets of a table in the order of its event time are Spark's alone: the run drains, and says why."""
        declared = {"table": sources.delta(delta_table(tmp_path), with_event_time_order=True)}
        plan = Lab(tmp_path, make_stream(tmp_path, declared)).plan()
        assert (plan.verdict, plan.strategy, plan.batches) == ("run", "drain", ())
        assert "withEventTimeOrder" in plan.reason

    def test_an_unreadable_source_drains(self, tmp_path: Path) -> None:
        """What Sluice can't read Spark may; the reason is in the plan, and the other sources' files are no plan."""
        with pytest.raises(StorageError, match="source `table` could not be read: the Delta table can't be read"):
            unreadable_lab(tmp_path).plan()
        plan = unreadable_lab(tmp_path / "drained").plan(Limits(strategy="drain"))
        assert (plan.verdict, plan.strategy, plan.batches) == ("run", "drain", ())
        assert plan.reason == "source `table` could not be read: Spark decides the batches"

    def test_exact_can_be_insisted_on(self, tmp_path: Path) -> None:
        """Where `exact` was asked for, a run that can't be planned does not start."""
        declared = {"table": sources.delta(delta_table(tmp_path), with_event_time_order=True)}
        lab = Lab(tmp_path, make_stream(tmp_path, declared))
        with pytest.raises(DeclarationError, match="`exact` was asked for"):
            lab.plan(Limits(strategy="exact"))

    def test_an_unreadable_source_under_a_bound_may_be_readable_later(self, tmp_path: Path) -> None:
        """A bounded run can't drain; since a retry may succeed, the error is one that is retried."""
        with pytest.raises(StorageError, match="source `table` could not be read"):
            unreadable_lab(tmp_path).plan(until(5))

    def test_offset_log_v2_drains(self, lab: Lab) -> None:
        """Only Spark writes the offset log's second format."""
        lab.arrive()
        lab.engine().once()
        write_v2_offsets(lab.checkpoint / "offsets" / "0", {"landing": '{"logOffset":0}'})
        (lab.checkpoint / "sources" / "0").rename(lab.checkpoint / "sources" / "landing")
        lab.arrive()
        plan = lab.plan()
        assert (plan.verdict, plan.strategy) == ("run", "drain")
        assert "format v2" in plan.reason

    def test_a_pending_batch_is_finished_before_draining(self, tmp_path: Path) -> None:
        """A run that Spark plans begins with the batch that was planned before."""
        lab = unreadable_lab(tmp_path, mended=True)
        leave_pending(lab, by_sluice=True)
        break_delta_table(tmp_path)
        plan = lab.plan(Limits(strategy="drain"))
        assert (plan.verdict, plan.strategy) == ("resume", "drain")
        assert [batch.kind for batch in plan.batches] == ["uncommitted"]


class TestDecisionTable:
    """The newest planned batch L and the newest committed one C, as a checkpoint of three batches can have them."""

    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        """Spark has run the batches 0, 1 and 2."""
        lab = make_lab(tmp_path, max_files_per_batch=1)
        for second in range(3):
            lab.arrive(second)
        lab.engine().available_now()
        return lab

    @pytest.mark.parametrize(
        ("gone", "verdict", "code", "names"),
        [
            pytest.param((), "skip", None, None, id="C = L"),
            pytest.param(("commits/2",), "resume", None, None, id="C = L - 1"),
            pytest.param(("commits/2", "commits/1"), "refuse", "COMMITS_MISSING", "commits/1", id="C = L - 2"),
            pytest.param(("commits/2", "commits/1", "commits/0"), "refuse", "COMMITS_MISSING", "commits/1", id="no C"),
            pytest.param(("offsets/2",), "refuse", "COMMIT_WITHOUT_OFFSETS", "offsets/2", id="C = L + 1"),
            pytest.param(("offsets/2", "offsets/1"), "refuse", "COMMIT_WITHOUT_OFFSETS", "offsets/2", id="C = L + 2"),
            pytest.param(("offsets/1",), "refuse", "OFFSETS_GAP", "offsets/1", id="no L - 1"),
            pytest.param(("offsets/0", "commits/0", "commits/1"), "skip", None, None, id="what a purge leaves"),
        ],
    )
    def test_what_is_there_decides(
        self, lab: Lab, gone: tuple[str, ...], verdict: str, code: str | None, names: str | None
    ) -> None:
        """Only C = L and C = L - 1 go on; all else refuses, and names a file."""
        for name in gone:
            folder, number = name.split("/")
            (lab.checkpoint / folder / number).unlink()
            (lab.checkpoint / folder / f".{number}.crc").unlink()
        plan = lab.plan()
        assert plan.verdict == verdict
        assert (plan.problem and plan.problem.code) == code
        assert (plan.problem and plan.problem.file) == (names and str(lab.checkpoint / names))

    @pytest.mark.parametrize("name", ["offsets/2", "commits/2", "sources/0/2"])
    def test_a_checksum_that_is_left_alone_refuses(self, lab: Lab, name: str) -> None:
        """Spark's next write of that number would fail over it, blaming a query that does not exist."""
        for folder in ("offsets", "commits", "sources/0"):
            (lab.checkpoint / folder / "2").unlink()
            if name != f"{folder}/2":
                (lab.checkpoint / folder / ".2.crc").unlink()
        problem = lab.plan().problem
        assert problem is not None
        assert (problem.code, Path(problem.file).name) == ("SIDECAR_WITHOUT_FILE", ".2.crc")


@pytest.mark.parametrize(("manifest", "told"), [(None, "none of them"), (0, "them up to 0"), (1, None)])
def test_a_manifest_that_lacks_batches_refuses(tmp_path: Path, manifest: int | None, told: str | None) -> None:
    """Somebody has deleted the folder, or has put another one there: the rows of before are in none."""
    lab = make_lab(tmp_path, sink=AppendingSink)
    for _ in range(2):
        lab.arrive()
        lab.run()
    out = Path(lab.root) / "files"
    if manifest is not None:
        put(out / "_spark_metadata" / str(manifest), "v1")
    lab.stream = replace(lab.stream, sink=sinks.files(str(out), format="json"))
    plan = lab.plan()
    if told is None:
        assert plan.problem is None
    else:
        assert plan.problem is not None
        assert plan.problem.code == "SINK_REPLACED"
        assert plan.problem.cause.endswith(told)


class TestSink:
    @pytest.fixture
    def lab(self, lab: Lab) -> Lab:
        """A stream that has run batch 0."""
        lab.arrive()
        lab.run()
        return lab

    def hold(self, lab: Lab, batch_id: int) -> None:
        lab.sink.add_batch(str(lab.state().query_id), batch_id, [{"id": -1}])

    def test_a_sink_that_is_ahead_refuses(self, lab: Lab) -> None:
        """The sink would pass over the next batch as done: its rows would be lost."""
        self.hold(lab, 1)
        lab.arrive()
        plan = lab.plan()
        assert plan.problem is not None
        assert (plan.verdict, plan.problem.code, plan.problem.file) == ("refuse", "SINK_AHEAD", lab.sink.path)
        assert plan.reason == "the sink holds batch 1, the checkpoint has planned only up to 0"

    def test_a_sink_that_holds_the_pending_batch_is_not_ahead(self, lab: Lab) -> None:
        """A crash between the sink and the commit is what resuming is for."""
        leave_pending(lab)
        self.hold(lab, 1)
        assert lab.plan().verdict == "resume"

    def test_another_querys_batches_are_not_this_ones(self, lab: Lab) -> None:
        """Batches count by query id."""
        lab.sink.add_batch("another", 9, [{"id": -1}])
        assert lab.plan().verdict == "skip"

    def test_a_replaced_sink_refuses(self, lab: Lab) -> None:
        """Another table at the sink's place lacks what was written before."""
        Path(lab.sink.path, "identity").write_text("another")
        plan = lab.plan()
        assert plan.problem is not None
        assert (plan.verdict, plan.problem.code) == ("refuse", "SINK_REPLACED")
        assert plan.reason.endswith(f"; at {lab.sink.path} there is another one now, another")

    def test_a_sink_that_is_declared_elsewhere_refuses(self, lab: Lab) -> None:
        """The message names the place of then, too: that is where the table is."""
        home = lab.project.stream_home(lab.stream)
        generation = home.generation(1)
        assert generation is not None
        home.keep_generation(generation.beginning(1, {"sink": "sink"}))
        then = replace(lab.sink, path=str(lab.root / "elsewhere"))
        lab.stream = replace(lab.stream, sink=then)
        plan = lab.plan()
        assert plan.problem is not None
        assert (plan.verdict, plan.problem.code, plan.problem.file) == ("refuse", "SINK_REPLACED", then.path)
        assert plan.reason.endswith(f" at sink; at {then.path} there is none")
        assert "declare the sink where it is" in plan.problem.remedy

    def test_a_sink_that_is_gone_refuses(self, lab: Lab) -> None:
        """So does no table at all."""
        Path(lab.sink.path, "identity").unlink()
        plan = lab.plan()
        assert plan.problem is not None
        assert (plan.verdict, plan.problem.code) == ("refuse", "SINK_REPLACED")
        assert plan.reason.endswith(f"; at {lab.sink.path} there is none")


class TestCheckpointOfAnother:
    def test_a_changed_query_id_refuses(self, lab: Lab) -> None:
        """Under another id the sink takes every batch as new; the remedy has the id."""
        lab.arrive()
        lab.run()
        query_id = lab.state().query_id
        (lab.checkpoint / "metadata").write_text('{"id":"another"}')
        plan = lab.plan()
        assert plan.problem is not None
        assert (plan.verdict, plan.problem.code) == ("refuse", "QUERY_ID_CHANGED")
        assert plan.problem.file == str(lab.checkpoint / "metadata")
        assert str(query_id) in plan.problem.remedy

    def test_a_checkpoint_with_fewer_sources_refuses(self, lab: Lab) -> None:
        """An offset file whose lines are not the query's sources is another query's."""
        lab.arrive()
        lab.run()
        offsets = lab.checkpoint / "offsets" / "0"
        offsets.write_text(offsets.read_text() + "\n-")
        plan = lab.plan()
        assert plan.problem is not None
        assert (plan.problem.code, plan.problem.file) == ("SOURCES_CHANGED", str(offsets))
        assert plan.reason == "the checkpoint has offsets of 2 sources, the query has 1"

    def test_a_source_that_is_not_declared_any_more_refuses(self, tmp_path: Path) -> None:
        """Its offsets would be taken for those of another."""
        lab = make_lab(tmp_path, names=("a", "b"))
        lab.arrive(source="b")
        lab.run()
        lab.stream = make_stream(tmp_path, {"a": lab.stream.sources["a"], "c": lab.stream.sources["b"]})
        plan = lab.plan()
        assert plan.problem is not None
        assert (plan.verdict, plan.problem.code) == ("refuse", "SOURCES_CHANGED")
        assert "b" in re.findall(r"\w+", plan.reason)

    def test_an_unknown_order_of_sources_refuses(self, tmp_path: Path) -> None:
        """Of several sources in a checkpoint that Sluice did not make, only the query tells which line is whose."""
        lab = make_lab(tmp_path, names=("a", "b"))
        lab.arrive(source="b")
        lab.engine().once()
        plan = lab.plan()
        assert plan.problem is not None
        assert (plan.verdict, plan.problem.code) == ("refuse", "SOURCE_ORDER_UNKNOWN")
        assert plan.problem.file == str(lab.checkpoint / "offsets" / "0")

    def test_a_run_learns_the_order(self, tmp_path: Path) -> None:
        """The run reads the order from the query, and goes on where Spark stopped."""
        lab = make_lab(tmp_path, names=("a", "b"), lines=("b", "a"))
        lab.arrive(source="b")
        lab.engine().once()
        lab.arrive(source="a")
        lab.run()
        assert lab.sink.ids() == {0: 1, 1: 1}
        planned = lab.state().planned
        assert planned is not None
        assert planned.offsets == {"0": '{"logOffset":0}', "1": '{"logOffset":0}'}

    def test_a_changed_order_is_refused_before_anything_is_written(self, tmp_path: Path) -> None:
        """When the transform swaps its sources, no offset is taken for the other source's."""
        lab = make_lab(tmp_path, names=("a", "b"), lines=("a", "b"))
        lab.arrive(source="a")
        lab.run()
        lab.lines = ("b", "a")
        lab.arrive(source="a")
        with pytest.raises(Exception, match="reads its sources as"):
            lab.run()
        assert lab.state().planned_id == 0
        assert lab.records()[-1]["status"] == "refused"

    def test_a_moved_source_refuses(self, lab: Lab) -> None:
        """The files of another path would all be read, also those that were moved there."""
        lab.arrive()
        lab.run()
        moved = Path(lab.stream.sources["landing"].location).rename(lab.root / "moved")
        declared = {"landing": sources.files(str(moved), format="json", schema="id bigint")}
        lab.stream = make_stream(lab.root, declared)
        plan = lab.plan()
        assert plan.problem is not None
        assert (plan.verdict, plan.problem.code, plan.problem.file) == ("refuse", "SOURCE_PATH_CHANGED", str(moved))

    def test_a_source_that_is_read_twice(self, tmp_path: Path) -> None:
        """A union of a source with itself has two lines and one log: both lines move, and the log is written once."""
        lab = make_lab(tmp_path, names=("a", "b"), lines=("a", "b", "a"))
        lab.arrive(source="a")
        lab.arrive(source="b")
        lab.run()
        assert lab.sink.ids() == {0: 2, 1: 1}
        lab.arrive(source="a")
        lab.run()
        assert lab.sink.ids() == {0: 2, 1: 1, 2: 2}
        assert lab.engine().available_now() == []


class TestBounds:
    def test_a_version_needs_a_table(self, lab: Lab) -> None:
        """A bound by version is refused where no source has versions."""
        with pytest.raises(DeclarationError, match="no source is a Delta table"):
            lab.plan(Limits(Bound(to_version=0)))

    def test_the_reason_names_the_version(self, tmp_path: Path) -> None:
        """A run up to a version says so."""
        declared = {"table": sources.delta(delta_table(tmp_path))}
        plan = Lab(tmp_path, make_stream(tmp_path, declared)).plan(Limits(Bound(to_version=0)))
        assert plan.reason == "`table`: 1 new file up to version 0"
        assert plan.batches[0].rows == 1


class TestWarnings:
    def test_what_is_left_out_is_said(self, lab: Lab) -> None:
        """A file that Spark can't read does not stop the run; the plan names it."""
        lab.arrive()
        lab.arrive(name="a:b.json")
        plan = lab.plan()
        assert (plan.verdict, plan.batches[0].sources["landing"].amount["files"]) == ("run", 1)
        assert [(problem.code, Path(problem.file).name) for problem in plan.warnings] == [
            ("NAME_UNREADABLE", "a:b.json")
        ]

    def test_a_refusal_keeps_them(self, lab: Lab) -> None:
        """Also a plan that refuses says what else was noticed."""
        lab.arrive()
        lab.run()
        Path(lab.sink.path, "identity").write_text("another")
        lab.arrive(name="a:b.json")
        plan = lab.plan()
        assert (plan.verdict, [problem.code for problem in plan.warnings]) == ("refuse", ["NAME_UNREADABLE"])

    def test_where_a_source_starts_is_part_of_the_plan(self, tmp_path: Path) -> None:
        """What `latest` means is decided once, by the plan of the first run."""
        lab = make_lab(tmp_path, starting="latest")
        lab.arrive(9)
        plan = lab.plan()
        assert plan.verdict == "skip"
        assert plan.started_at["landing"]["from_ms"] == int(lab.now.timestamp() * 1000)


def test_planning_changes_nothing(lab: Lab) -> None:
    """Neither the home nor the checkpoint nor the source has a byte more or less after planning."""
    leave_pending(lab)
    lab.arrive()
    before = snapshot(lab.root)
    lab.plan()
    lab.plan(until(5))
    assert snapshot(lab.root) == before


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def delta_table(root: Path) -> str:
    """A Delta table of one row."""
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(root / "table", pa.table({"id": [0]}))
    return str(root / "table")


def break_delta_table(root: Path) -> None:
    (root / "table" / "_delta_log" / f"{0:020d}.json").write_text("damaged")


def unreadable_lab(root: Path, *, mended: bool = False) -> Lab:
    """A stream of files and of a table whose log is damaged, unless it is `mended`."""
    (root / "landing").mkdir(parents=True)
    files = sources.files(str(root / "landing"), format="json", schema="id bigint")
    declared: dict[str, Any] = {"landing": files, "table": sources.delta(delta_table(root))}
    if not mended:
        break_delta_table(root)
    return Lab(root, make_stream(root, declared, TransactionalSink))
