"""Quality while a stream runs: what is measured, what leaves, what is stopped, and what a person can do then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from sluice import Stream, sinks, sources
from sluice.delta_log.table import open_log, read_commit
from sluice.errors import DeclarationError, HeldError, QualityFailedError
from sluice.gate.state import read_gate, release_gate
from sluice.storage import Storage
from sluice.times import system_clock
from tests.spark.lab import Lab, write_files, write_numbers
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def up_to(most: int, policy: str = "fail", **kwargs: Any) -> dict[str, Any]:
    """An expectation about every `id`."""
    return row("expect_column_values_to_be_between", policy=policy, column="id", max_value=most, **kwargs)


def largest(most: int, policy: str = "fail") -> dict[str, Any]:
    """An expectation about the largest `id`."""
    return row("expect_column_max_to_be_between", policy=policy, column="id", max_value=most)


def declare_suite(lab: Lab, *rows: dict[str, Any], **meta: Any) -> None:
    (lab.root / "suite.json").write_bytes(document(*rows, **meta))


def stream(**changes: Any) -> Stream:
    """A stream of numbers into a Delta table, one file per batch."""
    numbers = sources.files("land", format="json", schema="id bigint", max_files_per_batch=1)
    known: dict[str, Any] = {
        "name": "s",
        "sources": {"numbers": numbers},
        "transform": f"{__name__}:same",
        "sink": sinks.delta("out"),
        "quality": "suite.json",
    }
    return Stream(**known | changes)


def ids(lab: Lab, path: str = "out") -> list[int]:
    return sorted(found["id"] for found in lab.table(path).select("id").collect())


def gate_of(lab: Lab) -> Any:
    return read_gate(lab.project.stream_home(stream()))


def test_a_batch_is_published_by_a_commit_of_metadata(lab: Lab) -> None:
    """Once there is a table: Spark writes files aside, and the commit with the batch's transaction comes after."""
    declare_suite(lab, up_to(9), largest(9))
    write_numbers(lab.root / "land", 1, rows=2)
    lab.run(stream())
    write_numbers(lab.root / "land", 2, first=1, rows=2)

    record = lab.run(stream())

    assert ids(lab) == [0, 1, 2, 3, 4, 5]
    assert record.plan.quality is not None
    assert record.plan.quality.where == "publish"
    assert record.quality is not None
    assert (record.quality.verdict, record.quality.rows, record.quality.where) == ("pass", 4, "publish")
    assert [check.result.get("element_count") for check in record.quality.checks] == [4, None]
    assert record.quality.checks[1].result == {"observed_value": 5}
    assert [batch.output_rows for batch in record.batches] == [2, 2]
    storage = Storage()
    log = open_log(str(lab.root / "out"), storage=storage)
    assert log is not None
    commit = read_commit(log, log.latest, storage=storage)
    assert commit is not None
    assert commit.transactions == {record.query_id: 2}
    assert all(file.path.startswith(f"batch-{record.query_id}-00000002-") for file in commit.files)
    assert gate_of(lab) is None


def test_nothing_of_a_failing_batch_is_published(lab: Lab) -> None:
    """It stays in the offset log; once the rule is relaxed, the next run publishes it, exactly once."""
    declare_suite(lab, largest(3))
    write_numbers(lab.root / "land", 1, rows=2)
    lab.run(stream())
    write_numbers(lab.root / "land", 2, first=1, rows=2)

    with pytest.raises(QualityFailedError, match=r"1 of 1 checks.*`expect_column_max_to_be_between` of `id`: 5"):
        lab.run(stream())

    assert ids(lab) == [0, 1, 2, 3]
    failed = lab.records(stream())[-1]
    assert (failed["status"], failed["error"]["type"]) == ("failed", "QualityFailedError")
    assert (failed["quality"]["verdict"], failed["quality"]["rows"]) == ("fail", 4)
    assert [batch["batch_id"] for batch in failed["batches"]] == [1]
    assert gate_of(lab).state == "blocked"
    assert not list((lab.root / "out").glob("batch-*-00000002-*/*.parquet"))
    with pytest.raises(QualityFailedError):
        lab.run(stream())

    declare_suite(lab, largest(5))
    record = lab.run(stream())

    assert ids(lab) == [0, 1, 2, 3, 4, 5]
    assert record.quality is not None
    assert (record.quality.verdict, gate_of(lab)) == ("pass", None)


