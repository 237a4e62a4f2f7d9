"""Results whose types are not the table's: a value is in the table as the result has it, or nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from sluice.project import find_project
from sluice.running.check import check_project
from sluice.sinks.delta.implicit_casts import types_of, with_types
from sluice.sinks.delta.schema_evolution import check_result
from tests.spark.lab import Lab, rows, write_numbers
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

KEPT = [
    ("tinyint", "7", "bigint"),
    ("int", "2147483647", "bigint"),
    ("smallint", "32767", "float"),
    ("int", "2147483647", "double"),
    ("float", "0.1", "double"),
    ("bigint", "9223372036854775807", "decimal(19,0)"),
    ("decimal(10,2)", "12345678.91", "decimal(12,3)"),
    ("date", "DATE'2026-01-31'", "timestamp"),
    ("date", "DATE'2026-01-31'", "timestamp_ntz"),
    ("boolean", "true", "string"),
    ("double", "0.1", "string"),
    ("timestamp", "TIMESTAMP'2026-01-31 12:34:56.789'", "string"),
    ("string", "'ü'", "binary"),
    ("struct<a:int>", "named_struct('a', 7)", "struct<a:bigint>"),
    ("array<int>", "array(7)", "array<bigint>"),
    ("map<string,int>", "map('a', 7)", "map<string,bigint>"),
]
"""A type of a result, a value, and the table's type, which has it as it is."""
CHANGED = [
    ("double", "2.7D", "bigint"),
    ("float", "CAST(2.5 AS float)", "int"),
    ("decimal(10,3)", "2.777", "decimal(10,2)"),
    ("decimal(10,3)", "2.777", "bigint"),
    ("double", "0.126D", "decimal(10,2)"),
    ("decimal(20,3)", "12345678901234567.891", "double"),
    ("bigint", "9007199254740993", "double"),
    ("int", "16777217", "float"),
    ("double", "0.1D", "float"),
    ("timestamp", "TIMESTAMP'2026-01-31 12:34:56'", "date"),
    ("string", "'2026-01-31 12:34:56'", "date"),
    ("string", "'2.777'", "decimal(10,2)"),
    ("binary", "X'ff'", "string"),
    ("struct<a:double>", "named_struct('a', 2.7D)", "struct<a:bigint>"),
    ("array<double>", "array(2.7D)", "array<bigint>"),
    ("map<string,double>", "map('a', 2.7D)", "map<string,bigint>"),
]
"""The same, where Spark makes another value of it without a word."""
LOUD = [
    ("bigint", "2147483648", "int"),
    ("string", "'2.7'", "bigint"),
    ("string", "'soon'", "timestamp"),
    ("decimal(10,0)", "100000", "smallint"),
]
"""The same, where it fails the batch at the first value that does not fit."""


def columns(pairs: list[tuple[str, str, str]]) -> tuple[list[str], str]:
    """The values of a result, and the columns of a table for them."""
    values = [f"CAST({value} AS {was}) AS c{number}" for number, (was, value, _) in enumerate(pairs)]
    return values, ", ".join(f"c{number} {to}" for number, (_, _, to) in enumerate(pairs))


def make_table(lab: Lab, place: str, kinds: str, **properties: str) -> Path:
    told = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    more = f" TBLPROPERTIES ({told})" if told else ""
    lab.spark.sql(f"CREATE TABLE delta.`{lab.root / place}` ({kinds}) USING delta{more}")
    return lab.root / place


def streamed(lab: Lab, table: Path, values: list[str], **options: str) -> list[Any]:
    """What Delta's own stream writer makes of values."""
    write_numbers(lab.root / "in", 1)
    frame = lab.spark.readStream.schema("id bigint").json(str(lab.root / "in")).selectExpr(*values)
    checkpoint = str(table.with_name(f"{table.name}_checkpoint"))
    writer = frame.writeStream.format("delta").options(**options).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(str(table)).awaitTermination()
    (found,) = lab.spark.read.format("delta").load(str(table)).collect()
    return [*found]


def is_refused(lab: Lab, table: Path, value: str) -> bool:
    try:
        check_result(DeltaTable(table), lab.spark.range(1).selectExpr(value), None, "", place="here")
    except DeclarationError:
        return True
    return False


def test_values_that_are_kept(lab: Lab) -> None:
    """Delta's stream writer keeps them, and none of them is refused."""
    values, kinds = columns(KEPT)
    table = make_table(lab, "out", kinds)

    found = streamed(lab, table, values)

    back = [f"CAST(c{number} AS {was}) AS c{number}" for number, (was, _, _) in enumerate(KEPT)]
    read = lab.spark.read.format("delta").load(str(table)).selectExpr(*back)
    assert rows(read) == rows(lab.spark.range(1).selectExpr(*values))
    assert None not in found
    assert [value for value in values if is_refused(lab, table, value)] == []


