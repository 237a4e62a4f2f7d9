"""Runs that go on with a batch in which another one was stopped: judged together, let through, or stopped again."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import sinks
from sluice.errors import BatchFailedError, HeldError, QualityFailedError
from sluice.gate.state import release_gate
from sluice.times import system_clock
from tests.spark.lab import Lab, write_files, write_numbers
from tests.spark.power_cuts import Cut
from tests.spark.test_mended_files import cut_run
from tests.spark.test_quality_gates import declare_suite, gate_of, ids, largest, stream, up_to
from tests.spark.test_rereads import unique, write_ids
from tests.unit.quality.suites import row

pytestmark = pytest.mark.spark

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
broken: list[bool] = []
"""Whether Spark fails every batch of `fragile`."""


def fragile(numbers: DataFrame) -> DataFrame:
    return numbers.where("raise_error('broken') IS NULL") if broken else numbers


def dated(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("at", F.lit(FIRST).cast("timestamp"))


def at_most(rows: int) -> dict[str, object]:
    return row("expect_table_row_count_to_be_between", policy="fail", max_value=rows)


def release(lab: Lab) -> None:
    assert release_gate(lab.project.stream_home(stream()), "ada", system_clock()) is not None


@pytest.mark.parametrize("gate", ["publish", "cache"])
def test_running_again_is_no_way_around_a_total(lab: Lab, gate: str) -> None:
    """What the stopped run had published counts, also after a third one died before it published anything."""
    declare_suite(lab, at_most(3), gate="cache")
    write_numbers(lab.root / "land", 2, rows=2)
    with pytest.raises(QualityFailedError, match="batch 1 was not published"):
        lab.run(stream(transform=f"{__name__}:fragile"))
    declare_suite(lab, at_most(3), gate=gate)
    broken.append(True)
    with pytest.raises(BatchFailedError, match="USER_RAISED_EXCEPTION"):
        lab.run(stream(transform=f"{__name__}:fragile"))
    broken.clear()

    with pytest.raises(QualityFailedError, match="batch 1 was not published"):
        lab.run(stream(transform=f"{__name__}:fragile"))

    assert ids(lab) == [0, 1]
    declare_suite(lab, at_most(4), gate=gate)
    record = lab.run(stream(transform=f"{__name__}:fragile"))
    assert record.quality is not None
    assert (record.quality.verdict, record.quality.rows, ids(lab)) == ("pass", 4, [0, 1, 2, 3])
    assert gate_of(lab) is None
    write_numbers(lab.root / "land", 2, first=2, rows=2)
    assert lab.run(stream(transform=f"{__name__}:fragile")).status == "succeeded"


def test_what_a_stopped_run_published_is_read_again(lab: Lab) -> None:
    """Its first batch fails what only the whole run can tell, which the run did not live to ask."""
    declare_suite(lab, largest(3), unique())
    write_ids(lab, "1 1", "9")
    with pytest.raises(QualityFailedError, match="batch 1 was not published"):
        lab.run(stream())
    declare_suite(lab, largest(9), unique())

    with pytest.raises(QualityFailedError, match=r"`expect_column_values_to_be_unique` of `id`: 2 unexpected in 3"):
        lab.run(stream())

    assert gate_of(lab).state == "failed"
    with pytest.raises(HeldError):
        lab.run(stream())
    declare_suite(lab, largest(9), unique(mostly=0.3))
    lab.run(stream())
    assert (ids(lab), gate_of(lab)) == ([1, 1, 9], None)


def test_a_rule_about_history_stops_a_batch_until_somebody_releases_it(lab: Lab) -> None:
    """Neither the next batch behind it nor trying often makes five times as many rows usual."""
    rule = {"metric": "row_count", "max_relative_change": 0.5, "policy": "fail"}
    declare_suite(lab, history=[rule])
    for number in range(3):
        write_numbers(lab.root / "land", 1, first=number)
        lab.run(stream())
    write_numbers(lab.root / "land", 1, first=3, rows=5)
    with pytest.raises(QualityFailedError, match="batch 3 was not published"):
        lab.run(stream())
    write_numbers(lab.root / "land", 1, first=20)

    for _ in range(2):
        with pytest.raises(QualityFailedError, match="batch 3 was not published"):
            lab.run(stream())

    assert ids(lab) == [0, 1, 2]
    assert lab.records(stream())[-1]["quality"]["checks"][0]["result"]["details"]["former_runs"] == 3
    release(lab)
    record = lab.run(stream())
    assert record.quality is not None
    assert (len(ids(lab)), record.quality.released_by, gate_of(lab)) == (9, "ada", None)


def test_a_release_waits_for_a_run_that_gets_that_far(lab: Lab) -> None:
    declare_suite(lab, largest(0))
    write_numbers(lab.root / "land", 1, rows=2)
    with pytest.raises(QualityFailedError):
        lab.run(stream())
    stopped_by = "batch 0 was stopped by quality"
    assert lab.plan(stream()).reason == f"{stopped_by}: `expect_column_max_to_be_between` of `id`: 1"
    release(lab)
    assert lab.plan(stream()).reason == f"{stopped_by}, and ada has released it"

    stopped = lab.run(stream(), stop_after=0)

    assert (stopped.status, stopped.batches) == ("stopped", ())
    assert (gate_of(lab).state, gate_of(lab).released_by) == ("blocked", "ada")
    assert lab.run(stream()).status == "succeeded"
    assert ids(lab) == [0, 1]


def test_what_was_let_through_holds_up_no_later_batch(lab: Lab) -> None:
    """By what it was let through for. Its rows count for all else: by the total, the next batch is stopped."""
    declare_suite(lab, up_to(5, "fail", mostly=0.75), at_most(5))
    write_ids(lab, "9 9", "1 2")
    with pytest.raises(QualityFailedError, match="batch 0 was not published"):
        lab.run(stream())
    release(lab)
    write_ids(lab, "1 2 3 4 5 6")
    with pytest.raises(QualityFailedError, match="batch 2 was not published"):
        lab.run(stream())
    assert lab.records(stream())[-1]["quality"]["released_by"] is None
    declare_suite(lab, up_to(5, "fail", mostly=0.75), at_most(9))
    with pytest.raises(QualityFailedError, match="batch 2 was not published"):
        lab.run(stream())

    declare_suite(lab, up_to(5, "fail", mostly=0.75), at_most(10))
    record = lab.run(stream())

    assert record.quality is not None
    assert (record.quality.rows, record.quality.verdict, record.quality.released_by) == (10, "fail", "ada")
    assert (len(ids(lab)), gate_of(lab)) == (10, None)


def test_rows_that_ended_their_batch_are_let_through(lab: Lab) -> None:
    """Where a sink publishes what it writes; the next batch is judged for itself."""
    declare_suite(lab, up_to(1))
    sink = sinks.files("out", format="json")
    write_numbers(lab.root / "land", 1, rows=3)
    with pytest.raises(QualityFailedError, match="batch 0 was not published"):
        lab.run(stream(sink=sink))
    assert gate_of(lab).state == "blocked"
    release(lab)

    record = lab.run(stream(sink=sink))

    assert record.quality is not None
    assert (record.quality.verdict, record.quality.released_by) == ("fail", "ada")
    assert len(written(lab)) == 3
    write_numbers(lab.root / "land", 1, first=1, rows=3)
    with pytest.raises(QualityFailedError, match="batch 1 was not published"):
        lab.run(stream(sink=sink))
    assert len(written(lab)) == 3


def rest(numbers: DataFrame) -> DataFrame:
    """What the transform reads as it starts says which numbers it leaves out."""
    return numbers.where(F.col("id") >= int(os.environ.get("LEAST", "0")))


def replace_file(lab: Lab, _patch: pytest.MonkeyPatch) -> None:
    """As many rows, of which as many fail."""
    write_files(lab.root / "land", {"0000.json": '{"id": 1}\n{"id": 0}\n{"id": 999}'}, first=60)


def mend_file(lab: Lab, _patch: pytest.MonkeyPatch) -> None:
    write_files(lab.root / "land", {"0000.json": '{"id": 1}\n{"id": 1}\n{"id": 1}'}, first=60)


def add_a_check(lab: Lab, _patch: pytest.MonkeyPatch) -> None:
    declare_suite(lab, up_to(1), largest(0))


def ask_for_less(lab: Lab, _patch: pytest.MonkeyPatch) -> None:
    declare_suite(lab, up_to(1, mostly=0.9))


def set_another_least(_lab: Lab, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("LEAST", "1")


CASES = [
    *itertools.product(["publish", "cache"], [replace_file, add_a_check, ask_for_less, set_another_least]),
    # Here a row ends the batch before anything is measured of it, and what a function reads shows in no text.
    *itertools.product(["write"], [replace_file, add_a_check]),
]


@pytest.mark.parametrize(("gate", "change"), CASES)
def test_another_batch_than_the_released_one_is_stopped_again(
    lab: Lab, gate: str, change: Callable[[Lab, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has seen it: not its rows, and not what it fails."""
    sink = sinks.files("out", format="json") if gate == "write" else sinks.delta("out")
    declared = stream(sink=sink, transform=f"{__name__}:rest")
    declare_suite(lab, up_to(1), gate=gate)
    write_numbers(lab.root / "land", 1, rows=3)
    with pytest.raises(QualityFailedError, match=r"^1 of 1 checks .* `sluice quality release s`"):
        lab.run(declared)
    release(lab)
    change(lab, monkeypatch)

    if (gate, change) == ("write", add_a_check):
        # Measured of all rows, it is known once they are written.
        with pytest.raises(QualityFailedError, match="its rows are in the sink, and the stream `s` is held"):
            lab.run(declared)
        return
    with pytest.raises(QualityFailedError, match="it is not the one that ada has let through: "):
        lab.run(declared)

    assert (gate_of(lab).state, gate_of(lab).released_by, written(lab)) == ("blocked", None, [])
    assert not (lab.root / "out" / "_delta_log").exists()
    release(lab)
    record = lab.run(declared)
    assert record.quality is not None
    assert (record.status, record.quality.released_by, gate_of(lab)) == ("succeeded", "ada", None)


