"""Tables that were taken back by `RESTORE`, by their logs alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from sluice.sinks.delta.taken_back import taken_back_since
from sluice.storage import Storage
from tests.builders import make_delta


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 2, each with a row."""
    return make_delta(tmp_path / "table", [0], [1], [2])


def told(table: Path, version: int, *, is_pending: bool = False) -> tuple[str, bool] | None:
    found = taken_back_since(str(table), version, is_pending=is_pending, storage=Storage())
    return None if found is None else (found.cause, found.is_blocking)


def test_restores_that_undo_one_another(table: Path) -> None:
    """What the newest version shows counts, over however many of them."""
    assert told(table, 2) is None
    DeltaTable(table).restore(1)
    assert told(table, 1) is None
    assert told(table, 2) == (
        "version 3 has taken the table back to version 1, and the stream has written version 2",
        False,
    )
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
    assert told(table, 2, is_pending=True) == (told(table, 2)[0], True)  # type: ignore[index]
    make_delta(table, *([number] for number in range(101)))
    assert told(table, 2) is None
    assert told(table, 2, is_pending=True) == (
        "version 3 has taken the table back to version 1, and the stream has written version 2",
        False,
    )
