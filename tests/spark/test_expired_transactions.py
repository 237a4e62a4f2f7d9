"""Tables that let transactions expire: what was begun, and can't be told any more, is refused, and never doubled."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.auditing.return_rows import return_rows
from sluice.errors import RefusedError
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request, plan_stream
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.spark.left_behind import forget_tables
from tests.builders import expire_commits
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, ids, uncommit, write_numbers
from tests.spark.power_cuts import Cut, power_cut
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

EXPIRES = "delta.setTransactionRetentionDuration"
AT_ONCE, NEVER = "interval 0 seconds", "interval 300 weeks"
SAYS = "append no row with `txnAppId` ([^ ]+) and `txnVersion` ([0-9]+) if it has them, with `txnAppId` ([^ ]+) and"


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def dated(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("id", "date_add(DATE'1970-01-01', CAST(id AS int)) AS day")


def largest(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy().max("id").withColumnRenamed("max(id)", "id")


def numbers(policy: str | None = None, **declared: Any) -> Stream:
    return replace(
        Stream(
            name="s",
            sources={"numbers": sources.files("in", format="json", schema="id bigint")},
            transform=f"{__name__}:same",
            sink=sinks.delta("out"),
            quality="suite.json" if policy is not None else None,
        ),
        **declared,
    )


def begin(lab: Lab, policy: str | None, *, most: int = 3, **declared: Any) -> Stream:
    """A stream whose first batch, of the row 0, is done; the rows 1 to 4 have arrived."""
    if policy is not None:
        most = most if policy == "quarantine" else 1000
        suite = document(row("expect_column_values_to_be_between", policy=policy, column="id", max_value=most))
        (lab.root / "suite.json").write_bytes(suite)
    write_numbers(lab.root / "in", 1)
    stream = numbers(policy, **declared)
    lab.run(stream)
    write_numbers(lab.root / "in", 4, first=1)
    return stream


def set_property(lab: Lab, table: str, key: str, value: str | None) -> None:
    change = f"UNSET TBLPROPERTIES ('{key}')" if value is None else f"SET TBLPROPERTIES ('{key}' = '{value}')"
    lab.spark.sql(f"ALTER TABLE delta.`{lab.root / table}` {change}")


def forget(lab: Lab, *tables: str, retention: str | None = AT_ONCE) -> None:
    """Let transactions expire, and do what a checkpoint and log clean-up do then."""
    for table in tables:
        told = "" if retention is None else f"'{EXPIRES}' = '{retention}', "
        change = f"SET TBLPROPERTIES ({told}'delta.checkpointInterval' = '1', 'note' = 'a checkpoint')"
        lab.spark.sql(f"ALTER TABLE delta.`{lab.root / table}` {change}")
        for checkpoint in sorted((lab.root / table / "_delta_log").glob("*.checkpoint.parquet"))[:-1]:
            checkpoint.unlink()
        expire_commits(lab.root / table)
    forget_tables(lab.spark)


def note(lab: Lab, table: str, application: str, version: int) -> None:
    """What docs/operations.md shows."""
    path = str(lab.root / table)
    nothing = lab.spark.read.format("delta").load(path).limit(0)
    writer = nothing.write.format("delta").mode("append")
    writer.option("txnAppId", application).option("txnVersion", version).save(path)


def cut_run(lab: Lab, stream: Stream, cut: Cut, work: Any = None) -> None:
    with power_cut(cut, lab.root) as writes, pytest.raises(Exception):  # noqa: B017, PT011 - whatever comes of it
        (work or (lambda: lab.run(stream)))()
    assert writes.at is not None
    for leases in (lab.root / "home").rglob("leases"):
        os.rename(leases, leases.with_name(f"earlier-{leases.name}"))
    forget_tables(lab.spark)


def refused(lab: Lab, stream: Stream, limits: Limits = Limits()) -> tuple[str, int, str]:  # noqa: B008 - frozen
    """Plan and run say the same, and nothing is written; gives the transactions that tell it."""
    before = {table.name: DeltaTable(table).version() for table in lab.root.glob("out*")}
    problem = lab.plan(stream, limits).problem
    with pytest.raises(RefusedError) as told:
        lab.run(stream, limits)
    assert told.value.finding == problem
    assert {table.name: DeltaTable(table).version() for table in lab.root.glob("out*")} == before
    return asked(problem)


def asked(said: Any) -> tuple[str, int, str]:
    """The transactions that a refusal names: that of what is there, with its version, and that of what is not."""
    match = re.search(SAYS, read_remedy(said, "TRANSACTION_FORGOTTEN", SAYS).remedy)
    assert match is not None
    return match[1], int(match[2]), match[3]


COMMIT = Cut("Spark's commit")


@pytest.mark.parametrize(
    ("policy", "strategy"),
    [
        *((policy, "exact") for policy in (None, "quarantine")),
        ("quarantine", "drain"),
        *rarely(("warn", "exact"), ("fail", "exact"), (None, "drain")),
    ],
)
def test_a_batch_that_is_there(lab: Lab, policy: str | None, strategy: Any) -> None:
    """Its run was killed before Spark's commit, and the sink forgets: refused, until somebody notes what is there."""
    stream, limits = begin(lab, policy), Limits(strategy=strategy)
    if strategy == "exact":
        cut_run(lab, stream, COMMIT)
    else:
        lab.run(stream, limits)
        uncommit(lab.checkpoint(stream), 1)
    out = ids(lab.table("out"))
    forget(lab, "out")
    there, version, _ = refused(lab, stream, limits)

    note(lab, "out", there, version)
    record = lab.run(stream, limits)

    assert record.batches[0].was_in_sink
    assert ids(lab.table("out")) == out
    assert sorted(out + (ids(lab.table("out_quarantine")) if policy == "quarantine" else [])) == [*range(5)]


