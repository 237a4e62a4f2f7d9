"""`_spark_metadata`: what Spark's file sink has published."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from sluice.checkpoint.manifest import ManifestFile, latest_batch, read_manifest
from sluice.errors import RefusedError
from sluice.storage import Storage
from tests.builders import manifest_line, put
from tests.fuzzing import DEEP, damaged, outcome, short


def status_line(name: str, *, action: str = "add", is_dir: bool = False) -> str:
    return manifest_line(f"file:///out/{name}", 10, 5, action=action, is_dir=is_dir)


def put_manifest(out: Path, name: str, *lines: str) -> Path:
    return put(out / "_spark_metadata" / name, "\n".join(["v1", *lines]))


def paths(out: Path) -> list[str]:
    files = read_manifest(str(out), storage=Storage())
    assert files is not None
    return [file.path.removeprefix("file:///out/") for file in files]


def test_files(tmp_path: Path) -> None:
    """Every published file has its path, size and time."""
    put_manifest(tmp_path, "0", status_line("a.parquet"))
    put_manifest(tmp_path, "1", status_line("d=1/b.parquet"), status_line("d=1", is_dir=True))

    assert read_manifest(str(tmp_path), storage=Storage()) == [
        ManifestFile("file:///out/a.parquet", 10, 5),
        ManifestFile("file:///out/d=1/b.parquet", 10, 5),
    ]


def test_compacted(tmp_path: Path) -> None:
    """From the newest compacted file on, nothing is missing and nothing counts twice."""
    for batch in range(9):
        put_manifest(tmp_path, str(batch), status_line(f"{batch}"))
    put_manifest(tmp_path, "9.compact", *(status_line(f"{batch}") for batch in range(10)))
    put_manifest(tmp_path, "10", status_line("10"))

    assert paths(tmp_path) == [f"{batch}" for batch in range(11)]
    for batch in range(9):
        (tmp_path / "_spark_metadata" / str(batch)).unlink()
    assert paths(tmp_path) == [f"{batch}" for batch in range(11)]


def test_deleted_files(tmp_path: Path) -> None:
    """A file that a later entry deletes does not count."""
    put_manifest(tmp_path, "0", status_line("a"), status_line("b"))
    put_manifest(tmp_path, "1", status_line("a", action="delete"))

    assert paths(tmp_path) == ["b"]


def test_no_file_sink(tmp_path: Path, storage: Storage) -> None:
    """A folder without a manifest, or with an empty one, is no file sink's."""
    assert read_manifest(str(tmp_path), storage=storage) is None
    assert latest_batch(str(tmp_path), storage=storage) is None
    (tmp_path / "_spark_metadata").mkdir()
    assert read_manifest(str(tmp_path), storage=storage) is None
    assert latest_batch(str(tmp_path), storage=storage) is None


def test_empty_batches(tmp_path: Path) -> None:
    """A batch may have published nothing."""
    put_manifest(tmp_path, "0")

    assert paths(tmp_path) == []


def test_latest_batch(tmp_path: Path, storage: Storage) -> None:
    """The newest batch is known by its name alone, compacted or not."""
    put_manifest(tmp_path, "8", "garbage")
    assert latest_batch(str(tmp_path), storage=storage) == 8
    put_manifest(tmp_path, "9.compact")
    assert latest_batch(str(tmp_path), storage=storage) == 9


@pytest.mark.parametrize("lost", ["9.compact", "10"])
def test_missing_file(tmp_path: Path, lost: str) -> None:
    """A file that is gone in the middle refuses, and is named, also when older ones were cleaned up."""
    put_manifest(tmp_path, "9.compact", status_line("a"))
    put_manifest(tmp_path, "10", status_line("b"))
    put_manifest(tmp_path, "11", status_line("c"))
    (tmp_path / "_spark_metadata" / lost).unlink()

    with pytest.raises(RefusedError) as caught:
        read_manifest(str(tmp_path), storage=Storage())

    assert caught.value.finding.file == f"{tmp_path}/_spark_metadata/{lost}"


@pytest.mark.parametrize(
    "content", [b"", b"v2\n", status_line("a")[:-9].encode(), b"v1\n{}", b"v1\n" + DEEP, b"v1\n\xff"], ids=short
)
def test_damage(tmp_path: Path, content: bytes) -> None:
    """A damaged manifest refuses, and its file is named."""
    file = put(tmp_path / "_spark_metadata" / "0", content)

    with pytest.raises(RefusedError) as caught:
        read_manifest(str(tmp_path), storage=Storage())

    assert caught.value.finding.file == str(file)


@given(content=damaged(f"v1\n{status_line('a')}\n{status_line('b')}".encode()))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes are files, or a refusal that names the file."""
    out = tmp_path_factory.getbasetemp() / "fuzzed_manifest"
    file = put(out / "_spark_metadata" / "0", content)
    found = outcome(lambda: read_manifest(str(out), storage=Storage()))

    assert isinstance(found, list) or (isinstance(found, RefusedError) and found.where == str(file))
