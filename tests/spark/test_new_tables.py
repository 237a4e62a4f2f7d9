"""The table that a stream's first batch makes: the same as Delta's own stream writer makes, or made by that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, RunError
from sluice.sinks.delta import new_table
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
