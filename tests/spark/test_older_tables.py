"""A table that is older than the checkpoint: restored alone from a backup, or an older copy that is declared."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks
from sluice.errors import RefusedError
from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
from sluice.spark.left_behind import forget_tables
from tests.builders import clean_log
from tests.remedies import read_remedy
from tests.spark.lab import Lab, uncommit
from tests.spark.power_cuts import Cut, killed, let_leases_run_out
from tests.spark.test_expired_transactions import EXPIRES, forget
from tests.spark.test_renamed_streams import DAY, allow, arrive, commands, numbers, stream

pytestmark = pytest.mark.spark

SAYS = "restore the table as it was, or declare the sink where that one is"


def begin(lab: Lab, *, suite: bool = False) -> Stream:
    """Two batches are done, and of the tables there is a backup from after the first; more has arrived."""
    allow(lab, 10)
    declared = stream() if suite else stream(quality=None)
    arrive(lab, 0, 1, *([20] if suite else []))
    lab.run(declared)
    for table in lab.root.glob("out*"):
        shutil.copytree(table, lab.root / "backup" / table.name)
    arrive(lab, 2, 3, *([21] if suite else []))
    lab.run(declared)
    arrive(lab, 4)
    return declared


def put_back(lab: Lab, table: Path, *, backup: str = "backup") -> None:
    shutil.rmtree(lab.root / table.name)
    shutil.copytree(lab.root / backup / table.name, lab.root / table.name)
    forget_tables(lab.spark)


@pytest.mark.parametrize("how", ["restored in place", "declared at the copy"])
@pytest.mark.parametrize("suite", [False, True])
def test_an_older_sink(lab: Lab, how: str, *, suite: bool) -> None:
    """Refused by all that writes there, and once the table is back, every row is there once."""
    declared = begin(lab, suite=suite)
    edited = declared
    if how == "restored in place":
        shutil.copytree(lab.root / "out", lab.root / "newest" / "out")
        put_back(lab, lab.root / "out")
    else:
        edited = replace(declared, sink=sinks.delta("backup/out", partition_by=["day"]))

    assert lab.plan(edited).verdict == "refuse"
    assert plan_backfill(lab.project, BackfillRequest(lab.project.resolve(edited), DAY)).verdict == "refuse"
    for command in commands(lab, edited)[: None if suite else -1]:
        with pytest.raises(
            RefusedError, match="has written batch 1 into the table, in version 1, and it has"
        ) as refused:
            command()
        read_remedy(refused.value, "SINK_REPLACED", SAYS)

    if how == "restored in place":
        put_back(lab, lab.root / "out", backup="newest")
    lab.run(declared)
    assert numbers(lab) == [0, 1, 2, 3, 4]


def test_an_older_quarantine(lab: Lab) -> None:
    """A run refuses it; one that was deleted is given up, and begun anew."""
    declared = begin(lab, suite=True)
    put_back(lab, lab.root / "out_quarantine")
    with pytest.raises(RefusedError) as refused:
        lab.run(declared)
    assert (refused.value.finding.code, Path(refused.value.finding.file).name) == ("SINK_REPLACED", "out_quarantine")

    shutil.rmtree(lab.root / "out_quarantine")
    forget_tables(lab.spark)
    lab.run(declared)
    assert (numbers(lab), numbers(lab, "out_quarantine")) == ([0, 1, 2, 3, 4], [])


def test_a_table_that_its_user_has_restored(lab: Lab) -> None:
    """Delta's own RESTORE keeps which batches there were: they are taken back, and are not run again."""
    declared = begin(lab)
    DeltaTable(str(lab.root / "out")).restore(0)
    forget_tables(lab.spark)
    lab.run(declared)
    assert numbers(lab) == [0, 1, 4]


def test_batches_without_rows(lab: Lab) -> None:
    """They leave nothing in the table, which is no older for that; nor is it where a home tells of no batch."""
    declared = begin(lab)
    lab.run(declared)
    for path in (lab.root / "land").glob("*.json"):
        path.rename(path.with_suffix(".done"))
    arrive(lab, 5)
    (lab.root / "land" / "005.json").write_text("")
    lab.run(declared)
    assert lab.plan(declared).verdict == "skip"


@pytest.mark.parametrize("unset", [False, True])
def test_a_table_that_has_forgotten(lab: Lab, *, unset: bool) -> None:
    """Whether it is older can't be told: said at each plan, until it has another batch."""
    declared = begin(lab)
    forget(lab, "out")
    if unset:
        lab.spark.sql(f"ALTER TABLE delta.`{lab.root / 'out'}` UNSET TBLPROPERTIES ('{EXPIRES}')")
        forget_tables(lab.spark)
    plan = lab.plan(declared)
    assert [(warning.code, "does not know any more" in warning.cause) for warning in plan.warnings] == [
        ("TRANSACTIONS_EXPIRE", True)
    ]
    assert "batch 1" in plan.warnings[0].cause
    if unset:
        lab.run(declared)
        assert (lab.plan(declared).warnings, numbers(lab)) == ((), [0, 1, 2, 3, 4])


