"""A batch that goes into two tables, cut between their commits: what was decided is finished, whatever has changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession, functions

from sluice import Stream, sinks, sources
from sluice.auditing.audit import Audit
from sluice.errors import BatchFailedError, RefusedError
from sluice.gate import decided_batch
from sluice.sinks.delta import table
from sluice.sinks.delta.sink import DeltaSink
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_numbers
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark


class PowerCut(Exception):  # noqa: N818 - an event, no error
    """Ends a run at once."""


def power_cut(*_args: object, **_named: object) -> None:
    raise PowerCut


def same(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("bad", functions.expr("id % 4 = 3"))


def corrected(numbers: DataFrame) -> DataFrame:
    """Every row is good now, and another one is bad."""
    return numbers.withColumn("bad", functions.expr("id % 4 = 2"))


def widened(numbers: DataFrame) -> DataFrame:
    """Other columns than the batch was decided with."""
    return same(numbers).withColumn("more", functions.lit("x"))


def lowered(numbers: DataFrame) -> DataFrame:
    """Every row is good, and no table of numbers from 0 on takes it."""
    return numbers.selectExpr("id - 100 AS id", "false AS bad")


def badly_named(numbers: DataFrame) -> DataFrame:
    """A column that no Delta table takes."""
    return same(numbers).withColumn("a name", functions.lit("x"))


def by_a_table(numbers: DataFrame) -> DataFrame:
    """What is bad stands in a table, which others write."""
    known = SparkSession.active().read.format("delta").load(BAD[0])
    return numbers.join(known, "id", "left").withColumn("bad", functions.expr("bad IS NOT NULL"))


BAD: list[str] = []


def by_chance(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("bad", functions.expr("rand() < 0.5"))


def declare_suite(lab: Lab, policy: str = "quarantine") -> None:
    rule = row("expect_column_values_to_be_in_set", policy=policy, column="bad", value_set=[False])
    (lab.root / "suite.json").write_bytes(document(rule))


def stream(transform: Callable[..., DataFrame] = same, **changes: Any) -> Stream:
    known: dict[str, Any] = {
        "name": "s",
        "sources": {"numbers": sources.files("land", format="json", schema="id bigint", max_files_per_batch=2)},
        "transform": f"{__name__}:{transform.__name__}",
        "sink": sinks.delta("out"),
        "quality": "suite.json",
    }
    return Stream(**known | changes)


WIDER = stream(
    widened,
    sink=sinks.delta("out", schema_evolution="add"),
    quarantine=sinks.delta("out_quarantine", schema_evolution="add"),
)


def ids(lab: Lab, path: str = "out") -> list[int]:
    if not (lab.root / path / "_delta_log").exists():
        return []
    return sorted(found["id"] for found in lab.table(path).select("id").collect())


@contextmanager
def cut(ending: str) -> Iterator[None]:
    """The power goes just after a table, by the end of its path, has got a batch."""
    original = DeltaSink.write_batch

    def write_batch(self: DeltaSink, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.path.endswith(ending):
            raise PowerCut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaSink, "write_batch", write_batch)
        yield


@pytest.fixture
def split(lab: Lab) -> Lab:
    """Two batches, of which the first is done and the second has its rows in the quarantine."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 2, rows=4)
    lab.run(stream())
    write_numbers(lab.root / "land", 2, first=2, rows=4)
    with cut("_quarantine"), pytest.raises(BatchFailedError, match="PowerCut"):
        lab.run(stream())
    assert (ids(lab), ids(lab, "out_quarantine")) == ([0, 1, 2, 4, 5, 6], [3, 7, 11, 15])
    return lab


