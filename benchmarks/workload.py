"""The project that is measured: JSON events in, Delta out; and the same query written by hand."""

from __future__ import annotations

import json
from pathlib import Path

SCHEMA = "id bigint, name string, value double"

_PROJECT = '[project]\nname = "bench"\n[spark]\nmaster = "local[2]"\n'
_DECLARATION = f"""
from sluice import Stream, sinks, sources
events = Stream(
    name="events",
    sources={{"events": sources.files("in", format="json", schema="{SCHEMA}", max_files_per_batch=FILES)}},
    transform="transform:events",
    sink=sinks.delta("out"),
)
"""
_TRANSFORM = """
from pyspark.sql import functions as F
def events(events):
    return events.where("value >= 0").withColumn("half", F.col("value") / 2)
"""
_BY_HAND = """
import sys
from pyspark.sql import SparkSession, functions as F
jars, files = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.extraClassPath", jars)
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.databricks.delta.snapshotPartitions", "2").config("spark.sql.shuffle.partitions", "2").getOrCreate())
events = spark.readStream.format("json").schema("SCHEMA").option("maxFilesPerTrigger", files).load("in")
query = (events.where("value >= 0").withColumn("half", F.col("value") / 2).writeStream.format("delta")
    .option("checkpointLocation", "checkpoint").option("path", "by_hand").trigger(availableNow=True).start())
query.awaitTermination()
""".replace("SCHEMA", SCHEMA)


def make_project(root: Path, *, files_per_batch: int) -> Path:
    """Write the project and the script by hand; returns the folder that files arrive in."""
    (root / "streams").mkdir(parents=True)
    (root / "sluice.toml").write_text(_PROJECT)
    (root / "streams" / "events.py").write_text(_DECLARATION.replace("FILES", str(files_per_batch)))
    (root / "transform.py").write_text(_TRANSFORM)
    (root / "by_hand.py").write_text(_BY_HAND)
    (root / "in").mkdir()
    return root / "in"


def arrive(folder: Path, files: int, rows: int, *, prefix: str = "f") -> None:
    """Let files arrive."""
    for file in range(files):
        lines = (json.dumps({"id": row, "name": f"n{row % 100}", "value": row / 7}) for row in range(rows))
        (folder / f"{prefix}{file:06d}.json").write_text("\n".join(lines))
