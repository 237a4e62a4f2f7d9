"""Tables that follow a result, and what comes in between: other streams, kills, edits, and rules of the table's own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from sluice import Stream, sinks
from sluice.auditing.quarantine import let_quarantine_follow
from sluice.auditing.return_rows import return_rows
from sluice.errors import BatchFailedError, DeclarationError
from sluice.sinks.delta.schema_evolution import check_result, evolve
from sluice.sinks.delta.sink import DeltaSink
from sluice.storage import Storage
from tests.campaign import CAMPAIGN, in_campaigns
from tests.spark.lab import Lab, rows
from tests.spark.power_cuts import Cut
from tests.spark.test_mended_files import backfill, cut_run
from tests.spark.test_schema_evolution import ADD, WIDENING, in_table, lines, make, stream
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

NAME = __name__
DEFAULTS = {"delta.feature.allowColumnDefaults": "supported"}


def everything(events: DataFrame) -> DataFrame:
    return events


def without_town(events: DataFrame) -> DataFrame:
    return events.drop("town")


def in_capitals(events: DataFrame) -> DataFrame:
    return events.toDF(*(name.upper() for name in events.columns))


def narrow(events: DataFrame) -> DataFrame:
    return events.withColumn("amount", events["amount"].cast("int"))


def of_here(declared: Stream, transform: str, **changes: Any) -> Stream:
    return replace(declared, transform=f"{NAME}:{transform}", **changes)


def put(lab: Lab, *values: str) -> None:
    """Add rows to the source."""
    in_table(lab, f"delta.`{lab.root / 'events'}`", f"INSERT INTO events VALUES {', '.join(values)}")


def columns(lab: Lab, name: str = "out") -> dict[str, str]:
    return dict(lab.spark_table(name).dtypes)


def test_columns_that_a_feed_s_table_does_not_have(lab: Lab) -> None:
    """Nobody misses those of `except_columns`, though the table has them from before, and the result has them still."""
    make(lab, "id BIGINT, n INT, op STRUCT<a: STRING>")
    make(lab, "id BIGINT, n INT, op STRUCT<a: STRING>", "out")
    feed = sinks.changes(keys="id", sequence_by="n", except_columns="op")
    put(lab, "(1, 10, named_struct('a', 'I'))")
    lab.run(stream(sinks.delta("out", changes=feed)))
    put(lab, "(1, 20, named_struct('a', 'U'))")

    assert lab.run(stream(sinks.delta("out", changes=feed))).status == "succeeded"
    assert rows(lab.spark_table("out").select("id", "n", "op.a")) == [(1, 20, None)]


def test_streams_that_let_one_table_follow_at_the_same_time(lab: Lab) -> None:
    """Each of them looks again at whatever came in between, and all columns are there in the end."""
    make(lab, "id BIGINT, amount INT", "out", **WIDENING)
    wanted = {f"c{number}": lab.spark.sql(f"SELECT 1L AS id, 5L AS amount, 1 AS c{number}") for number in range(5)}

    with ThreadPoolExecutor(len(wanted)) as pool:
        for done in [pool.submit(evolve, str(lab.root / "out"), frame, storage=Storage()) for frame in wanted.values()]:
            done.result()

    assert columns(lab) == {"id": "bigint", "amount": "bigint", **dict.fromkeys(wanted, "int")}


def test_another_stream_s_column_of_the_name(lab: Lab) -> None:
    """It came in between: whose values it has no place for is refused, in the sink and in its quarantine."""
    make(lab, "id BIGINT", "out")
    quarantine = "id BIGINT, _failed_expectations ARRAY<STRING>, _run_id STRING, _batch_id BIGINT"
    aside = make(lab, quarantine, "out_quarantine")
    frame = lab.spark.sql("SELECT 1L AS id, 2.5D AS x")
    declared = lab.project.resolve(stream(sinks.delta("out", schema_evolution=ADD)))
    use = declared.sink_use({}, storage=Storage())
    declared.sink.check_result(frame, use)
    in_table(lab, f"delta.`{lab.root / 'out'}`", "ALTER TABLE events ADD COLUMN x BIGINT")
    in_table(lab, aside, "ALTER TABLE events ADD COLUMN x BIGINT")

    with pytest.raises(DeclarationError) as refused:
        declared.sink.evolve(frame, use)
    assert lines(refused.value) == ["x: bigint in the table, double in the result"]
    assert isinstance(declared.sink, DeltaSink)
    with pytest.raises(DeclarationError, match="the quarantine has other columns") as refused:
        let_quarantine_follow(declared.sink.beside("_quarantine"), frame, storage=Storage())
    assert lines(refused.value) == ["x: bigint in the table, double in the result"]


def test_a_failure_that_is_not_the_declaration_s(lab: Lab) -> None:
    """A disk that fails while the table follows is worth another try, which finds the gate of a suite as usual."""
    rule = row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=1)
    (lab.root / "suite.json").write_bytes(document(rule))
    make(lab, "id BIGINT, amount INT")
    put(lab, "(1, 10)")
    declared = stream(sinks.delta("out", schema_evolution=ADD), quality="suite.json")
    lab.run(declared)
    in_table(lab, f"delta.`{lab.root / 'events'}`", "ALTER TABLE events ADD COLUMN town STRING")
    put(lab, "(1, 11, 'Ulm')", "(2, 20, 'Bonn')")
    in_the_way = lab.root / "out" / "_delta_log" / f"{DeltaTable(lab.root / 'out').version() + 1:020d}.json"
    in_the_way.mkdir()

    with pytest.raises(BatchFailedError) as failed:
        lab.run(declared)
    assert failed.value.retryable
    in_the_way.rmdir()
    record = lab.run(declared)

    assert (record.status, record.quality.verdict if record.quality else None) == ("succeeded", "warn")
    assert rows(lab.spark_table("out")) == [(1, 10, None), (1, 11, "Ulm")]
    assert rows(lab.spark_table("out_quarantine").select("id", "town")) == [(2, "Bonn")]


RULED = """
    id BIGINT, amount INT NOT NULL, filled INT NOT NULL DEFAULT 7, number BIGINT GENERATED ALWAYS AS IDENTITY,
    inner STRUCT<a: INT NOT NULL, b: INT>, at TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(at AS DATE))
