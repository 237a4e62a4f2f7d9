"""Columns that change, upstream or in the transform: applied when declared, else refused with a line for each.

Whole histories end with the rows that the transform gives for the source table as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.auditing.return_rows import return_rows
from sluice.delta_log.types import result_columns
from sluice.errors import BatchFailedError, DeclarationError, RefusedError
from sluice.project import find_project
from sluice.running.check import check_project
from sluice.sinks.contract import Sink
from sluice.sinks.delta.schema_evolution import check_result, check_same, evolve
from sluice.storage import Storage
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, available_now, bounded, rows, write_files
from tests.spark.power_cuts import Cut
from tests.spark.test_mended_files import cut_run
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

WIDENING = {"delta.enableTypeWidening": "true"}
NTZ = {"delta.feature.timestampNtz": "supported"}
MAPPING = {"delta.columnMapping.mode": "name"}
ADD: Any = "add"


def everything(events: DataFrame) -> DataFrame:
    return events


def without_amount(events: DataFrame) -> DataFrame:
    return events.drop("amount")


def with_text(events: DataFrame) -> DataFrame:
    return events.withColumn("amount", events["amount"].cast("string"))


def counted(events: DataFrame) -> DataFrame:
    return events.groupBy("amount").count()


def with_kind(events: DataFrame) -> DataFrame:
    return events.selectExpr("*", "id % 2 AS kind")


def stream(sink: Sink, transform: str = "everything", **declared: Any) -> Stream:
    source = declared.pop("source", None) or sources.delta("events", starting_version=0)
    return Stream(name="s", sources={"events": source}, transform=f"{__name__}:{transform}", sink=sink, **declared)


def make(lab: Lab, columns: str, name: str = "events", **properties: str) -> str:
    """Make a table, and give what it is called in SQL."""
    told = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    table = f"delta.`{lab.root / name}`"
    lab.spark.sql(f"CREATE TABLE {table} ({columns}) USING delta{f' TBLPROPERTIES ({told})' if told else ''}")
    return table


def in_table(lab: Lab, table: str, *statements: str) -> None:
    for statement in statements:
        lab.spark.sql(statement.replace("events", table))


def lines(error: Exception) -> list[str]:
    """The columns that a refusal names."""
    return [line.strip().partition(" [")[0] for line in str(error).splitlines() if line.startswith("  ")]


TABLE = """
    id BIGINT, narrow INT, wide INT, exact DECIMAL(5, 2), day DATE, amount INT, price DOUBLE, gone STRING,
    inner STRUCT<a: INT, b: INT>, list ARRAY<STRUCT<a: INT>>, map MAP<STRING, STRUCT<a: INT>>
"""
RESULT = """
    1 AS ID, 2S AS narrow, 3L AS wide, CAST(1.234 AS DECIMAL(10, 3)) AS exact,
    TIMESTAMP_NTZ'2026-01-01 01:00:00' AS day, 'many' AS amount, 2.5BD AS price,
    named_struct('b', 2L, 'c', 3) AS inner, array(named_struct('a', 1, 'b', 2)) AS list,
    map('k', named_struct('a', 1, 'b', 2)) AS map, true AS more, NULL AS nothing
