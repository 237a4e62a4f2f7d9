"""Batches that Spark writes aside, and a commit of metadata publishes: which are, and what others find of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, DeclarationError, SluiceError
from sluice.sinks.delta import published_batch
from sluice.spark_setting import spark_setting
from tests.spark.lab import Lab, ids, rows, uncommit, write_numbers
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

MADE, PUBLISHED, BY_DELTA = "CREATE TABLE", "WRITE", "STREAMING UPDATE"


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def as_text(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.col("id").cast("string"))


def declared(**options: Any) -> Stream:
    return Stream(
        name="numbers",
        sources={"numbers": sources.files("in", format="json", schema="id bigint", max_files_per_batch=2)},
        transform=f"{__name__}:same",
        sink=sinks.delta("out", **options),
    )


def operations(lab: Lab) -> list[str]:
    history = lab.spark.sql(f"DESCRIBE HISTORY delta.`{lab.root / 'out'}`")
    return [found.operation for found in history.orderBy("version").collect()]


def begin(lab: Lab, stream: Stream) -> None:
    """The first batch makes the table."""
    write_numbers(lab.root / "in", 2)
    lab.run(stream)


def go_on(lab: Lab, stream: Stream) -> None:
    write_numbers(lab.root / "in", 2, first=2)
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 2, 3]


def test_what_spark_finds_in_the_history(lab: Lab) -> None:
    """A batch that is published tells what Delta's own writer tells."""
    begin(lab, declared(user_metadata="nightly"))
    go_on(lab, declared(user_metadata="nightly"))
    assert operations(lab) == [MADE, PUBLISHED]
    newest, first = lab.spark.sql(f"DESCRIBE HISTORY delta.`{lab.root / 'out'}`").collect()
    for found in (first, newest):
        assert (found.isBlindAppend, found.userMetadata) == (True, "nightly")
        assert found.operationMetrics["numOutputRows"] == "2"


def test_spark_reads_a_log_of_many_batches(lab: Lab) -> None:
    """Also once delta-rs has made checkpoints of it; a stream that reads the table gets each row once."""
    stream = replace(
        declared(), sources={"numbers": sources.files("in", format="json", schema="id bigint", max_files_per_batch=1)}
    )
    write_numbers(lab.root / "in", 23)
    lab.run(stream)
    assert operations(lab) == [MADE] + [PUBLISHED] * 22
    assert {path.name[:20] for path in (lab.root / "out" / "_delta_log").glob("*.checkpoint.parquet")} == {
        f"{version:020d}" for version in (10, 20)
    }
    assert ids(lab.spark_table("out")) == [*range(23)]
    reading = Stream(
        name="copy",
        sources={"numbers": sources.delta("out")},
        transform=f"{__name__}:same",
        sink=sinks.delta("copy"),
    )
    lab.run(reading)
    write_numbers(lab.root / "in", 1, first=23)
    lab.run(stream)
    lab.run(reading)
    assert ids(lab.table("copy")) == [*range(24)]


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("spark.databricks.delta.autoCompact.enabled", "true", BY_DELTA),
        ("spark.delta.logStore.s3.impl", "io.delta.storage.S3DynamoDBLogStore", BY_DELTA),
        ("spark.databricks.delta.retentionDurationCheck.enabled", "false", PUBLISHED),
    ],
)
def test_settings_that_tell_deltas_writer_something(lab: Lab, setting: str, value: str, expected: str) -> None:
    """A session that says how Delta is to write has its own writer write."""
    begin(lab, declared())
    with spark_setting(lab.spark, setting, value):
        go_on(lab, declared())
    assert operations(lab)[:2] == [MADE, expected]


def test_tables_with_a_rule(lab: Lab) -> None:
    """A rule that somebody gives the table meanwhile is Delta's to heed."""
    begin(lab, declared())
    lab.spark.sql(f"ALTER TABLE delta.`{lab.root / 'out'}` ADD CONSTRAINT small CHECK (id < 100)")
    go_on(lab, declared())
    assert operations(lab) == [MADE, "ADD CONSTRAINT", BY_DELTA]


def test_columns_of_another_type(lab: Lab) -> None:
    """Delta's own writer would cast a text, and fail at the first that is no number: it is refused before."""
    stream = declared()
    begin(lab, stream)
    with pytest.raises(DeclarationError, match="id: bigint in the table, string in the result"):
        go_on(lab, replace(stream, transform=f"{__name__}:as_text"))
    assert operations(lab) == [MADE]
    assert lab.table("out").dtypes == [("id", "bigint")]


