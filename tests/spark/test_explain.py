"""What a run keeps of Spark's plan, for people to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.spark import query
from sluice.spark.classic_plan import ClassicPlans
from sluice.spark.plan_reader import PlanReader
from tests.spark import test_runs, test_timers
from tests.spark.lab import Lab, write_numbers

pytestmark = pytest.mark.spark

SECRET = "hunter2"


def counted(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").agg(F.count(F.lit(1)).alias("count"))


def without_one(numbers: DataFrame) -> DataFrame:
    return numbers.where(F.concat(F.lit("x"), F.col("id").cast("string")) != SECRET)


def from_a_view(numbers: DataFrame) -> DataFrame:
    numbers.createOrReplaceTempView("numbers")
    return numbers.sparkSession.sql("SELECT id + 1 AS id FROM numbers")


def declared(transform: str, **changes: Any) -> Stream:
    """A stream of JSON files."""
    known: dict[str, Any] = {
        "name": "s",
        "sources": {"numbers": sources.files("land", format="json", schema="id bigint")},
        "transform": f"{__name__}:{transform}",
        "sink": sinks.noop(),
    }
    return Stream(**known | changes)


def test_a_run_keeps_it(lab: Lab) -> None:
    """It is in the record on disk, with the operators that keep state."""
    write_numbers(lab.root / "land", 1)
    stream = declared("counted", output_mode="update")

    record = lab.run(stream)

    assert record.explain is not None
    assert record.explain.startswith("== Physical Plan ==")
    assert "StateStoreSave" in record.explain
    assert lab.records(stream)[0]["explain"] == record.explain


def test_a_query_in_sql_over_a_view(lab: Lab) -> None:
    """Spark would take it for a batch, and refuse to explain it."""
    write_numbers(lab.root / "land", 1)

    assert "StreamingRelation" in (lab.run(declared("from_a_view")).explain or "")


@pytest.mark.parametrize(
    "transform",
    [test_runs.same, test_runs.per_window, test_runs.first_of_each, test_timers.quiet_keys, test_runs.first_three],
)
def test_telling_it_writes_nothing(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transform: Callable[[DataFrame], DataFrame]
) -> None:
    """Spark plans operators with state as for a checkpoint that it calls `<unknown>`: none is made."""
    monkeypatch.chdir(tmp_path)
    write_numbers(lab.root / "land", 1)
    frame = transform(lab.spark.readStream.schema("id bigint").json(str(lab.root / "land")))
    before = sorted(map(str, Path().rglob("*")))

    text = ClassicPlans().explain(frame)

    assert "StreamingRelation" in text
    assert sorted(map(str, Path().rglob("*"))) == before
    assert not Path("/<unknown>").exists()


@pytest.mark.parametrize("kind", ["rate", "json", "rate-micro-batch"])
def test_options_of_sources_are_not_shown(lab: Lab, kind: str) -> None:
    """Passwords of brokers and keys of stores are options; the analysed plan would show those of newer sources."""
    (lab.root / "land").mkdir()
    reader = lab.spark.readStream.format(kind).option("kafka.sasl.jaas.config", SECRET).option("rowsPerBatch", 1)
    frame = reader.schema("id bigint").load(str(lab.root / "land")) if kind == "json" else reader.load()

    assert SECRET not in ClassicPlans().explain(frame)
    jvm: Any = lab.spark._jvm
    # What this would show if it told of the analysed plan, too.
    assert (SECRET in jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "extended")) == (kind != "json")


def test_literals_are_not_shown(lab: Lab) -> None:
    """A salt in an expression is part of the plan; it is in no record, and nowhere else in the home."""
    write_numbers(lab.root / "land", 1)

    explain = lab.run(declared("without_one")).explain

    assert explain is not None
    assert "Filter" in explain
    assert SECRET not in explain
    kept = [file.read_bytes() for file in Path(lab.project.home).rglob("*") if file.is_file()]
    assert kept
    assert not any(SECRET.encode() in content for content in kept)


def test_a_long_one_is_cut(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is written anew with every batch; the end says that something is missing."""
    monkeypatch.setattr(query, "_MOST_EXPLAIN", 40)
    write_numbers(lab.root / "land", 1)

    explain = lab.run(declared("counted", output_mode="update")).explain

    assert explain is not None
    first, last = explain[:40], explain[40:]
    assert first.startswith("== Physical Plan ==")
    assert last.startswith("\n(cut here: it has ")


def test_no_run_fails_for_it(lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What Spark does not tell is left out."""

    def refuse(self: PlanReader, frame: DataFrame) -> str:
        raise RuntimeError("no plan")

    monkeypatch.setattr(ClassicPlans, "explain", refuse)
    write_numbers(lab.root / "land", 1)

    record = lab.run(declared("counted", output_mode="update"))

    assert (record.status, record.explain) == ("succeeded", None)
    assert "Spark does not explain its plan" in caplog.text
