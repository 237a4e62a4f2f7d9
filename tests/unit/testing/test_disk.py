"""What is on a disk at one moment, and the way back to it."""

from __future__ import annotations

import os
from pathlib import Path

from sluice.testing.disk import DiskImage
from tests.builders import put


def test_the_way_back(tmp_path: Path) -> None:
    """Files that came are gone, those that went or changed are as they were, and others are not touched."""
    put(tmp_path / "a" / "same", "1", mtime_ms=1000)
    put(tmp_path / "a" / "changed", "1", mtime_ms=2000)
    put(tmp_path / "gone" / "file", "1", mtime_ms=3000)
    (tmp_path / "empty").mkdir()
    inode = (tmp_path / "a" / "same").stat().st_ino
    image = DiskImage.of(tmp_path)

    put(tmp_path / "a" / "changed", "2", mtime_ms=2000)
    put(tmp_path / "new" / "deep" / "file")
    (tmp_path / "gone" / "file").unlink()
    (tmp_path / "gone").rmdir()
    (tmp_path / "empty").rmdir()
    image.bring_back()

    assert DiskImage.of(tmp_path) == image
    assert (tmp_path / "a" / "same").stat().st_ino == inode
    assert (tmp_path / "gone" / "file").stat().st_mtime_ns == 3_000_000_000
    assert sorted(os.listdir(tmp_path)) == ["a", "empty", "gone"]


def test_a_log_without_its_newest_entry(tmp_path: Path) -> None:
    """One folder is as it was before, also where it was not there; what is called alike is not meant."""
    put(tmp_path / "commits" / "0", "first")
    before = DiskImage.of(tmp_path)
    put(tmp_path / "commits" / "0", "changed")
    put(tmp_path / "commits" / "1")
    put(tmp_path / "commits-of-others" / "1")
    put(tmp_path / "table" / "_delta_log" / "0.json")
    put(tmp_path / "table" / "part")
    after = DiskImage.of(tmp_path)

    after.without_new(before, "commits").without_new(before, "table/_delta_log").bring_back()

    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert files == {"commits/0", "commits-of-others/1", "table/part"}
    assert (tmp_path / "commits" / "0").read_text() == "first"
    assert not (tmp_path / "table" / "_delta_log").exists()