@pytest.mark.parametrize("cut", [Cut("commit out"), Cut("gate.json", 1, "after")])
def test_a_release_that_a_dead_run_had_begun_with(lab: Lab, cut: Cut) -> None:
    """It has published nothing, and the file is another one by the next run."""
    declare_suite(lab, up_to(1))
    write_numbers(lab.root / "land", 1, rows=3)
    with pytest.raises(QualityFailedError):
        lab.run(stream())
    release(lab)
    assert cut_run(lab, stream(), cut) is not None
    replace_file(lab, pytest.MonkeyPatch())

    with pytest.raises(QualityFailedError, match="it is not the one that ada has let through: its files have changed"):
        lab.run(stream())

    assert gate_of(lab).let_through == {}


def test_a_second_check_is_no_release(lab: Lab) -> None:
    """A row ended the released batch by another check; mended, it is judged as any other."""
    declare_suite(lab, up_to(1), row("expect_column_values_to_be_in_set", policy="fail", column="id", value_set=[0, 1]))
    sink = sinks.files("out", format="json")
    write_numbers(lab.root / "land", 1, rows=3)
    with pytest.raises(QualityFailedError):
        lab.run(stream(sink=sink))
    release(lab)
    with pytest.raises(QualityFailedError):
        lab.run(stream(sink=sink))
    assert gate_of(lab).let_through == {}
    replace_file(lab, pytest.MonkeyPatch())

    with pytest.raises(QualityFailedError, match="batch 0 was not published"):
        lab.run(stream(sink=sink))

    assert written(lab) == []


