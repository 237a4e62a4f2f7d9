"""A project of Spark's declarative pipelines, run by `spark-pipelines` and by Sluice in turn, over one checkpoint."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sluice.errors import DeclarationError
from tests.spark.lab import uncommit
from tests.spark.pipeline_lab import PipelineLab, new_pipeline, serve, stop_serving
from tests.spark.power_cuts import Cut

pytestmark = pytest.mark.spark

PYTHON = """\
import rules
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

spark = SparkSession.active()


def events():
    return spark.readStream.schema("id bigint, at timestamp").json("ROOT/events")


@dp.table
def Orders():
    return events().where(rules.KEPT)


dp.create_streaming_table("both")


@dp.append_flow(target="both")
def negated():
    return events().select(F.udf(lambda number: -number, LongType())("id").alias("id"))


@dp.table
def counted():
    hourly = events().withWatermark("at", "1 hour").groupBy(F.window("at", "1 hour"))
    return hourly.agg(F.count("*").alias("n")).select(F.hour("window.start").alias("hour"), "n")


@dp.materialized_view
def names():
    return spark.range(100).selectExpr("id", "concat('n', id) AS name")


dp.create_sink("outside", "delta", {"path": "ROOT/outside"})


@dp.append_flow(target="outside")
def first_times():
    return events().dropDuplicates(["id"]).select("id")
"""
SQL = """\
SET spark.sql.session.timeZone = UTC;
CREATE FLOW named AS INSERT INTO both BY NAME
SELECT o.id FROM STREAM(Orders) o JOIN names n ON o.id = n.id WHERE n.name <> 'n3';
"""
Rows = list[tuple[int, int]]
"""Ids, and the hours of their times."""


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Iterator[PipelineLab]:
    lab = new_pipeline(spark, tmp_path, serve(spark))
    lab.define("tables.py", PYTHON)
    lab.define("flows.sql", SQL)
    (tmp_path / "rules.py").write_text("KEPT = 'id > 0'\n")
    yield lab
    stop_serving(spark)
    for database in (lab.database, f"{lab.database}_moved"):
        spark.sql(f"DROP DATABASE IF EXISTS {database} CASCADE")


def land(lab: PipelineLab, name: str, rows: Rows) -> Rows:
    folder = lab.root / "events"
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"id": number, "at": f"2026-01-01T{hour:02d}:30:00Z"}) for number, hour in rows]
    (folder / f"{name}.json").write_text("\n".join(lines))
    return rows


def numbers(lab: PipelineLab, table: str) -> list[int]:
    return sorted(row["id"] for row in lab.rows(table))


def check(lab: PipelineLab, landed: Rows, orders: Rows, *, closed: int) -> None:
    """Compare every table with what a batch makes of all that has landed.

    Args:
        lab: The pipeline.
        landed: All of that.
        orders: What of it was kept, by the rule at its time.
        closed: The hour before which every window has ended, by the watermark.
    """
    kept = sorted(number for number, _ in orders)
    assert numbers(lab, "orders") == kept
    negated, named = [-number for number, _ in landed], [number for number in kept if number != 3]
    assert numbers(lab, "both") == sorted(negated + named)
    hours = Counter(hour for _, hour in landed)
    counted = [{"hour": hour, "n": count} for hour, count in sorted(hours.items()) if hour < closed]
    assert lab.rows("counted") == counted
    outside = DeltaTable(str(lab.root / "outside")).to_pyarrow_table().column("id").to_pylist()
    assert sorted(outside) == sorted({number for number, _ in landed})


def moved(lab: PipelineLab) -> PipelineLab:
    """A copy of the pipeline elsewhere, in a database of which the catalog knows nothing."""
    root, database = Path(f"{lab.root}-moved"), f"{lab.database}_moved"
    shutil.copytree(lab.root, root)
    for folder in (root / "storage" / "_checkpoints" / "spark_catalog", root / "spark-warehouse"):
        for found in folder.glob(f"{lab.database}*"):
            found.rename(folder / found.name.replace(lab.database, database))
    for file in (root / "spark-pipeline.yml", *root.glob("transformations/*.*")):
        file.write_text(file.read_text().replace(str(lab.root), str(root)).replace(lab.database, database))
    return PipelineLab(lab.spark, root, database, lab.url)


def forget_commit(checkpoint: Path) -> None:
    """Leave the newest batch as a run does that dies before it notes that the batch is done."""
    newest = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())
    uncommit(checkpoint, newest)


def test_whole_life(pipeline: PipelineLab) -> None:
    """Kills, an edit, a refresh, and each going on where the other has stopped: no row is lost, none comes twice."""
    flows = ("Orders", "named", "negated", "counted", "first_times")
    landed = orders = land(pipeline, "1", [(1, 0), (2, 0)])
    pipeline.spark_pipelines()
    check(pipeline, landed, orders, closed=0)

    # Of a run that is killed, the next one does the batch: be it Spark's that is killed, or ours.
    for table, flow in (("both", "negated"), ("counted", "counted")):
        forget_commit(pipeline.checkpoints(table, flow) / "0")
    new = land(pipeline, "2", [(3, 3), (1, 3)])
    landed, orders = landed + new, orders + new
    pipeline.cut_run("Orders", Cut("Spark's commit"))
    pipeline.cut_run("negated", Cut("/offsets/", moment="after"))
    pipeline.cut_run("counted", Cut("Spark's commit", nth=2))
    pipeline.cut_run("first_times", Cut("commit outside"))
    (pipeline.root / "rules.py").write_text("KEPT = 'id > 0 AND id < 100'\n")
    assert pipeline.run("Orders").status == "succeeded"
    elsewhere = moved(pipeline)
    assert [batch.output_rows for batch in elsewhere.run("named").batches] == [1]
    pipeline.spark_pipelines()
    # Behind a batch that it does again, Spark runs none that only closes windows.
    check(pipeline, landed, orders, closed=0)

    new = land(pipeline, "3", [(100, 6), (2, 6), (4, 6)])
    landed, orders = landed + new, [*orders, *new[1:]]
    assert [pipeline.run(name).status for name in flows] == ["succeeded"] * len(flows)
    check(pipeline, landed, orders, closed=5)
    assert [pipeline.run(name).status for name in flows] == ["skipped"] * len(flows)

    # What is computed anew is on another checkpoint, of which nothing is known yet.
    pipeline.spark_pipelines("--full-refresh", "Orders,both,counted")
    new = land(pipeline, "4", [(5, 9)])
    landed, orders = landed + new, orders + new
    assert [pipeline.run(name).batches[0].batch_id for name in flows] == [1, 1, 1, 2, 3]
    check(pipeline, landed, orders, closed=8)


OTHERS = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


def events():
    return spark.readStream.schema("id bigint, at timestamp").json("ROOT/in")


@dp.table
def pairs():
    return events().select("id").union(events().selectExpr("-id"))


@dp.table
def reused():
    read = events().select("id")
    return read.union(read)


@dp.table
def flags():
    return spark.readStream.schema("id string").option("nullValue", "TRUE").option("header", "True").csv("ROOT/flags")


@dp.table(format="parquet", partition_cols=["day"])
def files():
    return events().selectExpr("id", "to_date(at) AS day")


@dp.materialized_view
def names():
    return spark.range(100).selectExpr("id", "concat('n', id) AS name")
"""
OTHERS_IN_SQL = """\
CREATE STREAMING TABLE twice AS
SELECT id FROM STREAM(pairs) UNION ALL SELECT 100 * id FROM STREAM pairs WITH ('skipChangeCommits' = 'true');
CREATE STREAMING TABLE named AS
SELECT p.id, extract(day FROM current_date()) > 0 AS dated FROM STREAM(pairs) AS p, names n WHERE n.id = p.id
AND p.id IN (SELECT id FROM (names) JOIN (names) AS other USING (id));
"""


