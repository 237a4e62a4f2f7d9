"""Which snapshots of a table have the rows that some of its versions added."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice.errors import RefusedError
from sluice.sinks.delta.published_batch import _snapshots
from sluice.storage import Storage


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three appended files, then all in one, then another: versions 0 to 4."""
    for number in range(3):
        write_deltalake(str(tmp_path), pa.table({"id": [number]}), mode="append")
    DeltaTable(str(tmp_path)).optimize.compact()
    write_deltalake(str(tmp_path), pa.table({"id": [4]}), mode="append")
    return tmp_path


@pytest.mark.parametrize(
    ("versions", "snapshots"),
    [
        ([], []),
        ([0, 1, 2], [(2, 3)]),
        ([1], [(1, 1)]),
        ([0, 2], [(2, 2)]),
        ([0, 1, 2, 3, 4], [(2, 3), (4, 1)]),
        ([3], []),
        ([2, 4], [(2, 1), (4, 1)]),
    ],
)
def test_as_few_snapshots_as_hold_the_files(table: Path, versions: list[int], snapshots: list[tuple[int, int]]) -> None:
    """One for all that nobody has rewritten in between; what a compaction wrote is nobody's rows."""
    found = _snapshots(str(table), versions, Storage())

    assert [(version, len(files)) for version, files in found] == snapshots


def test_a_version_that_is_gone_is_refused(table: Path) -> None:
    """Log clean-up deletes commits; one that nobody asks for is passed over."""
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / f"{1:020d}.json").unlink()

    with pytest.raises(RefusedError, match="version 1, which this run made"):
        _snapshots(str(table), [0, 1], Storage())
    assert [version for version, _ in _snapshots(str(table), [0, 2], Storage())] == [0, 2]