def test_a_mended_batch_needs_no_release(lab: Lab) -> None:
    """It is judged as any other: whoever let the earlier one through has said nothing of it."""
    declare_suite(lab, up_to(1), unique())
    write_numbers(lab.root / "land", 1, rows=3)
    with pytest.raises(QualityFailedError):
        lab.run(stream())
    release(lab)
    mend_file(lab, pytest.MonkeyPatch())

    with pytest.raises(QualityFailedError, match=r"`expect_column_values_to_be_unique` of `id`: 3 unexpected in 3"):
        lab.run(stream())

    assert (gate_of(lab).state, ids(lab)) == ("failed", [1, 1, 1])


def test_a_released_batch_counts_for_what_it_was_not_released_for(lab: Lab) -> None:
    """Corrected since, the suite lets it pass by itself; the next batch does not hide behind it."""
    declare_suite(lab, largest(1))
    write_ids(lab, "2")
    with pytest.raises(QualityFailedError):
        lab.run(stream())
    release(lab)
    declare_suite(lab, largest(2), at_most(1))
    write_ids(lab, "1")

    with pytest.raises(QualityFailedError, match=r"^1 of 2 checks .*batch 1 was not published"):
        lab.run(stream())

    assert ids(lab) == [2]


@pytest.mark.parametrize(
    ("expectation", "files"),
    [
        (row("expect_table_row_count_to_be_between", policy="fail", min_value=5), ["1 2"]),
        (row("expect_table_row_count_to_be_between", policy="fail", min_value=2, max_value=4), ["1", "2 3 4 5"]),
        (row("expect_table_row_count_to_be_between", policy="fail", min_value=2, max_value=4), ["1", "2 3 4 5", "6"]),
        (row("expect_column_max_to_be_between", policy="fail", column="id", min_value=5, max_value=9), ["1", "70"]),
    ],
)
def test_what_more_rows_would_have_mended(lab: Lab, expectation: dict[str, object], files: list[str]) -> None:
    """The others alone would fail the same check, and there are the rows of the released one."""
    declare_suite(lab, expectation)
    write_ids(lab, *files)
    with pytest.raises(QualityFailedError, match="was not published"):
        lab.run(stream())
    release(lab)
    assert lab.run(stream()).status == "succeeded"
    assert (len(ids(lab)), gate_of(lab)) == (len(" ".join(files).split()), None)


