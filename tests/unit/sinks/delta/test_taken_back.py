"""Tables that were taken back by `RESTORE`, by their logs alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sluice.sinks.delta.taken_back import taken_back_since
from sluice.storage import Storage
from tests.builders import commit_file, edit_commit, make_delta


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 2, each with a row."""
    return make_delta(tmp_path / "table", [0], [1], [2])


TAKEN_BACK = "version 3 has taken the table back to version 1, and the stream has written version 2"


def told(table: Path, version: int, *, is_pending: bool = False) -> tuple[str, bool] | None:
    found = taken_back_since(str(table), version, is_pending=is_pending, storage=Storage())
    return None if found is None else (found.cause, found.is_blocking)


def test_restores_that_undo_one_another(table: Path) -> None:
    """What the newest version shows counts, over however many of them."""
    assert told(table, 2) is None
    DeltaTable(table).restore(1)
    assert told(table, 1) is None
    assert told(table, 2) == (TAKEN_BACK, False)
    assert told(table, 2, is_pending=True) is not None
    DeltaTable(table).restore(2)
    assert told(table, 2, is_pending=True) is None
    DeltaTable(table).restore(3)
    assert told(table, 2) == (
        "version 5 has taken the table back to version 1, and the stream has written version 2",
        False,
    )


def test_one_that_lies_far_back(table: Path) -> None:
    """Of a batch that is pending, every commit since is read, and where others have written, it does not block."""
    DeltaTable(table).restore(1)
    assert told(table, 2, is_pending=True) == (TAKEN_BACK, True)
    make_delta(table, *([number] for number in range(101)))
    assert told(table, 2) is None
    assert told(table, 2, is_pending=True) == (TAKEN_BACK, False)


def remedy(table: Path, version: int, *, can_backfill: bool = True) -> str:
    found = taken_back_since(str(table), version, is_pending=True, can_backfill=can_backfill, storage=Storage())
    assert found is not None
    return found.remedy


def test_no_backfill_is_offered_where_there_is_none(table: Path) -> None:
    """A table of a history takes none."""
    DeltaTable(table).restore(1)
    told = remedy(table, 2), remedy(table, 2, can_backfill=False)
    assert ["backfill" in words for words in told] == [True, False]


def test_restores_one_after_the_other(table: Path) -> None:
    """The version that is named has the rows, and not those of a restore before."""
    for _ in range(2):
        DeltaTable(table).restore(1)
    assert "by `RESTORE` to the version before (2);" in remedy(table, 2)
    DeltaTable(table).restore(2)
    assert told(table, 2, is_pending=True) is None


def test_maintenance_in_between(table: Path) -> None:
    """Who compacts, cleans or sets a property has written no rows: the batch is not passed over for it."""
    DeltaTable(table).restore(1)
    DeltaTable(table).optimize.compact()
    DeltaTable(table).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    DeltaTable(table).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert told(table, 2, is_pending=True) == (TAKEN_BACK, True)
    make_delta(table, [9])
    assert told(table, 2, is_pending=True) == (TAKEN_BACK, False)
    assert "and the one before it has not (`EXCEPT ALL`)" in remedy(table, 2)


def test_one_that_names_a_time(table: Path) -> None:
    """Whether it shows the batch is told by its files."""
    DeltaTable(table).restore(1)
    DeltaTable(table).restore(2)
    name_a_time(table)
    assert told(table, 2, is_pending=True) is None
    assert told(table, 2) is None
    DeltaTable(table).restore(1)
    name_a_time(table)
    assert told(table, 2, is_pending=True) == (
        "version 5 has taken the table back to version 1, and the stream has written version 2",
        True,
    )
    assert "by `RESTORE` to the version before (4);" in remedy(table, 2)


def test_one_that_names_a_time_after_the_version(table: Path) -> None:
    """It adds none of its files, which are there all along; also over maintenance, and where it changes nothing."""
    make_delta(table, [3])
    DeltaTable(table).restore(2)
    name_a_time(table)
    assert told(table, 2, is_pending=True) is None
    assert told(table, 3, is_pending=True) is not None
    DeltaTable(table).optimize.compact()
    make_delta(table, [4])
    DeltaTable(table).restore(DeltaTable(table).version() - 1)
    name_a_time(table)
    assert told(table, 2, is_pending=True) is None


def test_one_that_names_a_time_far_back(table: Path) -> None:
    """However many versions lie between; also where the version had only marked rows of a file as deleted."""
    make_delta(table, *([number] for number in range(3, 33)))
    DeltaTable(table).restore(2)
    name_a_time(table)
    assert told(table, 2, is_pending=True) is None
    assert told(table, 20, is_pending=True) is not None


def test_one_that_names_a_time_before_rows_were_marked_as_deleted(table: Path) -> None:
    """The same file with fewer rows is another one."""
    (added,) = (action["add"] for action in actions(table, 2) if "add" in action)
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "sizeInBytes": 1, "cardinality": 1}
    gone = {"path": added["path"], "dataChange": True}
    marked = added | {"deletionVector": vector}
    write(table, 3, {"remove": gone}, {"add": marked})
    info = {"operation": "RESTORE", "operationParameters": {"timestamp": "2026-11-28 06:00:00"}}
    write(table, 4, {"commitInfo": info}, {"remove": gone | {"deletionVector": vector}}, {"add": added})
    assert told(table, 3, is_pending=True) is not None
    assert told(table, 2, is_pending=True) is None


def actions(table: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit_file(table, version).read_text().splitlines()]


def write(table: Path, version: int, *written: dict[str, Any]) -> None:
    commit_file(table, version).write_text("\n".join(map(json.dumps, written)))


def name_a_time(table: Path) -> None:
    """As Delta's own restores to a time have it: no version."""
    edit_commit(table, DeltaTable(table).version(), {"operationParameters": {"timestamp": "2026-11-28 06:00:00"}})