"""
WIDER = [
    "wide: int in the table, bigint in the result",
    "exact: decimal(5,2) in the table, decimal(10,3) in the result",
    "day: date in the table, timestamp_ntz in the result",
    "inner.b: int in the table, bigint in the result",
]
UNFIT = [
    "amount: int in the table, string in the result",
    "price: double in the table, decimal(2,1) in the result",
    "nothing: not in the table, void in the result",
]
NEW = [
    "inner.c: not in the table, int in the result",
    "list.element.b: not in the table, int in the result",
    "map.value.b: not in the table, int in the result",
    "more: not in the table, boolean in the result",
]
GONE = ["gone: string in the table, no longer in the result", "inner.a: int in the table, no longer in the result"]


def test_every_change_of_a_result(lab: Lab) -> None:
    """Which ones are refused is told at once, a line for each; the others are in the table afterwards."""
    table = make(lab, TABLE, **NTZ)
    result = lab.spark.sql(f"SELECT {RESULT}")
    former = lab.spark.sql("SELECT 'x' AS gone, named_struct('a', 1, 'b', 2) AS inner, 1 AS id")
    before = result_columns(former.schema.json())

    def refused(evolution: Any, **remedies: bool) -> list[str]:
        with pytest.raises(DeclarationError) as told:
            check_result(DeltaTable(lab.root / "events"), result, evolution, before, place="here")
        found = {"cast": "cast in the transform", "add": 'schema_evolution="add"', "widen": "delta.enableTypeWidening"}
        assert {name: words in str(told.value.remedy) for name, words in found.items()} == remedies
        return sorted(lines(told.value))

    assert refused(None, cast=True, add=True, widen=True) == sorted([*WIDER, *UNFIT, *NEW, *GONE])
    assert refused(ADD, cast=True, add=False, widen=True) == sorted([*WIDER, *UNFIT])
    in_table(lab, table, "ALTER TABLE events SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    assert refused(None, cast=True, add=True, widen=False) == sorted([*WIDER, *UNFIT, *NEW, *GONE])
    assert refused(ADD, cast=True, add=False, widen=False) == sorted(UNFIT)

    with pytest.raises(DeclarationError, match="the quarantine has other columns") as told:
        check_same(DeltaTable(lab.root / "events"), result, ADD, place="here", otherwise="or not")
    assert sorted(lines(told.value)) == sorted(UNFIT)

    fitting = result.drop("amount", "price", "nothing")
    check_result(DeltaTable(lab.root / "events"), fitting, ADD, before, place="here")
    evolve(str(lab.root / "events"), fitting, storage=Storage())
    check_result(DeltaTable(lab.root / "events"), fitting, None, "", place="here")
    assert lab.spark_table("events").dtypes == [
        ("id", "bigint"),
        ("narrow", "int"),
        ("wide", "bigint"),
        ("exact", "decimal(10,3)"),
        ("day", "timestamp_ntz"),
        ("amount", "int"),
        ("price", "double"),
        ("gone", "string"),
        ("inner", "struct<a:int,b:bigint,c:int>"),
        ("list", "array<struct<a:int,b:int>>"),
        ("map", "map<string,struct<a:int,b:int>>"),
        ("more", "boolean"),
    ]


def test_what_delta_does_not_add(lab: Lab) -> None:
    """A feature that the table lacks: Delta's own words, and the column."""
    make(lab, "id BIGINT")
    result = lab.spark.sql("SELECT 1L AS id, TIMESTAMP_NTZ'2026-01-01 01:00:00' AS at")

    with pytest.raises(DeclarationError, match=r"\[DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT\]") as told:
        evolve(str(lab.root / "events"), result, storage=Storage())

    assert lines(told.value) == ["at: not in the table, timestamp_ntz in the result"]


UPSTREAM = [
    "INSERT INTO events VALUES (2, 20, 1.5, DATE'2026-01-02', named_struct('a', 2), array(named_struct('a', 2)))",
    "ALTER TABLE events ADD COLUMNS (town STRING AFTER id, inner.b INT, list.element.b INT)",
    "ALTER TABLE events ALTER COLUMN amount TYPE BIGINT",
    "ALTER TABLE events ALTER COLUMN exact TYPE DECIMAL(10, 3)",
    "ALTER TABLE events ALTER COLUMN day TYPE TIMESTAMP_NTZ",
    "ALTER TABLE events ALTER COLUMN id DROP NOT NULL",
    "ALTER TABLE events ALTER COLUMN inner FIRST",
    """INSERT INTO events VALUES (named_struct('a', 3, 'b', 3), NULL, 'Ulm', 5000000000, 1.125,
        TIMESTAMP_NTZ'2026-01-03 12:00:00', array(named_struct('a', 3, 'b', 3)))""",
]


@pytest.mark.parametrize("mapping", [{}, *rarely(MAPPING)])
def test_a_source_that_grows(lab: Lab, mapping: dict[str, str]) -> None:
    """One batch reads versions with and without the columns, all with those of now; a bound before them does, too."""
    columns = "id BIGINT NOT NULL, amount INT, exact DECIMAL(5, 2), day DATE, inner STRUCT<a: INT>"
    table = make(lab, f"{columns}, list ARRAY<STRUCT<a: INT>>", **WIDENING, **NTZ, **mapping)
    in_table(lab, table, UPSTREAM[0], *UPSTREAM)

    early = lab.run(stream(sinks.delta("out", schema_evolution=ADD)), bounded(to_version=1))
    record = lab.run(stream(sinks.delta("out", schema_evolution=ADD)))

    assert [batch.input_rows for batch in (*early.batches, *record.batches)] == [1, 2]
    assert [batch.output_rows for batch in (*early.batches, *record.batches)] == [1, 2]
    assert rows(lab.spark_table("out")) == rows(lab.spark_table("events").select(lab.spark_table("out").columns))


