"""`state/`: which stateful operators a checkpoint has, and whether their versions can be loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given

from sluice.checkpoint.state_store import (
    Operator,
    StateLayout,
    clear_state_of,
    nested_fields,
    read_state_layout,
)
from sluice.storage import Storage
from tests.builders import put
from tests.fuzzing import DEEP, damaged, short


def metadata_bytes(name: str = "stateStoreSave", partitions: int = 2, stores: tuple[str, ...] = ("default",)) -> bytes:
    info = [{"storeName": store, "numColsPrefixKey": 0, "numPartitions": partitions} for store in stores]
    document = {"operatorInfo": {"operatorId": 0, "operatorName": name}, "stateStoreInfo": info}
    return b"v1\n" + json.dumps(document, separators=(",", ":")).encode()


def make_operator(
    state: Path, *, versions: int = 3, partitions: int = 2, stores: tuple[str, ...] = ("default",)
) -> Path:
    operator = state / "0"
    put(operator / "_metadata" / "metadata", metadata_bytes(partitions=partitions, stores=stores))
    for partition in range(partitions):
        put(operator / str(partition) / "_metadata" / "schema", "v1")
        for store in stores:
            folder = operator / str(partition) / ("" if store == "default" else store)
            for version in range(1, versions + 1):
                put(folder / f"{version}.delta", "x")
                put(folder / f".{version}.delta.crc", "x")
    return operator


def layout(state: Path, needed_version: int | None = 3) -> StateLayout:
    return read_state_layout(str(state), needed_version, storage=Storage())


def codes(found: StateLayout) -> list[str]:
    return [problem.code for problem in found.problems]


def test_operator(tmp_path: Path) -> None:
    """An operator has Spark's name, its partitions, its stores, and the newest version of all partitions."""
    make_operator(tmp_path)

    assert layout(tmp_path) == StateLayout((Operator(0, "stateStoreSave", 2, ("default",), 3),))


def test_no_store(tmp_path: Path) -> None:
    """Metadata that names no store is no reason to fail: whatever wrote it, there are the partitions that there are."""
    make_operator(tmp_path, stores=())

    assert layout(tmp_path).operators == (Operator(0, "stateStoreSave", 2, (), None),)


def test_no_state(tmp_path: Path) -> None:
    """A stateless checkpoint has no operators."""
    assert layout(tmp_path / "state") == StateLayout(())


def test_operators_are_in_order(tmp_path: Path) -> None:
    """Operators come in the order of their numbers; other folders are none."""
    operator = make_operator(tmp_path, versions=1, partitions=1)
    for name in ("10", "2", "_metadata", "x"):
        shutil.copytree(operator, tmp_path / name)

    assert [found.operator_id for found in layout(tmp_path, 1).operators] == [0, 2, 10]


def test_named_stores(tmp_path: Path) -> None:
    """A join keeps several stores in every partition; each must be loadable."""
    stores = ("left-keyToNumValues", "right-keyToNumValues")
    operator = make_operator(tmp_path, stores=stores)
    assert layout(tmp_path).operators[0].stores == stores
    assert codes(layout(tmp_path)) == []

    (operator / "1" / "right-keyToNumValues" / "3.delta").unlink()
    assert [problem.file for problem in layout(tmp_path).problems] == [f"{operator}/1/right-keyToNumValues"]


def test_newest_version_of_the_slowest_partition(tmp_path: Path) -> None:
    """A version counts when every partition has it."""
    operator = make_operator(tmp_path)
    put(operator / "0" / "4.delta")

    assert layout(tmp_path).operators[0].latest_version == 3


@pytest.mark.parametrize(
    "kept",
    [
        ["1.delta", "2.delta", "3.delta"],
        ["3.snapshot"],
        ["2.snapshot", "3.delta"],
        ["3.zip"],
        ["1.zip", "2.changelog", "3.changelog"],
        ["2_0f1e2d3c-aa.zip", "3_4b5a.changelog"],
        ["2.snapshot", "3.delta", "4.delta"],
    ],
)
def test_loadable(tmp_path: Path, kept: list[str]) -> None:
    """A version loads from a snapshot at or below it and every change after that, or from all changes."""
    operator = make_operator(tmp_path, partitions=1, versions=0)
    for name in kept:
        put(operator / "0" / name)

    assert codes(layout(tmp_path)) == []


