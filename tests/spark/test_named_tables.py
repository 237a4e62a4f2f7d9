"""Tables by their names: a catalog that lasts learns of what is written, and one that knows better is heard."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sluice.auditing.return_rows import return_rows
from sluice.auditing.table_audit import TableAuditRequest, audit_table
from sluice.errors import DeclarationError, Problem
from sluice.interval import Interval
from sluice.planning.verdict import Request
from sluice.project import Project, find_project
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.observers import Silent
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecord
from sluice.testing.session import bench_session
from tests.remedies import read_remedy
from tests.spark.lab import write_files
from tests.unit.quality.suites import document, row

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DECLARATIONS = """
from sluice import Stream, sinks, sources

rows = sources.files("in", format="json", schema="id bigint")
every = "select * from stream(rows)"
first = Stream(name="first", sources={{"rows": rows}}, sql=every, sink=sinks.delta(table="{table}"))
"""
LATER = """
visits = sources.delta(table="Visits")
later = Stream(name="later", sources={{"rows": visits}}, sink=sinks.delta(table="default.copies"),
    sql="select * from stream(rows) cross join (select count(*) as visits from visits)")
unjudged = Stream(name="unjudged", sources={{"rows": rows}}, sql=every, sink=sinks.delta(table="unjudged"),
    quality="suite.json", quarantine=sinks.delta(table="no_visits"))
nowhere = Stream(name="nowhere", sources={{"rows": rows}}, sql=every, sink=sinks.delta(table="nowhere.visits"))
"""
HIVE = """
[spark]
master = "local[2]"

[spark.conf]
"spark.sql.catalogImplementation" = "hive"
"spark.sql.warehouse.dir" = "{root}/warehouse"
"spark.hadoop.javax.jdo.option.ConnectionURL" = "jdbc:derby:;databaseName={root}/metastore;create=true"
"""
DERBY = {
    "spark.sql.catalog.shop": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    "spark.sql.catalog.shop.url": "jdbc:derby:memory:shop;create=true",
    "spark.sql.catalog.shop.driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
}
"""A catalog that has no tables of Delta."""


def few(policy: str) -> bytes:
    """A suite for ids up to 2."""
    return document(row("expect_column_values_to_be_between", policy=policy, column="id", max_value=2))


def make_project(root: Path, settings: str, table: str = "visits", more: str = "") -> Project:
    (root / "streams").mkdir(exist_ok=True)
    (root / "streams" / "all.py").write_text((DECLARATIONS + more).format(table=table))
    (root / "sluice.toml").write_text(settings)
    return find_project(str(root))


def run(project: Project, session: SparkSession | None = None) -> RunRecord:
    stream = project.stream("first")
    return run_stream(project, Request(stream), session=session or bench_session(project, stream))


def ids(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())


def test_a_catalog_that_lasts_learns_of_a_table(tmp_path: Path) -> None:
    """A stream writes a table by its name, another one reads it by that, and so does what it joins in SQL."""
    write_files(tmp_path / "in", {"1.json": '{"id": 1}\n{"id": 2}'})
    (tmp_path / "suite.json").write_bytes(few("warn"))
    project = make_project(tmp_path, HIVE.format(root=tmp_path), more=LATER)
    command = [str(Path(sys.executable).with_name("sluice")), "run", "--all", "--project", project.root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)

    assert done.returncode == 2, done.stdout + done.stderr
    copies = DeltaTable(str(tmp_path / "warehouse" / "copies")).to_pyarrow_table().sort_by("id").to_pylist()
    assert copies == [{"id": 1, "visits": 2}, {"id": 2, "visits": 2}]
    # No row is put into that quarantine: to register it would make a table without columns.
    assert not (tmp_path / "warehouse" / "no_visits").exists()
    # The third one's database is not there, and nothing of it was begun.
    assert "there is no database for the table `nowhere.visits`" in done.stdout + done.stderr
    assert "CREATE DATABASE `spark_catalog`.`nowhere`" in done.stdout + done.stderr
    assert not (tmp_path / "warehouse" / "nowhere.db").exists()


def test_a_catalog_that_has_a_table_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    """Its word is heard before anything is written, and what it says is what the remedy says."""
    write_files(tmp_path / "in", {"1.json": '{"id": 1}'})
    write_deltalake(str(tmp_path / "there"), pa.table({"id": pa.array([0], pa.int64())}))
    project = make_project(tmp_path, '[tables]\nmoved_visits = "here"', table="moved_visits")
    session = bench_session(project, project.stream("first"))
    session.sql(f"CREATE TABLE moved_visits USING delta LOCATION '{tmp_path}/there'")
    try:
        with pytest.raises(DeclarationError, match="the plan has it at") as raised:
            run(project, session)
        assert not (tmp_path / "here").exists()
        line = f'"default.moved_visits" = "{tmp_path}/there"'
        assert (raised.value.remedy or "").endswith(f"let [tables] in sluice.toml say so: `{line}`")
        project = make_project(tmp_path, f"[tables]\n{line}", table="moved_visits")
        assert run(project, session).status == "succeeded"
        assert ids(tmp_path / "there") == [0, 1]
    finally:
        session.sql("DROP TABLE moved_visits")


def test_whatever_starts_spark_hears_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    """A backfill and an audit of a table that the catalog has elsewhere by now are refused as a run is."""
    write_files(tmp_path / "in", {"1.json": '{"id": 1, "d": "2026-01-01"}\n{"id": 7, "d": "2026-01-01"}'})
    more = """
