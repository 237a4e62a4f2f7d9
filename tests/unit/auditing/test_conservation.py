"""The balance of a batch: it is kept where it can be known, and a break is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from sluice.auditing.conservation import as_decided, balanced, rows_in_quarantine, tied_to_input
from sluice.gate.decided_batch import Decision, Table
from sluice.project import Project
from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.suite import parse_suite
from sluice.runs.balance import is_broken
from sluice.runs.record import BatchRecord, describe_batch
from sluice.spark.row_flow import RowFlow
from sluice.storage import Storage
from tests.builders import QUERY_ID, clean_log, make_delta
from tests.unit.quality.suites import document, row


def plan(*policies: str) -> QualityPlan:
    rows = [
        row("expect_column_values_to_be_between", policy=policy, column="id", max_value=most)
        for most, policy in enumerate(policies, 5)
    ]
    return compile_suite(parse_suite(document(*rows), source="suite.json"), {"id": "bigint"})


def batch(output_rows: int | None) -> BatchRecord:
    return BatchRecord(batch_id=3, kind="data", input_rows=9, output_rows=output_rows, watermark=None)


def values(found: QualityPlan, rows: int, **removed: int) -> dict[str, Any]:
    return {found.rows: rows} | {name: removed[policy] for policy, name in found.removals.items()}


def test_a_batch_that_is_whole() -> None:
    found = plan("drop", "quarantine")

    done = balanced(batch(6), found, values(found, 9, drop=2, quarantine=1))

    assert (done.result_rows, done.output_rows, done.dropped_rows, done.quarantined_rows) == (9, 6, 2, 1)
    assert done.warnings == ()
    assert "6 out, 1 quarantined, 2 dropped" in describe_batch(done)


@pytest.mark.parametrize("published", [5, 7])
def test_rows_that_are_nowhere_or_there_twice(published: int, caplog: pytest.LogCaptureFixture) -> None:
    found = plan("drop", "quarantine")
    known = msgspec.structs.replace(batch(published), warnings=("before",))

    done = balanced(known, found, values(found, 9, drop=2, quarantine=1))

    assert done.warnings[0] == "before"
    assert done.warnings[1] == (
        f"the transform gave 9 rows; {published} were published, 1 put into quarantine and 2 dropped:"
        " look at the sink before anything is built on it"
    )
    assert done.warnings[1] in describe_batch(done)
    assert [log.levelname for log in caplog.records] == ["ERROR"]


def test_a_batch_that_another_suite_has_split() -> None:
    """What that one took out counts, whatever is declared today."""
    today = plan("drop")

    done = balanced(batch(6), today, values(today, 9, drop=0), {"quarantine": 3, "drop": 0})

    assert (done.result_rows, done.quarantined_rows, done.dropped_rows, done.warnings) == (9, 3, 0, ())


def test_what_is_not_known_is_not_said() -> None:
    found = plan("drop")

    assert balanced(batch(6), found, None) == batch(6)
    assert balanced(batch(6), found, {found.rows: 9}) == batch(6)
    unknown = balanced(batch(None), found, values(found, 9, drop=2))
    assert (unknown.result_rows, unknown.dropped_rows, unknown.warnings) == (9, 2, ())


def test_what_the_quarantine_has_counts(caplog: pytest.LogCaptureFixture) -> None:
    """Not what was measured: rows that never came there are missed."""
    found = plan("drop", "quarantine")

    whole = balanced(batch(6), found, values(found, 9, drop=2, quarantine=1), in_quarantine=1)
    lost = balanced(batch(6), found, values(found, 9, drop=2, quarantine=1), in_quarantine=0)

    assert (whole.quarantined_rows, whole.warnings) == (1, ())
    assert (lost.quarantined_rows, len(lost.warnings)) == (0, 1)
    assert "6 were published, 0 put into quarantine and 2 dropped" in lost.warnings[0]
    assert [log.levelname for log in caplog.records] == ["ERROR"]


def decision(table: Path, **changes: Any) -> Decision:
    there = Table(location=str(table), partition_by=(), options={})
    known: dict[str, Any] = {"batch_id": 1, "query_id": QUERY_ID, "run_id": "r", "folder": "f", "files": {}}
    known |= {"row_type": "", "sink": there, "quarantine": there, "values": {}, "quarantined": 2, "dropped": 1}
    return Decision(**known | changes)


def test_the_quarantines_log(tmp_path: Path) -> None:
    """It tells of the newest batch that it has; one that it does not have has no rows; older ones are not known."""
    project = Project(root=str(tmp_path), name="p", home=str(tmp_path / "home"), stream_folders=(), import_roots=())
    table = tmp_path / "quarantine"

    def told(batch_id: int) -> int | None:
        return rows_in_quarantine(decision(table, batch_id=batch_id), project, storage=Storage())

    assert told(0) == 0
    make_delta(table, [1], [2, 3], app_id=QUERY_ID)
    assert (told(2), told(1), told(0)) == (0, 2, None)


def test_a_quarantine_that_has_forgotten(tmp_path: Path) -> None:
    """Its log does not tell, where it may have had rows."""
    project = Project(root=str(tmp_path), name="p", home=str(tmp_path / "home"), stream_folders=(), import_roots=())
    table = make_delta(tmp_path / "quarantine", [1], [2, 3])
    DeltaTable(table).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 day"})
    clean_log(table)

    told = [rows_in_quarantine(decision(table, quarantined=n), project, storage=Storage()) for n in (2, 0)]

    assert told == [None, 0]


def test_a_batch_that_a_dead_driver_has_split() -> None:
    """What its decision says is compared with what the quarantine has."""
    decided = decision(Path("/lake"))
    assert as_decided(batch(6), decided, None) == msgspec.structs.replace(batch(6), quarantined_rows=2, dropped_rows=1)
    assert as_decided(batch(6), decided, 2).warnings == ()
    broken = as_decided(batch(6), decided, 1)
    assert (broken.quarantined_rows, "2 rows were to go into quarantine" in broken.warnings[0]) == (1, True)


class TestInput:
    """What was read, tied to what came out."""

    @pytest.mark.parametrize(
        ("output_rows", "result_rows", "flow", "unmatched"),
        [
            (9, None, "each", 0),
            (9, 9, "some", 0),
            (6, 6, "some", 3),
            (0, 0, "some", 9),
            # Nobody has counted what the filter left, and what came to the sink may be less.
            (6, None, "some", None),
            (9, None, None, None),
            (None, None, "each", None),
            (None, 6, "some", 3),
        ],
    )
    def test_in_balance(
        self, output_rows: int | None, result_rows: int | None, flow: RowFlow | None, unmatched: int | None
    ) -> None:
        """With a filter, what is missing was left out; what is not known is not said."""
        counted = msgspec.structs.replace(batch(output_rows), result_rows=result_rows)
        done = tied_to_input(counted, flow, reads_more=False)
        assert (done.unmatched_rows, done.warnings) == (unmatched, ())

    @pytest.mark.parametrize("output_rows", [8, 6, 3, 1, 0, 10, 18])
    @pytest.mark.parametrize("promised", [None, 9, 12])
    def test_not_in_balance(self, output_rows: int, promised: int | None, caplog: pytest.LogCaptureFixture) -> None:
        """Rows that the transform keeps are missing, or came from nowhere."""
        done = tied_to_input(batch(output_rows), "each", promised=promised, reads_more=False)
        assert f"the sources gave 9 rows, each of which the transform keeps, and {output_rows}" in done.warnings[0]
        assert is_broken(done)
        assert [log.levelname for log in caplog.records] == ["ERROR"]

    @pytest.mark.parametrize(("output_rows", "result_rows"), [(5, 6), (3, 6), (0, 6), (7, 6), (10, 10), (6, 10)])
    def test_not_in_balance_behind_a_filter(self, output_rows: int, result_rows: int) -> None:
        """What the filter left is counted on the way: less of it came to the sink, or more than was read."""
        counted = msgspec.structs.replace(batch(output_rows), result_rows=result_rows)
        done = tied_to_input(counted, "some", reads_more=False)
        came = f"{output_rows} came to the sink" if result_rows <= 9 else f"{result_rows} came out"
        assert came in done.warnings[0]
        assert is_broken(done)

    def test_rows_that_are_read_twice(self) -> None:
        """Where the logs of the sources told how many there are, more were read, and as many came: told elsewhere."""
        done = tied_to_input(batch(3), "each", promised=3, reads_more=False)
        assert (done.unmatched_rows, done.warnings) == (None, ())
        lost = tied_to_input(batch(2), "each", promised=3, reads_more=True)
        assert "the sources gave 3 rows" in lost.warnings[0]
        assert is_broken(lost)

    def test_rows_that_only_spark_reads(self) -> None:
        """Of Delta's files it may count rows that are deleted; none may come from nowhere."""
        assert tied_to_input(batch(8), "each", reads_more=True) == batch(8)
        assert tied_to_input(batch(10), "each", reads_more=True).warnings

    def test_rows_that_spark_does_not_count(self) -> None:
        """Where Delta's own writer casts a batch, Spark says that nothing was read: that is not known, and no loss."""
        uncounted = msgspec.structs.replace(batch(6), input_rows=0)
        assert tied_to_input(uncounted, "each", reads_more=False) == uncounted

    def test_a_batch_that_the_sink_held(self) -> None:
        """Nobody has read anything."""
        held = msgspec.structs.replace(batch(6), input_rows=None, was_in_sink=True)
        assert tied_to_input(held, "each", reads_more=False) == held

    def test_a_suite(self) -> None:
        """What the suite took out is no loss."""
        found = plan("drop", "quarantine")
        done = balanced(batch(5), found, values(found, 8, drop=2, quarantine=1))
        assert tied_to_input(done, "some", reads_more=False).unmatched_rows == 1
        assert tied_to_input(done, "each", reads_more=False).warnings