@pytest.mark.parametrize(
    "kept",
    [
        [],
        ["1.delta", "2.delta"],
        ["2.delta", "3.delta"],
        ["1.snapshot", "3.delta"],
        ["4.snapshot"],
        ["3.delta.tmp", ".3.snapshot.0f1e.tmp"],
    ],
)
def test_unloadable(tmp_path: Path, kept: list[str]) -> None:
    """A version that can't be built blocks, and names the partition's folder."""
    operator = make_operator(tmp_path, partitions=1, versions=0)
    for name in kept:
        put(operator / "0" / name)
    found = layout(tmp_path)

    assert [(problem.code, problem.file, problem.is_blocking) for problem in found.problems] == [
        ("STATE_VERSION_LOST", f"{operator}/0", True)
    ]
    assert "version 3" in found.problems[0].cause


def test_missing_partition(tmp_path: Path) -> None:
    """A partition that the metadata promises and that is gone is named."""
    operator = make_operator(tmp_path)
    shutil.rmtree(operator / "1")
    found = layout(tmp_path)

    assert [problem.file for problem in found.problems] == [f"{operator}/1"]
    assert (found.operators[0].partitions, found.operators[0].latest_version) == (2, None)


@pytest.mark.parametrize("needed_version", [None, 0])
def test_nothing_is_needed_before_the_first_commit(tmp_path: Path, needed_version: int | None) -> None:
    """A first batch loads empty state."""
    make_operator(tmp_path, versions=0)

    assert codes(layout(tmp_path, needed_version)) == []


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"v1",
        b"garbage",
        metadata_bytes().replace(b"v1", b"v3"),
        b"v1\n{}",
        b"v1\n[]",
        b"v1\n" + DEEP,
        metadata_bytes()[:-9],
    ],
    ids=short,
)
def test_lost_metadata(tmp_path: Path, content: bytes | None) -> None:
    """Lost metadata takes a safety check away but does not keep the stream from running."""
    operator = make_operator(tmp_path)
    metadata = operator / "_metadata" / "metadata"
    metadata.unlink()
    if content is not None:
        put(metadata, content)
    found = layout(tmp_path)

    assert [(problem.code, problem.file, problem.is_blocking) for problem in found.problems] == [
        ("OPERATOR_METADATA_LOST", str(metadata), False)
    ]
    assert found.operators == (Operator(0, None, 2, ("default",), 3),)
    reason = "is missing" if content is None else "is empty" if content == b"v1" else "does not parse"
    assert f"the operator's metadata {reason}" in found.problems[0].cause


def test_metadata_of_processors(tmp_path: Path) -> None:
    """A `transformWithState` writes it with every run, under the number of a batch: the newest counts."""
    operator = make_operator(tmp_path)
    written = (operator / "_metadata" / "metadata").read_bytes()
    (operator / "_metadata" / "metadata").unlink()
    put(operator / "_metadata" / "v2" / "9", b"v2\n{}")
    put(operator / "_metadata" / "v2" / "10", written.replace(b"v1", b"v2"))
    put(operator / "_metadata" / "v2" / ".10.crc", b"crc")

    assert layout(tmp_path).problems == ()
    (known,) = layout(tmp_path).operators
    assert known.name is not None

    put(operator / "_metadata" / "v2" / "10", b"v2\n{}")
    (problem,) = layout(tmp_path).problems
    assert (problem.code, problem.file) == ("OPERATOR_METADATA_LOST", str(operator / "_metadata" / "v2" / "10"))


def test_partitions_are_still_checked_without_metadata(tmp_path: Path) -> None:
    """The folders that are there must be loadable all the same."""
    operator = make_operator(tmp_path)
    (operator / "_metadata" / "metadata").unlink()
    (operator / "1" / "2.delta").unlink()

    assert codes(layout(tmp_path)) == ["OPERATOR_METADATA_LOST", "STATE_VERSION_LOST"]