def test_columns_of_nothing(lab: Lab) -> None:
    """They get the types of the table's, nested or not: Delta refuses them in a stream, whatever it casts else."""
    kinds = "a int, b struct<x:int>, c array<struct<x:int>>, d map<string,int>, e struct<x:bigint>"
    table = make_table(lab, "out", kinds)
    result = lab.spark.range(1).selectExpr(
        *(f"NULL AS {name}" for name in "abcd"), "named_struct('x', NULL) AS e"
    )  # fmt: skip

    found = with_types(types_of(DeltaTable(str(table))), result)

    assert [kind for _, kind in found.dtypes] == [kind for _, kind in lab.spark.createDataFrame([], kinds).dtypes]


def test_values_that_are_changed(lab: Lab) -> None:
    """Delta's stream writer takes all of them and gives others back; each is refused, with both of its types."""
    values, kinds = columns(CHANGED)
    table = make_table(lab, "out", kinds)

    found = streamed(lab, table, values)

    asked = [*lab.spark.range(1).selectExpr(*values).collect()[0]]
    assert [number for number, (was, now) in enumerate(zip(asked, found, strict=True)) if was == now] == []
    assert [value for value in values if not is_refused(lab, table, value)] == []


@pytest.mark.parametrize(("was", "value", "to"), LOUD)
def test_values_that_do_not_fit(lab: Lab, was: str, value: str, to: str) -> None:
    """They fail their batch, which is planned by then; so their type is refused before."""
    values, kinds = columns([(was, value, to)])
    table = make_table(lab, "out", kinds)
    with pytest.raises(Exception, match=r"CAST_OVERFLOW_IN_TABLE_INSERT|CAST_INVALID_INPUT"):
        streamed(lab, table, values)
    assert is_refused(lab, table, values[0])


def halves(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.col("id"), (F.col("id") * 0.9).alias("half"))


def whole(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.col("id"), F.floor(F.col("id") * 0.9).cast("int").alias("half"))


def declared(policy: str | None, transform: str) -> Stream:
    return Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out"),
        quality=None if policy is None else "suite.json",
    )


@pytest.fixture(params=[None, "warn", "fail"])
def policy(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str | None]:
    """That of the suite, where there is one: with each, batches take another way into the table."""
    if request.param is not None:
        suite = document(row("expect_column_values_to_be_between", policy=request.param, column="id", max_value=1000))
        (lab.root / "suite.json").write_bytes(suite)
    return request.param


def test_a_run(lab: Lab, policy: str | None) -> None:
    """Refused before a batch is planned; the corrected transform, whose type is narrower, goes on."""
    make_table(lab, "out", "id bigint, half bigint")
    write_numbers(lab.root / "in", 4)
    with pytest.raises(DeclarationError, match=r"half: bigint in the table, double in the result") as refused:
        lab.run(declared(policy, "halves"))
    assert "cast in the transform, as you mean it" in str(refused.value.remedy)
    assert DeltaTable(lab.root / "out").version() == 0
    assert not (lab.checkpoint(declared(policy, "halves")) / "offsets").exists()

    record = lab.run(declared(policy, "whole"))

    assert [batch.output_rows for batch in record.batches] == [4]
    assert rows(lab.table("out")) == [(0, 0), (1, 0), (2, 1), (3, 2)]


_DECLARATION = f"""
from sluice import Stream, sinks, sources
numbers = sources.files("in", format="json", schema="id bigint")
s = Stream(name="s", sources={{"numbers": numbers}}, transform="{__name__}:halves", sink=sinks.delta("out"))
"""


@pytest.mark.parametrize(("kind", "is_taken"), [("bigint", False), ("double", True)])
def test_sluice_check(lab: Lab, monkeypatch: pytest.MonkeyPatch, kind: str, *, is_taken: bool) -> None:
    """It says what every run would be refused for."""
    make_table(lab, "out", f"id bigint, half {kind}")
    (lab.root / "in").mkdir()
    (lab.root / "sluice.toml").write_text('[project]\nname = "checked"\nstreams = ["streams"]\n')
    (lab.root / "streams").mkdir()
    (lab.root / "streams" / "s.py").write_text(_DECLARATION)
    monkeypatch.setattr("sluice.spark.session.opened_session", lambda *_, **__: nullcontext(lab.spark))

    (found,) = check_project(find_project(str(lab.root)))

    assert (found.error is None) == is_taken
    assert is_taken or "half: bigint in the table, double in the result" in str(found.error)
