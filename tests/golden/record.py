"""Makes the golden checkpoints of one Spark version: small ones, of every shape that Spark's files have.

Needs nothing but the pyspark whose checkpoints it makes, so it runs for versions that Sluice itself does not use:

    uv run --no-project --python 3.11 --with pyspark==4.0.1 python tests/golden/record.py tests/golden/4.0

Each scenario becomes one zip file: the checkpoint as Spark left it, and `expected.json`, which holds what *Spark*
reported of the query. Nothing in it comes from Sluice's reader.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ROOT = Path("/tmp/golden-checkpoints")
"""Spark writes the paths of its inputs into its logs: a neutral one."""
EPOCH = 1_767_225_600
SCHEMA = "key int, at timestamp"
VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass(frozen=True)
class Lab:
    """One scenario's folder and session."""

    spark: SparkSession
    root: Path

    def land(self, folder: str, first: int, count: int) -> None:
        """Land one file per number; each holds one row, ten minutes after that of the file before."""
        target = self.root / folder
        target.mkdir(parents=True, exist_ok=True)
        for number in range(first, first + count):
            row = {"key": number % 3, "at": f"2026-01-01 {number // 6:02d}:{number % 6}0:00"}
            file = target / f"{number:04d}.json"
            file.write_text(json.dumps(row), encoding="utf-8")
            os.utime(file, (EPOCH + number, EPOCH + number))  # Spark takes the files in the order of these times

    def read(self, folder: str, **options: Any) -> DataFrame:
        """Stream a folder, one file per batch."""
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.options(**options).json(str(self.root / folder))

    def run(self, frame: DataFrame, *, mode: str = "append", sink: str = "noop") -> dict[str, Any]:
        """Run the query with AvailableNow, and report its newest batch as Spark does."""
        writer = frame.writeStream.format(sink).outputMode(mode)
        if sink != "noop":
            writer = writer.option("path", str(self.root / "out"))
        query = writer.option("checkpointLocation", str(self.root / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        # The JVM's own JSON: Python's view of it differs between versions.
        reports = [json.loads(report.json()) for report in query._jsq.recentProgress()]
        last = max(reports, key=lambda report: report["batchId"])
        return {
            "query_id": last["id"],
            "planned": last["batchId"],
            "committed": last["batchId"],
            "watermark": last.get("eventTime", {}).get("watermark"),
            "offsets": [source["endOffset"] for source in last["sources"]],
            "operators": [operator["operatorName"] for operator in last["stateOperators"]],
            "files": sorted(path.name for path in self.root.glob("landing*/**/*.json")),
        }


@dataclass(frozen=True)
class Scenario:
    """One golden checkpoint."""

    play: Callable[[Lab], dict[str, Any]]
    conf: dict[str, str] = field(default_factory=dict)
    since: tuple[int, int] = (3, 5)


def stateless(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 3)
    return lab.run(lab.read("landing"))


def compacted(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 12)
    return lab.run(lab.read("landing"))


def restarted(lab: Lab) -> dict[str, Any]:
    for day in range(3):
        lab.land("landing", 2 * day, 2)
        expected = lab.run(lab.read("landing"))
    return expected


def strange_names(lab: Lab) -> dict[str, Any]:
    lab.land("landing/größe=a b", 0, 2)
    return lab.run(lab.read("landing"))


def two_sources(lab: Lab) -> dict[str, Any]:
    lab.land("landing_a", 0, 3)
    lab.land("landing_b", 3, 1)
    return lab.run(lab.read("landing_b").union(lab.read("landing_a")))


def self_union(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 2)
    frame = lab.read("landing")
    return lab.run(frame.union(frame))


def rate(lab: Lab) -> dict[str, Any]:
    reader = lab.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5)
    return lab.run(reader.option("startTimestamp", EPOCH * 1000).load())


def deduplicated(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 4)
    frame = lab.read("landing").withWatermark("at", "1 hour")
    return lab.run(frame.dropDuplicatesWithinWatermark(["key"]))


def windows(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 9)
    frame = lab.read("landing").withWatermark("at", "10 minutes")
    return lab.run(frame.groupBy(F.window("at", "30 minutes"), "key").count())


def sessions(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 6)
    frame = lab.read("landing").withWatermark("at", "10 minutes")
    return lab.run(frame.groupBy(F.session_window("at", "5 minutes"), "key").count())


def totals(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 3)
    return lab.run(lab.read("landing").groupBy("key").count(), mode="complete")


def joined(lab: Lab) -> dict[str, Any]:
    lab.land("landing_a", 0, 4)
    lab.land("landing_b", 0, 4)
    left = lab.read("landing_a").withWatermark("at", "10 minutes").alias("l")
    right = lab.read("landing_b").withWatermark("at", "10 minutes").alias("r")
    return lab.run(left.join(right, F.expr("l.key = r.key AND r.at BETWEEN l.at AND l.at + INTERVAL 1 HOUR")))


def total(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 3)
    return lab.run(lab.read("landing").groupBy().count(), mode="complete")


def limited(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 3)
    return lab.run(lab.read("landing").limit(2))


def file_sink(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 11)
    expected = lab.run(lab.read("landing"), sink="parquet")
    shutil.copytree(lab.root / "out" / "_spark_metadata", lab.root / "checkpoint" / "_spark_metadata")
    return expected | {"published": sorted(path.name for path in (lab.root / "out").glob("*.parquet"))}


def failed(lab: Lab) -> dict[str, Any]:
    lab.land("landing", 0, 3)
    seen: list[int] = []

    def fail_on_the_third(_: DataFrame, batch_id: int) -> None:
        seen.append(batch_id)
        if batch_id == 2:
            raise RuntimeError("as it should")

    query = (
        lab.read("landing")
        .writeStream.foreachBatch(fail_on_the_third)
        .option("checkpointLocation", str(lab.root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    while query.isActive:
        time.sleep(0.1)
    assert "as it should" in str(query.exception())
    return {
        "query_id": query.id,
        "planned": seen[-1],
        "committed": seen[-2],
        "watermark": None,
        "offsets": [{"logOffset": seen[-1]}],
        "operators": [],
        "files": ["0000.json", "0001.json", "0002.json"],
    }


def named_sources(lab: Lab) -> dict[str, Any]:
    lab.land("landing_a", 0, 2)
    lab.land("landing_b", 2, 1)
    reader = lab.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    first = reader.name("orders").json(str(lab.root / "landing_a"))
    reader = lab.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    second = reader.name("refunds").json(str(lab.root / "landing_b"))
    return lab.run(first.union(second))


SCENARIOS = {
    "stateless": Scenario(stateless),
    "compacted": Scenario(compacted),
    "restarted": Scenario(restarted),
    "strange_names": Scenario(strange_names),
    "two_sources": Scenario(two_sources),
    "self_union": Scenario(self_union),
    "rate": Scenario(rate),
    "deduplicated": Scenario(deduplicated),
    "windows": Scenario(windows),
    "windows_rocksdb": Scenario(windows, {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}),
    "windows_changelog": Scenario(windows, CHANGELOG),
    "windows_state_ids": Scenario(
        windows, CHANGELOG | {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}, since=(4, 0)
    ),
    "sessions": Scenario(sessions),
    "totals": Scenario(totals),
    "joined": Scenario(joined),
    "joined_rocksdb": Scenario(joined, CHANGELOG),
    "total": Scenario(total),
    "limited": Scenario(limited),
    "file_sink": Scenario(file_sink),
    "failed": Scenario(failed),
    "named_sources": Scenario(
        named_sources, {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}, since=(4, 2)
    ),
}


def main(target: Path) -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    target.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.local.dir", str(ROOT / "local"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    for name, scenario in SCENARIOS.items():
        if scenario.since > VERSION:
            continue
        session = spark.newSession()
        for key, value in scenario.conf.items():
            session.conf.set(key, value)
        root = ROOT / name
        expected = scenario.play(Lab(session, root))
        with zipfile.ZipFile(target / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("expected.json", json.dumps(expected | {"spark": pyspark.__version__}, indent=2))
            for path in sorted((root / "checkpoint").rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(root))
        print(f"{name}: batch {expected['planned']}", flush=True)
    spark.stop()
    shutil.rmtree(ROOT)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
