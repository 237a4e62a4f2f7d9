"""What Great Expectations reads again: over exactly what a run wrote, by whatever gate, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from sluice.errors import HeldError, QualityFailedError, RefusedError
from sluice.gate.state import release_gate
from sluice.sinks.delta.published_batch import read_versions
from sluice.storage import Storage
from sluice.times import system_clock
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_files
from tests.spark.test_quality_gates import declare_suite, gate_of, ids, largest, stream
from tests.unit.quality.suites import row

pytestmark = pytest.mark.spark


def unique(policy: str = "fail", **kwargs: Any) -> dict[str, Any]:
    """An expectation that is always read again."""
    return row("expect_column_values_to_be_unique", policy=policy, **{"column": "id", **kwargs})


def write_ids(lab: Lab, *files: str) -> None:
    """One file per text, with the rows of the ids in it."""
    there = len(list((lab.root / "land").glob("*"))) if (lab.root / "land").exists() else 0
    contents = {
        f"{number:04d}.json": "\n".join(f'{{"id": {found}}}' for found in text.split())
        for number, text in enumerate(files, there)
    }
    write_files(lab.root / "land", contents, first=there)


@pytest.mark.parametrize("gate", ["publish", "cache", "write"])
def test_the_rows_of_all_batches_of_a_run_are_read_together(lab: Lab, gate: str) -> None:
    """Two batches have a value each that the run then has twice; what runs before wrote does not count."""
    declare_suite(lab, unique("warn"))
    write_ids(lab, "1 2 3")
    lab.run(stream())
    declare_suite(lab, unique("warn"), gate=gate)
    write_ids(lab, "3 4 5", "5 6")

    record = lab.run(stream())

    assert record.quality is not None
    assert (record.quality.where, record.quality.verdict) == (gate, "warn")
    (check,) = record.quality.checks
    assert (check.path, check.success) == ("reread", False)
    assert check.result == {
        "element_count": 5,
        "unexpected_count": 2,
        "unexpected_percent": 40.0,
        "missing_count": 0,
        "missing_percent": 0.0,
        "unexpected_percent_total": 40.0,
        "unexpected_percent_nonmissing": 40.0,
    }
    assert lab.records(stream())[-1]["quality"]["checks"][0]["result"] == check.result
    assert gate_of(lab) is None


def test_failed_rows_hold_the_stream_until_the_suite_lets_them_pass(lab: Lab) -> None:
    """They are in the sink when they are read again; a correction of the suite is measured anew, by the next run."""
    declare_suite(lab, unique())
    write_ids(lab, "1 1 2 3")

    with pytest.raises(QualityFailedError, match=r"`expect_column_values_to_be_unique` of `id`: 2 unexpected in 4"):
        lab.run(stream())
    write_ids(lab, "4")
    with pytest.raises(HeldError, match="2 unexpected"):
        lab.run(stream())
    assert (gate_of(lab).state, ids(lab)) == ("failed", [1, 1, 2, 3])

    declare_suite(lab, unique(mostly=0.5))
    record = lab.run(stream())

    assert record.quality is not None
    assert (record.quality.verdict, ids(lab), gate_of(lab)) == ("pass", [1, 1, 2, 3, 4], None)
    first, _, _ = lab.records(stream())
    assert (first["status"], first["quality"]["verdict"]) == ("succeeded", "pass")
    assert first["quality"]["checks"][0]["kwargs"] == {"column": "id", "mostly": 0.5}


def test_a_released_batch_that_fails_what_is_read_again(lab: Lab) -> None:
    """Nobody knew of it when it was released: the stream is held, until somebody lets it go on."""
    declare_suite(lab, largest(3), unique(), sample=5)
    write_ids(lab, "1 1 9")
    with pytest.raises(QualityFailedError, match="batch 0 was not published"):
        lab.run(stream())
    assert [path for path in (lab.root / "out").rglob("*") if path.is_file()] == []
    release_gate(lab.project.stream_home(stream()), "ada", system_clock())

    with pytest.raises(QualityFailedError, match="its rows are in the sink, and the stream `s` is held"):
        lab.run(stream())

    failed = lab.records(stream())[-1]["quality"]
    assert failed["checks"][1]["result"]["partial_unexpected_list"] == [1, 1]
    release_gate(lab.project.stream_home(stream()), "ada", system_clock())
    assert lab.records(stream())[-1]["quality"]["released_by"] == "ada"
    assert lab.run(stream()).status == "skipped"
    assert (ids(lab), gate_of(lab)) == ([1, 1, 9], None)


def test_what_raises_fails_and_says_why(lab: Lab) -> None:
    """A check that can't be measured fails closed; those beside it keep their own results."""
    query = {"unexpected_rows_query": "SELECT nope FROM {batch}"}
    declare_suite(
        lab,
        row("unexpected_rows_expectation", policy="warn", **query),
        row("expect_column_values_to_be_json_parseable", policy="warn", column="id"),
        unique("fail", row_condition='col("id") > 1', condition_parser="great_expectations"),
        row("expect_column_median_to_be_between", policy="warn", column="ID", min_value=1, max_value=2),
    )
    write_ids(lab, "1 1 2 3")

    record = lab.run(stream())

    assert record.quality is not None
    assert record.quality.verdict == "warn"
    free, parsed, distinct, median = record.quality.checks
    assert "nope" in free.result["details"]["not_measured"]
    assert (free.success, parsed.success, distinct.success, median.success) == (False, False, True, True)
    assert (distinct.result["element_count"], median.result) == (2, {"observed_value": 1.5})