"""


def test_what_a_table_can_t_be_without(lab: Lab) -> None:
    """Every batch of rows would fail: refused, declared or not; what the table fills by itself is not asked for."""
    make(lab, RULED, "out", **DEFAULTS)
    table = DeltaTable(lab.root / "out")
    lacking = lab.spark.sql("SELECT 1L AS id, named_struct('b', 1) AS inner")
    told = [
        "amount: int NOT NULL in the table, not in the result",
        "inner.a: int NOT NULL in the table, not in the result",
        "day: computed by the table as `CAST(at AS DATE)`, not of the result's columns",
    ]

    for evolution in (None, ADD):
        with pytest.raises(DeclarationError) as refused:
            check_result(table, lacking, evolution, only_adds=True, place="here")
        assert lines(refused.value) == told
        assert "DROP NOT NULL" in str(refused.value.remedy)
    # A merge may change what is there, and never add a row.
    check_result(table, lacking, None, place="here")
    with pytest.raises(DeclarationError) as refused:
        check_result(table, lacking, ADD, "id\nAmount\nat", place="here")
    assert lines(refused.value) == told[:1]
    whole = "SELECT 1L AS id, 2 AS Amount, named_struct('a', 1, 'b', 1) AS inner, TIMESTAMP'2026-01-01 01:00:00' AS at"
    check_result(table, lab.spark.sql(whole), None, only_adds=True, place="here")


def test_rules_of_a_table(lab: Lab) -> None:
    """A gone column that may not be null is refused until it may; a constraint fails the batch, until it is gone, too.

    What the table computes and fills by itself, it does for rows of every declaration.
    """
    ruled = "id BIGINT, town STRING NOT NULL, filled INT DEFAULT 7, twice BIGINT GENERATED ALWAYS AS (id * 2)"
    make(lab, "id BIGINT, town STRING")
    out = make(lab, ruled, "out", **DEFAULTS, **WIDENING)
    in_table(lab, out, "ALTER TABLE events ADD CONSTRAINT named CHECK (length(town) > 0)")
    put(lab, "(1, 'Ulm')")
    sink = sinks.delta("out", schema_evolution=ADD)
    lab.run(stream(sink))
    put(lab, "(2, 'Bonn')")

    gone = of_here(stream(sink), "without_town")
    with pytest.raises(DeclarationError) as refused:
        lab.run(gone)
    assert lines(refused.value) == ["town: string NOT NULL in the table, not in the result"]
    in_table(lab, out, "ALTER TABLE events ALTER COLUMN town DROP NOT NULL")
    with pytest.raises(BatchFailedError, match="named"):
        lab.run(gone)
    in_table(lab, out, "ALTER TABLE events DROP CONSTRAINT named")
    lab.run(gone)

    assert rows(lab.spark_table("out")) == [(1, "Ulm", 7, 2), (2, None, 7, 4)]
    in_table(lab, out, "ALTER TABLE events ADD CONSTRAINT numbered CHECK (filled > 0)")
    wider = lab.spark.sql("SELECT 1L AS id, 5000000000L AS filled")
    with pytest.raises(DeclarationError, match="DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"):
        evolve(str(lab.root / "out"), wider, storage=Storage())


def test_a_declaration_that_was_planned_and_wrote_nothing(lab: Lab) -> None:
    """What it gave and the next one does not is missed by nobody: the table has no value of it."""
    make(lab, "id BIGINT, amount INT")
    put(lab, "(1, 10)")
    out = sinks.delta("out", schema_evolution=ADD)
    lab.run(stream(out))
    in_table(lab, f"delta.`{lab.root / 'events'}`", "ALTER TABLE events ADD COLUMN town STRING")
    put(lab, "(2, 20, 'Ulm')")
    assert cut_run(lab, stream(out), Cut("commit out")) == "commit out"
    assert "town" in columns(lab)

    record = lab.run(of_here(stream(sinks.delta("out")), "without_town"))
    assert [batch.input_rows for batch in record.batches] == [1]
    put(lab, "(3, 30, 'Bonn')")
    lab.run(stream(sinks.delta("out")))
    put(lab, "(4, 40, 'Jena')")
    with pytest.raises(DeclarationError) as refused:
        lab.run(of_here(stream(sinks.delta("out")), "without_town"))

    assert lines(refused.value) == ["town: string in the table, no longer in the result"]
    assert rows(lab.spark_table("out")) == [(1, 10, None), (2, 20, None), (3, 30, "Bonn")]


def test_a_batch_that_counts_and_was_not_committed(lab: Lab) -> None:
    """Its columns are in the table: an edit between its kill and its resume that takes one away is refused."""
    make(lab, "id BIGINT, town STRING")
    put(lab, "(1, 'Ulm')")
    declared = stream(sinks.delta("out"))
    assert cut_run(lab, declared, Cut("commit out", moment="after")) is not None
    put(lab, "(2, 'Bonn')")

    with pytest.raises(DeclarationError) as refused:
        lab.run(of_here(declared, "without_town"))
    assert lines(refused.value) == ["town: string in the table, no longer in the result"]
    lab.run(declared)
    assert rows(lab.spark_table("out")) == [(1, "Ulm"), (2, "Bonn")]


@pytest.mark.parametrize("sink", [sinks.delta("out"), sinks.delta("out", merge_on="ID")], ids=["append", "merge_on"])
def test_names_in_capitals(lab: Lab, sink: Any) -> None:
    """They are the same columns, with the table's spelling; a new one is spelled as the result has it."""
    make(lab, "id BIGINT, inner STRUCT<a: INT>, town STRING", **WIDENING)
    make(lab, "id BIGINT, Inner STRUCT<A: INT>", "out", **WIDENING)
    put(lab, "(1, named_struct('a', 1), 'Ulm')")

    lab.run(of_here(stream(replace(sink, schema_evolution=ADD)), "in_capitals"))

    assert columns(lab) == {"id": "bigint", "Inner": "struct<A:int>", "TOWN": "string"}
    assert rows(lab.spark_table("out").selectExpr("id", "inner.a", "town")) == [(1, 1, "Ulm")]


