"""Which partitions some versions of a table touched, compared with what delta-rs says of the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice.monitoring.touched_partitions import touched_partitions
from sluice.storage import Storage
from tests.builders import commit_file, edit_commit, make_delta

STORAGE = Storage()


def test_only_the_given_versions_count(tmp_path: Path) -> None:
    """Each version has touched the partitions of its own rows."""
    table = make_delta(tmp_path / "t", [1, 2], [3], [2])

    assert touched_partitions(str(table), [0], ["part"], storage=STORAGE) == [("1",), ("2",)]
    assert touched_partitions(str(table), [1, 2], ["part"], storage=STORAGE) == [("2",), ("3",)]
    assert touched_partitions(str(table), [], ["part"], storage=STORAGE) == []


def test_columns_come_in_the_declared_order_and_nulls_first(tmp_path: Path) -> None:
    """Null is None, also where a writer logs it as an empty text."""
    rows = pa.table({"v": [1, 2, 3], "b": ["x y/z", None, "ä"], "a": [1, 1, 2]})
    write_deltalake(tmp_path / "t", rows, partition_by=["b", "a"])

    assert touched_partitions(str(tmp_path / "t"), [0], ["a", "b"], storage=STORAGE) == [
        ("1", None), ("1", "x y/z"), ("2", "ä"),
    ]  # fmt: skip


def test_removed_rows_touch_their_partition(tmp_path: Path) -> None:
    """An overwrite changes what it removes as well."""
    table = make_delta(tmp_path / "t", [1, 2])
    DeltaTable(table).delete("part = 1")

    assert touched_partitions(str(table), [1], ["part"], storage=STORAGE) == [("1",)]


def test_a_compaction_touches_nothing(tmp_path: Path) -> None:
    """It moves rows, and changes none."""
    table = make_delta(tmp_path / "t", [1], [1])
    DeltaTable(table).optimize.compact()

    assert touched_partitions(str(table), [2], ["part"], storage=STORAGE) == []


def test_physical_names_of_column_mapping(tmp_path: Path) -> None:
    """The log knows the partition column by another name."""
    table = make_delta(tmp_path / "t", [7])
    edit_commit(table, 0, {"partitionValues": {"col-3f1a": "7"}}, action="add")

    assert touched_partitions(str(table), [0], ["part"], storage=STORAGE) == [("7",)]


def test_a_commit_that_was_cleaned_up_adds_nothing(tmp_path: Path) -> None:
    """What is still known is told."""
    table = make_delta(tmp_path / "t", [1], [2])
    commit_file(table, 0).unlink()

    assert touched_partitions(str(table), [0, 1], ["part"], storage=STORAGE) == [("2",)]


def test_a_damaged_commit_is_an_error(tmp_path: Path) -> None:
    """Partitions are never guessed."""
    table = make_delta(tmp_path / "t", [1])
    commit_file(table, 0).write_bytes(b'{"add": {"partitionValues": 7}}')

    with pytest.raises(ValueError, match="partitionValues"):
        touched_partitions(str(table), [0], ["part"], storage=STORAGE)