def test_a_person_lets_a_batch_through(lab: Lab) -> None:
    """Its verdict stays what it is, with who released it; the next batch is judged for itself."""
    declare_suite(lab, largest(1))
    write_numbers(lab.root / "land", 1, rows=3)
    with pytest.raises(QualityFailedError):
        lab.run(stream())
    assert not (lab.root / "out" / "_delta_log").exists()

    release_gate(lab.project.stream_home(stream()), "ada", system_clock())
    record = lab.run(stream())

    assert ids(lab) == [0, 1, 2]
    assert record.status == "succeeded"
    assert record.quality is not None
    assert (record.quality.verdict, record.quality.released_by, gate_of(lab)) == ("fail", "ada", None)
    write_numbers(lab.root / "land", 1, first=1, rows=3)
    with pytest.raises(QualityFailedError):
        lab.run(stream())


def test_quarantine_and_drop(lab: Lab) -> None:
    """Rows leave for the quarantine with what they fail, or for good; the counts add up."""
    declare_suite(lab, up_to(6, "quarantine"), up_to(8, "warn"), up_to(7, "drop"), largest(6))
    write_numbers(lab.root / "land", 2, rows=5)

    record = lab.run(stream())

    assert ids(lab) == [0, 1, 2, 3, 4, 5, 6]
    assert ids(lab, "out_quarantine") == [7, 8, 9]
    quality = record.quality
    assert quality is not None
    assert (quality.verdict, quality.rows, quality.dropped, quality.quarantined) == ("warn", 10, 0, 3)
    rows = lab.table("out_quarantine").where("id = 9").collect()
    name = "expect_column_values_to_be_between(id)"
    assert [(found["_failed_expectations"], found["_run_id"], found["_batch_id"]) for found in rows] == [
        ([name, name, name], record.run_id, 1)
    ]


def test_only_rows_that_fail_cost_a_commit_of_the_quarantine(lab: Lab) -> None:
    """The first batch makes the table, so that whoever reads it finds one."""
    declare_suite(lab, up_to(6, "quarantine"))
    write_numbers(lab.root / "land", 4, rows=2)

    lab.run(stream())

    assert ids(lab, "out_quarantine") == [7]
    assert ids(lab) == [0, 1, 2, 3, 4, 5, 6]
    assert len(list((lab.root / "out_quarantine" / "_delta_log").glob("*.json"))) == 2


def test_what_a_killed_batch_left_in_the_quarantine_is_no_obstacle(lab: Lab) -> None:
    """Files without a log, also when the batch has no failing rows once it runs again."""
    declare_suite(lab, up_to(6, "quarantine"))
    write_numbers(lab.root / "land", 1, rows=2)
    (lab.root / "out_quarantine").mkdir()
    (lab.root / "out_quarantine" / "part-0.snappy.parquet").write_bytes(b"PAR1")

    lab.run(stream())

    assert ids(lab) == [0, 1]
    assert ids(lab, "out_quarantine") == []


def test_rows_are_dropped(lab: Lab) -> None:
    """What leaves for good is counted before anything is published: nobody could count it afterwards."""
    declare_suite(lab, up_to(2, "drop", mostly=0.5), largest(2, "warn"))
    write_numbers(lab.root / "land", 1, rows=5)

    record = lab.run(stream())

    assert ids(lab) == [0, 1, 2]
    quality = record.quality
    assert quality is not None
    assert (quality.verdict, quality.where, quality.rows, quality.dropped) == ("pass", "publish", 5, 2)
    assert quality.checks[0].result["unexpected_count"] == 2


