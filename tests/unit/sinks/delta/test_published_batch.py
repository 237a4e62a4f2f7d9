"""Publishing what was written aside, while others maintain the table. No JVM: delta-rs is the others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake import Field as DeltaField
from deltalake.schema import PrimitiveType
from pyarrow import parquet

from sluice.errors import StorageError
from sluice.sinks.contract import Aside, SinkBatch
from sluice.sinks.delta import published_batch, replacement
from sluice.sinks.delta.table_form import form_of
from sluice.storage import Storage
from tests.builders import QUERY_ID
from tests.lake import Interrupted, append, held, publish, wanted, write_aside

BATCH = SinkBatch(QUERY_ID, 0, "append", 1)


def make_table(table: Path) -> None:
    write_deltalake(str(table), pa.table({"n": pa.array([1], pa.int64())}))


COLUMNS = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'


def write_batch_aside(table: Path, *numbers: int) -> Aside:
    """What Spark leaves: a file for each number."""
    return replace(write_batch_aside_of_none(table, *numbers), table=form_of(DeltaTable(str(table))))


def write_batch_aside_of_none(table: Path, *numbers: int) -> Aside:
    """The same where there is no table yet."""
    folder = table / "batch"
    folder.mkdir()
    files = [folder / f"part-{n}.parquet" for n in numbers]
    for n, file in zip(numbers, files, strict=True):
        parquet.write_table(pa.table({"n": pa.array([n], pa.int64())}), file)
    return Aside(str(folder), tuple(map(str, files)))


def numbers(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist())


def compact(table: Path) -> None:
    write_deltalake(str(table), pa.table({"n": pa.array([2], pa.int64())}), mode="append")
    DeltaTable(str(table)).optimize.compact()


def vacuum(table: Path) -> None:
    DeltaTable(str(table)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)


def forbid(table: Path) -> None:
    DeltaTable(str(table)).alter.add_constraint({"small": "n < 5"})


def delete(table: Path) -> None:
    DeltaTable(str(table)).delete("n = 1")


@pytest.mark.parametrize("is_late", [False, True], ids=["before it is looked at", "before the commit"])
@pytest.mark.parametrize(
    ("act", "found"),
    [(compact, [1, 2, 7, 8]), (delete, [7, 8]), (vacuum, None), (forbid, None)],
)
def test_a_batch_beside_maintenance(
    tmp_path: Path, act: Callable[[Path], None], found: list[int] | None, *, is_late: bool
) -> None:
    """All of the batch is there, or nothing, and it fails; published again, it is there once."""
    make_table(tmp_path)
    aside = write_batch_aside(tmp_path, 7, 8)
    storage = Interrupted(lambda: act(tmp_path)) if is_late else Storage()
    if not is_late:
        act(tmp_path)

    if found is None:
        with pytest.raises(StorageError, match="nothing was published"):
            published_batch.publish_batch(str(tmp_path), BATCH, aside, {}, storage=storage)
        assert numbers(tmp_path) == [1]
        return
    for _ in range(2):
        published_batch.publish_batch(str(tmp_path), BATCH, aside, {}, storage=storage)
    assert numbers(tmp_path) == found


def overwritten(table: Path, columns: dict[str, pa.Array], *, partition_by: list[str] | None = None) -> None:
    """By somebody who replaces the rows with their columns: the table stays the same one."""
    write_deltalake(str(table), pa.table(columns), mode="overwrite", schema_mode="overwrite", partition_by=partition_by)


def rename(table: Path) -> None:
    overwritten(table, {"m": pa.array([1], pa.int64())})


def retype(table: Path) -> None:
    overwritten(table, {"n": pa.array(["one"])})


def repartition(table: Path) -> None:
    overwritten(table, {"n": pa.array([1], pa.int64()), "p": pa.array(["x"])}, partition_by=["p"])


def make_anew(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")
    make_table(table)


def drop(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")


def need(table: Path) -> None:
    column = pa.field("m", pa.int64(), nullable=False)
    schema = pa.schema([pa.field("n", pa.int64()), column])
    rows = pa.table({"n": [1], "m": [1]}, schema)
    write_deltalake(str(table), rows, mode="overwrite", schema_mode="overwrite")


BECOMES_ANOTHER: dict[Callable[[Path], None], str] = {
    rename: "the table has no column `n`",
    retype: "column `n` of the table is of type string, and no longer bigint",
    repartition: "the table is partitioned by `p`, and no longer by nothing",
    make_anew: "there is another table",
    drop: "the table is gone",
    need: "the table has a column `m` that takes no nulls",
}


@pytest.mark.parametrize("act", BECOMES_ANOTHER)
def test_a_table_that_becomes_another_one(tmp_path: Path, act: Callable[[Path], None]) -> None:
    """Nothing is published into what the files were not written for, and they are deleted."""
    make_table(tmp_path)
    aside = write_batch_aside(tmp_path, 7)
    files = list((tmp_path / "batch").iterdir())
    folder = tmp_path / f"batch-{QUERY_ID}-{0:08d}-1"
    (tmp_path / "batch").rename(folder)
    aside = replace(aside, folder=str(folder), files=tuple(str(folder / file.name) for file in files))
    act(tmp_path)
    before = None if act is drop else DeltaTable(str(tmp_path)).version()

    with pytest.raises(StorageError, match=f"{BECOMES_ANOTHER[act]}, since the batch was written") as refused:
        published_batch.publish_batch(str(tmp_path), BATCH, aside, {}, storage=Storage())

    assert refused.value.remedy == "nothing was published; try again"
    assert files
    assert not folder.exists()
    if before is not None:
        table = DeltaTable(str(tmp_path))
        assert (table.version(), table.transaction_version(QUERY_ID)) == (before, None)


@pytest.mark.parametrize("act", BECOMES_ANOTHER)
def test_a_table_that_becomes_another_one_at_the_commit(tmp_path: Path, act: Callable[[Path], None]) -> None:
    make_table(tmp_path)
    aside = write_batch_aside(tmp_path, 7)
    with pytest.raises(StorageError, match="since the batch was written"):
        published_batch.publish_batch(str(tmp_path), BATCH, aside, {}, storage=Interrupted(lambda: act(tmp_path)))
    assert act is drop or DeltaTable(str(tmp_path)).transaction_version(QUERY_ID) is None


def test_a_table_that_is_there_now(tmp_path: Path) -> None:
    """What was to make the table is not added to another one's."""
    aside = replace(write_batch_aside_of_none(tmp_path, 7), columns=COLUMNS)
    make_table(tmp_path)
    with pytest.raises(StorageError, match="there is a table, since the batch was written"):
        published_batch.publish_batch(str(tmp_path), BATCH, aside, {}, storage=Storage())
    assert numbers(tmp_path) == [1]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_column_that_others_add(tmp_path: Path, *, is_late: bool) -> None:
    """It is null in the rows of the batch, as it is in those that were there."""
    make_table(tmp_path)
    aside = write_batch_aside(tmp_path, 7)

    def add() -> None:
        DeltaTable(str(tmp_path)).alter.add_columns([DeltaField("m", PrimitiveType("string"))])

    storage = Interrupted(add) if is_late else Storage()
    if not is_late:
        add()
    published_batch.publish_batch(str(tmp_path), BATCH, aside, {}, storage=storage)
    rows = DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
    assert sorted(rows, key=str) == [{"n": 1, "m": None}, {"n": 7, "m": None}]