@pytest.mark.parametrize("store", ["../../..", "a/b", "x" * 300, "", "a\0"], ids=short)
def test_impossible_name_of_a_store(tmp_path: Path, store: str) -> None:
    """The name of a store is a folder's; what can't be one is damage."""
    operator = make_operator(tmp_path)
    put(operator / "_metadata" / "metadata", metadata_bytes(stores=(store,)))

    assert codes(layout(tmp_path)) == ["OPERATOR_METADATA_LOST"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("partitions", [10**18, 10**9, 0, -1])
def test_impossible_number_of_partitions(tmp_path: Path, partitions: int) -> None:
    """A damaged number of partitions is damage, not hours of looking for them."""
    operator = make_operator(tmp_path)
    put(operator / "_metadata" / "metadata", metadata_bytes(partitions=partitions))

    assert codes(layout(tmp_path)) == ["OPERATOR_METADATA_LOST"]


@given(content=damaged(metadata_bytes()))
def test_any_metadata(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes give an operator, with or without a name."""
    state = tmp_path_factory.getbasetemp() / "fuzzed_state"
    put(state / "0" / "0" / "1.delta")
    put(state / "0" / "_metadata" / "metadata", content)

    assert [operator.operator_id for operator in layout(state, 1).operators] == [0]


@pytest.mark.parametrize("stores", [("default",), ("left-keyToNumValues", "right-keyWithIndexToValue")])
def test_state_of_a_batch_that_is_done_again(tmp_path: Path, stores: tuple[str, ...]) -> None:
    """What it has left goes, in every kind of file; what it begins with stays, and what says of what kind it is."""
    operator = make_operator(tmp_path / "state", versions=3, stores=stores)
    folder = operator / "1" / ("" if stores == ("default",) else stores[1])
    left = ["4.delta", ".4.delta.crc", "4.snapshot", "4.zip", "4_0f1e2d3c-aa.zip", "4.changelog", "12.delta"]
    kept = ["2.snapshot", "3_4b5a.changelog", "SSTs/000004-1f.sst", "notes.txt"]
    for name in (*left, *kept):
        put(folder / name, "x")
    before = {file for file in operator.rglob("*") if file.is_file()}

    clear_state_of(3, str(tmp_path), storage=Storage())

    assert before - {file for file in operator.rglob("*") if file.is_file()} == {folder / name for name in left}
    assert layout(tmp_path / "state").operators[0].latest_version == 3


def test_state_of_a_batch_without_any(tmp_path: Path) -> None:
    """A query without state has none to clear."""
    clear_state_of(3, str(tmp_path), storage=Storage())

    assert list(tmp_path.iterdir()) == []


def struct(**fields: object) -> dict[str, object]:
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def test_nested_fields() -> None:
    """Fields within columns, in keys, in values, and in what arrays and maps have; the columns themselves are none."""
    inner = struct(b="long", a=struct(c="string"))
    key = struct(k=inner)
    value = struct(v={"type": "array", "elementType": struct(d="long")}, m={"keyType": struct(e="long"), "type": "map"})
    parts = (json.dumps(found, separators=(",", ":")).encode() for found in (key, value))
    # What stands before a document is its length, which may be any bytes.
    schema = b"\x00\x02v2" + b"".join(b"\x00\x00\x00\x01\x00," + part for part in parts)

    assert nested_fields(schema) == ["b", "a", "c", "d", "e"]
    assert nested_fields(b"v1") == []
    assert nested_fields(schema[:-3]) == []


@given(damaged(json.dumps(struct(k=struct(b="long", a="long")), separators=(",", ":")).encode()))
def test_damaged_fields(content: bytes) -> None:
    """Whatever is written there, there are names or none."""
    assert all(isinstance(name, str) for name in nested_fields(content))


def test_deep_fields() -> None:
    """Types within types, as deep as no schema is."""
    assert nested_fields(b'{"type":"struct","fields":[{"name":"a","type":' * 5000) == []
