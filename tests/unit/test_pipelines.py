"""Projects of Spark's declarative pipelines, read without a JVM."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.errors import DeclarationError, UnknownStreamError
from sluice.pipelines.spec import read_spec
from sluice.pipelines.sql_files import _options_of, read_sql_file, with_names
from sluice.project import Project, find_project
from sluice.spark.python_zone import TIME_ZONE
from sluice.spark.session import spark_conf
from sluice.sql_tokens import masked, named_queries, stream_reads, table_reads
from sluice.stream import Stream
from sluice_airflow.ui.shown_declarations import shown_declarations

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
    root = tmp_path / "pipeline"
    root.mkdir()
    (root / "spark-pipeline.yml").write_text(SPEC.format(storage=root / "storage"))
    (root / "transformations").mkdir()
    (root / "transformations" / "orders.py").write_text(PYTHON.replace("DIR", str(root)))
    for table, flow in (("orders", "orders"), ("both", "first"), ("both", "second")):
        for version in (0, 9, 10):
            place = root / "storage" / "_checkpoints" / "spark_catalog" / "default" / table / flow
            (place / str(version)).mkdir(parents=True)
        (root / "spark-warehouse" / table / "_delta_log").mkdir(parents=True, exist_ok=True)
    return root


def declared_in_sql(folder: Path, query: str) -> Stream:
    """A flow that has run, into the table `both`; there is a table `raw.orders`, too."""
    (folder / "spark-warehouse" / "raw.db" / "orders" / "_delta_log").mkdir(parents=True)
    (folder / "transformations" / "first.sql").write_text(f"CREATE FLOW declared AS INSERT INTO both {query}")
    (folder / "storage" / "_checkpoints" / "spark_catalog" / "default" / "both" / "declared" / "0").mkdir(parents=True)
    return find_project(str(folder)).stream("declared")


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
    assert with_names(found.flows[0].sql or "", ["o"]) == ("SELECT *, ';' AS semicolon FROM STREAM(o)")


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

    tables = '[tables]\nspark_catalog.default.Orders = "moved"\n'
    (folder / "sluice.toml").write_text(f'[project]\npipeline = "spark-pipeline.yml"\n{tables}')
    assert "is not in the folder" in refusal(find_project(str(folder)), "orders")
    (folder / "elsewhere" / "orders").rename(folder / "moved")
    assert find_project(str(folder)).stream("orders").sink.location == str(folder / "moved")


def count_reads(folder: Path) -> None:
    """Let each reading of the Python files leave a line; what they write is none of what they read."""
    file = folder / "transformations" / "orders.py"
    note = "import os\nos.write(os.open('DIR/reads', os.O_WRONLY | os.O_APPEND), b'.')\n".replace("DIR", str(folder))
    file.write_text(note + file.read_text())
    (folder / "reads").write_text("")


def reads(folder: Path) -> int:
    """How often the Python files have been read, once the flows are known again."""
    find_project(str(folder)).declarations()
    return (folder / "reads").stat().st_size


def test_definitions_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until one of the inputs is another: the files, what they import, read, list or ask for, or the settings."""
    orders = folder / "transformations" / "orders.py"
    (folder / "rules").mkdir()
    (folder / "rules" / "kept.py").write_text("KEPT = 'id > 0'\n")
    (folder / "tables").mkdir()
    (folder / "tables" / "a.csv").write_text("")
    orders.write_text(
        "import json, os\nimport rules.kept\nfrom pathlib import Path\n"
        "os.listdir('tables')\nos.environ.get('SHOP_STAGE')\n"
        "try:\n    Path('more.json').read_text()\nexcept OSError:\n    pass\n" + orders.read_text()
    )
    count_reads(folder)
    assert [reads(folder), reads(folder)] == [1, 1]

    spec = folder / "spark-pipeline.yml"
    changes: list[Callable[[], object]] = [
        lambda: orders.write_text(orders.read_text() + "\n"),
        lambda: (folder / "rules" / "kept.py").write_text("KEPT = 'id > 1'\n"),
        lambda: (folder / "tables" / "a.csv").rename(folder / "tables" / "b.csv"),
        lambda: (folder / "more.json").write_text("1"),
        lambda: monkeypatch.setenv("SHOP_STAGE", "test"),
        lambda: spec.write_text(spec.read_text() + "configuration: {shop.stage: test}\n"),
        lambda: (folder / "transformations" / "more.py").write_text(""),
        lambda: (folder / "sitecustom.py").write_text(""),
    ]
    for number, change in enumerate(changes, 2):
        change()
        assert [reads(folder), reads(folder)] == [number, number]


