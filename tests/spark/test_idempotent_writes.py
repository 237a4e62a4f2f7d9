"""Writes of a function into Delta tables: each batch counts once, however often the function is called with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from sluice import Stream, idempotent, sinks, sources
from sluice.errors import DeclarationError, SluiceError
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import find_project
from sluice.running.runner import run_stream
from tests.builders import put
from tests.campaign import rarely
from tests.spark.lab import Lab, uncommit, write_numbers

pytestmark = pytest.mark.spark

GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text("utf-8")
DECLARED = """
from sluice import Stream, sinks, sources
orders = Stream(
    name="orders",
    sources={"orders": sources.files("in", format="json", schema="id bigint, amount double, day string")},
    transform="jobs.orders:orders",
    sink=sinks.foreach_batch("jobs.orders:publish"),
)
"""
DIES = """
import os, signal
from pathlib import Path

def orders(orders):
    return orders

def die(once=Path("dead")):
    if not once.exists():
        once.touch()
        os.killpg(0, signal.SIGKILL)
"""
TABLES = ("orders", "large_orders")
WRITES: dict[str, Callable[[DataFrame, int], None]] = {}
"""What the function of a test does, by the test's folder."""


def guide_snippet() -> str:
    """The function of the guide, as it stands there."""
    found = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    (text,) = (text for text in found if "idempotent(orders, batch_id)" in text)
    return textwrap.dedent(text)


def make_project(folder: Path, end: str) -> Path:
    """A project with the guide's function, whose driver dies behind one of its lines, the first time it comes there."""
    text = guide_snippet().replace("/data/lake", str(folder / "lake"))
    lines = [line for line in text.splitlines() if line]
    place = next(number for number, line in enumerate(lines) if end in line) + 1
    lines.insert(place, "    die()")
    put(folder / "jobs" / "orders.py", DIES.replace('"dead"', repr(str(folder / "dead"))) + "\n".join(lines) + "\n")
    put(folder / "streams" / "orders.py", DECLARED)
    put(folder / "sluice.toml", '[project]\nname = "shop"\nstreams = ["streams"]\n[spark]\nmaster = "local[2]"\n')
    return folder


def ids(folder: Path, table: str) -> list[int]:
    found = DeltaTable(str(folder / "lake" / table))
    return sorted(found.to_pyarrow_table().column("id").to_pylist())