@pytest.mark.parametrize("policy", [None, "quarantine", *rarely("fail")])
def test_a_batch_that_is_not_there(lab: Lab, policy: str | None) -> None:
    """Its run was killed before the sink's commit: refused as well, and written once somebody has looked."""
    stream = begin(lab, policy)
    forget(lab, "out")
    cut_run(lab, stream, Cut("commit out"))
    forget(lab, "out", retention=None)
    _, _, absent = refused(lab, stream)

    note(lab, "out", absent, 0)
    lab.run(stream)

    kept = [*range(4)] if policy == "quarantine" else [*range(5)]
    assert ids(lab.table("out")) == kept
    assert policy != "quarantine" or ids(lab.table("out_quarantine")) == [4]


def test_commits_that_are_restored(lab: Lab) -> None:
    """The other way: the log tells again."""
    stream = begin(lab, None)
    cut_run(lab, stream, COMMIT)
    log = lab.root / "out" / "_delta_log"
    backup = {file.name: file.read_bytes() for file in log.glob("*.json")}
    forget(lab, "out")
    refused(lab, stream)
    read_remedy(lab.plan(stream).problem, "TRANSACTION_FORGOTTEN", "restore the commits that are gone")

    for name, content in backup.items():
        (log / name).write_bytes(content)

    assert [batch.was_in_sink for batch in lab.run(stream).batches] == [True]
    assert ids(lab.table("out")) == [*range(5)]


@pytest.mark.parametrize("retention", [None, NEVER], ids=["unset", "long"])
def test_a_property_that_is_changed_when_it_is_too_late(lab: Lab, retention: str | None) -> None:
    """Neither brings back what was forgotten."""
    stream = begin(lab, None)
    cut_run(lab, stream, COMMIT)
    forget(lab, "out")
    set_property(lab, "out", EXPIRES, retention)

    refused(lab, stream)


@pytest.mark.parametrize("retention", [None, NEVER], ids=["none", "long"])
@pytest.mark.parametrize("is_there", [True, False])
def test_tables_that_do_not_forget(lab: Lab, retention: str | None, *, is_there: bool) -> None:
    """The checkpoint knows: the batch is passed over, or written."""
    stream = begin(lab, None)
    cut_run(lab, stream, COMMIT if is_there else Cut("commit out"))
    forget(lab, "out", retention=retention)

    record = lab.run(stream)

    assert [batch.was_in_sink for batch in record.batches] == [is_there]
    assert ids(lab.table("out")) == [*range(5)]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_log_that_reaches_back(lab: Lab, *, is_there: bool) -> None:
    """Expired or not, its commits tell: also where only those before the batch are gone."""
    stream = begin(lab, None)
    forget(lab, "out")
    cut_run(lab, stream, COMMIT if is_there else Cut("commit out"))

    record = lab.run(stream)

    assert [batch.was_in_sink for batch in record.batches] == [is_there]
    assert ids(lab.table("out")) == [*range(5)]


@pytest.mark.parametrize("retention", [AT_ONCE, NEVER])
def test_spark_connect(lab: Lab, retention: str) -> None:
    """Delta's own writer, which has forgotten what the log tells, is not let near the batch; another Spark ends it."""
    stream = begin(lab, None)
    set_property(lab, "out", EXPIRES, retention)
    cut_run(lab, stream, COMMIT)
    there = replace(lab.project, spark_master="sc://127.0.0.1:1")

    problem = plan_stream(there, Request(there.resolve(stream))).problem

    assert (problem is None) == (retention == NEVER)
    if problem is not None:
        read_remedy(problem, "TRANSACTION_FORGOTTEN", "run the stream once with a Spark of its own")
    assert [batch.was_in_sink for batch in lab.run(stream).batches] == [True]
    assert ids(lab.table("out")) == [*range(5)]


