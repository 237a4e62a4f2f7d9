"""A transform whose state does not fit its checkpoint: refused before a batch is planned, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from sluice.spark_setting import spark_setting
from tests.campaign import rarely
from tests.spark.lab import Lab, write_numbers

pytestmark = pytest.mark.spark

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def plain(a: DataFrame) -> DataFrame:
    return a


def by_id(a: DataFrame) -> DataFrame:
    return a.dropDuplicates(["id"])


def by_id_of_other_rows(a: DataFrame) -> DataFrame:
    return a.where("id >= 0").withColumn("more", F.lit(1)).dropDuplicates(["id"]).drop("more")


def by_text(a: DataFrame) -> DataFrame:
    return a.withColumn("text", F.col("id").cast("string")).dropDuplicates(["text"]).drop("text")


def by_id_and_text(a: DataFrame) -> DataFrame:
    return a.withColumn("text", F.col("id").cast("string")).dropDuplicates(["id", "text"]).drop("text")


def totals(a: DataFrame) -> DataFrame:
    return a.groupBy((F.col("id") % 2).alias("id")).agg(F.sum("id").alias("total"))


def totals_and_counts(a: DataFrame) -> DataFrame:
    grouped = a.groupBy((F.col("id") % 2).alias("id"))
    return grouped.agg(F.sum("id").alias("total"), F.max("id").alias("largest"))


def declared(transform: object, mode: str = "append") -> Stream:
    return Stream(
        name="s",
        sources={"a": sources.files("a", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform.__name__}",
        sink=sinks.delta("out"),
        output_mode=mode,
    )


_CHANGES = [
    (by_id, by_id_and_text, "append", "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"),
    (totals, totals_and_counts, "complete", "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"),
    *rarely(
        (by_id, by_text, "append", "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"),
        (by_id, plain, "append", "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"),
        (plain, by_id, "append", "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"),
    ),
]


@pytest.mark.parametrize("provider", [_HDFS, *rarely(_ROCKSDB)])
@pytest.mark.parametrize("case", _CHANGES, ids=lambda case: f"{case[0].__name__}-{case[1].__name__}")
def test_changed_state(lab: Lab, case: tuple[object, object, str, str], provider: str) -> None:
    """No batch is planned, a retry would not help, and the stream goes on with the old transform."""
    before, after, mode, condition = case
    stream = declared(before, mode)
    write_numbers(lab.root / "a", 3)
    with spark_setting(lab.spark, _PROVIDER, provider), spark_setting(lab.spark, "spark.sql.shuffle.partitions", "2"):
        lab.run(stream)
        write_numbers(lab.root / "a", 2, first=3)
        changed = replace(stream, transform=declared(after).transform)
        with pytest.raises(RefusedError, match=condition) as refused:
            lab.run(changed)
        offsets = sorted(file.name for file in (lab.checkpoint(stream) / "offsets").iterdir() if file.name.isdigit())

        assert refused.value.finding.code == "STATE_CHANGED"
        assert offsets == ["0"]
        assert lab.records(stream)[-1]["status"] == "refused"
        assert not lab.records(stream)[-1]["error"]["retryable"]
        assert lab.run(stream).status == "succeeded"


def test_a_change_that_keeps_the_state(lab: Lab) -> None:
    """Other rows before, and other columns beside the keys, fit the same state."""
    write_numbers(lab.root / "a", 3)
    lab.run(declared(by_id))
    write_numbers(lab.root / "a", 2, first=3)

    assert lab.run(declared(by_id_of_other_rows)).status == "succeeded"
    assert sorted(row.id for row in lab.table("out").collect()) == [0, 1, 2, 3, 4]