@pytest.mark.parametrize("end", ["large_orders", *rarely('save("')])
def test_a_kill_between_the_writes_and_the_commit(tmp_path: Path, spark: SparkSession, end: str) -> None:
    """The guide's function is called twice with a batch that it has written, and each table has its rows once."""
    project = make_project(tmp_path, end)
    first = ['{"id": 1, "amount": 5, "day": "a"}', '{"id": 2, "amount": 5000, "day": "b"}']
    put(project / "in" / "1.json", "\n".join(first))
    driver = subprocess.run(
        [sys.executable, "-m", "sluice", "run", "orders", "--project", str(project)],
        cwd=project,
        env=os.environ,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert driver.returncode == -9, driver.stderr[-3000:]
    assert (project / "dead").exists()
    assert ids(project, "orders") == [1, 2]
    put(project / "in" / "2.json", '{"id": 3, "amount": 7000, "day": "a"}')

    opened = find_project(str(project))
    record = run_stream(opened, Request(opened.stream("orders"), Limits()), session=spark)

    assert (record.status, [batch.batch_id for batch in record.batches]) == ("succeeded", [0, 1])
    assert [ids(project, table) for table in TABLES] == [[1, 2, 3], [2, 3]]
    assert [DeltaTable(str(project / "lake" / table)).version() for table in TABLES] == [1, 1]
    assert DeltaTable(str(project / "lake" / "large_orders")).metadata().partition_columns == ["day"]


def write(frame: DataFrame, batch_id: int) -> None:
    """What the function of the stream does: what the test says."""
    WRITES["now"](frame, batch_id)


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def refusal(write: Callable[[DataFrame], object], frame: DataFrame) -> str:
    with pytest.raises(DeclarationError) as refused:
        write(frame)
    return str(refused.value)


def declared() -> Stream:
    return Stream(
        name="s",
        sources={"numbers": sources.files("land", format="json", schema="id bigint", max_files_per_batch=1)},
        transform=f"{__name__}:same",
        sink=sinks.foreach_batch(f"{__name__}:write"),
    )


@pytest.mark.parametrize("strategy", ["exact", "drain"])
def test_whoever_calls_the_function(lab: Lab, strategy: str) -> None:
    """Planned batches and Spark's own bear the same ids; a table of a name, and a mode, are heeded."""
    table = f"written_by_{strategy}"

    def writes(frame: DataFrame, batch_id: int) -> None:
        idempotent(frame, batch_id).save(f"{lab.root}/appended")
        idempotent(frame, batch_id).mode("overwrite").save(f"{lab.root}/newest", format="delta")
        idempotent(frame, batch_id).option("path", f"{lab.root}/named").saveAsTable(table)

    WRITES["now"] = writes
    write_numbers(lab.root / "land", 2)
    limits = Limits(strategy="drain") if strategy == "drain" else Limits()
    record = lab.run(declared(), limits)
    uncommit(lab.checkpoint(declared()), 1)
    lab.run(declared(), limits)

    assert record.query_id is not None
    found = {name: DeltaTable(str(lab.root / name)) for name in ("appended", "newest", "named")}
    assert {name: sorted(one.to_pyarrow_table().column("id").to_pylist()) for name, one in found.items()} == {
        "appended": [0, 1],
        "newest": [1],
        "named": [0, 1],
    }
    assert {one.transaction_version(record.query_id) for one in found.values()} == {1}
    lab.spark.sql(f"DROP TABLE {table}")


def test_several_writes_into_one_table(lab: Lab) -> None:
    """Each of a batch's writes counts once: after a death between them, and when all of them are made again."""
    table, alive = f"{lab.root}/lake/one", list[str]()

    def writes(frame: DataFrame, batch_id: int) -> None:
        writer = idempotent(frame, batch_id)
        writer.save(table)
        if not alive:
            alive.append("from now on")
            raise OSError("away for a moment")
        more = idempotent(frame.selectExpr("id + 100 AS id"), batch_id)
        more.options(path=f"file:{table}/").save()
        writer.save(f"{lab.root}/lake/other")
        idempotent(frame.selectExpr("id + 200 AS id"), batch_id).save(path=table)

    WRITES["now"] = writes
    write_numbers(lab.root / "land", 2)
    with pytest.raises(SluiceError, match="away for a moment"):
        lab.run(declared())
    assert ids(lab.root, "one") == [0]
    record = lab.run(declared())
    once = [0, 1, 100, 101, 200, 201]
    assert (ids(lab.root, "one"), ids(lab.root, "other")) == (once, [0, 1])

    uncommit(lab.checkpoint(declared()), 1)
    lab.run(declared())
    assert (ids(lab.root, "one"), ids(lab.root, "other")) == (once, [0, 1])
    found = DeltaTable(table)
    assert [found.transaction_version(f"{record.query_id}{number}") for number in ("", ":2", ":3")] == [1, 1, 1]


def test_a_table_by_all_of_its_names(lab: Lab) -> None:
    """By its name, with and without the database, and by its path: it is one table, and each write counts."""
    table = f"{lab.root}/lake/a named one"
    (lab.root / "lake").mkdir()
    (lab.root / "link").symlink_to(lab.root / "lake")
    lab.spark.sql("CREATE DATABASE IF NOT EXISTS own")

    def writes(frame: DataFrame, batch_id: int) -> None:
        for number, write in enumerate(
            (
                lambda writer: writer.option("path", table).saveAsTable("Named_One"),
                lambda writer: writer.saveAsTable("default.named_one"),
                lambda writer: writer.save(table),
                lambda writer: writer.saveAsTable("`spark_catalog`.`default`.`named_one`"),
                lambda writer: writer.saveAsTable("own.named_one"),
                lambda writer: writer.saveAsTable(" default . NAMED_ONE "),
                lambda writer: writer.saveAsTable(f"delta.`{table}`"),
                lambda writer: writer.save(Path=f"file:{table}/"),
                lambda writer: writer.save(f"{lab.root}/link/a named one"),
            )
        ):
            write(idempotent(frame.selectExpr(f"id + {10 * number} AS id"), batch_id))

    WRITES["now"] = writes
    write_numbers(lab.root / "land", 2)
    lab.run(declared())
    uncommit(lab.checkpoint(declared()), 1)
    lab.run(declared())
    assert ids(lab.root, "a named one") == [10 * number + row for number in (0, 1, 2, 3, 5, 6, 7, 8) for row in (0, 1)]
    assert sorted(row.id for row in lab.spark.table("own.named_one").collect()) == [40, 41]
    lab.spark.sql("DROP TABLE named_one")
    lab.spark.sql("DROP DATABASE own CASCADE")


def test_two_threads_at_one_table(lab: Lab) -> None:
    """Which of them was the first, their repetition could not tell, though one has ended before the other begins."""
    said: list[str] = []

    def writes(frame: DataFrame, batch_id: int) -> None:
        def write_meanwhile(rows: DataFrame) -> None:
            idempotent(rows, batch_id).save(f"{lab.root}/lake/one")

        idempotent(frame, batch_id).save(f"{lab.root}/lake/one")
        other = InheritableThread(target=lambda: said.append(refusal(write_meanwhile, frame)))
        other.start()
        other.join()

    WRITES["now"] = writes
    write_numbers(lab.root / "land", 1)
    lab.run(declared())
    assert "once more, by another thread" in said[0]
    assert "let one write after the other" in said[0]
    assert ids(lab.root, "one") == [0]


def test_a_failed_write_is_made_again(lab: Lab) -> None:
    """By the function itself: the same one counts once; another one in its place is refused."""
    table, said = f"{lab.root}/lake/one", list[str]()

    def fails(frame: DataFrame, batch_id: int) -> None:
        wrong = frame.selectExpr("IF(id < 0, id, CAST(raise_error('not there yet') AS bigint)) AS id")
        with pytest.raises(Py4JJavaError, match="TASK_WRITE_FAILED"):
            idempotent(wrong, batch_id).save(table)

    def writes(frame: DataFrame, batch_id: int) -> None:
        fails(frame, batch_id)
        fails(frame, batch_id)
        said.append(refusal(lambda rows: idempotent(rows, batch_id).save(table), frame))

    WRITES["now"] = writes
    write_numbers(lab.root / "land", 1)
    lab.run(declared())
    assert "once more, in place of one that has failed" in said[0]
    assert not list(Path(table).rglob("*.json"))


def test_ids_of_the_functions_own(lab: Lab) -> None:
    """An id that somebody gives a write, or another number of the batch, is kept; each is numbered by itself."""
    table = f"{lab.root}/lake/one"

    def writes(frame: DataFrame, batch_id: int) -> None:
        for number in range(2):
            rows = frame.selectExpr(f"id + {10 * number} AS id")
            idempotent(rows, batch_id).option("txnAppId", "own").save(table)
            idempotent(rows.selectExpr("id + 100 AS id"), batch_id).save(table, txnAppId="own too")
            idempotent(rows.selectExpr("id + 1000 AS id"), batch_id + 500).save(table)

    WRITES["now"] = writes
    write_numbers(lab.root / "land", 1)
    record = lab.run(declared())
    uncommit(lab.checkpoint(declared()), 0)
    lab.run(declared())
    assert ids(lab.root, "one") == [0, 10, 100, 110, 1000, 1010]
    expected = {"own": 0, "own:2": 0, "own too": 0, "own too:2": 0, record.query_id: 500, f"{record.query_id}:2": 500}
    assert {key: DeltaTable(table).transaction_version(str(key)) for key in expected} == expected


WRONG: dict[str, Callable[[DataFrame], object]] = {
    "parquet": lambda frame: idempotent(frame, 0).parquet("/nowhere"),
    "json": lambda frame: idempotent(frame, 0).format("json"),
    "orc": lambda frame: idempotent(frame, 0).save("/nowhere", format="orc"),
    "insertInto": lambda frame: idempotent(frame, 0).insertInto("table"),
}


def test_what_can_not_be_told_from_its_repetition(lab: Lab) -> None:
    """Other formats fail the batch before anything is written, and say why."""
    said: dict[str, str] = {}

    def writes(frame: DataFrame, batch_id: int) -> None:
        for name, wrong in WRONG.items():
            with pytest.raises(DeclarationError) as refused:
                wrong(frame)
            said[name] = str(refused.value)

    WRITES["now"] = writes
    write_numbers(lab.root / "land", 1)
    lab.run(declared())
    assert said.keys() == WRONG.keys()
    for name, text in said.items():
        assert f"a write by `{name}` can't be told from its repetition" in text


def test_where_there_is_no_batch(spark: SparkSession) -> None:
    """Outside of a function there is no query, and what is no id of a batch is none."""
    frame = spark.range(1)
    with pytest.raises(SluiceError, match="no query runs here"):
        idempotent(frame, 0)
    for wrong in (-1, True, "0", None):
        with pytest.raises(DeclarationError, match="`batch_id` is"):
            idempotent(frame, wrong)  # type: ignore[arg-type]
