"""Where Spark alone decides the batches: what of a bound gives way, and when nothing is new."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice import sources
from sluice.errors import DeclarationError
from sluice.plan import Plan
from sluice.planning.explain import explain
from sluice.planning.planner import Limits
from sluice.planning.verdict import plan_stream
from sluice.sources.contract import Available, Bound, Position, Source, TellingSource
from sluice.sources.delta.offset import Offset, write_offset
from sluice.sources.delta.source import DeltaSource
from tests.unit.engine_lab import EPOCH, Lab, make_lab, make_stream

INTERVAL = Limits(Bound(EPOCH), is_default_bound=True)
"""As Airflow bounds a run by the end of a data interval."""
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "event time order": {"with_event_time_order": True},
    "tracked schema": {"schema_tracking_location": "schema"},
}
"""What makes a Delta source one whose batches only Spark decides."""


def write(root: Path, *numbers: int) -> str:
    """A version of the table more, with these rows."""
    location = str(root / "table")
    write_deltalake(location, pa.table({"id": pa.array(numbers, pa.int64())}), mode="append")
    return location


def fed_lab(root: Path, **others: Source) -> Lab:
    """A stream of a table of one version, whose batches Spark decides, and of other sources."""
    return Lab(
        root, make_stream(root, {"changes": sources.delta(write(root, 0), with_event_time_order=True), **others})
    )


def committed_at(root: Path, offset: str, declared: Mapping[str, Source]) -> Lab:
    """A stream of one source, whose checkpoint has committed a batch that ended at an offset."""
    lab = make_lab(root)
    lab.arrive()
    lab.engine().once()
    file = lab.checkpoint / "offsets" / "0"
    version, metadata, _ = file.read_text().split("\n")
    file.write_text(f"{version}\n{metadata}\n{offset}")
    shutil.rmtree(lab.checkpoint / "sources")
    lab.stream = lab.project.resolve(replace(lab.stream, sources=declared))
    return lab


def read_up_to(root: Path, version: int, index: int = -1, **options: Any) -> Lab:
    """A stream that has read the table up to an offset, which is before `version` unless an index is given."""
    lab = Lab(root, make_stream(root, {"changes": sources.delta(str(root / "table"))}))
    lab.run()
    offset = write_offset(Offset(str(DeltaTable(str(root / "table")).metadata().id), version, index))
    file = lab.checkpoint / "offsets" / "0"
    file.write_text("\n".join([*file.read_text().split("\n")[:2], offset]))
    declared = {"changes": sources.delta(str(root / "table"), **options)}
    lab.stream = lab.project.resolve(replace(lab.stream, sources=declared))
    return lab


class TestBound:
    def test_the_end_of_an_interval_gives_way(self, tmp_path: Path) -> None:
        """It bounds nothing where Spark decides the batches; plan, document and words say of which source."""
        plan = fed_lab(tmp_path).plan(INTERVAL)

        assert (plan.verdict, plan.strategy, plan.until, plan.unbounded) == ("run", "drain", None, ("changes",))
        assert plan.document.unbounded == ("changes",)
        assert plan.reason == (
            "Spark alone knows the offsets of a Delta source with `withEventTimeOrder`: Spark decides the batches;"
            " not bounded by the data interval: `changes`"
        )
        assert "not bounded by the data interval: `changes`" in next(iter(explain(plan)))

    def test_a_version_of_a_task_before_gives_way(self, tmp_path: Path) -> None:
        """Which nobody has typed either."""
        plan = fed_lab(tmp_path).plan(Limits(Bound(to_version=0), is_default_bound=True))
        assert (plan.verdict, plan.unbounded) == ("run", ("changes",))

    @pytest.mark.parametrize("bound", [Bound(EPOCH), Bound(to_version=0)])
    def test_what_somebody_types_is_kept_or_refused(self, tmp_path: Path, bound: Bound) -> None:
        """The remedy names the way without a bound."""
        with pytest.raises(DeclarationError, match="AvailableNow keeps no bound") as refused:
            fed_lab(tmp_path).plan(Limits(bound))
        assert 'trigger="available-now"' in str(refused.value)

    def test_a_limit_of_batches_is_typed(self, tmp_path: Path) -> None:
        """It does not give way with the interval's end."""
        with pytest.raises(DeclarationError, match="AvailableNow keeps no bound"):
            fed_lab(tmp_path).plan(replace(INTERVAL, max_batches=1))

    def test_what_can_be_bounded_is(self, tmp_path: Path) -> None:
        """Of a stream whose batches are planned, the interval's end holds."""
        lab = make_lab(tmp_path)
        lab.arrive(-1)
        lab.arrive(1)
        plan = lab.plan(INTERVAL)
        assert (plan.strategy, plan.until, plan.unbounded) == ("exact", EPOCH, ())
        assert plan.batches[0].sources["landing"].amount["files"] == 1
        assert "unbounded" not in plan_keys(plan)

    def test_one_source_takes_the_bound_of_all(self, tmp_path: Path) -> None:
        """Spark drains all of a query: also files that could be bounded, which the words say."""
        (tmp_path / "landing").mkdir()
        files = sources.files(str(tmp_path / "landing"), format="json", schema="id bigint")
        plan = fed_lab(tmp_path, landing=files).plan(INTERVAL)
        assert plan.reason.endswith("; not bounded by the data interval: `changes`, `landing`")

    def test_what_lies_beyond_the_bound_counts(self, tmp_path: Path) -> None:
        """A file that Spark would read wrongly is drained with the others, whatever its time."""
        (tmp_path / "landing").mkdir()
        files = sources.files(str(tmp_path / "landing"), format="json", schema="id bigint")
        lab = fed_lab(tmp_path, landing=files)
        lab.arrive(1, name="a[1].json", source="landing")
        with pytest.raises(DeclarationError, match="for a pattern"):
            lab.plan(INTERVAL)

    def test_a_retry_knows_it_too(self, tmp_path: Path) -> None:
        """The driver, and a later try, find in the record that nobody has typed the bound."""
        lab = fed_lab(tmp_path)
        record = lab.prepare(INTERVAL, run_key="key")
        assert (record.is_default_bound, record.until, record.plan.unbounded) == (True, EPOCH, ("changes",))

        again = plan_stream(lab.project, lab.request(Limits(), "key"), clock=lab.clock)
        assert (again.verdict, again.unbounded) == ("run", ("changes",))


