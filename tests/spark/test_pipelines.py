"""A project of Spark's declarative pipelines, run by `spark-pipelines` and by Sluice in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sluice.planning.verdict import Request
from sluice.project import find_project
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecord
from sluice.spark import jars

pytestmark = pytest.mark.spark

SPEC = """\
name: shop
storage: file://{root}/storage
configuration:
  spark.sql.sources.default: delta
libraries:
  - glob:
      include: transformations/**
"""
PYTHON = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

spark = SparkSession.active()


@dp.table
def orders():
    return spark.readStream.schema("id bigint").json("{root}/landing").where(col("id") > 0)


@dp.materialized_view
def totals():
    return spark.read.table("orders").groupBy().count()
"""
SQL = "CREATE STREAMING TABLE doubled AS SELECT 2 * id AS id FROM STREAM(orders);"
CONF = """\
spark.driver.extraClassPath {jars}
spark.sql.extensions io.delta.sql.DeltaSparkSessionExtension
spark.sql.catalog.spark_catalog org.apache.spark.sql.delta.catalog.DeltaCatalog
spark.sql.catalogImplementation hive
spark.sql.warehouse.dir {root}/spark-warehouse
spark.databricks.delta.snapshotPartitions 1
spark.sql.shuffle.partitions 1
spark.ui.enabled false
"""


def spark_pipelines(root: Path) -> None:
    """Run the pipeline as its users do."""
    home = Path(pyspark.__file__).parent
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))},
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(root / "conf"),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [str(home / "bin" / "spark-pipelines"), "run"], cwd=root, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode()[-3000:] + done.stderr.decode()[-3000:]


def sluice_run(root: Path, name: str, spark: SparkSession) -> RunRecord:
    project = replace(find_project(str(root)), spark_master="local[2]")
    return run_stream(project, Request(project.stream(name)), session=spark)


def rows(root: Path, table: str) -> list[int]:
    found = DeltaTable(str(root / "spark-warehouse" / table)).to_pyarrow_table()
    return sorted(found.column("id").to_pylist())


def land(root: Path, *ids: int) -> None:
    for number in ids:
        (root / "landing" / f"{number}.json").write_text(json.dumps({"id": number}))


def test_in_turn(tmp_path: Path, spark: SparkSession) -> None:
    """Each goes on where the other has stopped: no row is lost, none comes twice."""
    for folder in ("landing", "transformations", "conf"):
        (tmp_path / folder).mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(root=tmp_path))
    (tmp_path / "transformations" / "orders.py").write_text(PYTHON.format(root=tmp_path))
    (tmp_path / "transformations" / "doubled.sql").write_text(SQL)
    conf = CONF.format(root=tmp_path, jars=":".join(jars.class_path()))
    (tmp_path / "conf" / "spark-defaults.conf").write_text(conf)
    land(tmp_path, 0, 1, 2)
    spark_pipelines(tmp_path)
    assert rows(tmp_path, "doubled") == [2, 4]

    assert sluice_run(tmp_path, "orders", spark).status == "skipped"
    land(tmp_path, 3, 4)
    for name in ("orders", "doubled"):
        record = sluice_run(tmp_path, name, spark)
        assert (record.status, record.plan.strategy, len(record.batches)) == ("succeeded", "exact", 1)
        assert record.batches[0].batch_id == 1
        assert sluice_run(tmp_path, name, spark).status == "skipped"
    assert rows(tmp_path, "orders") == [1, 2, 3, 4]
    assert rows(tmp_path, "doubled") == [2, 4, 6, 8]

    land(tmp_path, 5)
    spark_pipelines(tmp_path)
    land(tmp_path, 6)
    for name in ("orders", "doubled"):
        assert sluice_run(tmp_path, name, spark).batches[-1].batch_id == 3
    assert rows(tmp_path, "orders") == [1, 2, 3, 4, 5, 6]
    assert rows(tmp_path, "doubled") == [2, 4, 6, 8, 10, 12]