def test_failed_rows_in_the_sink_hold_the_stream(lab: Lab) -> None:
    """Files are published as they are written; the next run is refused until the suite passes."""
    declare_suite(lab, largest(1))
    sink = sinks.files("out", format="json")
    write_numbers(lab.root / "land", 1, rows=3)

    with pytest.raises(QualityFailedError, match="is held"):
        lab.run(stream(sink=sink))
    write_numbers(lab.root / "land", 1, first=1, rows=3)
    with pytest.raises(HeldError, match="sluice quality release s"):
        lab.run(stream(sink=sink))

    assert gate_of(lab).state == "failed"
    declare_suite(lab, largest(9))
    record = lab.run(stream(sink=sink))
    assert record.quality is not None
    assert record.quality.verdict == "pass"
    first, refused, _ = lab.records(stream())
    assert (first["status"], first["quality"]["verdict"], refused["status"]) == ("succeeded", "pass", "refused")
    # Its own task had failed: the event of the run after it tells of its rows.
    assert first["passed_later"] is True
    assert gate_of(lab) is None


def test_a_held_stream_is_released(lab: Lab) -> None:
    """Its failed record stays failed."""
    declare_suite(lab, largest(1))
    sink = sinks.files("out", format="json")
    write_numbers(lab.root / "land", 1, rows=3)
    with pytest.raises(QualityFailedError):
        lab.run(stream(sink=sink))

    release_gate(lab.project.stream_home(stream()), "ada", system_clock())

    assert lab.run(stream(sink=sink)).status == "skipped"
    assert lab.records(stream())[0]["quality"]["verdict"] == "fail"


def test_a_row_that_fails_ends_the_batch(lab: Lab) -> None:
    """Where a sink publishes what it writes, a check of rows stops Spark before anything is there."""
    declare_suite(lab, up_to(1), largest(100))
    sink = sinks.files("out", format="json")
    write_numbers(lab.root / "land", 1, rows=3)

    with pytest.raises(QualityFailedError, match="expect_column_values_to_be_between"):
        lab.run(stream(sink=sink))

    assert not list(Path(lab.root / "out").glob("*.json"))
    (failed,) = lab.records(stream())
    assert failed["quality"]["verdict"] == "fail"
    declare_suite(lab, up_to(2))
    assert lab.run(stream(sink=sink)).status == "succeeded"


def with_a_day(numbers: DataFrame) -> DataFrame:
    """Rows of which half have no match: Spark looks at all of them before it joins."""
    days = numbers.sparkSession.read.format("delta").load(DAYS["table"])
    return numbers.join(days, "id")


DAYS: dict[str, str] = {}


@pytest.mark.parametrize("measured", ["observe", "pass"])
def test_rows_that_are_not_in_the_result_end_no_batch(lab: Lab, measured: str) -> None:
    """Whichever way it is measured, a suite is asked of what comes out of the transform."""
    declare_suite(lab, up_to(1), measured=measured, gate="write")
    DAYS["table"] = str(lab.root / "days")
    write_deltalake(DAYS["table"], pa.table({"id": pa.array([0, 1], pa.int64())}))
    joined = stream(transform=f"{__name__}:with_a_day")
    write_numbers(lab.root / "land", 1, rows=4)

    record = lab.run(joined)

    assert (record.batches[0].input_rows, record.batches[0].output_rows) == (4, 2)
    assert record.plan.quality is not None
    assert (record.plan.quality.where, record.plan.quality.measured) == ("write", measured)
    declare_suite(lab, up_to(0), measured=measured, gate="write")
    write_numbers(lab.root / "land", 1, first=1, rows=1)
    with pytest.raises(QualityFailedError):
        lab.run(joined)


def test_columns_fail_before_anything_runs(lab: Lab) -> None:
    """A column that is not there needs no row to be missed."""
    declare_suite(lab, row("expect_column_to_exist", policy="fail", column="name"))
    write_numbers(lab.root / "land", 1)

    with pytest.raises(QualityFailedError, match="nothing was run"):
        lab.run(stream())

    assert not (lab.root / "out").exists()
    assert gate_of(lab) is None
    (failed,) = lab.records(stream())
    assert (failed["quality"]["verdict"], len(failed["quality"]["checks"])) == ("fail", 1)


