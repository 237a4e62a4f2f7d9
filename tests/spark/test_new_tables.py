"""The table that a stream's first batch makes: the same as Delta's own stream writer makes, or made by that."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, DeclarationError, RunError
from sluice.sinks.delta import new_table, table
from sluice.spark_setting import spark_setting
from tests.campaign import rarely
from tests.spark.lab import Lab, ids, write_numbers

pytestmark = pytest.mark.spark

KINDS = """
    id, CAST(id AS BYTE) AS a_byte, CAST(id AS SHORT) AS a_short, CAST(id AS INT) AS an_int, CAST(id AS FLOAT) AS f,
    CAST(id AS DOUBLE) AS d, CAST(id AS DECIMAL(20, 3)) AS dec, CAST(id AS STRING) AS s, id > 1 AS b,
    CAST(CAST(id AS STRING) AS BINARY) AS bin, DATE'2026-01-02' AS day, TIMESTAMP'2026-01-02 03:04:05.678901' AS t,
    array(id, NULL) AS list, map('k', id) AS m, named_struct('x', id, 'y', array(named_struct('z', 'w'))) AS inner,
    1 AS `no nulls`
"""
QUERIES = {
    "every type": KINDS.replace("1 AS `no nulls`", "1 AS not_null"),
    "a name that Delta does not take": KINDS,
    "void": "id, NULL AS nothing",
    "intervals": "id, INTERVAL '1' DAY AS gap",
    "local times": "id, TIMESTAMP_NTZ'2026-01-02 03:04:05' AS t",
    "variant": "id, parse_json('{}') AS v",
    "two names alike": "id, 1 AS ID",
    "letters": "id, 1 AS `größe`, 2 AS `a-b`, 3 AS `x.y`",
}
_DEFAULTS = "spark.databricks.delta.properties.defaults."
_TYPE, _KEPT = "has no type", "which Delta does not keep"
REFUSED = {
    "void": ("id, NULL AS nothing", "column 2 of the result has no type"),
    "void in a list": ("id, array(NULL) AS nothings", _TYPE),
    "void in a struct": ("id, named_struct('a', NULL) AS s", _TYPE),
    "void in a map": ("id, map('k', NULL) AS m", _TYPE),
    "days": ("id, INTERVAL '1' DAY AS gap", "of type interval day, or has such in it, which Delta does not keep"),
    "years": ("id, INTERVAL '1' YEAR AS gap", _KEPT),
    "months, days and micros": ("id, make_interval(1, 1) AS gap", _KEPT),
    "a time of day": ("id, array(TIME'10:00:00') AS t", _KEPT),
    "a collation": ("id, named_struct('c', 'a' COLLATE UNICODE) AS s", "string with the collation"),
    "a list of collated": ("id, array('a' COLLATE UNICODE) AS s", "string with the collation"),
    "a name": ("id, 1 AS `a b`", 'column 2 of the result, or a field in it, has " " in its name'),
    "a field's name": ("id, array(named_struct('a=b', 1)) AS s", 'has "=" in its name'),
    "a line's end": ("id, map('k', named_struct('a\\nb', 1)) AS s", r'has "\n" in its name'),
}
TAKEN = {
    "a fixed length": "id, CAST('a' AS CHAR(3)) AS c, CAST('a' AS VARCHAR(3)) AS v",
    "other letters": "id, 1 AS `a-b`, 2 AS `c.d`, 3 AS `e/f`, 4 AS `void`, 5 AS `interval`",
}
CURRENT: list[str] = []


def chosen(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr(*_expressions(CURRENT[0]))


def timed(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("id", "timestamp_seconds(id) AS at").withWatermark("at", "1 hour")


def _expressions(text: str) -> list[str]:
    """Split where no bracket is open."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def declared(path: str, transform: str = "chosen", **options: Any) -> Stream:
    return Stream(
        name=path,
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta(path, **options),
    )


