"""What Great Expectations reads again: over exactly what a run wrote, by whatever gate, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.lab import Lab, write_files
from tests.spark.test_quality_gates import declare_suite, gate_of, stream
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
    """Two batches have a value each that the run then has twice; what former runs wrote does not count."""
    declare_suite(lab, unique("warn"))
    write_ids(lab, "1 2 3")
    lab.run(stream())
    declare_suite(lab, unique("warn"), gate=gate)
    write_ids(lab, "3 4 5", "5 6")

    record = lab.run(stream())

    assert record.quality is not None
    assert (record.quality.gate, record.quality.verdict) == (gate, "warn")
    (check,) = record.quality.checks
    assert (check["path"], check["success"]) == ("reread", False)
    assert check["result"] == {
        "element_count": 5,
        "unexpected_count": 2,
        "unexpected_percent": 40.0,
        "missing_count": 0,
        "missing_percent": 0.0,
        "unexpected_percent_total": 40.0,
        "unexpected_percent_nonmissing": 40.0,
    }
    assert lab.records(stream())[-1]["quality"]["checks"][0]["result"] == check["result"]
    assert gate_of(lab) is None
