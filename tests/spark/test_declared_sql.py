"""Streams that are declared in SQL: each query gives what its batch gives, over runs, kills and backfills."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, QueryRefusedError, RefusedError
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from tests.campaign import rarely
from tests.spark.lab import Lab, append_rows, rows, write_files
from tests.spark.power_cuts import Cut
from tests.spark.test_mended_files import cut_run

pytestmark = pytest.mark.spark

KINDS = {
    "map": "select id, upper(name) as name from stream(clicks) where id % 3 <> 0",
    "aggregate": """
        select id % 2 as odd, window(at, '10 seconds').start as since, count(*) as n
        from stream(clicks) watermark at delay of interval 5 seconds  -- ten, and five for those that are late
        group by id % 2, window(at, '10 seconds')""",
    "union": "select id from stream(clicks) union all select -id from stream(clicks)",
    "join": """
        with shown as (select * from stream(shows) watermark at delay of interval 5 seconds)
        select c.id, s.name from stream(clicks) watermark at delay of interval 5 seconds as c
        left join shown as s on c.id = s.id and s.at between c.at and c.at + interval 5 seconds""",
    "static": "select c.id, t.id is not null as known from stream(clicks) c left join delta.`{table}` t using (id)",
    "piped": "from stream(clicks) |> extend id * 2 as twice |> where twice > 6 |> select twice, name",
}
"""By what it does; as it is written in a declaration."""
IN_FILES = {"aggregate", "piped", "union"}
END = 1000
"""The second of an event after which every window is closed."""


def event(second: int, number: int) -> dict[str, Any]:
    at = datetime.fromtimestamp(1_700_000_000 + second, UTC).isoformat()
    return {"id": number, "name": f"n{number % 4}", "at": at}


def land(lab: Lab, folder: str, events: list[dict[str, Any]], first: int) -> None:
    write_files(lab.root / folder, {f"{first:04d}.json": "\n".join(map(json.dumps, events))}, first=first)


def declared(sql: str, **changes: Any) -> Stream:
    found = sources.files("clicks", format="json", schema="id bigint, name string, at timestamp")
    read = {"clicks": found} | ({"shows": replace(found, path="shows")} if "shows" in sql else {})
    return Stream(**{"name": "s", "sources": read, "sql": sql, "sink": sinks.delta("out"), **changes})


@pytest.mark.parametrize("kind", ["aggregate", "join", "static", *rarely("map", "union", "piped")])
def test_a_query_gives_what_its_batch_gives(lab: Lab, kind: str) -> None:
    """Over three runs, of which one is killed behind its rows; what waited in state came out by the last."""
    append_rows(lab.spark, lab.root / "table", range(0, 20, 2))
    sql = KINDS[kind].format(table=lab.root / "table")
    stream = declared(sql)
    if kind in IN_FILES:
        (lab.root / "query.sql").write_text(f"-- In a file.\n{sql};\n")
        stream = replace(stream, sql="query.sql")
    for run in range(3):
        seconds = range(run * 20, run * 20 + 20, 2)
        land(lab, "clicks", [event(second, second // 2) for second in seconds], run)
        land(lab, "shows", [event(second + 1, second // 2) for second in seconds if second % 3], run)
        if run == 1:
            assert cut_run(lab, stream, Cut("Spark's commit")) is not None
        lab.run(stream)
    for folder in ("clicks", "shows"):
        land(lab, folder, [event(END, END // 2)], 9)
    lab.run(stream)

    for name, source in stream.sources.items():
        lab.spark.read.schema(source.schema).json(f"{lab.root}/{name}").createOrReplaceTempView(name)
    batch = sql.replace("stream(clicks)", "clicks").replace("stream(shows)", "shows")
    expected = Counter(map(tuple, lab.spark.sql(batch).collect()))
    for name in stream.sources:
        lab.spark.catalog.dropTempView(name)
    if kind == "aggregate":
        # The window of the last event is not over.
        (newest,) = {row for row in expected if row[1] == max(since for _, since, _ in expected)}
        del expected[newest]
    assert Counter(rows(lab.table("out"))) == expected
    assert len(expected) > 5


def test_an_edit_behind_a_kill(lab: Lab) -> None:
    """Another query would read the rows otherwise that the table has; another comment would not."""
    land(lab, "clicks", [event(second, second) for second in range(5)], 0)
    sql = KINDS["aggregate"]
    assert cut_run(lab, declared(sql), Cut("Spark's commit")) is not None

    with pytest.raises(RefusedError) as refused:
        lab.run(declared(sql.replace("group by", "where id > 2 group by")))
    assert refused.value.finding.code == "READ_OTHERWISE"
    assert lab.run(declared(sql.replace("-- ten", "-- 10"))).status == "succeeded"


def test_a_backfill(lab: Lab) -> None:
    """The query reads its sources as tables, and its rows replace those of the interval."""
    sql = "select id, cast(at as date) as day, {} as n from stream(clicks) watermark at delay of interval 1 day"
    table = sinks.delta("out", partition_by=["day"])
    stream = declared(sql.format("id"), sink=table, interval_column="day")
    land(lab, "clicks", [event(second, 1 + second) for second in range(0, 200_000, 50_000)], 0)
    lab.run(stream)
    days = sorted({row[1] for row in rows(lab.table("out"))})

    mended = replace(stream, sql=sql.format("-id"))
    first = datetime(days[0].year, days[0].month, days[0].day, tzinfo=UTC)
    request = BackfillRequest(lab.project.resolve(mended), Interval(first, first + timedelta(days=1)))
    record = backfill_stream(lab.project, request, session=lab.spark)

    assert record.status == "succeeded"
    found = rows(lab.table("out"))
    assert len(found) == 4
    assert {number < 0 for _, day, number in found if day == days[0] and number} == {True}
    assert all(number == identity for identity, day, number in found if day != days[0])


@pytest.mark.parametrize(
    ("sql", "said", "line"),
    [
        ("select idd\nfrom stream(clicks)", "UNRESOLVED_COLUMN", 1),
        ("select id\nfrom stream(clicks)\nwhere )", "PARSE_SYNTAX_ERROR", 3),
        ("select id\nfrom stream(clicks) join lake.orders using (id)", "TABLE_OR_VIEW_NOT_FOUND", 2),
        ("select distinct name\nfrom stream(clicks)", "STREAMING_OUTPUT_MODE", None),
    ],
)
def test_what_spark_does_not_take(lab: Lab, sql: str, said: str, line: int | None) -> None:
    """Its words, the file and the line of the query; nothing is planned."""
    land(lab, "clicks", [event(0, 0)], 0)
    (lab.root / "query.sql").write_text(sql)
    stream = declared("query.sql")

    with pytest.raises((DeclarationError, QueryRefusedError), match=said) as caught:
        lab.run(stream)
    assert caught.value.where == f"{lab.root / 'query.sql'}{'' if line is None else f':{line}'}"
    assert not (lab.checkpoint(stream) / "offsets").exists()


def test_literals_are_not_told(lab: Lab) -> None:
    """Neither by an error that shows the query, nor by the record with Spark's plan."""
    land(lab, "clicks", [event(0, 0)], 0)
    salted = "select sha2(concat(name, 'pepper-4711'), 256) as name from stream(clicks)"

    with pytest.raises(DeclarationError) as caught:
        lab.run(declared(f"{salted} where )"))
    lab.run(declared(salted))

    assert "pepper" not in str(caught.value)
    kept = [file.read_text() for file in (lab.root / "home").rglob("*.json")]
    assert any("sha2" in text for text in kept)
    assert not any("pepper" in text for text in kept)
