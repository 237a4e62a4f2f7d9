"""Sluice's own JSON files: one format number, read strictly, written whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given

from sluice import documents
from sluice.documents import FORMAT, Document, encode_document, read_document
from sluice.errors import RefusedError, StorageError
from sluice.storage import Storage
from tests.builders import put
from tests.fuzzing import DEEP, damaged, outcome
from tests.remedies import read_remedy


class Note(Document, frozen=True, kw_only=True):
    """A document with one field of each kind."""

    name: str
    count: int = 0
    tags: dict[str, str] = msgspec.field(default_factory=dict)


VALID = encode_document(Note(name="ünïcode", count=2, tags={"a": "b"}))


def test_round_trip(tmp_path: Path, storage: Storage) -> None:
    """What is written reads back as it was."""
    file = put(tmp_path / "note.json", VALID)

    assert read_document(storage, str(file), Note) == Note(name="ünïcode", count=2, tags={"a": "b"})


def test_bytes_are_for_people() -> None:
    """A document is indented JSON with its format number first and a newline last."""
    assert encode_document(Note(name="a")) == b'{\n  "format": 1,\n  "name": "a",\n  "count": 0,\n  "tags": {}\n}\n'


def test_absent(tmp_path: Path, storage: Storage) -> None:
    """A file that is not there is no document."""
    assert read_document(storage, str(tmp_path / "note.json"), Note) is None


def test_unknown_fields_are_ignored(tmp_path: Path, storage: Storage) -> None:
    """A field that a later version of the same format adds does not keep this one from reading."""
    file = put(tmp_path / "note.json", '{"format": 1, "name": "a", "colour": "red"}')

    assert read_document(storage, str(file), Note) == Note(name="a")


def test_newer_format_is_refused(tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a newer Sluice is refused before its fields are looked at."""
    file = put(tmp_path / "note.json", f'{{"format": {FORMAT + 1}, "title": "a"}}')

    with pytest.raises(RefusedError) as caught:
        read_document(storage, str(file), Note)

    assert read_remedy(caught.value, "DOCUMENT_TOO_NEW", "upgrade Sluice").file == str(file)
    put(file, f'{{"format": {FORMAT + 1}, "name": "a"}}')
    monkeypatch.setattr("sluice.documents.FORMAT", FORMAT + 1)
    assert read_document(storage, str(file), Note) is not None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"count": 1}',
        b'{"name": 5}',
        b'{"name": "\xff"}',
        VALID[:-4],
        DEEP,
        b'{"tags":' + DEEP,
    ],
    ids=["empty", "cut", "list", "null", "field missing", "wrong type", "not utf-8", "torn", "deep", "deep field"],
)
def test_damage_is_refused(tmp_path: Path, storage: Storage, content: bytes) -> None:
    """Whatever is wrong with a document, the refusal names its file."""
    file = put(tmp_path / "note.json", content)

    with pytest.raises(RefusedError) as caught:
        read_document(storage, str(file), Note)

    assert caught.value.finding.code == "DOCUMENT_DAMAGED"
    assert caught.value.finding.file == str(file)


def test_a_large_one_reads_back(tmp_path: Path, storage: Storage) -> None:
    """As a record of a run with many batches whose distinct values are counted by sketches."""
    large = Note(name="n", tags={str(number): "x" * 80_000 for number in range(400)})
    file = put(tmp_path / "note.json", encode_document(large))
    assert read_document(storage, str(file), Note) == large


def test_size_is_capped(tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the cap is not read into memory."""
    file = put(tmp_path / "note.json", VALID)
    monkeypatch.setattr(documents, "_MAX_BYTES", len(VALID) - 1)

    with pytest.raises(StorageError, match="more than"):
        read_document(storage, str(file), Note)


@given(content=damaged(VALID))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes are a document or a refusal, never another error."""
    file = put(tmp_path_factory.getbasetemp() / "fuzzed" / "note.json", content)
    found = outcome(lambda: read_document(Storage(), str(file), Note))

    assert isinstance(found, Note) or (isinstance(found, RefusedError) and found.where == str(file))
