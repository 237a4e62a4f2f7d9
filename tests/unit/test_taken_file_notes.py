"""What is known of the files that a source took."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import RefusedError
from sluice.storage import Storage
from sluice.taken_file_notes import TakenNotes
from tests.builders import put


def test_times_and_unread_files_add_up(tmp_path: Path) -> None:
    """Each batch adds its own; sizes belong to one log id."""
    notes = TakenNotes(str(tmp_path / "0"), Storage())
    assert (notes.times_ms(), notes.unread(), notes.sizes(3)) == ({}, frozenset(), ())
    for number in (1, 2):
        notes.keep_times({f"{number}.json": number})
        notes.keep_unread([f"{number}.json"])
    notes.keep_sizes(3, [None, 7])
    assert (notes.times_ms(), notes.sizes(3)) == ({"1.json": 1, "2.json": 2}, (None, 7))
    assert notes.unread() == {"1.json", "2.json"}


@pytest.mark.parametrize("content", ['{"format": 1, "times_ms": {"a": "b"}}', "[]", '{"format": 1}', ""])
def test_damaged_times(tmp_path: Path, content: str) -> None:
    """The message says what deleting it costs."""
    put(tmp_path / "times.json", content)
    with pytest.raises(RefusedError, match="delete it: of a file that it tells of, it is then said that another one"):
        TakenNotes(str(tmp_path), Storage()).times_ms()