@pytest.mark.parametrize("content", [b"\xff", b'{"format": 99}'])
def test_damaged_definitions(folder: Path, content: bytes) -> None:
    """They are read anew, and kept anew."""
    count_reads(folder)
    kept = folder / "var" / "sluice" / "definitions.json"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content)

    assert [reads(folder), reads(folder)] == [1, 1]
    assert list(find_project(str(folder)).streams()) == ["orders", "first", "second"]


def test_definitions_of_another_pipeline(folder: Path) -> None:
    """Two that share a home do not take one's for the other's."""
    count_reads(folder)
    reads(folder)
    kept = folder / "var" / "sluice" / "definitions.json"
    kept.write_text(kept.read_text().replace(f'"spec": "{folder}/', '"spec": "/elsewhere/'))

    assert reads(folder) == 2


def test_definitions_of_another_file(folder: Path) -> None:
    """A flow's file is run as code: it is none but the one that the pipeline has."""
    count_reads(folder)
    reads(folder)
    kept = folder / "var" / "sluice" / "definitions.json"
    before = kept.read_text()
    kept.write_text(before.replace('"file": "', '"file": "/elsewhere'))
    assert kept.read_text() != before

    assert reads(folder) == 2
    assert all(flow.element.file.startswith(str(folder)) for flow in find_project(str(folder)).flows().flows.values())


@pytest.mark.parametrize(
    "text",
    [
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 1))\nexcept OSError:\n    pass\n",
        "import nowhere_at_all\n",
        "@dp.table\ndef tapped():\n    return spark.readStream.option('api.token', 'x').format('tap').load()\n",
        "@dp.table\ndef tapped():\n    return spark.readStream.format('tap').load('s3://me:hush4canary@host/x')\n",
        "@dp.table(spark_conf={'fs.s3a.secret.key': 'x'})\ndef tapped():\n    return spark.readStream.table('a')\n",
    ],
)
def test_definitions_that_are_not_kept(folder: Path, text: str) -> None:
    """What was asked elsewhere can't be compared; somebody mends a file that fails; a secret is kept nowhere."""
    (folder / "transformations" / "orders.py").write_text("from pyspark import pipelines as dp\n" + text)
    count_reads(folder)

    assert [reads(folder), reads(folder)] == [1, 2]


def test_a_home_that_can_only_be_read(folder: Path) -> None:
    """Whoever may only look may plan."""
    count_reads(folder)
    (folder / "var").mkdir()
    (folder / "var" / "sluice").write_text("a file")

    assert [reads(folder), reads(folder)] == [1, 2]


def test_settings_of_the_spec(folder: Path) -> None:
    """Files may ask their session for what `configuration` says, and for what pyspark itself asks it."""
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text() + f"configuration: {{shop.landing: {folder}/landing}}\n")
    (folder / "transformations" / "orders.py").write_text(
        """
from pyspark import pipelines as dp
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

@F.udf(LongType())
def negated(number):
    return -number

@dp.table
def orders():
    return spark.readStream.schema("id bigint").json(spark.conf.get("shop.landing")).select(negated("id"))

@dp.append_flow(target="orders")
def first():
    return spark.readStream.json(spark.conf.get("shop.other"))

@dp.append_flow(target="orders")
def second():
    return spark.sql("SELECT * FROM STREAM(orders)")
"""
    )
    project = find_project(str(folder))

    assert project.stream("orders").sources["landing"].location == f"{folder}/landing"
    assert "does not set `shop.other`" in refusal(project, "first")
    assert "asks Spark: by `spark.sql`" in refusal(project, "second")