def publish_batches(table: Path, ids: range, **options: str) -> None:
    for n in ids:
        file = table / f"part-{n}.parquet"
        parquet.write_table(pa.table({"n": pa.array([n], pa.int64())}), file)
        batch = SinkBatch(QUERY_ID, n, "append", 1)
        aside = Aside(str(table), (str(file),), form_of(DeltaTable(str(table))))
        published_batch.publish_batch(str(table), batch, aside, options, storage=Storage())


def test_what_a_commit_tells(tmp_path: Path) -> None:
    """What Delta's stream writer tells of a batch: that it depends on nothing, how many rows it has, and the note."""
    make_table(tmp_path)
    publish_batches(tmp_path, range(1), userMetadata="nightly")
    told = DeltaTable(str(tmp_path)).history(1)[0]
    assert (told["isBlindAppend"], told["userMetadata"]) == (True, "nightly")
    assert told["operationMetrics"] == {
        "numOutputRows": "1",
        "numOutputBytes": str((tmp_path / "part-0.parquet").stat().st_size),
        "numAddedFiles": "1",
        "numRemovedFiles": "0",
    }


@pytest.mark.parametrize(("interval", "expected"), [(None, [10, 20]), ("7", [6, 13, 20])])
def test_checkpoints_of_the_log(tmp_path: Path, interval: str | None, expected: list[int]) -> None:
    """The log is kept as short as by Spark, or as its table says."""
    configuration = {"delta.checkpointInterval": interval} if interval else None
    write_deltalake(str(tmp_path), pa.table({"n": pa.array([1], pa.int64())}), configuration=configuration)
    publish_batches(tmp_path, range(22))
    found = sorted(int(path.name[:20]) for path in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert found == expected
    assert numbers(tmp_path) == sorted([1, *range(22)])


def test_a_checkpoint_that_can_not_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The batch counts, and the driver's log has why the table's log grows."""
    make_table(tmp_path)
    publish_batches(tmp_path, range(9))
    (tmp_path / "_delta_log" / f"{10:020d}.checkpoint.parquet").mkdir()
    publish_batches(tmp_path, range(9, 10))
    assert numbers(tmp_path) == sorted([1, *range(10)])
    assert "has no checkpoint of its newest version" in caplog.text


def test_files_without_rows(tmp_path: Path) -> None:
    """Spark writes a file also where there are none: neither the log has it, nor the folder."""
    make_table(tmp_path)
    aside = write_batch_aside(tmp_path, 7)
    empty = tmp_path / "batch" / "part-empty.parquet"
    parquet.write_table(pa.table({"n": pa.array([], pa.int64())}), empty)
    some = replace(aside, files=(str(empty), *aside.files))
    published_batch.publish_batch(str(tmp_path), BATCH, some, {}, storage=Storage())
    assert [path.name for path in (tmp_path / "batch").iterdir()] == ["part-7.parquet"]

    none = tmp_path / "none"
    none.mkdir()
    parquet.write_table(pa.table({"n": pa.array([], pa.int64())}), none / "part-empty.parquet")
    second = SinkBatch(QUERY_ID, 1, "append", 1)
    nothing = replace(aside, folder=str(none), files=(str(none / "part-empty.parquet"),))
    published_batch.publish_batch(str(tmp_path), second, nothing, {}, storage=Storage())
    assert not none.exists()
    assert numbers(tmp_path) == [1, 7]
    assert DeltaTable(str(tmp_path)).transaction_version(QUERY_ID) == 1


@pytest.mark.parametrize("setting", ["autoCompact", "optimizeWrite"])
def test_tables_that_are_to_be_compacted(tmp_path: Path, setting: str) -> None:
    """Only Spark's writer makes few files of many: such a table is left to it, unless it says no."""
    key = f"delta.autoOptimize.{setting}"
    for name, value, is_for_spark in (("on", "true", True), ("auto", "auto", True), ("off", "false", False)):
        write_deltalake(str(tmp_path / name), pa.table({"n": [1]}), configuration={key: value})
        obstacle = published_batch.obstacle(DeltaTable(str(tmp_path / name)))
        assert obstacle == (f"the table has `{key}`, which only Spark heeds" if is_for_spark else None)


@pytest.mark.parametrize("act", [vacuum, forbid])
def test_a_backfill_beside_maintenance(tmp_path: Path, act: Callable[[Path], None]) -> None:
    """Nothing is replaced by less than was computed, nor by what a new rule forbids."""
    append(tmp_path, [(1, 1), (2, 2)], 0)
    mine = wanted(2, 2, 0)
    write_aside(tmp_path, mine, [(2, 20)])
    before = held(tmp_path)

    def publish_beside() -> object:
        try:
            return publish(tmp_path, mine, Interrupted(lambda: act(tmp_path)))
        except StorageError:
            return None

    assert publish_beside() is None
    assert held(tmp_path) == before


def test_a_backfill_of_a_table_that_is_made_anew(tmp_path: Path) -> None:
    """Its rows replace none of another table, which has a version of that number, too."""
    append(tmp_path, [(1, 1), (2, 2)], 0)
    mine = wanted(2, 2, 0)
    write_aside(tmp_path, mine, [(2, 20)])
    files = tuple(str(file) for file in sorted((tmp_path / "a-0").rglob("*.parquet")))
    aside = Aside(str(tmp_path / "a-0"), files, form_of(DeltaTable(str(tmp_path))))
    shutil.rmtree(tmp_path / "_delta_log")
    append(tmp_path, [(2, 3)])
    before = held(tmp_path)

    assert replacement.publish(str(tmp_path), mine, aside, storage=Storage()) is None
    assert held(tmp_path) == before