def test_what_two_batches_fail_together_is_not_let_through(lab: Lab) -> None:
    """The released one has a row that the next one has, too."""
    declare_suite(lab, largest(3), unique())
    write_ids(lab, "9")
    with pytest.raises(QualityFailedError):
        lab.run(stream())
    release(lab)
    write_ids(lab, "1 9")
    declare_suite(lab, largest(3), unique())

    with pytest.raises(QualityFailedError, match=r"batch 1 was not published|is held"):
        lab.run(stream())


def test_a_release_that_was_taken_back_stays_so(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch passes what it was stopped for; killed behind its rows, it is asked for the rest all the same."""
    declare_suite(lab, largest(1), unique())
    declared = stream(transform=f"{__name__}:capped")
    write_ids(lab, "1 1 2")
    with pytest.raises(QualityFailedError):
        lab.run(declared)
    release(lab)
    monkeypatch.setenv("MOST", "1")
    assert cut_run(lab, declared, Cut("Spark's commit")) is not None

    with pytest.raises(QualityFailedError, match="`expect_column_values_to_be_unique`"):
        lab.run(declared)

    assert gate_of(lab).state == "failed"


def capped(numbers: DataFrame) -> DataFrame:
    """What the transform reads as it starts says which number is the largest."""
    return numbers.select(F.least("id", F.lit(int(os.environ.get("MOST", "9")))).alias("id"))


def known(policy: str = "fail") -> dict[str, object]:
    return row("expect_column_values_to_not_be_null", policy=policy, column="id")


def test_the_check_that_a_row_fails_is_named(lab: Lab) -> None:
    """Spark's error shows its plan, with every check that ends a batch."""
    declare_suite(lab, up_to(1), known())
    write_files(lab.root / "land", {"0000.json": '{"id": null}'})
    with pytest.raises(QualityFailedError, match="`expect_column_values_to_not_be_null` of `id`"):
        lab.run(stream(sink=sinks.files("out", format="json")))


def test_another_batch_is_not_let_through_for_the_same(lab: Lab) -> None:
    declare_suite(lab, up_to(5), known())
    sink = sinks.files("out", format="json")
    write_files(lab.root / "land", {"0000.json": '{"id": null}', "0001.json": '{"id": 9}\n{"id": null}'})
    told = []
    for _ in range(3):
        with pytest.raises(QualityFailedError, match="was not published"):
            lab.run(stream(sink=sink))
        told.append((gate_of(lab).batch_id, gate_of(lab).failed.partition("`")[2].partition("`")[0]))
        release(lab)
    assert [batch_id for batch_id, _ in told] == [0, 1, 1]
    assert len({name for _, name in told[1:]}) == 2
    assert lab.run(stream(sink=sink)).status == "succeeded"


def at_random(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("at", F.rand() + 2)


def test_a_batch_that_comes_out_otherwise_at_every_try(lab: Lab) -> None:
    """Released once more, after a person was told so, it goes through as it comes."""
    declared = stream(transform=f"{__name__}:at_random")
    declare_suite(lab, row("expect_column_max_to_be_between", policy="fail", column="at", max_value=1))
    write_numbers(lab.root / "land", 1, rows=3)
    with pytest.raises(QualityFailedError):
        lab.run(declared)
    release(lab)
    with pytest.raises(QualityFailedError, match=r"has let through: .*max.* was 2\.\d+ then, and is 2\.\d+"):
        lab.run(declared)
    release(lab)
    assert lab.run(declared).status == "succeeded"
    assert len(ids(lab)) == 3


def test_rows_that_fail_one_check_are_let_through_for_that_one(lab: Lab) -> None:
    """In a sink that publishes what it writes, another check ends the batch; what was released stays so."""
    even = row("expect_column_values_to_be_in_set", policy="fail", column="id", value_set=[0, 2])
    declare_suite(lab, up_to(1), even)
    sink = sinks.files("out", format="json")
    write_numbers(lab.root / "land", 1, rows=3)
    seen = []
    for _ in range(2):
        with pytest.raises(QualityFailedError, match="batch 0 was not published"):
            lab.run(stream(sink=sink))
        seen.append(gate_of(lab).failed)
        release(lab)
    assert len(set(seen)) == 2
    assert lab.run(stream(sink=sink)).status == "succeeded"
    assert len(written(lab)) == 3


def test_rows_are_judged_as_fresh_as_they_were(lab: Lab) -> None:
    """A suite that is corrected the day after does not make yesterday's rows old."""
    rule = {"metric": "freshness", "column": "at", "max_value": 3600, "policy": "fail"}
    declared = stream(sink=sinks.files("out", format="json"), transform=f"{__name__}:dated")
    declare_suite(lab, largest(0), history=[rule])
    write_numbers(lab.root / "land", 1, rows=2)
    with pytest.raises(QualityFailedError, match="is held"):
        lab.run(declared, clock=lambda: FIRST + timedelta(minutes=10))
    declare_suite(lab, largest(1), history=[rule])

    assert lab.run(declared, clock=lambda: FIRST + timedelta(days=1)).status == "skipped"

    assert gate_of(lab) is None
    (record,) = lab.records(declared)
    assert record["quality"]["checks"][1]["result"]["observed_value"] == 600


def written(lab: Lab) -> list[str]:
    return [line for file in Path(lab.root / "out").glob("*.json") for line in file.read_text().splitlines()]