def test_tables_read_whole(folder: Path) -> None:
    """Where the tables are that a flow reads beside its streams, is known of those in the warehouse."""
    (folder / "spark-warehouse" / "totals" / "_delta_log").mkdir(parents=True)
    (folder / "spark-warehouse" / "raw.db" / "rates").mkdir(parents=True)
    (folder / "transformations" / "first.sql").write_text(
        "SET spark.sql.ansi.enabled = false;\n"
        "CREATE FLOW listed AS INSERT INTO both SELECT extract(day FROM o.at) FROM STREAM(orders) AS o, totals t"
        " WHERE o.id IN (TABLE raw.rates |> SELECT id);\n"
        "CREATE TEMPORARY VIEW shown AS SELECT * FROM totals;\n"
        "CREATE FLOW joined AS INSERT INTO both SELECT o.id FROM STREAM(orders) o JOIN totals t ON o.id = t.id"
        " JOIN raw.rates AS r ON o.id = r.id JOIN elsewhere.x ON o.id = x.id"
        " JOIN delta.`/data/v1.2/x.y` AS p ON o.id = p.id;\n"
        "CREATE FLOW viewed AS INSERT INTO both SELECT o.id FROM STREAM(orders) o JOIN shown s ON o.id = s.id;\n"
    )
    checkpoints = folder / "storage" / "_checkpoints" / "spark_catalog" / "default" / "both"
    for flow in ("joined", "viewed", "listed"):
        (checkpoints / flow / "0").mkdir(parents=True)
    project = find_project(str(folder))

    joined = project.flow("joined")
    assert joined.tables == {
        ("spark_catalog", "default", "totals"): (str(folder / "spark-warehouse" / "totals"), "delta"),
        ("spark_catalog", "raw", "rates"): (str(folder / "spark-warehouse" / "raw.db" / "rates"), "parquet"),
    }
    assert [name for _, _, name in project.flow("listed").tables] == ["totals", "rates"]
    assert joined.stream.settings == {"spark.sql.ansi.enabled": "false"}
    assert "the temporary view `shown`" in refusal(project, "viewed")


def test_streams_of_one_name(folder: Path) -> None:
    """Two tables whose last names are alike are two sources, each where the query reads it."""
    stream = declared_in_sql(folder, "SELECT id FROM STREAM(orders) UNION ALL SELECT id FROM STREAM raw.orders")

    assert stream.sql == "SELECT id FROM STREAM(orders) UNION ALL SELECT id FROM STREAM(orders_2)"
    assert stream.sources["orders_2"].location == str(folder / "spark-warehouse" / "raw.db" / "orders")


@pytest.mark.parametrize(
    "query",
    [
        "WITH Orders AS (SELECT 1 AS id) SELECT id FROM {} UNION ALL SELECT id FROM Orders",
        "SELECT id FROM {} JOIN orders AS o USING (id)",
        "SELECT id FROM {} AS read, orders AS o WHERE read.id = o.id",
        "SELECT id FROM {} JOIN (SELECT DISTINCT * FROM orders) AS o USING (id)",
        "SELECT id FROM {} JOIN (WITH x AS (SELECT 1) FROM orders) AS o USING (id)",
        "SELECT id FROM {} UNION ALL TABLE orders",
    ],
)
def test_names_that_mean_something_else(folder: Path, query: str) -> None:
    """A source's name would be that of a table, or of a query within, which another part of the text reads."""
    stream = declared_in_sql(folder, query.format("STREAM(raw.orders)"))

    assert stream.sql == query.format("STREAM(orders_2)")
    assert stream.sources["orders_2"].location == str(folder / "spark-warehouse" / "raw.db" / "orders")


def test_streams_behind_commas(folder: Path) -> None:
    """Names that differ by their case alone, too."""
    stream = declared_in_sql(folder, "SELECT 1 AS id FROM STREAM(raw.Orders) a, STREAM orders b")

    assert stream.sql == "SELECT 1 AS id FROM STREAM(Orders) a, STREAM(orders_2) b"


def test_options_in_sql() -> None:
    """Each as it is written; what is not told so is refused."""

    def options(clause: str) -> object:
        return _options_of(f"STREAM a{clause}", masked(f"STREAM a{clause}"), len("STREAM a"))[0]

    assert options(" WITH ('skipChangeCommits' = 'true', b = \"x, y\", c 1)") == {
        "skipChangeCommits": "true", "b": "x, y", "c": "1",
    }  # fmt: skip
    assert options(" a WHERE x") == {}
    refused = ["'a' = 'it''s'", "'a' = 'b' /* was '5' */", "a = true, b = 10 -- ten\n", "readChangeFeed", "'a' = b, cd"]
    # However long: a file may be anybody's.
    for clause in (f" WITH ({given})" for given in [*refused, f"{'a' * 50} = b, x = 'it''s'", "a" * 200_000 + "!"]):
        with pytest.raises(DeclarationError, match="are not told as"):
            options(clause)