def test_a_run_without_rows_needs_no_great_expectations(lab: Lab) -> None:
    """The sink's rows of runs before are not its own."""
    declare_suite(lab, unique(), row("expect_column_median_to_be_between", policy="fail", column="id", min_value=1))
    write_files(lab.root / "land", {"0000.json": ""})

    record = lab.run(stream())

    assert record.quality is not None
    assert record.quality.verdict == "pass"
    assert [check.result for check in record.quality.checks] == [
        {"element_count": 0, "unexpected_count": 0, "unexpected_percent": None},
        {"observed_value": None},
    ]


def test_every_batch_of_mode_complete_has_all_rows(lab: Lab) -> None:
    """Only those of the last one are there: the same row in two batches is not there twice."""
    declare_suite(lab, unique())
    write_ids(lab, "1 2", "1 3")

    record = lab.run(stream(transform=f"{__name__}:counted", output_mode="complete"))

    assert record.quality is not None
    assert (record.quality.verdict, len(record.batches)) == ("pass", 2)
    assert record.quality.checks[0].result["element_count"] == 3


def counted(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").count()


class TestRunBefore:
    """A run that died with its rows in the sink, before anybody judged them; another run comes."""

    @pytest.fixture
    def dead(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
        """Ids 1 1 2, compacted since; the driver died just before it read them again."""
        declare_suite(lab, unique("warn"), row("expect_column_max_to_be_between", policy="warn", column="id"))
        write_ids(lab, "1 1", "2")
        with monkeypatch.context() as patched:
            patched.setattr("sluice.auditing.written_rows.WrittenRows.reread", _die)
            with pytest.raises(KeyboardInterrupt):
                lab.run(stream())
        assert gate_of(lab).state == "open"
        DeltaTable(str(lab.root / "out")).optimize.compact()
        return lab

    def test_it_fails_and_holds(self, dead: Lab) -> None:
        """Before the other run writes a row; and so do all later ones until somebody releases the stream."""
        declare_suite(dead, unique())
        write_ids(dead, "7")
        for _ in range(2):
            with pytest.raises(HeldError, match="2 unexpected in 3 rows"):
                dead.run(stream())

        first, refused, _ = dead.records(stream())
        assert (gate_of(dead).state, gate_of(dead).run_id) == ("failed", first["run_id"])
        assert (first["quality"]["verdict"], refused["status"], refused["batches"]) == ("fail", "refused", [])
        assert ids(dead) == [1, 1, 2]
        release_gate(dead.project.stream_home(stream()), "ada", system_clock())
        assert dead.run(stream()).status == "succeeded"
        assert ids(dead) == [1, 1, 2, 7]

    def test_it_passes_and_the_run_goes_on(self, dead: Lab) -> None:
        """Its own rows are judged for themselves, though they have an id of the run before."""
        write_ids(dead, "2 3")

        record = dead.run(stream())

        first, _ = dead.records(stream())
        assert record.quality is not None
        assert (record.quality.verdict, record.quality.checks[-1].result["element_count"]) == ("pass", 2)
        assert (first["quality"]["verdict"], first["quality"]["rows"]) == ("warn", 3)
        assert first["quality"]["checks"][-1]["result"]["unexpected_count"] == 2

    def test_it_is_judged_though_there_is_nothing_new(self, dead: Lab) -> None:
        """A run that has no rows of its own is not judged, not even by how many it should have."""
        declare_suite(dead, unique("warn"), row("expect_table_row_count_to_be_between", policy="fail", min_value=3))

        record = dead.run(stream())

        assert (record.status, record.quality, gate_of(dead)) == ("succeeded", None, None)
        first = dead.records(stream())[0]
        assert [check["success"] for check in first["quality"]["checks"]] == [True, False]
        assert dead.run(stream()).status == "skipped"

    def test_rows_that_nobody_can_read_any_more_fail(self, dead: Lab) -> None:
        """The log of its versions was cleaned up, and what was not measured then can't be now."""
        declare_suite(dead, unique())
        DeltaTable(str(dead.root / "out")).create_checkpoint()
        (dead.root / "out" / "_delta_log" / f"{0:020d}.json").unlink()
        write_ids(dead, "7")

        with pytest.raises(HeldError, match="version 0, which this run made, can't be read any more") as held:
            dead.run(stream())

        assert gate_of(dead).state == "failed"
        with pytest.raises(RefusedError) as refused:
            read_versions(str(dead.root / "out"), dead.spark, [0], storage=Storage())
        says = read_remedy(refused.value, "OUTPUT_GONE", "look at the table, then release the stream with").remedy
        assert says in str(held.value)
        assert release_gate(dead.project.stream_home(stream()), "ada", system_clock()) is not None
        assert dead.run(stream()).status == "succeeded"


def _die(*_: object) -> None:
    raise KeyboardInterrupt
