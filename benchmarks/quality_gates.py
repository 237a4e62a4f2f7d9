"""A warm run that the gate audits before it publishes, against the same run without a suite."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import ROUNDS, Figure, ratio
from benchmarks.quality_frames import CHECKS, DDL, open_spark, orders
from sluice import Stream, sinks, sources
from sluice.planning.verdict import Request
from sluice.project import Project
from sluice.running.runner import run_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
FILES = 8
BATCHES = 4
TRANSFORM = f"{__name__}:as_it_is"


def as_it_is(orders: DataFrame) -> DataFrame:
    """The transform: what is measured is the way into the table."""
    return orders


def measure() -> list[Figure]:
    """Each round reads the same files into tables that have rows already, once by each gate."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        session = open_spark(root)
        orders(session, ROWS, FILES).write.parquet(f"{folder}/in")
        for gate, policy in (("publish", "fail"), ("cache", "quarantine"), ("write", "warn")):
            (root / f"{gate}.json").write_text(_suite(policy))
        sides = ("none", "publish", "cache", "write")
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(ROUNDS + 1):
            for side in sides if number % 2 else reversed(sides):
                took = _run(session, root, side, number)
                if number:
                    seconds[side].append(took)
        session.stop()
    told = f"warm run of {BATCHES} batches, {ROWS:,} rows, 8 checks"
    return [ratio(f"{told}, gate {side}, to none", seconds[side], seconds["none"], None, "s") for side in sides[1:]]


def _suite(policy: str) -> str:
    """The checks, of which the first has the policy."""
    rows: list[dict[str, Any]] = [{**check, "severity": "warning"} for check in CHECKS]
    rows[0]["meta"] = {"sluice": {"policy": policy}}
    return json.dumps({"name": "orders", "expectations": rows})


def _run(session: SparkSession, root: Path, side: str, number: int) -> float:
    target = f"{side}{number}"
    session.createDataFrame([], DDL).write.format("delta").save(str(root / target))
    project = Project(str(root), "bench", str(root / f"home-{target}"), (), (), spark_master="local[2]")
    stream = Stream(
        name="orders",
        sources={"orders": sources.files("in", format="parquet", schema=DDL, max_files_per_batch=FILES // BATCHES)},
        transform=TRANSFORM,
        sink=sinks.delta(target),
    )
    if side != "none":
        stream = replace(stream, quality=f"{side}.json")
    began = time.perf_counter()
    record = run_stream(project, Request(project.resolve(stream)), session=session)
    took = time.perf_counter() - began
    if record.quality is not None and (record.quality.where, record.quality.verdict) != (side, "pass"):
        raise RuntimeError(f"the gate is {record.quality.where}, the verdict {record.quality.verdict}")
    return took
