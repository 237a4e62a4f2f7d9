"""What partitions a table has to be read by everybody who plans: values that delta-rs can't read are not written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from tests.builders import put
from tests.campaign import rarely
from tests.spark.lab import Lab, rows, write_files
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

FAR = "+280000-01-01"


def same(n: DataFrame) -> DataFrame:
    return n


def of_our_time(n: DataFrame) -> DataFrame:
    return n.where("year(p) < 9999")


def as_time(n: DataFrame) -> DataFrame:
    return n.selectExpr("id", "cast(p AS timestamp_ntz) AS p")


def as_double(n: DataFrame) -> DataFrame:
    return n.selectExpr("id", "cast(p AS double) AS p")


def as_decimal(n: DataFrame) -> DataFrame:
    return n.selectExpr("id", "cast(p AS decimal(12,2)) AS p")


def as_finer_decimal(n: DataFrame) -> DataFrame:
    return n.selectExpr("id", "cast(p AS decimal(12,4)) AS p")


def declared(kind: str, transform: str = "same", **its: Any) -> Stream:
    return Stream(
        name="s",
        sources={"n": sources.files("in", format="json", schema=f"id bigint, p {kind}")},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out", partition_by="p", **its),
    )


def arrive(lab: Lab, number: int, *values: Any) -> None:
    lines = "\n".join(json.dumps({"id": number, "p": value}) for value in values)
    write_files(lab.root / "in", {f"{number}.json": lines}, first=number)


@pytest.mark.parametrize(
    ("kind", "is_new"), [("date", True), ("timestamp", False), *rarely(("date", False), ("timestamp", True))]
)
def test_a_far_date(lab: Lab, kind: str, *, is_new: bool) -> None:
    """The batch is not published; without the row, it is, and the table was readable all the time."""
    far = FAR if kind == "date" else f"{FAR}T00:00:00Z"
    near = "2026-01-01" if kind == "date" else "2026-01-01T00:00:00Z"
    if not is_new:
        arrive(lab, 0, near)
        lab.run(declared(kind))
    arrive(lab, 1, near, far)
    with pytest.raises(DeclarationError, match="column `p` that is beyond the year 262,142"):
        lab.run(declared(kind))
    assert (lab.root / "out" / "_delta_log").exists() != is_new
    lab.run(declared(kind, "of_our_time"))
    assert [row[0] for row in rows(lab.spark_table("out"))] == [1] if is_new else [0, 1]
    assert lab.plan(declared(kind, "of_our_time")).verdict == "skip"


def test_a_far_date_in_a_merge(lab: Lab) -> None:
    """Likewise."""
    arrive(lab, 1, "2026-01-01", FAR)
    stream = replace(declared("date"), sink=sinks.delta("out", partition_by="p", merge_on=["id", "p"]))
    with pytest.raises(DeclarationError, match="column `p` that is beyond the year 262,142"):
        lab.run(stream)
    lab.run(replace(stream, transform=f"{__name__}:of_our_time"))
    assert len(rows(lab.spark_table("out"))) == 1


@pytest.mark.parametrize(
    ("kind", "value", "transform", "is_taken"),
    [
        ("date", "2026-01-01", "as_time", False),
        ("int", 1, "as_decimal", False),
        ("decimal(5,2)", 1.5, "as_finer_decimal", False),
        ("decimal(5,2)", 1.5, "as_decimal", True),
        ("int", 1, "as_double", True),
    ],
)
def test_a_wider_partition_column(lab: Lab, kind: str, value: Any, transform: str, *, is_taken: bool) -> None:
    """It is widened where the partitions that there are can be read as of the wider type; else nothing is."""
    lab.spark.sql(
        f"CREATE TABLE delta.`{lab.root / 'out'}` (id bigint, p {kind}) USING delta PARTITIONED BY (p) TBLPROPERTIES"
        " ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')"
    )
    arrive(lab, 0, value)
    lab.run(declared(kind, schema_evolution="add"))
    arrive(lab, 1, value)
    stream = declared(kind, transform, schema_evolution="add")
    if is_taken:
        lab.run(stream)
        assert DeltaTable(str(lab.root / "out")).get_add_actions().num_rows == 2
    else:
        with pytest.raises(DeclarationError, match=r"p: .* in the table, .* in the result"):
            lab.run(stream)
    assert lab.plan(stream).verdict == ("skip" if is_taken else "run")
    assert len(rows(lab.spark_table("out"))) == 1 + is_taken


def test_a_partition_that_the_table_computes(lab: Lab) -> None:
    """It is no column of the result."""
    lab.spark.sql(
        f"CREATE TABLE delta.`{lab.root / 'out'}` (id bigint, p timestamp, day date GENERATED ALWAYS AS"
        " (CAST(p AS DATE))) USING delta PARTITIONED BY (day)"
    )
    arrive(lab, 0, "2026-01-01T00:00:00Z")
    lab.run(replace(declared("timestamp"), sink=sinks.delta("out")))
    assert [str(row[2]) for row in rows(lab.spark_table("out"))] == ["2026-01-01"]


@pytest.mark.parametrize("kind", ["date", "timestamp"])
def test_a_far_date_of_a_stream_with_a_quarantine(lab: Lab, kind: str) -> None:
    """No table has any row of the batch: a corrected transform decides it anew."""
    put(lab.root / "suite.json", document(row("expect_column_values_to_not_be_null", policy="quarantine", column="id")))
    arrive(lab, 0, "2026-01-01", FAR)
    stream = replace(declared(kind), quality=str(lab.root / "suite.json"))
    with pytest.raises(DeclarationError, match="column `p` that is beyond the year 262,142"):
        lab.run(stream)
    lab.run(replace(stream, transform=f"{__name__}:of_our_time"))
    assert len(rows(lab.spark_table("out"))) == 1
