"""What Sluice knows of Spark by heart is what the running Spark says of itself; an upgrade shows here."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from sluice.spark.session import PINNED, pinned_conf
from sluice.spark_options import FORMATS
from tests.spark.lab import Lab, available_now, log_files, reader, write_numbers

pytestmark = pytest.mark.spark

REGISTRIES = {
    "avro": "org.apache.spark.sql.avro.AvroOptions",
    "csv": "org.apache.spark.sql.catalyst.csv.CSVOptions",
    "json": "org.apache.spark.sql.catalyst.json.JSONOptions",
    "orc": "org.apache.spark.sql.execution.datasources.orc.OrcOptions",
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetOptions",
    "text": "org.apache.spark.sql.execution.datasources.text.TextOptions",
    "xml": "org.apache.spark.sql.catalyst.xml.XmlOptions",
}


def options_of(spark: SparkSession, name: str) -> set[str]:
    """The options that one of Spark's registries lists."""
    java = spark._jvm.java.lang
    loader = java.Thread.currentThread().getContextClassLoader()
    is_initialized = True
    registry = java.Class.forName(f"{name}$", is_initialized, loader).getField("MODULE$").get(None)
    options = registry.getAllOptions().toSeq()
    return {options.apply(index) for index in range(options.size())}


@pytest.mark.parametrize("file_format", REGISTRIES)
def test_options_of_formats(spark: SparkSession, file_format: str) -> None:
    """The options of a format are those that Spark registers for it; a whole file has none."""
    assert {name for name, options in FORMATS.items() if options} == REGISTRIES.keys()
    assert set(FORMATS[file_format]) == options_of(spark, REGISTRIES[file_format])
    assert len(FORMATS[file_format]) == len(set(FORMATS[file_format]))


@pytest.fixture(scope="module")
def pinned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The settings that Spark writes into the first batch of a query."""
    root = tmp_path_factory.mktemp("pinned")
    write_numbers(root / "land", 1)
    available_now(reader(spark).json(str(root / "land")), root / "spark")
    (first,) = log_files(root / "spark" / "offsets")
    return json.loads(first.read_text().split("\n")[1])["conf"]


def test_pinned_settings(pinned: dict[str, str]) -> None:
    """Spark pins the settings that Sluice pins, in the same order."""
    assert tuple(pinned) == PINNED


def test_pinned_values(pinned: dict[str, str], spark: SparkSession) -> None:
    """The values that Sluice would write are those that Spark writes."""
    assert pinned_conf(spark) == pinned


def test_trigger_once(lab: Lab) -> None:
    """The deprecated trigger that stops at the plan is still there: it runs one batch and ends."""
    write_numbers(lab.root / "land", 2)
    writer = reader(lab.spark, maxFilesPerTrigger=1).json(str(lab.root / "land")).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(lab.root / "spark")).trigger(once=True).start()
    query.awaitTermination()
    assert [file.name for file in log_files(lab.root / "spark" / "commits")] == ["0"]
