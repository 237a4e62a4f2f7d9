"""A project of Spark's declarative pipelines, run by `spark-pipelines` and by Sluice in one Spark.

That Spark serves Connect, too, which the command of `spark-pipelines` is a client of; its catalog is the session's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import Project, find_project
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecord
from sluice.spark.left_behind import forget_tables
from tests.spark.connect_server import free_port
from tests.spark.lab import NO_LIMITS
from tests.spark.power_cuts import Cut, power_cut

_SPEC = """\
name: shop
storage: file://{root}/storage
database: {database}
configuration:
  spark.sql.sources.default: delta
  spark.sql.shuffle.partitions: "1"
libraries:
  - glob:
      include: transformations/**
"""


@dataclass(frozen=True)
class PipelineLab:
    """A pipeline in a temporary folder, with a database of its own, and a Spark that is warm."""

    spark: SparkSession
    root: Path
    database: str
    url: str

    @property
    def project(self) -> Project:
        return find_project(str(self.root))

    def define(self, name: str, text: str) -> None:
        """Write a file of definitions; `ROOT` in it is the project's folder."""
        file = self.root / "transformations" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace("ROOT", str(self.root)))

    def spark_pipelines(self, *arguments: str) -> None:
        """Run the pipeline as its users do."""
        command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", *arguments]
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        done = subprocess.run(
            command, cwd=self.root, env=own | {"SPARK_REMOTE": self.url}, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout.decode()[-3000:] + done.stderr.decode()[-3000:]

    def run(self, name: str, limits: Limits = NO_LIMITS) -> RunRecord:
        project = self.project
        return run_stream(project, Request(project.stream(name), limits), session=self.spark)

    def cut_run(self, name: str, cut: Cut) -> None:
        """Let the power go at a write of a run, and those that had leases be dead."""
        with power_cut(cut, self.root) as writes:
            try:
                self.run(name)
            except BaseException:
                assert writes.at is not None
        assert writes.at is not None
        for leases in self.root.rglob("leases"):
            leases.rename(leases.with_name(f"former-{uuid4().hex}"))
        forget_tables(self.spark)

    def checkpoints(self, table: str, flow: str) -> Path:
        return self.root / "storage" / "_checkpoints" / "spark_catalog" / self.database / table / flow

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = DeltaTable(str(self.root / "spark-warehouse" / f"{self.database}.db" / table)).to_pyarrow_table()
        return sorted(found.to_pylist(), key=repr)


def serve(spark: SparkSession) -> str:
    """Let a session's Spark answer clients of Connect; gives its URL."""
    jvm: Any = spark._jvm
    conf, port = jvm.org.apache.spark.SparkEnv.get().conf(), free_port()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", str(port))
    jvm.org.apache.spark.sql.connect.service.SparkConnectService.start(spark.sparkContext._jsc.sc())
    return f"sc://127.0.0.1:{port}"


def stop_serving(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    option: Any = jvm.scala.Option
    jvm.org.apache.spark.sql.connect.service.SparkConnectService.stop(option.empty(), option.empty())


def new_pipeline(spark: SparkSession, root: Path, url: str) -> PipelineLab:
    """A pipeline without definitions."""
    database = f"shop_{uuid4().hex[:8]}"
    spark.sql(f"CREATE DATABASE {database} LOCATION '{root}/spark-warehouse/{database}.db'")
    (root / "spark-pipeline.yml").write_text(_SPEC.format(root=root, database=database))
    return PipelineLab(spark, root, database, url)
