"""The balance of a batch: it is kept where it can be known, and a break is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sluice.auditing.conservation import balanced
from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.suite import parse_suite
from sluice.runs.record import BatchRecord, describe_batch
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