def test_a_checkpoint_that_is_older_than_a_table_that_has_forgotten(lab: Lab) -> None:
    """`SINK_AHEAD` is not to be found: the plan says so."""
    declared = begin(lab)
    uncommit(lab.checkpoint(declared), 1)
    (lab.checkpoint(declared) / "offsets" / "1").unlink()
    assert getattr(lab.plan(declared).problem, "code", None) == "SINK_AHEAD"
    forget(lab, "out")
    assert "TRANSACTIONS_EXPIRE" in [warning.code for warning in lab.plan(declared).warnings]


def warned(lab: Lab, declared: Stream) -> list[str]:
    return [found.code for found in lab.plan(declared).warnings if found.code == "SINK_RESTORED"]


@pytest.mark.parametrize("by", ["Spark", "delta-rs"])
def test_a_table_that_was_taken_back(lab: Lab, by: str) -> None:
    """By `RESTORE` it still says that it has the batches: a plan tells, and the record of the run that goes on."""
    declared = begin(lab)
    place = lab.root / "out"

    def restore(version: int) -> None:
        if by == "Spark":
            lab.spark.sql(f"RESTORE delta.`{place}` TO VERSION AS OF {version}").collect()
        else:
            DeltaTable(str(place)).restore(version)

    DeltaTable(str(place)).optimize.compact()
    restore(DeltaTable(str(place)).version() - 1)
    assert (warned(lab, declared), numbers(lab)) == ([], [0, 1, 2, 3])
    restore(0)
    assert (warned(lab, declared), numbers(lab)) == (["SINK_RESTORED"], [0, 1])
    (warning,) = (found for found in lab.plan(declared).warnings if found.code == "SINK_RESTORED")
    assert f"has taken the table back{' to version 0' if by == 'Spark' else ''}" in warning.cause
    read_remedy(warning, "SINK_RESTORED", "to the version before")
    restore(DeltaTable(str(place)).version() - 1)
    assert (warned(lab, declared), numbers(lab)) == ([], [0, 1, 2, 3])
    restore(0)
    record = lab.run(declared)
    assert any("SINK_RESTORED" in str(found) for found in lab.records(declared)[-1]["plan"]["warnings"])
    assert record.status == "succeeded"
    assert warned(lab, declared) == []
    assert plan_backfill(lab.project, BackfillRequest(lab.project.resolve(declared), DAY)).verdict == "run"