GOOD, REST = [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14], [3, 7, 11, 15]


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (stream(), ()),
        (stream(corrected), ("transform",)),
        (WIDER, ("transform",)),
        (stream(quality=None), ("suite", "quarantine")),
        (stream(quarantine=sinks.delta("elsewhere")), ("quarantine",)),
    ],
    ids=["nothing", "transform", "columns", "suite taken out", "quarantine elsewhere"],
)
def test_what_was_decided_is_finished(split: Lab, changed: Stream, what: tuple[str, ...]) -> None:
    """Into the tables of then, by the transform and the suite of then; and the record says so."""
    plan = split.plan(changed)

    record = split.run(changed)

    told = plan.quality and (plan.quality.where, plan.quality.reason)
    assert told == (("cache", "batch 1 is split already") if changed.quality else None)
    assert ids(split) == GOOD
    assert ids(split, "out_quarantine") == REST
    assert ids(split, "elsewhere") == []
    (batch,) = record.batches
    assert batch.decided_by == split.records(stream())[-2]["run_id"]
    assert set(batch.changed) == set(what)
    assert (batch.quarantined_rows, batch.warnings) == (2, ())
    assert f"decided by run {batch.decided_by}" in plan.reason
    assert not list((split.root / "home" / "s" / "staged" / "0001").iterdir())
    write_numbers(split.root / "land", 1, first=4, rows=4)
    assert split.run(changed).batches[0].decided_by is None
    left = {"transform": [18], "nothing": [19]}.get(what[0] if what else "nothing", [19])
    taken = [n for n in range(16, 20) if n not in left or changed.quality is None]
    if changed.transform.endswith(":widened"):
        taken = [16, 17, 18]
    assert ids(split) == GOOD + taken


@pytest.mark.parametrize("changed", [stream(), stream(quality=None)], ids=["nothing", "suite taken out"])
def test_inputs_that_are_gone_once_it_is_decided(split: Lab, changed: Stream) -> None:
    """What is staged is all that the sink lacks, and the suite has measured it: the files are not needed any more."""
    for file in (split.root / "land").iterdir():
        file.unlink()
    plan = split.plan(changed)
    assert (plan.verdict, {warning.code for warning in plan.warnings}) == ("resume", {"INPUT_GONE"})

    (batch,) = split.run(changed).batches

    assert (ids(split), ids(split, "out_quarantine")) == (GOOD, REST)
    assert (batch.input_rows, batch.output_rows, batch.quarantined_rows) == (None, 6, 2)
    (warning,) = batch.warnings
    assert "the batch's rows are decided and staged" in warning
    write_numbers(split.root / "land", 1, first=4, rows=4)
    split.run(stream())
    assert ids(split) == [*GOOD, 16, 17, 18]


def test_a_relaxed_rule_counts_from_the_next_batch_on(split: Lab) -> None:
    declare_suite(split, "warn")

    record = split.run(stream())

    assert (ids(split), ids(split, "out_quarantine")) == (GOOD, REST)
    assert record.quality is not None
    assert (record.quality.verdict, record.quality.rows) == ("warn", 8)
    assert (record.quality.quarantined, record.quality.dropped) == (2, 0)
    assert record.quality.checks[0].result["unexpected_count"] == 2


