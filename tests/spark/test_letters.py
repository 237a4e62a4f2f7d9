"""Names that differ by capital letters alone, where Spark is told to tell them apart: Delta never does."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from sluice.sinks.contract import Sink
from sluice.spark_setting import spark_setting
from tests.spark.lab import Lab, rows

pytestmark = pytest.mark.spark

SINKS = {
    "append": sinks.delta("out"),
    "merge": sinks.delta("out", merge_on="user"),
    "changes": sinks.delta("out", changes=sinks.changes(keys="user", sequence_by="amount")),
}
KEYED = ["merge", "changes"]


def as_read(sales: DataFrame) -> DataFrame:
    return sales


def other_letters(sales: DataFrame) -> DataFrame:
    return sales.withColumnRenamed("item", "Item")


def alike(sales: DataFrame) -> DataFrame:
    return sales.select("user", "amount", F.col("item").alias("USER"))


def alike_fields(sales: DataFrame) -> DataFrame:
    return sales.select("user", "amount", F.struct(F.col("item").alias("a"), F.col("item").alias("A")).alias("item"))


def declared(sink: Sink, transform: str = "as_read") -> Stream:
    read = sources.files("in", format="json", schema="user string, amount bigint, item string")
    return Stream(name="s", sources={"sales": read}, transform=f"{__name__}:{transform}", sink=sink)


def arrive(lab: Lab, user: str, amount: int) -> None:
    folder = lab.root / "in"
    folder.mkdir(exist_ok=True)
    content = json.dumps({"user": user, "amount": amount, "item": "i"})
    (folder / f"{len(list(folder.iterdir()))}.json").write_text(content)


@pytest.fixture(autouse=True)
def tells_letters(lab: Lab) -> Iterator[None]:
    """As `"spark.sql.caseSensitive" = true` in [spark.conf] begins a session."""
    with spark_setting(lab.spark, "spark.sql.caseSensitive", "true"):
        yield


@pytest.mark.parametrize("kind", SINKS)
def test_the_same_letters(lab: Lab, kind: str) -> None:
    """Whatever the setting says, a table with the names of the result takes it."""
    arrive(lab, "a", 1)
    lab.run(declared(SINKS[kind]))
    arrive(lab, "a", 2)
    lab.run(declared(SINKS[kind]))
    assert rows(lab.table("out")) == [*([("a", 1, "i")] if kind == "append" else []), ("a", 2, "i")]


@pytest.mark.parametrize("kind", KEYED)
def test_a_table_of_other_letters(lab: Lab, kind: str) -> None:
    """A merge would fail by it within a planned batch: it is told before, by both names."""
    lab.spark.sql(f"CREATE TABLE delta.`{lab.root / 'out'}` (User string, amount bigint, item string) USING delta")
    arrive(lab, "a", 1)
    with pytest.raises(DeclarationError, match=r"the result has `user` and the table `User`.*name it `User` in"):
        lab.run(declared(SINKS[kind]))
    assert lab.plan(declared(SINKS[kind])).batches[0].kind == "data"


@pytest.mark.parametrize("kind", SINKS)
def test_a_result_of_other_letters(lab: Lab, kind: str) -> None:
    """An append takes the table's names for the result's; a merge does not, and is not begun."""
    arrive(lab, "a", 1)
    lab.run(declared(SINKS[kind]))
    arrive(lab, "b", 2)
    edited = declared(SINKS[kind], "other_letters")
    if kind == "append":
        lab.run(edited)
        assert rows(lab.table("out")) == [("a", 1, "i"), ("b", 2, "i")]
        return
    with pytest.raises(DeclarationError, match="the result has `Item` and the table `item`"):
        lab.run(edited)
    lab.run(declared(SINKS[kind]))
    assert rows(lab.table("out")) == [("a", 1, "i"), ("b", 2, "i")]


@pytest.mark.parametrize("kind", SINKS)
@pytest.mark.parametrize("transform", ["alike", "alike_fields"])
def test_two_names_that_are_one_to_delta(lab: Lab, kind: str, transform: str) -> None:
    """Delta would refuse them in the first batch, once that is planned."""
    arrive(lab, "a", 1)
    stream = declared(SINKS[kind], transform)
    with pytest.raises(DeclarationError, match=r"`user`.*(one name to Delta|more than once)|`item.a` and `item.A`"):
        lab.run(stream)
    assert lab.plan(stream).batches[0].kind == "data"