REFUSED_UPSTREAM = {
    "renamed": (["ALTER TABLE events RENAME COLUMN amount TO sum"], "amount: called so in version 2, renamed to `sum`"),
    "dropped": (["ALTER TABLE events DROP COLUMN amount"], "amount: int in version 2, dropped since"),
    "dropped within": (["ALTER TABLE events DROP COLUMN inner.b"], "inner.b: int in version 2, dropped since"),
    "another of its name": (
        ["ALTER TABLE events DROP COLUMN amount", "ALTER TABLE events ADD COLUMN amount INT AFTER id"],
        "amount: int in version 2, dropped since",
    ),
    "renamed and back": (
        ["ALTER TABLE events RENAME COLUMN amount TO sum", "ALTER TABLE events RENAME COLUMN sum TO amount"],
        "sum: called so in version 3, renamed to `amount`",
    ),
    "another type": ([], "amount: int in version 2, string now"),
    "a wider type, without the feature": ([], "amount: int in version 2, bigint now"),
}

_NEXT_OF_KIN = ("dropped within", "renamed and back")


@pytest.mark.parametrize(
    "change", [*(change for change in REFUSED_UPSTREAM if change not in _NEXT_OF_KIN), *rarely(*_NEXT_OF_KIN)]
)
def test_a_source_that_spark_can_t_follow(lab: Lab, change: str) -> None:
    """Refused where a batch would span the change, before it is planned; Spark refuses exactly that."""
    statements, told = REFUSED_UPSTREAM[change]
    table = make(lab, "id BIGINT, amount INT, inner STRUCT<a: INT, b: INT>", **(MAPPING if statements else {}))
    row_of = "INSERT INTO events VALUES ({0}, {0}, named_struct('a', {0}, 'b', {0}))"
    in_table(lab, table, row_of.format(1), row_of.format(2), *statements)
    if not statements:
        in_table(lab, table, "DELETE FROM events")
        kind = "STRING" if "another type" in change else "BIGINT"
        other = lab.spark.sql(f"SELECT 3L AS id, CAST(3 AS {kind}) AS amount, named_struct('a', 3, 'b', 3) AS inner")
        other.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(lab.root / "events"))
    source = sources.delta("events", starting_version=2, skip_change_commits=True)

    plan = lab.plan(stream(sinks.delta("out"), source=source))
    reader = lab.spark.readStream.format("delta").option("startingVersion", 2).option("skipChangeCommits", "true")
    with pytest.raises(StreamingQueryException, match=r"DELTA_(SCHEMA_CHANGED|STREAMING_INCOMPATIBLE)"):
        available_now(reader.load(str(lab.root / "events")), lab.root / "of_spark")

    assert plan.problem is not None
    assert (plan.verdict, plan.problem.code) == ("refuse", "SOURCE_COLUMNS_CHANGED")
    assert told in plan.problem.cause
    behind = sources.delta("events", starting_version=DeltaTable(lab.root / "events").version())
    assert lab.plan(stream(sinks.delta("out"), source=behind)).verdict == "run"


def test_a_change_between_a_kill_and_its_resume(lab: Lab) -> None:
    """The batch was begun with the old columns: refused before Spark does; its own way to follow goes on exactly."""
    table = make(lab, "id BIGINT, amount INT", **MAPPING)
    in_table(lab, table, "INSERT INTO events VALUES (1, 10)", "INSERT INTO events VALUES (2, 20)")
    out = sinks.delta("out", schema_evolution=ADD)
    lab.run(stream(out), bounded(to_version=1))
    assert cut_run(lab, stream(out), Cut("commit out")) is not None
    in_table(lab, table, "ALTER TABLE events RENAME COLUMN amount TO sum", "INSERT INTO events VALUES (3, 30)")

    with pytest.raises(RefusedError, match="renamed to `sum`") as refused:
        lab.run(stream(out))
    read_remedy(refused.value, "SOURCE_COLUMNS_CHANGED", "declare `schema_tracking_location`")

    tracked = str(lab.checkpoint(stream(out)) / "_schemas")
    follows = stream(out, source=sources.delta("events", starting_version=0, schema_tracking_location=tracked))
    setting = "spark.databricks.delta.streaming.allowSourceColumnRename"
    lab.spark.conf.set(setting, "always")
    try:
        for _ in range(2):
            with pytest.raises(BatchFailedError, match="DELTA_STREAMING_METADATA_EVOLUTION"):
                lab.run(follows)
        lab.run(follows)
    finally:
        lab.spark.conf.unset(setting)
    assert rows(lab.table("out").select("id", "amount", "sum")) == [(1, 10, None), (2, 20, None), (3, None, 30)]