@pytest.mark.parametrize("retention", [AT_ONCE, None], ids=["set", "unset"])
def test_a_checkpoint_that_has_forgotten_what_a_commit_tells(lab: Lab, retention: str | None) -> None:
    """With the property unset again, Delta itself takes the batch for new: it is refused, until somebody notes it."""
    stream = begin(lab, None)
    cut_run(lab, stream, COMMIT)
    set_property(lab, "out", EXPIRES, AT_ONCE)
    set_property(lab, "out", "delta.checkpointInterval", "1")
    set_property(lab, "out", EXPIRES, retention)
    if retention is None:
        there, version, _ = refused(lab, stream)
        note(lab, "out", there, version)

    assert [batch.was_in_sink for batch in lab.run(stream).batches] == [True]
    assert ids(lab.table("out")) == [*range(5)]


def test_output_mode_complete(lab: Lab) -> None:
    """A batch that replaces all rows may be written twice: nothing is refused."""
    stream = begin(lab, None, transform=f"{__name__}:largest", output_mode="complete")
    cut_run(lab, stream, COMMIT)
    forget(lab, "out")

    lab.run(stream)

    assert ids(lab.table("out")) == [4]


def test_a_batch_in_one_of_two_tables(lab: Lab) -> None:
    """The quarantine has its part, and has forgotten it: what was decided is not written there again."""
    stream = begin(lab, "quarantine")
    cut_run(lab, stream, Cut("commit out", nth=2))
    assert (ids(lab.table("out")), ids(lab.table("out_quarantine"))) == ([0], [4])
    forget(lab, "out_quarantine")
    there, version, _ = refused(lab, stream)

    note(lab, "out_quarantine", there, version)
    lab.run(stream)

    assert (ids(lab.table("out")), ids(lab.table("out_quarantine"))) == ([*range(4)], [4])


def test_a_batch_in_both_tables(lab: Lab) -> None:
    """The sink tells for the quarantine, which has had its part before."""
    stream = begin(lab, "quarantine")
    cut_run(lab, stream, COMMIT)
    forget(lab, "out_quarantine")

    record = lab.run(stream)

    assert [(batch.quarantined_rows, batch.warnings) for batch in record.batches] == [(1, ())]
    assert (ids(lab.table("out")), ids(lab.table("out_quarantine"))) == ([*range(4)], [4])


@pytest.mark.parametrize("is_there", [True, False])
def test_a_release(lab: Lab, *, is_there: bool) -> None:
    """Killed before its rows had left the quarantine: refused until somebody has looked."""
    stream = begin(lab, "quarantine")
    lab.run(stream)
    begin(lab, "quarantine", most=1000)

    def release() -> None:
        return_rows(lab.project, lab.project.resolve(stream), None, "ada", session=lab.spark)

    cut_run(lab, stream, Cut("delete") if is_there else Cut("commit out"), release)
    forget(lab, "out")
    before = ids(lab.table("out"))
    with pytest.raises(RefusedError) as told:
        release()
    there, version, absent = asked(told.value)
    assert there.startswith("sluice-release-")
    assert (ids(lab.table("out")), ids(lab.table("out_quarantine"))) == (before, [4])

    note(lab, "out", *((there, version) if is_there else (absent, 0)))
    release()

    assert (ids(lab.table("out")), ids(lab.table("out_quarantine"))) == ([*range(5)], [])


def test_a_backfill(lab: Lab) -> None:
    """It would replace rows of a batch that it takes for one that is yet to come."""
    stream = begin(lab, None, transform=f"{__name__}:dated", interval_column="day")
    cut_run(lab, stream, COMMIT)
    forget(lab, "out")
    days = Interval(datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 8, tzinfo=UTC))
    request = BackfillRequest(lab.project.resolve(stream), days)
    with pytest.raises(RefusedError) as told:
        backfill_stream(lab.project, request, session=lab.spark)
    there, version, _ = asked(told.value)

    note(lab, "out", there, version)
    backfill_stream(lab.project, request, session=lab.spark)
    lab.run(stream)

    assert ids(lab.table("out")) == [*range(5)]


def test_a_first_run(lab: Lab) -> None:
    """Into a table that forgets: the plan says what may come of it, once, and what to do."""
    write_numbers(lab.root / "in", 1)
    lab.spark.sql(
        f"CREATE TABLE delta.`{lab.root / 'out'}` (id bigint) USING delta TBLPROPERTIES ('{EXPIRES}' = '{AT_ONCE}')"
    )
    (warning,) = lab.plan(numbers()).warnings
    says = "ALTER TABLE delta[.]`[^`]+` UNSET TBLPROPERTIES [(]'[^']+'[)]"
    command = re.search(says, read_remedy(warning, "TRANSACTIONS_EXPIRE", says).remedy)
    assert command is not None

    lab.spark.sql(command[0])

    assert lab.plan(numbers()).warnings == ()
    set_property(lab, "out", EXPIRES, AT_ONCE)
    assert [found.code for found in lab.run(numbers()).plan.warnings] == ["TRANSACTIONS_EXPIRE"]
    write_numbers(lab.root / "in", 1, first=1)
    assert lab.plan(numbers()).warnings == ()
