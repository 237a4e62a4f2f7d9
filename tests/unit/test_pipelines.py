"""Projects of Spark's declarative pipelines, read without a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluice.errors import DeclarationError
from sluice.pipelines.spec import read_spec
from sluice.pipelines.sql_files import by_last_part, read_sql_file
from sluice.project import Project, find_project

SPEC = "name: shop\nstorage: {storage}\nlibraries:\n  - glob:\n      include: transformations/**\n"
PYTHON = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import LongType, StructField, StructType

spark = SparkSession.active()


def landing():
    schema = StructType([StructField("id", LongType())])
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).json("DIR/landing")


@dp.table(format="delta")
def orders():
    return landing().where(col("id") > 0)


dp.create_streaming_table("both", format="delta")


@dp.append_flow(target="both")
def first():
    return spark.readStream.table("orders")


@dp.append_flow(target="both")
def second():
    return landing()


@dp.materialized_view
def totals():
    return spark.read.table("orders").groupBy("id").count()
"""
SQL = """\
-- CREATE STREAMING TABLE no AS SELECT ';' ;
CREATE OR REFRESH STREAMING TABLE items USING delta PARTITIONED BY (day)
AS SELECT *, ';' AS semicolon FROM STREAM(spark_catalog.default.orders);
CREATE STREAMING TABLE more;
CREATE FLOW fill AS INSERT INTO more BY NAME SELECT id FROM STREAM orders;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose flows have run: with checkpoints and tables where Spark keeps them."""
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(storage=tmp_path / "storage"))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(PYTHON.replace("DIR", str(tmp_path)))
    for table, flow in (("orders", "orders"), ("both", "first"), ("both", "second")):
        for version in (0, 9, 10):
            place = tmp_path / "storage" / "_checkpoints" / "spark_catalog" / "default" / table / flow
            (place / str(version)).mkdir(parents=True)
        (tmp_path / "spark-warehouse" / table / "_delta_log").mkdir(parents=True, exist_ok=True)
    return tmp_path


def refusal(project: Project, name: str) -> str:
    """What is said of a flow that can't be run."""
    with pytest.raises(DeclarationError) as raised:
        project.stream(name)
    return str(raised.value)


def test_flows_are_streams(folder: Path) -> None:
    """Each is on its newest checkpoint, reads what its function describes, and writes where its table is."""
    streams = find_project(str(folder / "transformations")).streams()

    assert list(streams) == ["orders", "first", "second"]
    orders, first = streams["orders"], streams["first"]
    checkpoints = folder / "storage" / "_checkpoints" / "spark_catalog" / "default"
    assert orders.checkpoint == str(checkpoints / "orders" / "orders" / "10")
    assert orders.transform == "transformations.orders:orders"
    assert orders.sink.location == str(folder / "spark-warehouse" / "orders")
    source = orders.sources["landing"]
    assert (source.kind, source.location, source.columns(None, storage=None)) == (  # type: ignore[arg-type]
        "files",
        str(folder / "landing"),
        "`id` bigint",
    )
    assert {name: (read.kind, read.location) for name, read in first.sources.items()} == {
        "orders": ("delta", str(folder / "spark-warehouse" / "orders"))
    }


def test_views_are_no_streams(folder: Path) -> None:
    """A materialized view is told as what it is."""
    flows = find_project(str(folder)).flows()

    assert [view.name for view in flows.views] == ["totals"]
    assert "totals" not in flows.flows


def test_the_project_above_does_not_answer(folder: Path) -> None:
    """A pipeline's folder is a project of its own; a `sluice.toml` in the same folder wins, and may name the spec."""
    (folder.parent / "sluice.toml").write_text('[project]\nname = "above"\n')

    assert find_project(str(folder)).name == "shop"

    (folder / "sluice.toml").write_text('[project]\nname = "beside"\nstreams = []\n')
    assert find_project(str(folder)).spec is None

    (folder / "sluice.toml").write_text('[project]\nname = "beside"\npipeline = "spark-pipeline.yml"\n')
    assert list(find_project(str(folder)).streams()) == ["orders", "first", "second"]


