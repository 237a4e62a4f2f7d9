"""What is taken out of the logs of a checkpoint, and what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.checkpoint.log import list_log
from sluice.checkpoint.purge import purge_logs
from sluice.storage import Storage
from tests.builders import put


def make(checkpoint: Path, newest: int) -> None:
    for batch_id in range(newest + 1):
        for log in ("offsets", "commits"):
            put(checkpoint / log / str(batch_id), "v1\n{}")
            put(checkpoint / log / f".{batch_id}.crc", "x")
        name = f"{batch_id}.compact" if batch_id % 10 == 9 else str(batch_id)
        put(checkpoint / "sources" / "0" / name, "v1\n{}")


def left(checkpoint: Path, log: str) -> list[str]:
    return sorted((file.name for file in (checkpoint / log).iterdir() if not file.name.startswith(".")), key=_number)


def _number(name: str) -> int:
    return int(name.partition(".")[0])


@pytest.mark.parametrize(
    ("newest", "keep", "first", "first_of_files"),
    [(31, 3, 28, "19.compact"), (32, 3, 29, "29.compact"), (32, 1, 31, "29.compact"), (5, 100, 0, "0")],
)
def test_what_is_kept(tmp_path: Path, newest: int, keep: int, first: int, first_of_files: str) -> None:
    """The newest batch and so many before it; of a log of files, whatever the entries before them need."""
    make(tmp_path, newest)
    purge_logs(str(tmp_path), ["0", "absent"], keep, storage=Storage())
    assert left(tmp_path, "offsets") == left(tmp_path, "commits") == [str(one) for one in range(first, newest + 1)]
    assert left(tmp_path, "sources/0")[0] == first_of_files
    assert len(left(tmp_path, "sources/0")) == newest + 1 - _number(first_of_files)
    for log in ("offsets", "commits"):
        folder = list_log(str(tmp_path / log), storage=Storage())
        assert folder is not None
        assert sorted(folder.sidecars) == list(folder.ids)


def test_a_checkpoint_without_logs(tmp_path: Path) -> None:
    """There is nothing to delete."""
    purge_logs(str(tmp_path), [], 100, storage=Storage())
    assert list(tmp_path.iterdir()) == []