@pytest.mark.parametrize("gate", ["publish", "cache", "write"])
def test_every_gate_measures_the_same(lab: Lab, gate: str) -> None:
    """Whatever the way of a batch, its figures are those of all rows of the run."""
    declare_suite(lab, up_to(3, "warn"))
    write_numbers(lab.root / "land", 1, rows=2)
    lab.run(stream())
    declare_suite(lab, up_to(3, "warn"), row("expect_column_mean_to_be_between", policy="warn", column="id"), gate=gate)
    write_numbers(lab.root / "land", 2, first=1, rows=2)

    record = lab.run(stream())

    quality = record.quality
    assert quality is not None
    assert (quality.where, quality.rows) == (gate, 4)
    assert quality.checks[0].result["unexpected_count"] == 2
    assert quality.checks[1].result["observed_value"] == 3.5
    assert json.loads(json.dumps(lab.records(stream())[-1]["plan"]["quality"]))["gate"] == gate
    assert ids(lab) == [0, 1, 2, 3, 4, 5]


def jobs_of_a_batch(spark: SparkSession, root: Path, gate: str) -> int:
    """How many Spark jobs a run of one batch starts, into a table that is there; an empty gate is no suite at all."""
    lab, suite = Lab(spark, root / gate), "suite.json" if gate else None
    write_numbers(lab.root / "land", 1, rows=2)
    write_deltalake(lab.root / "out", pa.table({"id": [7]}))
    declare_suite(lab, up_to(9), largest(9), gate=gate or None)
    scheduler = spark._jsc.sc().dagScheduler()  # type: ignore[attr-defined]  # py4j
    before = scheduler.numTotalJobs()

    record = lab.run(stream(quality=suite))

    started = scheduler.numTotalJobs() - before
    chosen = record.plan.quality
    assert (None if chosen is None else (chosen.where, chosen.measured)) == (
        None if suite is None else (gate, "observe")
    )
    assert ids(lab) == [0, 1, 7]
    return int(started)


def test_a_suite_starts_no_job_of_its_own(lab: Lab) -> None:
    """What is observed is observed in the jobs that write, whichever way a batch goes into its table."""
    without, written, published = (jobs_of_a_batch(lab.spark, lab.root, gate) for gate in ("", "write", "publish"))

    assert written == without
    assert 0 < published <= without


def test_runs_are_compared_with_those_before_them(lab: Lab) -> None:
    """Their figures are read from their records; a run that fails by them publishes nothing."""
    rule = {"metric": "row_count", "max_relative_change": 0.5, "policy": "fail"}
    declare_suite(lab, history=[rule])
    for number, rows in enumerate((1, 2, 3)):
        write_files(lab.root / "land", {f"{number}.json": '{"id": 1}\n' * rows}, first=number)
        lab.run(stream())

    write_files(lab.root / "land", {"4.json": '{"id": 1}\n' * 4}, first=3)
    with pytest.raises(QualityFailedError, match="sluice_row_count_against_history`: 4"):
        lab.run(stream())

    (check,) = lab.records(stream())[-1]["quality"]["checks"]
    assert check["result"]["details"] == {"former_runs": 3, "mean": 2.0, "relative_change": 1.0, "z_score": 2.0}
    assert len(ids(lab)) == 6


def test_a_table_that_lacks_a_column(lab: Lab) -> None:
    """A column that it lacks is told before a batch is planned, whatever the suite would say of its rows."""
    write_numbers(lab.root / "land", 1, rows=2)
    write_deltalake(lab.root / "out", pa.table({"other": [1]}))
    declare_suite(lab, up_to(0))
    assert lab.plan(stream()).quality.where == "publish"  # type: ignore[union-attr]

    with pytest.raises(DeclarationError, match="id: not in the table, bigint in the result"):
        lab.run(stream())
    assert not (lab.root / "home" / "s" / "generations" / "0001" / "offsets" / "0").exists()

    assert lab.table("out").columns == ["other"]
