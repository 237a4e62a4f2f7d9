"""One Spark for all tests that only need one, and a project in a temporary folder for each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sluice import Stream, sinks, sources
from sluice.spark.java import Work
from tests.python_workers import importing_tests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.lab import Lab


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that the product opens for a small run of a stream with a Delta table, but for these settings."""
    from sluice.spark.session import open_session
    from tests.spark.lab import Lab

    # Else pyspark's workers are whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = tmp_path_factory.mktemp("session")
    conf = {
        # It goes through a thousand runs, where one of a user goes through one.
        "spark.driver.memory": "2g",
        # And it lives for an hour: with the second compiler, which a run of seconds does without, for a seventh less.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        # For a handful of rows, writing a projection's code costs more than it saves: a quarter of what these tests
        # cost. The drivers of tests/faults, tests/airflow and test_startup.py run as users have them.
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Delta's VACUUM lists a table in as many tasks as this, 10,000 unless told.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    project = replace(Lab(None, root).project, spark_conf=conf)
    stream = Stream(name="warm", sources={"n": sources.delta("n")}, transform="none:none", sink=sinks.delta("out"))
    with importing_tests():
        session = open_session(project, stream, work=Work(size_bytes=0))
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Iterator[Lab]:
    """A project in a temporary folder. Its tables are forgotten: those of a hundred tests fill Spark's memory."""
    from sluice.spark.active_session import active
    from sluice.spark.left_behind import forget_tables
    from tests.spark.lab import Lab

    with active(spark):
        yield Lab(spark, tmp_path)
    forget_tables(spark)
