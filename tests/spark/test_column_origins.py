"""Of which columns of the sources each column of a result is made, as Spark's own plan tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.runs.recorded_columns import ColumnOrigin, RecordedColumns
from sluice.spark.column_origins import read_columns
from sluice.spark.query import build_query
from tests.spark.lab import Lab, append_rows, write_files

pytestmark = pytest.mark.spark

CLICKS = "id bigint, name string, at timestamp, place struct<city: string, zip: string>"
Same = dict[str, tuple[list[str], bool]]


def columns_of(lab: Lab, sql: str | None, transform: str | None = None) -> RecordedColumns:
    for name in ("clicks", "shows"):
        write_files(lab.root / name, {"0.json": '{"id": 1}'})
    found = {name: sources.files(name, format="json", schema=CLICKS) for name in ("clicks", "shows")}
    used = found if "shows" in (sql or "shows") else {"clicks": found["clicks"]}
    stream = Stream(name="s", sources=used, sql=sql, transform=transform, sink=sinks.delta("out"))
    query = build_query(lab.project, lab.project.resolve(stream), lab.spark, {})
    columns = read_columns(query)
    assert columns is not None
    assert columns.sources["clicks"]["id"] == "bigint"
    assert [column.name for column in columns.result] == query.frame.columns
    return columns


def made(columns: RecordedColumns) -> Same:
    """By column, of what it is made, and whether it is just that."""
    return {column.name: (texts(column.origins), column.is_same) for column in columns.result}


def texts(origins: tuple[ColumnOrigin, ...]) -> list[str]:
    return [f"{origin.source}.{origin.column}" for origin in origins]


QUERIES: Mapping[str, tuple[str, Same, dict[str, list[str]]]] = {
    "renamed": (
        "select id as key, upper(name) as name, 7 as seven, place.city from stream(clicks) where length(name) > 1",
        {
            "key": (["clicks.id"], True),
            "name": (["clicks.name"], False),
            "seven": ([], False),
            "city": (["clicks.place"], False),
        },
        {"filter": ["clicks.name"]},
    ),
    "aggregated": (
        """select window(at, '10 seconds').start as since, count(name) as n, max(id) as most
        from stream(clicks) watermark at delay of interval 5 seconds group by window(at, '10 seconds')""",
        {"since": (["clicks.at"], False), "n": (["clicks.name"], False), "most": (["clicks.id"], False)},
        {"group_by": ["clicks.at"]},
    ),
    "joined": (
        """select c.id, s.name as shown, concat(c.name, s.name) as both
        from stream(clicks) c join stream(shows) s on c.id = s.id""",
        {
            "id": (["clicks.id"], True),
            "shown": (["shows.name"], True),
            "both": (["clicks.name", "shows.name"], False),
        },
        {"join": ["clicks.id", "shows.id"]},
    ),
    "united": (
        "select id, name from stream(clicks) union all select id, upper(name) from stream(shows)",
        {"id": (["clicks.id", "shows.id"], False), "name": (["clicks.name", "shows.name"], False)},
        {},
    ),
    "exploded": (
        "select explode(split(name, ',')) as word, at from stream(clicks)",
        {"word": (["clicks.name"], False), "at": (["clicks.at"], True)},
        {},
    ),
}


@pytest.mark.parametrize("kind", QUERIES)
def test_queries(lab: Lab, kind: str) -> None:
    """What is computed, and what decides on rows; Spark's own conditions for nulls are of columns that do so anyway."""
    sql, expected, rows_by = QUERIES[kind]

    columns = columns_of(lab, sql)

    assert made(columns) == expected
    told = {how: texts(origins) for how, origins in columns.rows_by.items()}
    assert {how: told.get(how) for how in rows_by} == rows_by
    assert set().union(*told.values()) == set().union(*rows_by.values())


def functions(clicks: DataFrame, shows: DataFrame) -> DataFrame:
    """Functions in Python, a table beside the sources, a source twice, and names that begin alike."""
    shout = F.udf(lambda text: text and text + "!", "string")
    known = clicks.sparkSession.read.format("delta").load(f"{PLACE['root']}/known").withColumnRenamed("id", "known")
    twice = clicks.select(F.col("id"), F.col("name").alias("id_name")).union(clicks.select("id", "name"))
    joined = twice.join(known, F.col("id") == F.col("known"), "left")
    united = joined.select("id", "id_name", "known").unionByName(
        shows.select("id", F.col("name").alias("id_name")), allowMissingColumns=True
    )
    return united.select("id", "id_name", "known", shout("id_name").alias("loud"))


PLACE: dict[str, Any] = {}


def test_functions_and_static_tables(lab: Lab) -> None:
    """A function in Python is about what it is called with; a static table has its version, and columns of its own."""
    PLACE["root"] = lab.root
    append_rows(lab.spark, lab.root / "known", range(3))
    append_rows(lab.spark, lab.root / "known", range(3, 6))

    columns = columns_of(lab, None, "tests.spark.test_column_origins:functions")

    found = made(columns)
    assert found["id"][0] == ["clicks.id", "shows.id"]
    assert found["id_name"][0] == found["loud"][0] == ["clicks.name", "shows.name"]
    assert found["known"] == ([], False)
    assert columns.tables == {str(lab.root / "known"): 1}