class TestIdle:
    @pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
    def test_nothing_new_needs_no_spark(self, tmp_path: Path, options: Mapping[str, Any]) -> None:
        """The table's newest version is the one that was read last; the next one begins a run."""
        write(tmp_path, 0)
        lab = read_up_to(tmp_path, 1, **options)
        plan = lab.plan()
        assert (plan.verdict, plan.reason, plan.stages) == ("skip", "nothing new", ())

        write(tmp_path, 1)
        plan = lab.plan()
        assert (plan.verdict, plan.strategy) == ("run", "drain")

    def test_in_the_midst_of_a_version(self, tmp_path: Path) -> None:
        """How much of it is left is Spark's to know: it looks."""
        write(tmp_path, 0)
        assert read_up_to(tmp_path, 0, 0, with_event_time_order=True).plan().verdict == "run"

    def test_what_is_noted_of_what_was_read(self, tmp_path: Path) -> None:
        """A driver that died before it had noted it leaves that to a run: an older copy would go unseen."""
        write(tmp_path, 0)
        lab = read_up_to(tmp_path, 1, with_event_time_order=True)
        home = lab.project.stream_home(lab.stream)
        known = home.generation(1)
        assert known is not None
        home.keep_generation(msgspec.structs.replace(known, marks={}))
        assert lab.plan().verdict == "run"

    def test_a_version_without_rows(self, tmp_path: Path) -> None:
        """Spark has to pass over it: what it changes of a table is not told from here."""
        write(tmp_path, 0)
        lab = read_up_to(tmp_path, 1, with_event_time_order=True)
        DeltaTable(str(tmp_path / "table")).alter.set_table_properties(
            {"delta.logRetentionDuration": "interval 9 days"}
        )
        assert lab.plan().verdict == "run"

    def test_a_skip_within_an_interval(self, tmp_path: Path) -> None:
        """It ends in the worker, and was looked at up to the end of the interval."""
        write(tmp_path, 0)
        lab = read_up_to(tmp_path, 1, with_event_time_order=True)
        record = lab.prepare(INTERVAL, run_key="key")
        assert record.status == "skipped"
        checked = lab.project.stream_home(lab.stream).checked()
        assert checked is not None
        assert (checked.reason, checked.until) == ("nothing new", EPOCH)

    def test_every_source_has_to_be_idle(self, tmp_path: Path) -> None:
        """A first run of a table has its rows to read, whatever the others have."""
        (tmp_path / "landing").mkdir()
        files = sources.files(str(tmp_path / "landing"), format="json", schema="id bigint")
        assert fed_lab(tmp_path, landing=files).plan().verdict == "run"

    def test_what_starts_with_the_next_change(self, tmp_path: Path) -> None:
        """A first run that begins at the latest version has nothing to do yet, with files that have not come."""
        (tmp_path / "landing").mkdir()
        files = sources.files(str(tmp_path / "landing"), format="json", schema="id bigint")
        latest = sources.delta(write(tmp_path, 0), with_event_time_order=True, starting="latest")
        lab = Lab(tmp_path, make_stream(tmp_path, {"changes": latest, "landing": files}))
        assert lab.plan().verdict == "skip"
        lab.arrive(source="landing")
        assert lab.plan().verdict == "run"

    def test_a_source_that_can_not_tell_says_so(self, tmp_path: Path) -> None:
        """Of a format that only Spark knows, each run begins Spark, and its reason says why."""
        declared: dict[str, Source] = {"rows": sources.other("rate")}
        lab = committed_at(tmp_path, "{}", declared)
        plan = lab.plan()
        assert plan.verdict == "run"
        assert plan.reason.endswith("format `rate`: Spark decides the batches, and whether `rows` has anything new")

    def test_an_own_source_tells_by_what_it_can(self, tmp_path: Path) -> None:
        """Where it bears the contract, it is asked; without it, nothing is taken from it."""
        source = cast("DeltaSource", sources.delta(write(tmp_path, 0), with_event_time_order=True))
        assert isinstance(source, TellingSource)
        assert source.is_idle(Available(steps=(), unplannable="why"), Position(None))
        assert not isinstance(sources.other("rate"), TellingSource)

    def test_a_batch_that_is_due_without_data(self, tmp_path: Path) -> None:
        """A batch that was planned and not committed is finished first, whatever is new."""
        write(tmp_path, 0)
        lab = read_up_to(tmp_path, 1, with_event_time_order=True)
        shutil.copyfile(lab.checkpoint / "offsets" / "0", lab.checkpoint / "offsets" / "1")
        plan = lab.plan()
        assert (plan.verdict, [batch.kind for batch in plan.batches]) == ("resume", ["uncommitted"])

    def test_a_table_that_is_away_is_not_idle(self, tmp_path: Path) -> None:
        """Where it can't be looked at, it is Spark's to say."""
        write(tmp_path, 0)
        lab = read_up_to(tmp_path, 1, with_event_time_order=True)
        (tmp_path / "table" / "_delta_log" / f"{0:020d}.json").write_text("damaged")
        lab.now += timedelta(hours=1)
        assert lab.plan(Limits(strategy="drain")).verdict == "run"


def plan_keys(plan: Plan) -> set[str]:
    return set(msgspec.to_builtins(plan.document))