WAYS: dict[str, tuple[Sink, str]] = {
    "append": (sinks.delta("out", schema_evolution=ADD), "columns"),
    "append, by Spark": (sinks.delta("out", optimize_write=False, schema_evolution=ADD), "offsets"),
    "merge_on": (sinks.delta("out", merge_on="id", schema_evolution=ADD), "merge"),
    "changes": (
        sinks.delta("out", changes=sinks.changes(keys="id", sequence_by="id"), schema_evolution=ADD),
        "columns",
    ),
}


@pytest.mark.parametrize("way", ["append", "changes", *rarely("merge_on", "append, by Spark")])
def test_a_history(lab: Lab, way: str) -> None:
    """Killed before the change, and while the table follows; the word is taken away again, and all of it is there."""
    sink, where = WAYS[way]
    widens = way in {"merge_on", "append, by Spark"}
    plain = replace(sink, schema_evolution=None)  # type: ignore[call-arg]
    table = make(lab, "id BIGINT, amount INT", **WIDENING)
    make(lab, "id BIGINT, amount INT", "out", **(WIDENING if widens else {}))
    in_table(lab, table, "INSERT INTO events VALUES (1, 10)")
    assert cut_run(lab, stream(plain), Cut("Spark's commit")) is not None
    in_table(lab, table, "ALTER TABLE events ADD COLUMN town STRING", "INSERT INTO events VALUES (2, 20, 'Ulm')")

    with pytest.raises(DeclarationError) as refused:
        lab.run(stream(plain))
    assert lines(refused.value) == ["town: not in the table, string in the result"]
    assert cut_run(lab, stream(sink), Cut(where, moment="after")) is not None
    record = lab.run(stream(sink))
    assert lab.run(stream(sink)).status == "skipped"

    if widens:
        in_table(lab, table, "ALTER TABLE events ALTER COLUMN amount TYPE BIGINT")
    in_table(lab, table, "INSERT INTO events VALUES (3, 30, 'Bonn')")
    if widens:
        with pytest.raises(DeclarationError) as refused:
            lab.run(stream(plain))
        assert lines(refused.value) == ["amount: int in the table, bigint in the result"]
        lab.run(stream(sink))
        in_table(lab, table, "INSERT INTO events VALUES (4, 5000000000, 'Jena')")
    last = lab.run(stream(plain))

    assert record.status == last.status == "succeeded"
    assert [batch.input_rows for batch in last.batches] == [1]
    assert rows(lab.spark_table("out")) == rows(lab.spark_table("events"))


@pytest.mark.parametrize("evolution", [None, "add"])
def test_narrower_values(lab: Lab, evolution: Any) -> None:
    """They fit as they are, in every place; the record tells how many rows were read where Delta's own writer casts."""
    kinds = "id INT, amount SMALLINT, inner STRUCT<a: INT>, list ARRAY<INT>"
    table = make(lab, kinds)
    make(lab, "id BIGINT, amount STRING, inner STRUCT<a: BIGINT>, list ARRAY<BIGINT>", "out", **WIDENING)
    in_table(lab, table, "INSERT INTO events VALUES (1, 2, named_struct('a', 3), array(4))")

    record = lab.run(stream(sinks.delta("out", schema_evolution=evolution)))

    assert [(batch.input_rows, batch.output_rows) for batch in record.batches] == [(1, 1)]
    assert rows(lab.spark_table("out").selectExpr("id", "amount", "inner.a", "list[0]")) == [(1, "2", 3, 4)]