@pytest.mark.parametrize("policy", ["warn", "drop", "quarantine"])
def test_a_rule_edited_once_spark_has_committed(lab: Lab, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """The driver died before its record had the batch: the next try knows where the rows went by the suite of then."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 1, rows=8)
    with monkeypatch.context() as patch:
        patch.setattr(Audit, "note", power_cut)
        with pytest.raises(PowerCut):
            lab.run(stream(), run_key="hourly")
    assert (lab.checkpoint(stream()) / "commits" / "0").exists()
    declare_suite(lab, policy)
    write_numbers(lab.root / "land", 1, first=2, rows=4)

    record = lab.run(stream(), run_key="hourly")

    assert [n for n in ids(lab) if n < 8] == [0, 1, 2, 4, 5, 6]
    assert [n for n in ids(lab, "out_quarantine") if n < 8] == [3, 7]
    batch = record.batches[0]
    assert (batch.output_rows, batch.quarantined_rows, batch.dropped_rows) == (6, 2, 0)
    assert [found.warnings for found in record.batches] == [(), ()]
    assert record.quality is not None
    taken = [(found.quarantined_rows, found.dropped_rows) for found in record.batches]
    assert (record.quality.quarantined, record.quality.dropped) == tuple(map(sum, zip(*taken, strict=True)))


@pytest.mark.parametrize("place", ["_quarantine", "out"])
def test_rows_that_differ_at_every_try(lab: Lab, place: str) -> None:
    """What chance has decided once is not asked again."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 2, rows=20)
    with cut(place), pytest.raises(BatchFailedError, match="PowerCut"):
        lab.run(stream(by_chance))

    lab.run(stream(by_chance))

    both = ids(lab) + ids(lab, "out_quarantine")
    assert sorted(both) == list(range(40))


def test_a_table_that_others_change_meanwhile(lab: Lab) -> None:
    declare_suite(lab)
    known = str(lab.root / "known")
    BAD[:] = [known]
    write_deltalake(known, pa.table({"id": pa.array([1], pa.int64()), "bad": [True]}))
    write_numbers(lab.root / "land", 1, rows=4)
    with cut("_quarantine"), pytest.raises(BatchFailedError, match="PowerCut"):
        lab.run(stream(by_a_table))
    write_deltalake(known, pa.table({"id": pa.array([2], pa.int64()), "bad": [True]}), mode="overwrite")

    lab.run(stream(by_a_table))

    assert (ids(lab), ids(lab, "out_quarantine")) == ([0, 2, 3], [1])


def test_a_policy_that_is_declared_once_the_sink_has_the_batch(lab: Lab) -> None:
    """The driver died between the sink's commit and Spark's: all of its rows are there, and none of them leaves."""
    write_numbers(lab.root / "land", 1, rows=4)
    lab.run(stream(quality=None))
    for file in ("0", ".0.crc"):
        (lab.checkpoint(stream()) / "commits" / file).unlink()
    declare_suite(lab)

    record = lab.run(stream())

    assert (ids(lab), ids(lab, "out_quarantine")) == ([0, 1, 2, 3], [])
    assert record.batches[0].was_in_sink
    assert record.quality is not None
    assert (record.quality.rows, record.quality.quarantined) == (4, 0)


def test_a_first_batch_is_not_finished_elsewhere(lab: Lab) -> None:
    """The sink may have it: a sink of another place waits until it is done."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 1, rows=4)
    with cut("out"), pytest.raises(BatchFailedError, match="PowerCut"):
        lab.run(stream())
    moved = stream(sink=sinks.delta("moved"))

    says = "declare the sink at out, run the stream once, and move it then"
    read_remedy(lab.plan(moved).problem, "SINK_MOVED", says)
    with pytest.raises(RefusedError, match="begun with a sink at out"):
        lab.run(moved)

    lab.run(stream())
    assert (ids(lab), ids(lab, "out_quarantine"), ids(lab, "moved")) == ([0, 1, 2], [3], [])
    for ending in ("", "_quarantine"):
        (lab.root / f"out{ending}").rename(lab.root / f"moved{ending}")
    write_numbers(lab.root / "land", 1, first=1, rows=4)
    lab.run(moved)
    assert (ids(lab, "moved"), ids(lab, "moved_quarantine")) == ([0, 1, 2, 4, 5, 6], [3, 7])


def test_a_project_that_is_moved_with_what_it_has(split: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The batch is finished in the copy, and the original is left alone."""
    copy = Path(shutil.copytree(split.root, tmp_path_factory.mktemp("copies") / "copy"))
    there = Lab(split.spark, copy)

    with pytest.raises(RefusedError):
        # Spark's own log has the files' absolute places.
        there.run(stream())
    staged = list((copy / "home" / "s" / "staged" / "0001").glob("*.json"))

    assert len(staged) == 1
    assert ids(split) == [0, 1, 2, 4, 5, 6]


def test_a_quarantine_ahead_of_everything(split: Lab) -> None:
    """Without what was decided, nobody can tell which rows the sink lacks."""
    staged = split.root / "home" / "s" / "staged"
    backup = staged.rename(split.root / "backup")

    with pytest.raises(RefusedError, match="what was decided is gone") as refused:
        split.run(stream())

    assert (ids(split), ids(split, "out_quarantine")) == ([0, 1, 2, 4, 5, 6], REST)
    read_remedy(refused.value, "DECISION_LOST", "restore the folder `staged` of the stream's home")
    backup.rename(staged)
    split.run(stream())
    assert (ids(split), ids(split, "out_quarantine")) == (GOOD, REST)


def test_staged_rows_that_are_gone(split: Lab) -> None:
    (folder,) = (split.root / "home" / "s" / "staged" / "0001").glob("1-*")
    backup = folder.rename(split.root / "backup")

    with pytest.raises(RefusedError, match="are gone") as refused:
        split.run(stream())

    assert (ids(split), ids(split, "out_quarantine")) == ([0, 1, 2, 4, 5, 6], REST)
    read_remedy(refused.value, "STAGED_ROWS_GONE", "restore the folder from a backup")
    backup.rename(folder)
    split.run(stream())
    assert (ids(split), ids(split, "out_quarantine")) == (GOOD, REST)


def test_a_single_staged_file_that_is_gone(split: Lab) -> None:
    for file in (split.root / "home" / "s" / "staged" / "0001").glob("1-*/*.parquet"):
        file.unlink()
    with pytest.raises(RefusedError, match="are gone"):
        split.run(stream())

    assert ids(split) == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize("changed", [stream(), stream(corrected), stream(quality=None)])
def test_rows_that_no_table_takes(lab: Lab, monkeypatch: pytest.MonkeyPatch, changed: Stream) -> None:
    """Neither table has any of the batch: once the transform is corrected, the batch is decided anew."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 1, rows=4)
    with monkeypatch.context() as patch:
        # What is told before a batch is begun.
        patch.setattr(table, "check_new", lambda *_args, **_more: None)
        for _ in range(2):
            with pytest.raises(BatchFailedError, match="invalid character") as caught:
                lab.run(stream(badly_named))
            assert "no table has any row of the batch: the next run decides it anew" in str(caught.value.remedy)

    (batch,) = lab.run(changed).batches

    left = {"corrected": [2], "same": [3]}[changed.transform.partition(":")[2]] if changed.quality else []
    assert (ids(lab), ids(lab, "out_quarantine")) == ([n for n in range(4) if n not in left], left)
    assert batch.decided_by is None


def test_rows_that_the_sink_alone_refuses(lab: Lab) -> None:
    """The quarantine has its part: what is said is how the rest of the batch gets into the sink, and it does."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 1, rows=4)
    lab.run(stream())
    table = f"delta.`{lab.root / 'out'}`"
    lab.spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT small CHECK (id < 6)")
    write_numbers(lab.root / "land", 1, first=1, rows=4)
    for changed in (stream(), stream(corrected), stream(quality=None)):
        with pytest.raises(BatchFailedError, match="CHECK constraint small") as caught:
            lab.run(changed)
        assert "let the table take it, by its columns, types and constraints" in str(caught.value.remedy)
        assert str(lab.root / "out") == caught.value.where
        assert (ids(lab), ids(lab, "out_quarantine")) == ([0, 1, 2], [3, 7])

    lab.spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT small")
    (batch,) = lab.run(stream(corrected)).batches

    assert (ids(lab), ids(lab, "out_quarantine")) == ([0, 1, 2, 4, 5, 6], [3, 7])
    assert batch.decided_by is not None


def test_a_batch_of_the_sink_alone_that_it_refuses(lab: Lab) -> None:
    """A quarantine without rows is made once the sink has the batch: the batch is decided anew until then."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 1, rows=3)
    lab.run(stream(quality=None))
    table = f"delta.`{lab.root / 'out'}`"
    lab.spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT no_negative CHECK (id >= 0)")
    write_numbers(lab.root / "land", 1, first=1, rows=3)
    with pytest.raises(BatchFailedError, match="violated by row") as caught:
        lab.run(stream(lowered))
    assert "no table has any row of the batch" in str(caught.value.remedy)
    assert not (lab.root / "out_quarantine").exists()

    (batch,) = lab.run(stream(corrected, quarantine=sinks.delta("elsewhere"))).batches

    assert (ids(lab), ids(lab, "elsewhere")) == ([0, 1, 2, 3, 4, 5], [])
    assert (batch.decided_by, lab.table("elsewhere").count()) == (None, 0)


@pytest.mark.parametrize(
    "changed", [stream(), stream(corrected), stream(quality=None), stream(quarantine=sinks.delta("elsewhere"))]
)
def test_a_batch_of_the_sink_alone_that_was_cut(lab: Lab, changed: Stream) -> None:
    """The sink has it, the table of the quarantine is not made yet: what is declared now counts from the next on."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 1, rows=3)
    with cut("/out"), pytest.raises(BatchFailedError, match="PowerCut"):
        lab.run(stream())
    assert (ids(lab), (lab.root / "out_quarantine").exists()) == ([0, 1, 2], False)

    (batch,) = lab.run(changed).batches
    assert (ids(lab), ids(lab, "out_quarantine"), ids(lab, "elsewhere")) == ([0, 1, 2], [], [])
    assert batch.decided_by is not None

    write_numbers(lab.root / "land", 1, first=2, rows=3)
    lab.run(changed)
    left = {"corrected": [6], "same": [7]}[changed.transform.partition(":")[2]] if changed.quality else []
    kept = [n for n in (0, 1, 2, 6, 7, 8) if n not in left]
    assert (ids(lab), ids(lab, "out_quarantine") + ids(lab, "elsewhere")) == (kept, left)


def test_a_decision_that_was_taken_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was stopped before it published writes nothing by what does not count any more."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 1, rows=4)
    decide = decided_batch.decide

    def taken_back(project: Any, home: Any, generation: int, decision: decided_batch.Decision) -> Any:
        kept = decide(project, home, generation, decision)
        decided_batch.forget(home, generation, decision.batch_id)
        return kept

    with monkeypatch.context() as patch:
        patch.setattr(decided_batch, "decide", taken_back)
        with pytest.raises(BatchFailedError, match="decided anew by another driver"):
            lab.run(stream())
    assert (ids(lab), ids(lab, "out_quarantine")) == ([], [])

    lab.run(stream(corrected))
    assert (ids(lab), ids(lab, "out_quarantine")) == ([0, 1, 3], [2])


def test_the_faster_of_two_drivers_decides(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that has lost its lease puts its decision there first: the other one follows it."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 1, rows=4)
    decide = decided_batch.decide

    def second(project: Any, home: Any, generation: int, decision: decided_batch.Decision) -> decided_batch.Decision:
        folder = home.storage.list_folder(home.staged_folder(1)).folders[0]
        path = Path(home.staged_folder(1))
        shutil.copytree(path / folder, path / "0-99")
        known = {name: getattr(decision, name) for name in decision.__struct_fields__}
        faster = decided_batch.Decision(**known | {"folder": "0-99", "run_id": "faster"})
        assert decide(project, home, generation, faster) is faster
        return decide(project, home, generation, decision)

    monkeypatch.setattr(decided_batch, "decide", second)
    lab.run(stream())

    assert (ids(lab), ids(lab, "out_quarantine")) == ([0, 1, 2], [3])
    assert [found["_run_id"] for found in lab.table("out_quarantine").collect()] == ["faster"]
    assert not list((lab.root / "home" / "s" / "staged" / "0001").iterdir())


def test_rows_that_the_sink_loses(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of ours loses rows; the record would say so if something did."""
    declare_suite(lab)
    write_numbers(lab.root / "land", 1, rows=8)
    write = DeltaSink.write_batch

    def lossy(self: DeltaSink, frame: DataFrame, *args: Any, **kwargs: Any) -> None:
        write(self, frame.where("id != 4"), *args, **kwargs)

    monkeypatch.setattr(DeltaSink, "write_batch", lossy)

    record = lab.run(stream())

    (batch,) = record.batches
    assert (batch.result_rows, batch.output_rows, batch.quarantined_rows) == (8, 5, 2)
    (warning,) = batch.warnings
    assert warning.startswith("the transform gave 8 rows; 5 were published, 2 put into quarantine and 0 dropped")


def test_a_damaged_decision(split: Lab) -> None:
    (file,) = (split.root / "home" / "s" / "staged" / "0001").glob("*.json")
    whole = file.read_text()
    for damaged in (
        whole.replace('"batch_id": 1', '"batch_id": 2'),
        whole.replace('"folder": "1-', '"folder": "../1-'),
    ):
        file.write_text(damaged)
        with pytest.raises(RefusedError) as refused:
            split.run(stream())
        read_remedy(refused.value, "DECISION_DAMAGED", "restore it from a backup")
    file.write_text(whole[:40])
    with pytest.raises(RefusedError, match="restore it from a backup"):
        split.run(stream())
    assert ids(split) == [0, 1, 2, 4, 5, 6]
    file.write_text(whole)

    split.run(stream())

    assert (ids(split), ids(split, "out_quarantine")) == (GOOD, REST)
