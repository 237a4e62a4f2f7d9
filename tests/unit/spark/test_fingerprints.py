"""Which settings of Spark's count behind a batch whose rows count: those by which it reads other values."""

from __future__ import annotations

import pytest

from sluice.spark.fingerprints import reads_values


@pytest.mark.parametrize(
    "setting",
    [
        "spark.sql.ansi.enabled",
        "spark.sql.caseSensitive",
        "spark.sql.csv.parser.columnPruning.enabled",
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.json.enablePartialResults",
        "spark.sql.legacy.timeParserPolicy",
        "spark.sql.parquet.binaryAsString",
        "spark.sql.parquet.datetimeRebaseModeInRead",
        "spark.sql.parquet.fieldId.read.enabled",
        "spark.sql.parquet.int96TimestampConversion",
        "spark.sql.session.timeZone",
        "spark.sql.sources.partitionColumnTypeInference.enabled",
        "spark.sql.timestampType",
    ],
)
def test_settings_of_values(setting: str) -> None:
    assert reads_values(setting)


@pytest.mark.parametrize(
    "setting",
    [
        "spark.sql.adaptive.enabled",
        "spark.sql.csv.filterPushdown.enabled",
        "spark.sql.files.maxPartitionBytes",
        "spark.sql.json.filterPushdown.enabled",
        "spark.sql.parquet.enableVectorizedReader",
        "spark.sql.parquet.filterPushdown",
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.stateStore.providerClass",
    ],
)
def test_settings_of_speed(setting: str) -> None:
    assert not reads_values(setting)