def test_long_texts_are_read_at_once() -> None:
    """However they are made, for a file may be anybody's."""
    for text in ("a" * 200_000, "(" * 200_000, "from a," * 50_000, "`" * 200_000):
        begun = time.process_time()
        stream_reads(masked(text)), named_queries(masked(text)), table_reads(masked(text))
        assert time.process_time() - begun < 5


def test_rows_that_are_made(folder: Path) -> None:
    """Its options are Spark's: a time in milliseconds, and into how many partitions the rows are cut."""
    (folder / "transformations" / "first.py").write_text(
        "from pyspark import pipelines as dp\n"
        "from pyspark.sql import SparkSession\n\n\n"
        '@dp.append_flow(target="both")\n'
        "def made():\n"
        '    made = SparkSession.active().readStream.format("rate-micro-batch").option("rowsPerBatch", 3)\n'
        '    return made.option("startTimestamp", 1700000000000).option("numPartitions", 2).load()\n'
    )
    (folder / "storage" / "_checkpoints" / "spark_catalog" / "default" / "both" / "made" / "0").mkdir(parents=True)
    (source,) = find_project(str(folder)).stream("made").sources.values()

    assert source.reading == (3, 1_700_000_000_000, 1000)


def test_the_zone_of_a_pipeline(folder: Path) -> None:
    """It is its machine's, as `spark-pipelines` has it, unless the pipeline names one."""
    project = find_project(str(folder))
    orders = project.stream("orders")
    assert TIME_ZONE not in spark_conf(project, orders, "local[1]")

    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text() + f"configuration: {{{TIME_ZONE}: Asia/Tokyo}}\n")
    found = spark_conf(find_project(str(folder)), orders, "local[1]")
    assert (found[TIME_ZONE], found["spark.executorEnv.TZ"]) == ("Asia/Tokyo", "Asia/Tokyo")


def test_names_of_python(folder: Path) -> None:
    """A table or a folder may be called as no parameter can be."""
    (folder / "spark-warehouse" / "lambda" / "_delta_log").mkdir(parents=True)

    assert declared_in_sql(folder, "SELECT id FROM STREAM(lambda)").sql == "SELECT id FROM STREAM(lambda_)"


def test_names_in_capitals(folder: Path) -> None:
    """Spark's catalog puts the table into a folder in small letters, and the checkpoint into one as it is written."""
    (folder / "transformations" / "first.sql").write_text(
        "CREATE STREAMING TABLE Items AS SELECT id FROM STREAM(orders)"
    )
    (folder / "storage" / "_checkpoints" / "spark_catalog" / "default" / "Items" / "Items" / "0").mkdir(parents=True)
    (folder / "spark-warehouse" / "items").mkdir()

    assert find_project(str(folder)).stream("Items").sink.location == str(folder / "spark-warehouse" / "items")


def test_a_view_is_asked_for(folder: Path) -> None:
    """Whoever wants to run one is told what it is."""
    with pytest.raises(UnknownStreamError, match="is a materialized view"):
        find_project(str(folder)).stream("totals")


def test_the_newest_checkpoint_has_notes_of_its_own(folder: Path) -> None:
    """After a full refresh, what the former checkpoint has read is no concern of the new one."""
    project = find_project(str(folder))
    home = project.stream_home(project.stream("orders"))
    home.taken(1, "0").keep_unread(["/in/1.json"])
    newest = folder / "storage" / "_checkpoints" / "spark_catalog" / "default" / "orders" / "orders" / "11"
    newest.mkdir()
    after = project.stream_home(project.stream("orders"))

    assert home.taken(1, "0").unread() == {"/in/1.json"}
    assert (after.checkpoint, after.taken(1, "0").unread()) == (str(newest), frozenset())


def test_pages_show_flows(folder: Path) -> None:
    """The pages list them as they are, and what is wrong with others; the files are no declarations to import."""
    project = find_project(str(folder))
    (folder / "spark-warehouse" / "orders").rename(folder / "orders")
    project.declarations()
    shown = shown_declarations(project)

    assert (list(shown.streams), list(shown.unreadable)) == (["second"], [])
    assert list(shown.unusable) == ["orders", "first"]