dated = sources.files("in", format="json", schema="id bigint, d date")
checked = Stream(name="checked", sources={{"rows": dated}}, sql=every, sink=sinks.delta(table="kept_visits"),
    interval_column="d", quality="suite.json")
"""
    (tmp_path / "suite.json").write_bytes(few("quarantine"))
    project = make_project(tmp_path, '[tables]\nkept_visits = "here"', more=more)
    stream = project.stream("checked")
    assert run_stream(project, Request(stream), session=bench_session(project, stream)).status == "succeeded"
    session, before = bench_session(project, stream), DeltaTable(str(tmp_path / "here")).version()
    write_deltalake(str(tmp_path / "there"), pa.table({"id": pa.array([0], pa.int64())}))
    session.sql(f"CREATE TABLE kept_visits USING delta LOCATION '{tmp_path}/there'")
    day = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    asked: list[Callable[[], object]] = [
        lambda: backfill_stream(project, BackfillRequest(stream, day), session=session),
        lambda: audit_table(project, TableAuditRequest(stream), session=session),
        lambda: return_rows(project, stream, None, "me", session=session),
    ]
    try:
        for ask in asked:
            with pytest.raises(DeclarationError, match="the plan has it at"):
                ask()
        assert DeltaTable(str(tmp_path / "here")).version() == before
    finally:
        session.sql("DROP TABLE kept_visits")


def test_what_is_no_table_of_delta(spark: SparkSession, tmp_path: Path) -> None:
    """A view of the catalog may have the name, or a table of another format."""
    write_files(tmp_path / "in", {"1.json": '{"id": 1}'})
    project = make_project(tmp_path, '[tables]\nseen_visits = "here"', table="seen_visits")
    session = bench_session(project, project.stream("first"))
    for made, kind in (("TABLE seen_visits USING parquet AS", "parquet"), ("VIEW seen_visits AS", "VIEW")):
        session.sql(f"CREATE {made} SELECT 1L AS id")
        try:
            with pytest.raises(DeclarationError, match=f"is no Delta table in Spark's catalog: it is {kind}"):
                run(project, session)
        finally:
            session.sql(f"DROP {made.split()[0]} seen_visits")
    assert run(project, session).status == "succeeded"


def test_a_catalog_that_can_not_be_asked(spark: SparkSession, tmp_path: Path) -> None:
    """The session has none of that name."""
    write_files(tmp_path / "in", {"1.json": '{"id": 1}'})
    project = make_project(tmp_path, '[tables]\nlake.shop.visits = "here"', table="lake.shop.visits")
    with pytest.raises(DeclarationError, match=r"can't be asked for the table `lake\.shop\.visits`"):
        run(project)
    assert not (tmp_path / "here").exists()


def test_a_table_whose_files_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    """The catalog has it still; once it is dropped there, a stream that begins makes it."""
    write_files(tmp_path / "in", {"1.json": '{"id": 1}'})
    project = make_project(tmp_path, '[tables]\ngone_visits = "here"', table="gone_visits")
    session = bench_session(project, project.stream("first"))
    session.sql(f"CREATE TABLE gone_visits (id bigint) USING delta LOCATION '{tmp_path}/here'")
    shutil.rmtree(tmp_path / "here")
    with pytest.raises(DeclarationError, match="doesn't exist") as raised:
        run(project, session)
    assert "drop a table whose files are gone" in (raised.value.remedy or "")
    session.sql("DROP TABLE gone_visits")
    assert run(project, session).status == "succeeded"


def test_a_catalog_that_is_none(spark: SparkSession, tmp_path: Path) -> None:
    """Java's own errors are told as those of Spark."""
    write_files(tmp_path / "in", {"1.json": '{"id": 1}'})
    settings = '[spark.conf]\n"spark.sql.catalog.nocls" = "com.example.Nowhere"'
    project = make_project(tmp_path, f'[tables]\nnocls.d.visits = "here"\n{settings}', table="nocls.d.visits")
    with pytest.raises(DeclarationError, match=r"can't be asked for the table `nocls\.d\.visits`"):
        run(project)


class Told(Silent):
    """What a run warns of."""

    def __init__(self) -> None:
        self.warnings: list[Problem] = []

    def warned(self, warning: Problem) -> None:
        self.warnings.append(warning)


def test_a_catalog_that_does_not_take_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """The rows are where they belong, and the record says what is wrong; by its path the table is as good."""
    write_files(tmp_path / "in", {"1.json": '{"id": 1}'})
    settings = "[spark.conf]\n" + "".join(f'"{key}" = "{value}"\n' for key, value in DERBY.items())
    tables = f'[tables]\nshop.APP.visits = "here"\n{settings}'
    project = make_project(tmp_path, tables, table="shop.APP.visits")
    stream, told = project.stream("first"), Told()
    record = run_stream(project, Request(stream), observer=told, session=bench_session(project, stream))
    assert record.status == "succeeded"
    assert ids(tmp_path / "here") == [1]
    read_remedy(*told.warnings, "TABLE_NOT_REGISTERED", r"or declare it by its path$")
    assert [warning.code for warning in record.plan.warnings] == ["TABLE_NOT_REGISTERED"]

    write_files(tmp_path / "in", {"2.json": '{"id": 2}'}, first=2)
    text = Path(project.root, "streams", "all.py").read_text()
    Path(project.root, "streams", "all.py").write_text(text.replace('table="shop.APP.visits"', '"here"'))
    record = run(find_project(project.root))
    assert (record.status, list(record.plan.warnings)) == ("succeeded", [])
    assert ids(tmp_path / "here") == [1, 2]