def test_a_quarantine_that_is_wider(lab: Lab) -> None:
    """It takes the rows of a narrower result; a release that would cut values is refused, and the rows stay there."""
    rule = row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=1)
    (lab.root / "suite.json").write_bytes(document(rule))
    make(lab, "id BIGINT, amount DOUBLE")
    put(lab, "(1, 10)", "(2, 20.5)")
    declared = stream(sinks.delta("out"), quality="suite.json")
    lab.run(declared)
    in_table(lab, f"delta.`{lab.root / 'out'}`", "DELETE FROM events")
    cut = lab.spark.sql("SELECT 1L AS id, 10 AS amount")
    cut.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(lab.root / "out"))
    put(lab, "(3, 30.5)")

    lab.run(of_here(declared, "narrow"))
    (lab.root / "suite.json").write_bytes(document({**rule, "kwargs": {**rule["kwargs"], "max_value": 9}}))
    with pytest.raises(BatchFailedError, match="amount: int in the table, double in the result"):
        return_rows(lab.project, lab.project.resolve(declared), None, "ada", session=lab.spark)
    assert rows(lab.spark_table("out")) == [(1, 10)]
    assert rows(lab.spark_table("out_quarantine").select("id", "amount")) == [(2, 20.5), (3, 30.0)]


def test_a_backfill_after_a_table_has_followed(lab: Lab) -> None:
    """It fills the new column of old rows, in the sink and in the quarantine; a suite without one leaves that alone."""
    rule = row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=1)
    (lab.root / "suite.json").write_bytes(document(rule))
    table = make(lab, "id BIGINT, day DATE")
    put(lab, "(1, DATE'2026-01-02')", "(2, DATE'2026-01-02')")
    declared = stream(
        sinks.delta("out", partition_by="day", schema_evolution=ADD), quality="suite.json", interval_column="day"
    )
    lab.run(declared)
    in_table(lab, table, "ALTER TABLE events ADD COLUMN town STRING")
    put(lab, "(0, DATE'2026-01-03', 'Ulm')")
    assert cut_run(lab, declared, Cut("columns out_quarantine")) is not None
    lab.run(declared)

    backfill(lab, declared)
    assert rows(lab.spark_table("out").selectExpr("id", "CAST(day AS STRING)", "town")) == [
        (0, "2026-01-03", "Ulm"),
        (1, "2026-01-02", None),
    ]
    assert rows(lab.spark_table("out_quarantine").select("id", "town")) == [(2, None)]

    (lab.root / "suite.json").write_bytes(document({**rule, "meta": {"sluice": {"policy": "drop"}}}))
    in_table(lab, table, "ALTER TABLE events ADD COLUMN size INT")
    put(lab, "(0, DATE'2026-01-04', 'Bonn', 5)")
    lab.run(declared)
    backfill(lab, declared)
    assert "size" not in columns(lab, "out_quarantine")
    assert rows(lab.spark_table("out").select("id", "size")) == [(0, 5), (0, None), (1, None)]


