"""Audits of tables as they stand: what is looked at, what is measured, and what is written down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sluice import sinks
from sluice.auditing.table_audit import TableAudit, TableAuditRequest, audit_table, read_table_audit, summary
from sluice.errors import BatchFailedError, DeclarationError, RefusedError
from tests.spark.lab import Lab
from tests.spark.test_quality_gates import declare_suite, ids, largest, stream, up_to
from tests.spark.test_rereads import unique, write_ids
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark


def audit(lab: Lab, **asked: Any) -> TableAudit:
    declared = asked.pop("declared", None) or stream()
    return audit_table(lab.project, TableAuditRequest(lab.project.resolve(declared), **asked), session=lab.spark)


def figures(found: TableAudit) -> list[Any]:
    """The figure of each check: how many rows were unexpected, or what was observed."""
    return [c.result.get("unexpected_count", c.result.get("observed_value")) for c in found.quality.checks]


@pytest.fixture
def table(lab: Lab) -> Lab:
    """Ids 1 2 3 by version 0, 3 4 by version 1; made one file by version 2."""
    declare_suite(lab, up_to(9))
    write_ids(lab, "1 2 3", "3 4")
    lab.run(stream())
    DeltaTable(str(lab.root / "out")).optimize.compact()
    return lab


def test_the_whole_table_is_audited(table: Lab) -> None:
    """Compiled checks and those of Great Expectations; `drop` takes nothing away, a failure is given back and kept."""
    declare_suite(table, up_to(2, "drop"), largest(9), unique(), history=[{"metric": "row_count", "min_value": 1000.0}])

    found = audit(table)

    assert (found.version, found.quality.verdict, found.quality.rows) == (2, "fail", 5)
    assert figures(found) == [3, 4, 2]
    assert [check.policy for check in found.quality.checks] == ["warn", "fail", "fail"]
    home = table.project.stream_home(stream())
    assert read_table_audit(home, found.audit_id) == found
    assert json.loads(json.dumps(summary(found)))["failed"] == [
        "expect_column_values_to_be_between",
        "expect_column_values_to_be_unique",
    ]
    assert ids(table) == [1, 2, 3, 3, 4]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"where": "id < 3"}, [2, 2, 0]),
        ({"to_version": 0}, [3, 3, 0]),
        ({"from_version": 1}, [2, 4, 0]),
        ({"from_version": 0, "to_version": 1, "where": "id > 2"}, [3, 4, 2]),
        ({"from_version": 2}, [0, None, 0]),
    ],
)
def test_a_part_of_the_table_is_audited(table: Lab, asked: dict[str, Any], expected: list[Any]) -> None:
    """By a condition, as of a version, or what versions added, though it was rewritten since; by another suite."""
    rows = (largest(9), unique(), row("expect_table_row_count_to_be_between", policy="warn", min_value=0))
    (table.root / "other.json").write_bytes(document(*rows))

    found = audit(table, suite="other.json", **asked)

    maximum, count, distinct = figures(found)
    assert [count, maximum, distinct] == expected
    assert found.quality.verdict == ("fail" if distinct else "pass")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"where": "nope > 1"}, r"the condition can't run: .*nope"),
        ({"where": "id >"}, "the condition can't run"),
        ({"from_version": 2, "to_version": 1}, "versions 2 to 1 are no range of the table"),
        ({"to_version": 7}, "give versions from 0 to 2"),
        ({"suite": "nowhere.json"}, "there is no suite"),
        ({"declared": stream(quality=None)}, "there is no suite to audit the table with"),
        ({"declared": stream(sink=sinks.files("out", format="json"))}, "is no table to audit"),
        ({"declared": stream(sink=sinks.delta("none"))}, "there is no table yet"),
    ],
)
def test_what_makes_no_sense_is_refused(table: Lab, asked: dict[str, Any], message: str) -> None:
    """Each says what is wrong; nothing is written down."""
    with pytest.raises(DeclarationError, match=message):
        audit(table, **asked)

    assert not (table.root / "home" / "s" / "table_audits").exists()


def test_a_range_that_is_gone_is_refused(table: Lab) -> None:
    """What cleaned-up versions added can't be told from what is left."""
    DeltaTable(str(table.root / "out")).create_checkpoint()
    (table.root / "out" / "_delta_log" / f"{1:020d}.json").unlink()

    with pytest.raises(RefusedError, match="version 1"):
        audit(table, from_version=1)
    assert audit(table).quality.rows == 5


def test_all_of_an_error_is_in_a_log(table: Lab) -> None:
    """What the message masks stands in a file that only its owner can read, and that the error names."""
    with pytest.raises(BatchFailedError) as failed:
        audit(table, where="assert_true(id < 2, 'salted caramel') IS NULL")

    assert "salted caramel" not in str(failed.value)
    log = Path(str(failed.value.log))
    assert log.parent == table.root / "home" / "s" / "drivers"
    assert log.stat().st_mode & 0o777 == 0o600
    assert "salted caramel" in log.read_text()
