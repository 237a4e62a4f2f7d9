"""A seal in a table's log: who wrote before it is known of, and who writes after it is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import SparkSession

from sluice.sinks.delta.sealing import seal
from sluice.storage import Storage
from tests.builders import make_delta


def no_spark() -> SparkSession:
    raise AssertionError


def write(table: Path, number: int) -> None:
    made = CommitProperties(app_transactions=[Transaction("a", number, None)])
    found = DeltaTable(str(table))
    found.create_write_transaction([], "append", found.schema(), commit_properties=made)


@pytest.mark.parametrize(
    ("written", "after", "sealed", "last"),
    [
        (None, None, True, 1),
        (0, 0, True, 1),
        (0, None, False, 0),
        (1, None, True, 1),
        (3, 3, True, 3),
        (3, 0, True, 3),
    ],
)
def test_a_seal(tmp_path: Path, written: int | None, after: int | None, sealed: bool, last: int) -> None:  # noqa: FBT001
    """It is set behind what is known of, and nowhere else; a newer one is as good."""
    make_delta(tmp_path / "table", [1])
    if written is not None:
        write(tmp_path / "table", written)

    assert seal(str(tmp_path / "table"), "a", 1, no_spark, after=after, storage=Storage()) is sealed

    assert DeltaTable(str(tmp_path / "table")).transaction_version("a") == last


def test_no_table(tmp_path: Path) -> None:
    """What is not there yet needs none, and gets none."""
    assert seal(str(tmp_path / "table"), "a", 1, no_spark, after=None, storage=Storage())
    assert not (tmp_path / "table").exists()