def by_delta(lab: Lab, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr("sluice.running.runner.published_batches", lambda *_args: None)
        return outcome(lab, stream)


def outcome(lab: Lab, stream: Stream) -> Any:
    """What became of the first batch: the table's metadata and rows, or the kind of error."""
    try:
        lab.run(stream)
    except (RunError, DeclarationError) as exc:
        assert not (lab.root / stream.sink.location / "_delta_log").exists()
        return type(exc).__name__
    table = lab.root / stream.sink.location
    first = [json.loads(line) for line in (table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()]
    found = {name: action[name] for action in first for name in action if name in {"metaData", "protocol"}}
    metadata = found["metaData"]
    assert metadata["id"]
    assert metadata["createdTime"]
    known = ("format", "partitionColumns", "configuration")
    spark = lab.spark.read.format("delta").load(str(table))
    return (
        found["protocol"],
        {name: metadata.get(name) for name in known},
        json.loads(metadata["schemaString"]),
        sorted(map(str, spark.collect())),
        spark.schema.json(),
    )


def operation(table: Path) -> str:
    return str(DeltaTable(str(table)).history()[-1]["operation"])


@pytest.mark.parametrize(
    ("query", "partition_by"),
    [
        *((query, [] if number % 2 else ["id"]) for number, query in enumerate(QUERIES)),
        *rarely(*((query, ["id"] if number % 2 else []) for number, query in enumerate(QUERIES))),
    ],
)
def test_the_same_table(lab: Lab, monkeypatch: pytest.MonkeyPatch, query: str, partition_by: list[str]) -> None:
    """Whatever the columns are: the same protocol, metadata and rows, or the same refusal."""
    CURRENT[:] = [QUERIES[query]]
    write_numbers(lab.root / "in", 3)
    ours = outcome(lab, declared("ours", partition_by=partition_by))
    assert ours == by_delta(lab, declared("sparks", partition_by=partition_by), monkeypatch)
    if query in {"every type", "letters"}:
        assert operation(lab.root / "ours") == "CREATE TABLE"
        assert operation(lab.root / "sparks") == "STREAMING UPDATE"


@pytest.mark.parametrize("query", REFUSED)
def test_columns_that_no_table_has(lab: Lab, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    """Refused by `check` and before anything is begun, where Delta would refuse the batch once that is planned."""
    CURRENT[:], told = [REFUSED[query][0]], REFUSED[query][1]
    write_numbers(lab.root / "in", 3)
    stream = declared("out")
    with pytest.raises(DeclarationError, match=re.escape(told)):
        lab.run(stream)
    assert not (lab.checkpoint(stream) / "offsets").exists()
    monkeypatch.setattr(table, "check_new", lambda *_args, **_more: None)
    with pytest.raises(BatchFailedError, match=r"DELTA_|UNSUPPORTED_TIME_TYPE"):
        lab.run(stream)
    monkeypatch.undo()
    CURRENT[:] = ["id"]
    assert [batch.kind for batch in lab.run(stream).batches] == ["uncommitted"]


@pytest.mark.parametrize("query", TAKEN)
def test_columns_that_a_table_has(lab: Lab, query: str) -> None:
    CURRENT[:] = [TAKEN[query]]
    write_numbers(lab.root / "in", 3)
    assert lab.run(declared("out")).status == "succeeded"


def test_names_that_a_table_maps(lab: Lab) -> None:
    """A table that maps columns has any name, also where each batch makes it anew; nothing has partitions alone."""
    CURRENT[:] = ["id, 1 AS `a b`"]
    write_numbers(lab.root / "in", 3)
    mapped = replace(declared("out"), conf={f"{_DEFAULTS}columnMapping.mode": "name"})
    with spark_setting(lab.spark, f"{_DEFAULTS}columnMapping.mode", "name"):
        assert lab.run(mapped).status == "succeeded"
    anew = declared("anew", overwrite_schema=True)
    anew = replace(anew, transform=f"{__name__}:counted", output_mode="complete")
    lab.spark.sql(
        f"CREATE TABLE delta.`{lab.root / 'anew'}` (x INT)"
        " USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    assert lab.run(anew).status == "succeeded"
    CURRENT[:] = ["id, 1 AS n"]
    with pytest.raises(DeclarationError, match="partitioned by every column"):
        lab.run(declared("parts", partition_by=["ID", "n"]))


def test_new_columns_that_no_table_has(lab: Lab) -> None:
    """Of a table that is let follow: refused before it is altered."""
    CURRENT[:] = ["id"]
    write_numbers(lab.root / "in", 3)
    stream = declared("out", schema_evolution="add")
    lab.run(stream)
    write_numbers(lab.root / "in", 3, first=3)
    CURRENT[:] = ["id, INTERVAL '1' DAY AS gap"]
    with pytest.raises(DeclarationError, match="gap: not in the table"):
        lab.run(stream)
    assert not (lab.checkpoint(stream) / "offsets" / "1").exists()


def counted(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").count().selectExpr(*_expressions(CURRENT[0]))


def test_an_event_time(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark notes of a column that has a watermark stands in either table."""
    write_numbers(lab.root / "in", 2)
    ours = outcome(lab, declared("ours", "timed"))
    assert "spark.watermarkDelayMs" in str(ours)
    assert ours == by_delta(lab, declared("sparks", "timed"), monkeypatch)


@pytest.mark.parametrize("partition_by", [["ID"], ["id", "n"]], ids=["another case", "every column"])
def test_partitions_that_spark_must_judge(lab: Lab, monkeypatch: pytest.MonkeyPatch, partition_by: list[str]) -> None:
    """What only Spark knows to take or refuse is left to it."""
    CURRENT[:] = ["id, 1 AS n"]
    write_numbers(lab.root / "in", 2)
    ours = outcome(lab, declared("ours", partition_by=partition_by))
    assert ours == by_delta(lab, declared("sparks", partition_by=partition_by), monkeypatch)


def test_settings_for_new_tables(lab: Lab) -> None:
    """A session that gives new tables a property has Delta make them."""
    CURRENT[:] = ["id"]
    write_numbers(lab.root / "in", 2)
    with spark_setting(lab.spark, "spark.databricks.delta.properties.defaults.appendOnly", "true"):
        lab.run(declared("out"))
    assert DeltaTable(str(lab.root / "out")).metadata().configuration == {"delta.appendOnly": "true"}
    write_numbers(lab.root / "in", 1, first=2)
    with spark_setting(lab.spark, "spark.databricks.delta.properties.defaults.appendOnly", "true"):
        lab.run(declared("out"))
    assert [found["operation"] for found in DeltaTable(str(lab.root / "out")).history()] == [
        "WRITE",
        "STREAMING UPDATE",
    ]
    assert ids(lab.table("out")) == [0, 1, 2]


def test_a_table_that_somebody_makes_meanwhile(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is published into a table that nobody has looked at; the next run looks, and goes on as planned."""
    CURRENT[:] = ["id"]
    write_numbers(lab.root / "in", 2)
    stream = declared("out")
    create = new_table.create

    def and_by_another(*args: Any, **more: Any) -> None:
        write_deltalake(str(lab.root / "out"), pa.table({"id": pa.array([], pa.int64())}))
        create(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(new_table, "create", and_by_another)
        with pytest.raises(RunError, match="there is a table, since the batch was written"):
            lab.run(stream)
    assert ids(lab.table("out")) == []
    assert [batch.kind for batch in lab.run(stream).batches] == ["uncommitted"]
    assert ids(lab.table("out")) == [0, 1]


def test_a_second_try_of_the_first_batch(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first batch whose commit is there, and whose answer was lost, is there once."""
    CURRENT[:] = ["id"]
    write_numbers(lab.root / "in", 2)
    create = new_table.create

    def twice(*args: Any, **more: Any) -> None:
        create(*args, **more)
        create(*args, **more)

    monkeypatch.setattr(new_table, "create", twice)
    stream = replace(declared("out"), name="twice")
    assert [batch.output_rows for batch in lab.run(stream).batches] == [2]
    assert ids(lab.table("out")) == [0, 1]
    assert len(DeltaTable(str(lab.root / "out")).history()) == 1


@pytest.mark.parametrize(
    "sink", [sinks.delta("out", partition_by=["dy"]), sinks.files("out", format="json", partition_by="dy")]
)
def test_a_partition_column_that_the_result_lacks(lab: Lab, sink: Any) -> None:
    """Refused before a batch is planned; corrected, the same stream runs."""
    CURRENT[:] = ["id, DATE'2026-01-02' AS day"]
    write_numbers(lab.root / "in", 1)
    source = sources.files("in", format="json", schema="id bigint")
    stream = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:chosen", sink=sink)
    with pytest.raises(
        DeclarationError, match="`partition_by` names `dy`, which is no column of the result"
    ) as refused:
        lab.run(stream)
    assert refused.value.remedy == "did you mean `day`?"
    assert not (lab.checkpoint(stream) / "offsets").exists()
    corrected = sinks.delta("out", partition_by="day")
    assert corrected.partition_columns == ("day",)
    assert lab.run(replace(stream, sink=corrected)).status == "succeeded"