def test_an_int_that_became_a_text(lab: Lab) -> None:
    """Refused before the batch is planned, by a run and by `sluice check`, declared or not; corrected, it goes on."""
    table = make(lab, "id BIGINT, amount INT")
    in_table(lab, table, "INSERT INTO events VALUES (1, 10)")
    out = sinks.delta("out", schema_evolution=ADD)
    lab.run(stream(out))
    in_table(lab, table, "INSERT INTO events VALUES (2, 20)")

    for sink in (out, sinks.delta("out")):
        with pytest.raises(DeclarationError) as refused:
            lab.run(stream(sink, "with_text"))
        assert lines(refused.value) == ["amount: int in the table, string in the result"]
    assert not (lab.checkpoint(stream(out)) / "offsets" / "1").exists()
    lab.run(stream(out))
    assert rows(lab.table("out")) == [(1, 10), (2, 20)]


_DECLARATION = f"""
from sluice import Stream, sinks, sources
s = Stream(
    name="s",
    sources={{"events": sources.delta("events", starting_version=0)}},
    transform="{__name__}:without_amount",
    sink=sinks.delta("out"),
)
"""


def turned(events: DataFrame) -> DataFrame:
    return events.selectExpr("id", "named_struct('Masse', s.`Masse`, 'n', s.n, 'Maße', s.`Maße`) AS s")


def without_s(events: DataFrame) -> DataFrame:
    return events.selectExpr("id", "`Masse`")


@pytest.mark.parametrize("how", ["append", "merge", *rarely("by Spark")])
def test_names_that_are_one_only_to_some(lab: Lab, how: str) -> None:
    """Spark takes `Maße` and `Masse` for two: each field has its own value, and who is gone is told."""
    sink = {
        "append": sinks.delta("out"),
        "merge": sinks.delta("out", merge_on="id"),
        "by Spark": sinks.delta("out", optimize_write=False),
    }[how]
    columns = "id BIGINT, s STRUCT<n: INT, `Maße`: INT, `Masse`: INT>"
    table = make(lab, columns)
    make(lab, columns, "out")
    in_table(lab, table, "INSERT INTO events VALUES (1, named_struct('n', 1, 'Maße', 10, 'Masse', 20))")
    lab.run(stream(sink, "turned"))
    assert rows(lab.table("out").selectExpr("id", "s.n", "s.`Maße`", "s.`Masse`")) == [(1, 1, 10, 20)]


def test_a_column_whose_like_stays(lab: Lab) -> None:
    """Two that Spark takes for two, of which one leaves the result."""
    table = make(lab, "id BIGINT, `Maße` INT, `Masse` INT")
    in_table(lab, table, "INSERT INTO events VALUES (1, 10, 20)")
    lab.run(stream(sinks.delta("out")))
    in_table(lab, table, "INSERT INTO events VALUES (2, 20, 30)")
    lab.run(stream(sinks.delta("out")))
    in_table(lab, table, "INSERT INTO events VALUES (3, 30, 40)")
    with pytest.raises(DeclarationError) as refused:
        lab.run(stream(sinks.delta("out"), "without_s"))
    assert lines(refused.value) == ["Maße: int in the table, no longer in the result"]
    assert rows(lab.table("out")) == [(1, 10, 20), (2, 20, 30)]


def test_a_dot_in_a_name(lab: Lab) -> None:
    """A column `a.b` is not the field `b` of a column `a`: the one is told as gone beside the other."""
    make(lab, "id BIGINT, `a.b` INT, a STRUCT<b: INT>")
    result = lab.spark.sql("SELECT 1L AS id, named_struct('b', 1) AS a")
    before = lab.spark.sql("SELECT 1L AS id, 1 AS `a.b`").schema.json()
    with pytest.raises(DeclarationError) as told:
        check_result(DeltaTable(lab.root / "events"), result, None, result_columns(before), place="here")
    assert lines(told.value) == ["`a.b`: int in the table, no longer in the result"]