def test_a_rule_between_the_look_and_the_commit(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is published past a rule; the run fails and says so, and the next one goes on as planned."""
    begin(lab, declared())
    write_numbers(lab.root / "in", 2, first=2)
    write_aside = published_batch.write_batch_aside

    def and_a_rule(*args: Any, **more: Any) -> Any:
        written = write_aside(*args, **more)
        lab.spark.sql(f"ALTER TABLE delta.`{lab.root / 'out'}` ADD CONSTRAINT small CHECK (id < 3)")
        return written

    with monkeypatch.context() as patch:
        patch.setattr(published_batch, "write_batch_aside", and_a_rule)
        with pytest.raises(Exception, match="since the batch was written"):
            lab.run(declared())
    assert ids(lab.table("out")) == [0, 1]
    with pytest.raises(BatchFailedError, match="CHECK constraint small"):
        lab.run(declared())
    lab.spark.sql(f"ALTER TABLE delta.`{lab.root / 'out'}` DROP CONSTRAINT small")
    assert [batch.kind for batch in lab.run(declared()).batches] == ["uncommitted"]
    assert ids(lab.table("out")) == [0, 1, 2, 3]


def renamed(lab: Lab) -> None:
    other = lab.table("out").withColumnRenamed("id", "number")
    other.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(lab.root / "out"))


def made_anew(lab: Lab) -> None:
    rows = lab.table("out").localCheckpoint()
    shutil.rmtree(lab.root / "out")
    rows.write.format("delta").save(str(lab.root / "out"))


@pytest.mark.parametrize(
    ("act", "undo", "refused_with"),
    [
        (renamed, "RESTORE", "the result lacks columns of the table: number|number"),
        (made_anew, None, "this generation has written table"),
    ],
)
@pytest.mark.parametrize("has_suite", [False, True])
def test_a_table_that_becomes_another_one_while_a_batch_is_computed(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Lab], None],
    undo: str | None,
    refused_with: str,
    *,
    has_suite: bool,
) -> None:
    """Nothing is published into it; the next run refuses it, and goes on as planned where it is put right."""
    stream = declared()
    if has_suite:
        stream = replace(stream, quality="suite.json")
        rule = row("expect_column_values_to_not_be_null", policy="fail", column="id")
        (lab.root / "suite.json").write_bytes(document(rule))
    begin(lab, stream)
    there = lab.root / "out"
    version = lab.spark.sql(f"DESCRIBE HISTORY delta.`{there}` LIMIT 1").first()["version"]
    write_numbers(lab.root / "in", 2, first=2)
    write_aside = published_batch.write_batch_aside

    def and_act(*args: Any, **more: Any) -> Any:
        written = write_aside(*args, **more)
        act(lab)
        return written

    with monkeypatch.context() as patch:
        patch.setattr(published_batch, "write_batch_aside", and_act)
        with pytest.raises(Exception, match="since the batch was written"):
            lab.run(stream)
    assert lab.table("out").count() == 2
    with pytest.raises(SluiceError, match=refused_with):
        lab.run(stream)
    if undo is None:
        return
    lab.spark.sql(f"RESTORE TABLE delta.`{there}` TO VERSION AS OF {version}")
    assert [batch.kind for batch in lab.run(stream).batches] == ["uncommitted"]
    assert ids(lab.table("out")) == [0, 1, 2, 3]


@pytest.mark.parametrize("retention", ["interval 1 milliseconds", "interval 7 days"])
def test_a_table_that_lets_transactions_expire(lab: Lab, retention: str) -> None:
    """A batch whose commit was lost is there once, whatever Delta's own writer has forgotten by then."""
    stream = declared()
    begin(lab, stream)
    go_on(lab, stream)
    DeltaTable(str(lab.root / "out")).alter.set_table_properties({"delta.setTransactionRetentionDuration": retention})
    uncommit(lab.checkpoint(stream), 1)

    record = lab.run(stream)

    assert [batch.was_in_sink for batch in record.batches] == [True]
    assert ids(lab.table("out")) == [0, 1, 2, 3]
    assert ids(lab.spark_table("out")) == [0, 1, 2, 3]


def odd_name(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.col("id"), F.col("id").cast("string").alias("a`b.c"))


def test_a_column_with_a_backtick(lab: Lab) -> None:
    """It is a name as any other."""
    stream = replace(declared(), transform=f"{__name__}:odd_name")
    begin(lab, stream)
    go_on(lab, stream)

    assert rows(lab.table("out")) == [(0, "0"), (1, "1"), (2, "2"), (3, "3")]


def no_value(numbers: DataFrame) -> DataFrame:
    none = F.when(F.col("id") % 2 == 0, F.lit(None)).otherwise(F.lit("__HIVE_DEFAULT_PARTITION__"))
    return numbers.coalesce(1).select("id", none.alias("part"))


def test_a_value_that_is_spelled_as_none(lab: Lab) -> None:
    """Spark has one folder for both, and Delta's own writer takes both for none: so does every batch."""
    stream = replace(declared(partition_by=["part"]), transform=f"{__name__}:no_value")
    begin(lab, stream)
    go_on(lab, stream)

    assert rows(lab.table("out")) == [(0, None), (1, None), (2, None), (3, None)]


PLACES = ["ünï", "日本", "a b", "a%b", "a/b"]


def in_places(numbers: DataFrame) -> DataFrame:
    places = F.array(*map(F.lit, PLACES))
    return numbers.select("id", places[F.col("id").cast("int")].alias("größe"))


def test_vacuum_takes_no_partition_for_nobodys(lab: Lab) -> None:
    """Spark's `VACUUM` compares paths as texts: those of every partition are spelled as it spells them."""
    stream = replace(declared(partition_by=["größe"]), transform=f"{__name__}:in_places")
    write_numbers(lab.root / "in", len(PLACES))
    lab.run(stream)
    for file in (lab.root / "out").rglob("*.parquet"):
        os.utime(file, (0, 0))

    lab.spark.sql(f"VACUUM delta.`{lab.root / 'out'}`")

    assert rows(lab.spark_table("out")) == [*enumerate(PLACES)]
    assert rows(lab.table("out")) == [*enumerate(PLACES)]
