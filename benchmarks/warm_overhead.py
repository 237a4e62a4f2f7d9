"""A run in a warm session against the same query written by hand in that session."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import ROUNDS, Figure, alternately, ratio
from benchmarks.workload import SCHEMA, arrive, make_project
from sluice import sinks
from sluice.planning.verdict import Request
from sluice.project import find_project
from sluice.running.runner import run_stream
from sluice.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 24
ROWS = 20_000
BATCHES = 4


def measure(rounds: int = ROUNDS) -> list[Figure]:
    """Each round reads the same files into new tables, by a new checkpoint, once each way."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        landing = make_project(root, files_per_batch=FILES // BATCHES)
        arrive(landing, FILES, ROWS)
        project = find_project(folder)
        session = open_session(project, project.stream("events"))
        session.sparkContext.setLogLevel("OFF")
        ours, theirs = alternately(
            partial(_sluice, folder, session), partial(_by_hand, root, session), warming=2, rounds=rounds
        )
        session.stop()
    return [ratio(f"warm run of {BATCHES} batches, wall", ours, theirs, 1.05, "s")]


def _sluice(folder: str, session: SparkSession, number: int) -> None:
    project = replace(find_project(folder), home=f"{folder}/home{number}")
    stream = project.stream("events")
    run_stream(project, Request(replace(stream, sink=sinks.delta(f"{folder}/out{number}"))), session=session)


def _by_hand(root: Path, session: SparkSession, number: int) -> None:
    from pyspark.sql import functions

    events = session.readStream.format("json").schema(SCHEMA).option("maxFilesPerTrigger", FILES // BATCHES)
    frame = events.load(str(root / "in")).where("value >= 0").withColumn("half", functions.col("value") / 2)
    writer = frame.writeStream.format("delta").option("checkpointLocation", str(root / f"checkpoint{number}"))
    query = writer.option("path", str(root / f"by_hand{number}")).trigger(availableNow=True).start()
    query.awaitTermination()