UPSTREAM = (
    "ALTER TABLE events ADD COLUMN town STRING AFTER id",
    "ALTER TABLE events ALTER COLUMN amount TYPE BIGINT",
    "ALTER TABLE events ADD COLUMN inner.b INT",
    "ALTER TABLE events ALTER COLUMN inner.a TYPE BIGINT",
    "ALTER TABLE events ADD COLUMN Size DECIMAL(5, 2)",
    "ALTER TABLE events ALTER COLUMN size TYPE DECIMAL(10, 3)",
)
_TOO_MUCH = 10**6


def value(kind: str, number: int) -> str:
    """A value of a column, in SQL."""
    if not kind.startswith("struct"):
        return f"'t{number}'" if kind == "string" else f"CAST({number % 900}.25 AS {kind})"
    fields = (f"'{field.partition(':')[0]}', {number}" for field in kind[7:-1].split(","))
    return f"named_struct({', '.join(fields)})"


@in_campaigns
@pytest.mark.parametrize("seed", range(3 * CAMPAIGN))
def test_histories(lab: Lab, seed: int) -> None:
    """Columns are added and widened upstream, runs are killed anywhere, the word comes and goes: every row is there.

    A suite takes rows out, into a quarantine that follows as the sink does.
    """
    chance, todo, told = Random(seed), list(UPSTREAM), [f"seed {seed}"]
    rule = row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=_TOO_MUCH)
    (lab.root / "suite.json").write_bytes(document(rule))
    own = "_failed_expectations ARRAY<STRING>, _run_id STRING, _batch_id BIGINT"
    begun = "id BIGINT, amount INT, inner STRUCT<a: INT>"
    table = make(lab, begun, **WIDENING)
    make(lab, begun, "out", **WIDENING)
    make(lab, f"{begun}, {own}", "out_quarantine", **WIDENING)
    follows = stream(sinks.delta("out", schema_evolution=ADD), quality="suite.json")
    plain = replace(follows, sink=sinks.delta("out"))
    for number in range(1, 25):
        step = chance.choice(["upstream", "rows", "follow", "plain", "cut", "cut"])
        told.append(step)
        if step == "upstream" and todo:
            in_table(lab, table, todo.pop(0))
        if step in {"upstream", "rows"}:
            (_, *others), picked = lab.spark_table("events").dtypes, number + chance.choice([0, 10 * _TOO_MUCH])
            put(lab, f"({', '.join([str(picked), *(value(kind, number) for _, kind in others)])})")
        elif step == "cut":
            cut = Cut(nth=chance.randrange(1, 40), moment=chance.choice(["before", "middle", "after"]))
            told.append(f"{cut}: {cut_run(lab, follows, cut)}")
        elif step == "follow":
            lab.run(follows)
        else:
            try:
                lab.run(plain)
            except DeclarationError as exc:
                told.append(f"{exc}")
    lab.run(follows)

    columns_now = lab.spark_table("events").columns
    out, aside = (lab.spark_table(name).select(columns_now) for name in ("out", "out_quarantine"))
    found, whole = out.union(aside).collect(), lab.spark_table("events").collect()
    assert sorted(map(str, found)) == sorted(map(str, whole)), told
    assert out.where(f"id > {_TOO_MUCH}").isEmpty(), told