def test_a_column_that_is_gone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the stream has written and gives no longer is refused, by a run and by `sluice check`; declared, it is null.

    A column of the table that it never wrote is not asked for.
    """
    table = make(lab, "id BIGINT, amount INT")
    make(lab, "id BIGINT, amount INT, note STRING", "out")
    in_table(lab, table, "INSERT INTO events VALUES (1, 10)")
    lab.run(stream(sinks.delta("out")))
    in_table(lab, table, "INSERT INTO events VALUES (2, 20)")

    with pytest.raises(DeclarationError) as refused:
        lab.run(stream(sinks.delta("out"), "without_amount"))
    assert lines(refused.value) == ["amount: int in the table, no longer in the result"]
    (lab.root / "sluice.toml").write_text('[project]\nname = "checked"\nstreams = ["streams"]\n')
    write_files(lab.root / "streams", {"s.py": _DECLARATION})
    monkeypatch.setattr("sluice.spark.session.opened_session", lambda *_, **__: nullcontext(lab.spark))
    (found,) = check_project(replace(find_project(str(lab.root)), home=str(lab.root / "home")))
    assert lines(found.error or Exception()) == lines(refused.value)

    lab.run(stream(sinks.delta("out", schema_evolution=ADD), "without_amount"))
    in_table(lab, table, "INSERT INTO events VALUES (3, 30)")
    lab.run(stream(sinks.delta("out"), "without_amount"))
    assert rows(lab.table("out")) == [(1, 10, None), (2, None, None), (3, None, None)]


def test_a_quarantine(lab: Lab) -> None:
    """It follows as the sink does; rows that were put there before are returned into the table that has followed."""
    rule = row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=1)
    (lab.root / "suite.json").write_bytes(document(rule))
    table = make(lab, "id BIGINT, amount INT")
    in_table(lab, table, "INSERT INTO events VALUES (1, 10), (2, 20)")
    plain = stream(sinks.delta("out"), quality="suite.json")
    lab.run(plain)
    in_table(lab, table, "ALTER TABLE events ADD COLUMN town STRING")
    in_table(lab, table, "INSERT INTO events VALUES (0, 0, 'Ulm'), (3, 30, 'Bonn')")

    follows = replace(plain, sink=sinks.delta("out", schema_evolution=ADD))
    with pytest.raises(DeclarationError, match="the quarantine has other columns than the result") as refused:
        lab.run(replace(follows, quarantine=sinks.delta("out_quarantine")))
    assert lines(refused.value) == ["town: not in the table, string in the result"]
    assert cut_run(lab, follows, Cut("columns out_quarantine")) is not None
    record = lab.run(follows)
    assert [(batch.input_rows, batch.quarantined_rows) for batch in record.batches] == [(2, 1)]
    assert rows(lab.table("out_quarantine").select("id", "amount", "town")) == [(2, 20, None), (3, 30, "Bonn")]

    (lab.root / "suite.json").write_bytes(document({**rule, "kwargs": {**rule["kwargs"], "max_value": 9}}))
    return_rows(lab.project, lab.project.resolve(plain), None, "ada", session=lab.spark)
    assert rows(lab.table("out")) == rows(lab.spark_table("events"))


def test_a_quarantine_of_wider_types(lab: Lab) -> None:
    """A change of types that is taken back leaves both tables wider: rows go on into both, and are returned."""
    rule = row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=1)
    (lab.root / "suite.json").write_bytes(document(rule))
    wide = make(lab, "id BIGINT, amount DOUBLE, inner STRUCT<a: BIGINT, b: INT>, list ARRAY<BIGINT>")
    in_table(lab, wide, "INSERT INTO events VALUES (1, 1, named_struct('a', 1, 'b', 1), array(1))")
    in_table(lab, wide, "INSERT INTO events VALUES (2, 2, named_struct('a', 2, 'b', 2), array(2))")
    plain = stream(sinks.delta("out"), quality="suite.json")
    lab.run(plain)
    narrow = replace(plain, transform=f"{__name__}:narrowed")
    in_table(lab, wide, "INSERT INTO events VALUES (0, 3, named_struct('a', 3, 'b', 3), array(3))")
    in_table(lab, wide, "INSERT INTO events VALUES (4, 4, named_struct('a', 4, 'b', 4), array(4))")

    assert cut_run(lab, narrow, Cut("out_quarantine", moment="after")) is not None
    lab.run(narrow)
    assert rows(lab.table("out_quarantine").selectExpr("id", "amount", "inner.a", "inner.b", "list[0]")) == [
        (2, 2.0, 2, 2, 2),
        (4, 4.0, 4, 4, 4),
    ]
    (lab.root / "suite.json").write_bytes(document({**rule, "kwargs": {**rule["kwargs"], "max_value": 9}}))
    return_rows(lab.project, lab.project.resolve(narrow), None, "ada", session=lab.spark)
    assert rows(lab.table("out")) == rows(lab.spark_table("events"))


def narrowed(events: DataFrame) -> DataFrame:
    inner = "named_struct('b', CAST(inner.b AS SMALLINT), 'a', CAST(inner.a AS INT)) AS inner"
    return events.selectExpr(
        "CAST(id AS INT) AS id", "CAST(amount AS FLOAT) AS amount", inner, "CAST(list AS ARRAY<INT>) AS list"
    )


def test_state_that_does_not_fit(lab: Lab) -> None:
    """A key that is in the state keeps its type, whatever the table could follow; neither of the two changes."""
    table = make(lab, "id BIGINT, amount INT", **WIDENING)
    make(lab, "amount INT, count BIGINT", "out", **WIDENING)
    in_table(lab, table, "INSERT INTO events VALUES (1, 10)")
    counts = stream(sinks.delta("out", schema_evolution=ADD), "counted", output_mode="complete")
    lab.run(counts)
    in_table(lab, table, "ALTER TABLE events ADD COLUMN town STRING", "INSERT INTO events VALUES (2, 10, 'Ulm')")
    lab.run(counts)
    in_table(lab, table, "ALTER TABLE events ALTER COLUMN amount TYPE BIGINT", "INSERT INTO events VALUES (3, 10, 'x')")

    with pytest.raises(RefusedError) as refused:
        lab.run(counts)

    assert refused.value.finding.code == "STATE_CHANGED"
    assert rows(lab.spark_table("out")) == [(10, 2)]
    assert dict(lab.spark_table("out").dtypes)["amount"] == "int"


def landed(lab: Lab, name: str, found: Iterable[dict[str, Any]], number: int) -> None:
    write_files(lab.root / "in", {name: "\n".join(map(json.dumps, found))}, first=number)


def test_files_whose_declared_schema_grows(lab: Lab) -> None:
    """A field that is not declared is passed over; once it is, the table follows, and older files have none."""
    fields = "id BIGINT, amount INT"
    out = sinks.delta("out", schema_evolution=ADD)
    landed(lab, "1.json", [{"id": 1, "amount": 10, "town": "Ulm"}], 0)
    lab.run(stream(out, source=sources.files("in", format="json", schema=fields)))
    landed(lab, "2.json", [{"id": 2, "amount": 20}, {"id": 3, "town": "Bonn"}], 1)
    lab.run(stream(out, source=sources.files("in", format="json", schema=f"{fields}, town STRING")))

    assert rows(lab.table("out").na.fill({"amount": 0, "town": "-"})) == [(1, 10, "-"), (2, 20, "-"), (3, 0, "Bonn")]


def test_parquet_files_of_another_type(lab: Lab) -> None:
    """Spark reads narrower ones, and fails the batch at others; with the schema corrected, that batch is done."""

    def source(kind: str) -> Any:
        return sources.files("in", format="parquet", schema=f"id {kind}")

    def written(name: str, kind: str, value: str) -> None:
        lab.spark.sql(f"SELECT CAST({value} AS {kind}) AS id").coalesce(1).write.parquet(str(lab.root / name))
        (file,) = (lab.root / name).glob("*.parquet")
        (lab.root / "in").mkdir(exist_ok=True)
        file.rename(lab.root / "in" / f"{name}.parquet")

    written("a", "SMALLINT", "1")
    lab.run(stream(sinks.delta("out", schema_evolution=ADD), source=source("INT")))
    written("b", "BIGINT", "5000000000")
    with pytest.raises(BatchFailedError, match="PARQUET_COLUMN_DATA_TYPE_MISMATCH"):
        lab.run(stream(sinks.delta("out", schema_evolution=ADD), source=source("INT")))
    in_table(
        lab, f"delta.`{lab.root / 'out'}`", "ALTER TABLE events SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    lab.run(stream(sinks.delta("out", schema_evolution=ADD), source=source("BIGINT")))

    assert rows(lab.spark_table("out")) == [(1,), (5000000000,)]


def test_a_key_of_a_merge(lab: Lab) -> None:
    """Rows are found by it, so its type does not follow."""
    table = make(lab, "id BIGINT")
    make(lab, "id INT", "out", **WIDENING)
    in_table(lab, table, "INSERT INTO events VALUES (1)")

    with pytest.raises(DeclarationError, match="`id`, which is bigint in the result and int in the table"):
        lab.run(stream(sinks.delta("out", merge_on="id", schema_evolution=ADD)))