def test_a_table_that_was_taken_back_to_a_time(lab: Lab) -> None:
    """To which version that was, the log does not say."""
    declared = begin(lab)
    first = DeltaTable(str(lab.root / "out")).history()[-1]["timestamp"]
    time = datetime.fromtimestamp(first / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    lab.spark.sql(f"RESTORE delta.`{lab.root / 'out'}` TO TIMESTAMP AS OF '{time}'").collect()
    assert (warned(lab, declared), numbers(lab)) == (["SINK_RESTORED"], [0, 1])


@pytest.mark.parametrize("killed_at", ["behind the sink's commit", "behind Spark's commit"])
def test_a_batch_that_was_taken_back_before_it_was_noted(lab: Lab, killed_at: str) -> None:
    """It would be passed over as done while it is pending: refused; the version is taken forward, and it goes on."""
    declared = begin(lab)
    lab.run(declared)
    arrive(lab, 5)
    is_pending = killed_at == "behind the sink's commit"
    killed(lab, declared, Cut("commit out", moment="after") if is_pending else Cut("generations/*.json", 2))
    let_leases_run_out(lab.root / "home")
    newest = DeltaTable(str(lab.root / "out")).version()
    assert numbers(lab) == [0, 1, 2, 3, 4, 5]
    DeltaTable(str(lab.root / "out")).restore(newest - 1)
    forget_tables(lab.spark)
    plan = lab.plan(declared)
    if is_pending:
        assert (plan.verdict, plan.problem and plan.problem.code) == ("refuse", "SINK_RESTORED")
        with pytest.raises(RefusedError, match="taken the table back"):
            lab.run(declared)
    else:
        assert warned(lab, declared) == ["SINK_RESTORED"]
    DeltaTable(str(lab.root / "out")).restore(newest)
    forget_tables(lab.spark)
    arrive(lab, 6)
    lab.run(declared)
    assert (warned(lab, declared), numbers(lab)) == ([], [0, 1, 2, 3, 4, 5, 6])


def killed_and_taken_back(lab: Lab) -> tuple[Stream, int]:
    """A batch that the sink has had, pending, and the version of it, which a `RESTORE` has taken back."""
    declared = begin(lab)
    lab.run(declared)
    arrive(lab, 5)
    killed(lab, declared, Cut("commit out", moment="after"))
    let_leases_run_out(lab.root / "home")
    table = DeltaTable(str(lab.root / "out"))
    newest = table.version()
    table.restore(newest - 1)
    return declared, newest


def test_a_batch_that_the_log_tells_no_more_of(lab: Lab) -> None:
    """Its commit, and that of the `RESTORE` behind it, are cleaned up: it is passed over, and the plan says so."""
    declared, _ = killed_and_taken_back(lab)
    clean_log(lab.root / "out")
    forget_tables(lab.spark)
    (warning,) = (found for found in lab.plan(declared).warnings if found.code == "SINK_RESTORED")
    read_remedy(warning, "SINK_RESTORED", "by a backfill")
    assert lab.run(declared).status == "succeeded"
    assert warned(lab, declared) == []
    assert numbers(lab) == [0, 1, 2, 3, 4]


def taken_forward(lab: Lab, declared: Stream, table: str = "out") -> None:
    """Refused while the version is taken back; the version is shown again, and a run goes on."""
    version = DeltaTable(str(lab.root / table)).version()
    DeltaTable(str(lab.root / table)).restore(version - 1)
    forget_tables(lab.spark)
    with pytest.raises(RefusedError, match="taken the table back") as refused:
        lab.run(declared)
    assert refused.value.finding.code == "SINK_RESTORED"
    DeltaTable(str(lab.root / table)).restore(version)
    forget_tables(lab.spark)
    lab.run(declared)


def test_a_first_batch_that_was_taken_back(lab: Lab) -> None:
    """Into a table that was there before."""
    day = pa.array([date(2026, 1, 2)], pa.date32())
    write_deltalake(
        str(lab.root / "out"), pa.table({"n": pa.array([100], pa.int64()), "day": day}), partition_by=["day"]
    )
    declared = stream(quality=None)
    arrive(lab, 0, 1)
    killed(lab, declared, Cut("commit out", moment="after"))
    let_leases_run_out(lab.root / "home")
    taken_forward(lab, declared)
    assert numbers(lab) == [0, 1, 100]


def test_a_first_row_of_a_quarantine_that_was_taken_back(lab: Lab) -> None:
    """The batch is decided, and the sink has not got its part yet."""
    allow(lab, 10)
    declared = stream()
    arrive(lab, 0)
    lab.run(declared)
    arrive(lab, 1, 20)
    killed(lab, declared, Cut("commit out_quarantine", moment="after"))
    let_leases_run_out(lab.root / "home")
    taken_forward(lab, declared, "out_quarantine")
    assert (numbers(lab), numbers(lab, "out_quarantine")) == ([0, 1], [20])


def counted(landing: DataFrame) -> DataFrame:
    return landing.groupBy("day").agg(F.count("*").alias("n"))


def test_a_whole_table_that_was_taken_back(lab: Lab) -> None:
    """In mode `complete` the next batch would bring the rows back, and none may come for long."""
    declared = replace(
        stream(quality=None), transform=f"{__name__}:counted", output_mode="complete", interval_column=None
    )
    arrive(lab, 0, 1)
    lab.run(declared)
    arrive(lab, 2)
    killed(lab, declared, Cut("Spark's stream", moment="after"))
    let_leases_run_out(lab.root / "home")
    taken_forward(lab, declared)
    assert numbers(lab) == [3]


def test_a_batch_that_was_taken_back_before_others_wrote(lab: Lab) -> None:
    """To take the version forward would take their rows: the run goes on and says which rows to append, from where."""
    declared, newest = killed_and_taken_back(lab)
    day = pa.array([date(2026, 1, 2)], pa.date32())
    for number in (50, 51):
        write_deltalake(
            str(lab.root / "out"), pa.table({"n": pa.array([number], pa.int64()), "day": day}), mode="append"
        )
    forget_tables(lab.spark)
    (warning,) = (found for found in lab.plan(declared).warnings if found.code == "SINK_RESTORED")
    assert f"append the rows again that version {newest} has (`VERSION AS OF {newest}`)" in warning.remedy
    assert lab.run(declared).status == "succeeded"
    assert any("SINK_RESTORED" in str(found) for found in lab.records(declared)[-1]["plan"]["warnings"])
    path = lab.root / "out"
    had, has = (f"SELECT * FROM delta.`{path}`{at}" for at in (f" VERSION AS OF {newest}", ""))
    lab.spark.sql(f"INSERT INTO delta.`{path}` {had} EXCEPT {has}")
    assert numbers(lab) == [0, 1, 2, 3, 4, 5, 50, 51]
