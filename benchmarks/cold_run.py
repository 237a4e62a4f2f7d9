"""A small cold run: `sluice run` against the same by hand and by a pipeline, with everything that they start."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path

from benchmarks.measure import ROUNDS, SCRIPTS, Cost, Figure, ratio, run
from benchmarks.workload import SCHEMA, arrive, make_project
from sluice.spark import jars
from sluice.spark.java import Work, java_options
from sluice.spark.launch_profile import current_profile

FILES_PER_ROUND = 4
ROWS = 50_000
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""For the start of Spark; as the script by hand has them."""
_PIPELINE = """
name: events
storage: file://ROOT/storage/ROUND
configuration:
  spark.sql.sources.default: delta
  spark.databricks.delta.snapshotPartitions: "2"
  spark.sql.shuffle.partitions: "2"
libraries:
  - glob:
      include: transformations/**
"""
_FLOW = f"""
from pyspark import pipelines
from pyspark.sql import SparkSession, functions as F
@pipelines.table
def ROUND():
    events = SparkSession.active().readStream.format("json").schema("{SCHEMA}").load("ROOT/in/ROUND-*")
    return events.where("value >= 0").withColumn("half", F.col("value") / 2)
"""


def measure() -> list[Figure]:
    """Every round, the same few files arrive, and each side reads them in a process of its own.

    By hand means a script that Python is called with; tuned, the same in a JVM that is started as one of ours.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = list(islice(cold_rounds(Path(folder)), ROUNDS + 1))
    return cold_figures(found[1:])


def cold_rounds(root: Path) -> Iterator[dict[str, Cost]]:
    """What each side costs, round by round; the first has more to do."""
    landing = make_project(root, files_per_batch=1000)
    sides = _sides(root)
    for number in count():
        arrive(landing, FILES_PER_ROUND, ROWS, prefix=f"round{number}-")
        _make_pipeline(root, f"round{number}")
        yield {side: run(command, cwd=root) for side, command in sides.items()}


def cold_figures(costs: Sequence[Mapping[str, Cost]]) -> list[Figure]:
    """The figures of some rounds."""
    figures, ours = [], [cost["sluice"] for cost in costs]
    for side, (cpu, wall) in {"by hand": (0.4, 0.6), "tuned": (1.05, None), "spark-pipelines": (0.35, 0.5)}.items():
        theirs, name = [cost[side] for cost in costs], f"cold small run / {side}"
        figures += [
            ratio(f"{name}, CPU", [c.cpu_seconds for c in ours], [c.cpu_seconds for c in theirs], cpu, "s"),
            ratio(f"{name}, wall", [c.wall_seconds for c in ours], [c.wall_seconds for c in theirs], wall, "s"),
        ]
    return figures


def _sides(root: Path) -> dict[str, list[str]]:
    class_path, files = ":".join(jars.class_path()), "1000"
    options = java_options("", tasks=2, work=Work(FILES_PER_ROUND * ROWS * 50)).split()
    script = (root / "by_hand.py").read_text()
    (root / "tuned.py").write_text(script.replace('"by_hand"', '"tuned"').replace('"checkpoint"', '"checkpoint_tuned"'))
    pipeline = [str(SCRIPTS / "spark-pipelines"), "run", "--remote", "local[2]", "--driver-class-path", class_path]
    pipeline += [word for key, value in _SETTINGS.items() for word in ("--conf", f"{key}={value}")]
    return {
        "sluice": [str(SCRIPTS / "sluice"), "run", "events"],
        "by hand": [sys.executable, "by_hand.py", class_path, files],
        "tuned": current_profile().command(options, ["--master", "local[2]", "tuned.py", class_path, files]),
        "spark-pipelines": pipeline,
    }


def _make_pipeline(root: Path, name: str) -> None:
    """A pipeline that reads the files of a round into a table of its own: of others, its catalog would know nothing."""
    definitions = root / "transformations" / "events.py"
    definitions.parent.mkdir(exist_ok=True)
    for file, text in {root / "spark-pipeline.yml": _PIPELINE, definitions: _FLOW}.items():
        file.write_text(text.replace("ROOT", str(root)).replace("ROUND", name))
