"""The change feed of a Delta table, planned version by version, on tables that delta-rs wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice import sources
from sluice.errors import RefusedError
from sluice.sources.contract import Available, Bound, Position
from sluice.storage import Storage
from tests.builders import NOW, commit_file

KEPT = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four versions: one row in each of three files, one row changed, one deleted, two appended."""
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "part": ["a", "b", "c"]})
    write_deltalake(tmp_path, rows, partition_by=["part"], configuration=KEPT)
    DeltaTable(tmp_path).update(updates={"id": "20"}, predicate="id = 2")
    DeltaTable(tmp_path).delete("part = 'c'")
    more = pa.table({"id": pa.array([4, 5], pa.int64()), "part": ["d", "e"]})
    write_deltalake(tmp_path, more, mode="append", partition_by=["part"])
    return tmp_path


def position(table: Path, version: int, index: int = -1) -> Position:
    table_id = DeltaTable(table).metadata().id
    offset = {"sourceVersion": 1, "reservoirId": table_id, "reservoirVersion": version, "index": index}
    return Position(json.dumps({**offset, "isStartingVersion": False}))


def switch(table: Path, version: int, kept: str) -> None:
    """Let a version keep the feed from it on, or not."""
    (told,) = (action["metaData"] for action in actions(table, 0) if "metaData" in action)
    change = {"metaData": {**told, "configuration": {"delta.enableChangeDataFeed": kept}}}
    commit_file(table, version).write_text("\n".join(map(json.dumps, [*actions(table, version), change])))


def actions(table: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit_file(table, version).read_text().splitlines()]


def look(table: Path, at: Position, **options: Any) -> Available:
    source = sources.delta(str(table), read_change_feed=True, **options)
    return source.available(at, Bound(), storage=Storage(), now=NOW)


def batches(found: Available) -> list[tuple[int, int]]:
    """The version that each batch ends before, and how many files it reads."""
    ends = [json.loads(step.end) for step in found.steps]
    assert all((end["index"], end["isStartingVersion"]) == (-1, False) for end in ends)
    files = [step.amount["files"] for step in found.steps]
    return [(end["reservoirVersion"], count or 0) for end, count in zip(ends, files, strict=True)]


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ({}, [(4, 7)]),
        ({"max_offsets_per_batch": 1}, [(1, 3), (2, 1), (3, 1), (4, 2)]),
        ({"max_files_per_batch": 1}, [(1, 3), (2, 1), (3, 1), (4, 2)]),
        ({"max_files_per_batch": 4}, [(2, 4), (4, 3)]),
        ({"max_bytes_per_batch": 1}, [(1, 3), (2, 1), (3, 1), (4, 2)]),
    ],
)
def test_no_limit_divides_a_version(table: Path, limit: dict[str, int], found: list[tuple[int, int]]) -> None:
    """Of a version that has files of changes, these alone are read; of a deletion, what it took out."""
    assert batches(look(table, position(table, 0), **limit)) == found


def test_rows_are_promised_where_the_log_tells_them(table: Path) -> None:
    """An append is its rows; how many a change has stands nowhere."""
    found = look(table, position(table, 0), max_offsets_per_batch=1)
    assert [step.amount.get("rows") for step in found.steps] == [3, None, None, 2]


@pytest.mark.parametrize(
    ("index", "found"),
    [(-1, [(2, 1)]), (0, []), (5, [])],
)
def test_where_spark_has_stopped_by_itself(table: Path, index: int, found: list[tuple[int, int]]) -> None:
    """Its offset stays on the last file of changes of a version, and nothing of that is left."""
    later = [(3, 1), (4, 2)]
    assert batches(look(table, position(table, 1, index), max_offsets_per_batch=1)) == [*found, *later]


def test_the_rest_of_a_version(table: Path) -> None:
    """Behind a file in the midst, what comes behind it is read."""
    assert batches(look(table, position(table, 0, 1), max_offsets_per_batch=1))[0] == (1, 1)


def test_a_file_of_changes_that_is_gone(table: Path) -> None:
    """`VACUUM` takes them as any other file: Spark is not started for a batch that reads one."""
    (change,) = (table / "_change_data").rglob("*.parquet")
    source, start = sources.delta(str(table), read_change_feed=True), position(table, 1)
    end = look(table, start).steps[-1].end
    assert source.check_inputs(start, end, storage=Storage()) == ()
    change.unlink()
    (problem,) = source.check_inputs(start, end, storage=Storage())
    assert (problem.code, Path(problem.file).name) == ("INPUT_GONE", change.name)


def test_a_version_that_keeps_no_feed_is_refused_to_a_batch_as_well(table: Path) -> None:
    """Also where it was switched off behind the plan, and on again."""
    start, source = position(table, 1), sources.delta(str(table), read_change_feed=True)
    end = look(table, start).steps[-1].end
    switch(table, 2, "false")
    switch(table, 3, "true")
    (problem,) = source.check_inputs(start, end, storage=Storage())
    assert problem.code == "SOURCE_FEED_NOT_KEPT"
    assert "in version 2 " in problem.cause


def test_off_and_on_again_without_rows_in_between(table: Path) -> None:
    """Nothing was to be recorded; but a batch can't begin there."""
    for kept in ("false", "true"):
        DeltaTable(table).alter.set_table_properties({"delta.enableChangeDataFeed": kept})
    write_deltalake(table, pa.table({"id": pa.array([6], pa.int64()), "part": ["f"]}), mode="append")
    assert batches(look(table, position(table, 3))) == [(7, 3)]
    assert batches(look(table, position(table, 3), max_offsets_per_batch=1)) == [(5, 2), (6, 0), (7, 1)]
    with pytest.raises(RefusedError, match="in version 4 the table keeps no change feed"):
        look(table, position(table, 4))


def test_a_size_that_a_writer_leaves_out(table: Path) -> None:
    """The files count, and are looked for, all the same."""
    changed = [
        {key: {**action, "size": None} if key == "cdc" else action for key, action in line.items()}
        for line in actions(table, 1)
    ]
    commit_file(table, 1).write_text("\n".join(map(json.dumps, changed)))
    assert batches(look(table, position(table, 1), max_offsets_per_batch=1))[0] == (2, 1)