def test_other_flows(pipeline: PipelineLab) -> None:
    """What is read twice, tables in other places of the text, options and partitions: as `spark-pipelines` runs it."""
    lab = pipeline
    lab.define("tables.py", OTHERS)
    lab.define("flows.sql", OTHERS_IN_SQL)
    flags, arrived = lab.root / "flags", lab.root / "in"
    for number, run in enumerate((lab.spark_pipelines, None), start=1):
        for folder, line in ((flags, f"id\nTRUE\ntrue\n{number}"), (arrived, json.dumps({"id": number}))):
            folder.mkdir(exist_ok=True)
            (folder / f"{number}.txt").write_text(line)
        if run is not None:
            run()
            continue
        for name in ("pairs", "flags", "files", "twice", "named"):
            assert lab.run(name).status == "succeeded"

    assert numbers(lab, "pairs") == [-2, -1, 1, 2]
    assert numbers(lab, "twice") == [-200, -100, -2, -1, 1, 2, 100, 200]
    assert numbers(lab, "named") == [1, 2]
    assert Counter(row["id"] for row in lab.rows("flags")) == {None: 2, "true": 2, "1": 1, "2": 1}
    lab.spark.catalog.refreshTable(f"{lab.database}.files")
    assert sorted(row["id"] for row in lab.spark.table(f"{lab.database}.files").collect()) == [1, 2]
    with pytest.raises(DeclarationError, match="twice, for which Spark has a source each"):
        lab.run("reused")