def test_statements(tmp_path: Path) -> None:
    """Comments and quotes are no statements, and each statement knows its line."""
    file = tmp_path / "items.sql"
    file.write_text(SQL)
    found = read_sql_file(str(file))

    told = [(output.name, output.format, output.partition_by, output.line) for output in found.outputs]
    assert told == [("items", "delta", ("day",), 2), ("more", None, (), 4)]
    flows = [(flow.name, flow.target, flow.reads[0].table) for flow in found.flows]
    assert flows == [("items", "items", "spark_catalog.default.orders"), ("fill", "more", "orders")]
    assert by_last_part(found.flows[0].sql or "") == "SELECT *, ';' AS semicolon FROM STREAM(orders)"


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO t SELECT 1", "CREATE TABLE t (id int)", "CREATE FLOW f AS SELECT 1", "DROP TABLE t", "SELECT 1"],
)
def test_other_statements(tmp_path: Path, statement: str) -> None:
    """What defines nothing is refused with its line."""
    file = tmp_path / "items.sql"
    file.write_text(f"\n\n{statement}")

    with pytest.raises(DeclarationError, match=r"items\.sql:3"):
        read_sql_file(str(file))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the spec is empty"),
        ("- name", "the spec is a list"),
        ("name: [", "does not parse"),
        ("name: a\nname: &a x\nstorage: *a", "alias"),
        ("storage: /s", "`name` is missing"),
        ("name: a", "`storage` is missing"),
        ("name: a\nstorage: s", "relative path"),
        ("name: a\nstorage: /s", "`libraries` is missing"),
        ("name: a\nstorage: 3", "`storage` is a int"),
        ("name: a\nstorage: /s\nlibrary: x", "unknown field 'library'"),
        ("name: a\nstorage: /s\nlibraries: x", "no list of patterns"),
        ("name: a\nstorage: /s\nlibraries: [{glob: {include: '*/x.py'}}]", "the pattern '\\*/x.py'"),
        ("name: a\nstorage: /s\nconfiguration: {a: 3}\nlibraries: []", "`libraries` is missing|is a int"),
        ("name: a\nstorage: !!python/object/apply:os.getcwd []", "does not parse"),
        ("[" * 5000, "does not parse"),
    ],
)
def test_bad_specs(tmp_path: Path, text: str, said: str) -> None:
    """Each mistake has one message, with the file."""
    file = tmp_path / "spark-pipeline.yml"
    file.write_text(text)

    with pytest.raises(DeclarationError, match=said) as raised:
        read_spec(file)
    assert raised.value.where == str(file)


def test_two_specs(folder: Path) -> None:
    """As `spark-pipelines`, it takes one."""
    (folder / "spark-pipeline.yaml").write_text("name: other")

    with pytest.raises(DeclarationError, match="two specs"):
        find_project(str(folder))


def test_no_files(folder: Path) -> None:
    """A pattern without a file defines nothing."""
    (folder / "transformations" / "orders.py").unlink()

    with pytest.raises(DeclarationError, match="no file is at"):
        find_project(str(folder)).declarations()


def test_hostile_files(folder: Path) -> None:
    """A file that fails hides no other; one that ends its Python is named."""
    (folder / "transformations" / "fails.py").write_text("print('[]')\nraise SystemExit(3)\n")
    (folder / "transformations" / "decorated.py").write_text(
        "from pyspark import pipelines as dp\n@dp.tabel\ndef f(): 1\n"
    )
    found = find_project(str(folder)).declarations()

    assert list(found.streams) == ["orders", "first", "second"]
    told = {Path(file).name: error.where for file, error in found.unreadable.items()}
    assert told == {
        "decorated.py": f"{folder}/transformations/decorated.py:2",
        "fails.py": f"{folder}/transformations/fails.py:2",
    }

    (folder / "transformations" / "fails.py").write_text("import os\nos._exit(7)\n")
    with pytest.raises(DeclarationError, match="ended their Python"):
        find_project(str(folder)).declarations()


def test_refused_flows(folder: Path) -> None:
    """What Sluice can't run says what is there, and what to do."""
    (folder / "transformations" / "more.py").write_text(
        """
from pyspark import pipelines as dp
dp.create_streaming_table("customers")
dp.create_auto_cdc_flow(target="customers", source="orders", keys=["id"], sequence_by="id")

@dp.table
def counted():
    return spark.readStream.table("orders").limit(spark.readStream.table("orders").schema.fields)

@dp.table
def fresh():
    return spark.readStream.table("orders")
"""
    )
    project = find_project(str(folder))

    assert "auto CDC flow" in refusal(project, "customers")
    assert "not known without Spark" in refusal(project, "counted")
    assert "no checkpoint yet" in refusal(project, "fresh")
    assert "more.py:10" in refusal(project, "fresh")


def test_a_table_that_is_elsewhere(folder: Path) -> None:
    """A warehouse that is not Spark's default is said in `sluice.toml`."""
    (folder / "spark-warehouse").rename(folder / "elsewhere")

    assert "spark.sql.warehouse.dir" in refusal(find_project(str(folder)), "orders")

    conf = json.dumps(str(folder / "elsewhere"))
    (folder / "sluice.toml").write_text(
        f'[project]\npipeline = "spark-pipeline.yml"\n[spark.conf]\n"spark.sql.warehouse.dir" = {conf}\n'
    )
    assert find_project(str(folder)).stream("orders").sink.location == str(folder / "elsewhere" / "orders")
