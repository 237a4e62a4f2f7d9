"""A Delta table seen without a JVM, on tables that delta-rs wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given

from sluice.delta_log.table import (
    AddedFile,
    Commit,
    DeltaLog,
    load_table,
    open_log,
    read_commit,
    refuse_other,
    snapshot_files,
    spark_columns,
)
from sluice.errors import DeclarationError, RefusedError, StorageError
from sluice.storage import Storage
from tests.builders import commit_file, edit_commit, make_delta, put, set_commit_times
from tests.fuzzing import DEEP, damaged, outcome, short


def opened(table: Path) -> DeltaLog:
    log = open_log(str(table), storage=Storage())
    assert log is not None
    return log


def commit(table: Path, version: int) -> Commit:
    found = read_commit(opened(table), version, storage=Storage())
    assert found is not None
    return found


def put_commit(folder: Path, *actions: dict[str, object], version: int = 0) -> Commit | None:
    """Read a commit file that is written by hand."""
    file = commit_file(folder, version)
    put(file, "\n".join(map(json.dumps, actions)))
    return read_commit(DeltaLog(str(folder), "id", version, (version,)), version, storage=Storage())


class TestLog:
    """The table's log."""

    def test_open(self, tmp_path: Path) -> None:
        """A log has the table's id and the versions that are there."""
        make_delta(tmp_path, [1], [2], [3])

        assert opened(tmp_path) == DeltaLog(str(tmp_path), str(DeltaTable(tmp_path).metadata().id), 2, (0, 1, 2))

    def test_cleaned(self, tmp_path: Path) -> None:
        """After a checkpoint, older commits may be gone."""
        make_delta(tmp_path, [1], [2], [3])
        DeltaTable(tmp_path).create_checkpoint()
        for version in (0, 1):
            commit_file(tmp_path, version).unlink()

        assert (opened(tmp_path).latest, opened(tmp_path).versions) == (2, (2,))

    def test_strangers_in_the_log(self, tmp_path: Path) -> None:
        """Checkpoints, checksums and temporary files are no versions."""
        make_delta(tmp_path, [1])
        DeltaTable(tmp_path).create_checkpoint()
        for name in (".tmp", ".00000000000000000001.json.crc", "_commits/00000000000000000009.0f1e.json", "9.json"):
            put(tmp_path / "_delta_log" / name)

        assert opened(tmp_path).versions == (0,)

    def test_no_table(self, tmp_path: Path, storage: Storage) -> None:
        """Nothing, an empty folder and an empty log are no table yet."""
        assert open_log(str(tmp_path / "absent"), storage=storage) is None
        assert open_log(str(tmp_path), storage=storage) is None
        (tmp_path / "_delta_log").mkdir()
        assert open_log(str(tmp_path), storage=storage) is None

    @pytest.mark.parametrize("content", [b"", b"{", b"garbage"])
    def test_log_that_delta_rs_refuses(self, tmp_path: Path, content: bytes) -> None:
        """A log that can't be read is a storage error that names the table."""
        put(commit_file(tmp_path, 0), content)

        with pytest.raises(StorageError) as caught:
            opened(tmp_path)

        assert caught.value.where == str(tmp_path)
        assert "\n" not in caught.value.problem

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ('{"type":"array","containsNull":true,"elementType":', "}"),
            ('{"type":"map","valueContainsNull":true,"keyType":"string","valueType":', "}"),
            ('{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":', "}]}"),
        ],
        ids=["array", "map", "struct"],
    )
    def test_a_type_that_is_nested_too_deeply(self, tmp_path: Path, storage: Storage, before: str, after: str) -> None:
        """2,000 types in each other are a storage error that names the table, whichever reader gives up."""
        make_delta(tmp_path, [1])
        column = f'{{"name":"id","nullable":true,"metadata":{{}},"type":{before * 2_000}"long"{after * 2_000}}}'
        file = commit_file(tmp_path, 0)
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "metaData" in action:
                action["metaData"]["schemaString"] = f'{{"type":"struct","fields":[{column}]}}'
        file.write_text("\n".join(map(json.dumps, actions)))

        with pytest.raises(StorageError) as caught:
            spark_columns(load_table(str(tmp_path), storage=storage))

        assert caught.value.where == str(tmp_path)
        assert "\n" not in caught.value.problem

    def test_transactions(self, tmp_path: Path, storage: Storage) -> None:
        """The newest transaction of an application is known without reading every commit."""
        make_delta(tmp_path, [1], [2], app_id="query")

        assert load_table(str(tmp_path), storage=storage).transaction_version("query") == 1
        assert load_table(str(tmp_path), storage=storage).transaction_version("other") is None


class TestRefuseOther:
    """What may not be where a new table is to be."""

    @pytest.mark.parametrize("name", [None, ".hidden", "_SUCCESS", "_delta_log/.tmp"])
    def test_free(self, tmp_path: Path, storage: Storage, name: str | None) -> None:
        """Nothing, or nothing visible, is in the way."""
        if name is not None:
            put(tmp_path / "table" / name)

        refuse_other(str(tmp_path / "table"), storage)
        assert name is None or (tmp_path / "table" / name).exists()

    @pytest.mark.parametrize("name", ["a.parquet", "d=1/a.parquet"])
    def test_files(self, tmp_path: Path, storage: Storage, name: str) -> None:
        """Files without a Delta log would lie in the table for ever."""
        put(tmp_path / "table" / name)

        with pytest.raises(RefusedError) as caught:
            refuse_other(str(tmp_path / "table"), storage)

        assert (caught.value.finding.code, caught.value.finding.file) == ("NOT_A_DELTA_TABLE", f"{tmp_path}/table")

    def test_file_in_its_place(self, tmp_path: Path, storage: Storage) -> None:
        """A file is no folder."""
        put(tmp_path / "table")

        with pytest.raises(RefusedError, match="a file is where") as caught:
            refuse_other(str(tmp_path / "table"), storage)

        assert caught.value.finding.file == f"{tmp_path}/table"


class TestCommit:
    """What one version did."""

    def test_append(self, tmp_path: Path) -> None:
        """An append has its time, its files with their rows, and its transactions."""
        make_delta(tmp_path, [1], [2, 3], app_id="query")
        set_commit_times(tmp_path, 1000, 2000)
        found = commit(tmp_path, 1)
        size = next((tmp_path / "part=2").iterdir()).stat().st_size

        assert (found.version, found.timestamp_ms, found.operation) == (1, 2000, "WRITE")
        assert found.files == (AddedFile(size, 1), AddedFile(size, 1))
        assert (found.removes_data, found.transactions) == (False, {"query": 1})
        assert found.metrics["num_added_rows"] == 2

    def test_delete(self, tmp_path: Path) -> None:
        """A delete removes data and adds none."""
        make_delta(tmp_path, [1, 2])
        DeltaTable(tmp_path).delete("part = 1")

        assert (commit(tmp_path, 1).removes_data, commit(tmp_path, 1).files) == (True, ())

    def test_overwrite(self, tmp_path: Path) -> None:
        """An update removes data and adds the rewritten file."""
        make_delta(tmp_path, [1, 2])
        DeltaTable(tmp_path).update(updates={"id": "9"}, predicate="part = 1")

        assert (commit(tmp_path, 1).removes_data, len(commit(tmp_path, 1).files)) == (True, 1)

    def test_compaction_changes_no_data(self, tmp_path: Path) -> None:
        """OPTIMIZE moves rows between files, which a stream does not see."""
        for _ in range(3):
            make_delta(tmp_path, [1])
        DeltaTable(tmp_path).optimize.compact()

        assert (commit(tmp_path, 3).removes_data, commit(tmp_path, 3).files) == (False, ())
        assert b'"add"' in commit_file(tmp_path, 3).read_bytes()

    def test_in_commit_timestamp(self, tmp_path: Path) -> None:
        """Where a table has in-commit timestamps, they are its times."""
        make_delta(tmp_path, [1])
        edit_commit(tmp_path, 0, {"timestamp": 1000, "inCommitTimestamp": 2000})

        assert commit(tmp_path, 0).timestamp_ms == 2000

    def test_no_commit_info(self, tmp_path: Path) -> None:
        """The protocol does not ask for a commit info: time and operation are then not known."""
        found = put_commit(tmp_path, {"add": {"path": "a", "size": 5, "dataChange": True}})

        assert found == Commit(0, None, None, (AddedFile(5, None),), removes_data=False, transactions={}, metrics={})

    @pytest.mark.parametrize(
        "info",
        [{"timestamp": "yesterday", "operation": {"a": 1}, "operationMetrics": None}, {"operationMetrics": []}, {}],
    )
    def test_free_form_commit_info(self, tmp_path: Path, info: dict[str, object]) -> None:
        """The commit info is free-form: what is not as expected is not known, and is no damage."""
        found = put_commit(tmp_path, {"commitInfo": info})

        assert found == Commit(0, None, None, (), removes_data=False, transactions={}, metrics={})

    @pytest.mark.parametrize(
        ("add", "rows"),
        [
            ({"stats": '{"numRecords":7}'}, 7),
            ({"stats": '{"numRecords":7}', "deletionVector": {"cardinality": 3}}, 4),
            ({"stats": '{"numRecords":7}', "deletionVector": {}}, None),
            ({"stats": "{}"}, None),
            ({"stats": "garbage"}, None),
            ({"stats": None}, None),
            ({}, None),
        ],
    )
    def test_rows(self, tmp_path: Path, add: dict[str, object], rows: int | None) -> None:
        """A file's rows are those that a reader gets, where the log tells."""
        found = put_commit(tmp_path, {"add": {"path": "a", "size": 5} | add})

        assert found is not None
        assert found.files == (AddedFile(5, rows),)

    def test_gone(self, tmp_path: Path, storage: Storage) -> None:
        """A commit that log clean-up removed is None."""
        make_delta(tmp_path, [1])

        assert read_commit(opened(tmp_path), 5, storage=storage) is None

    def test_blank_lines(self, tmp_path: Path) -> None:
        """Lines without an action mean nothing."""
        make_delta(tmp_path, [1])
        file = commit_file(tmp_path, 0)
        before = commit(tmp_path, 0)
        file.write_bytes(file.read_bytes().replace(b"\n", b"\n\n \n") + b"\n")

        assert commit(tmp_path, 0) == before

    @pytest.mark.parametrize(
        "content",
        [
            b"{",
            b"[]",
            b'{"add":5}',
            b'{"add":{}}',
            b'{"add":{"path":"\xff"}}',
            DEEP,
            b'{"add":' + DEEP,
            b'{"txn":{"appId":1}}',
        ],
        ids=short,
    )
    def test_damage(self, tmp_path: Path, content: bytes) -> None:
        """A commit that does not parse is refused by name."""
        file = put(commit_file(tmp_path, 0), content)

        with pytest.raises(RefusedError) as caught:
            read_commit(DeltaLog(str(tmp_path), "id", 0, (0,)), 0, storage=Storage())

        assert (caught.value.finding.code, caught.value.finding.file) == ("DELTA_COMMIT_DAMAGED", str(file))

    @given(
        content=damaged(
            b'{"commitInfo":{"timestamp":5,"operation":"WRITE","operationMetrics":{"numOutputRows":"2"}}}\n'
            b'{"add":{"path":"a","size":5,"dataChange":true,"stats":"{\\"numRecords\\":7}"}}\n'
            b'{"remove":{"path":"b","dataChange":true}}\n{"txn":{"appId":"q","version":3}}'
        )
    )
    def test_any_bytes(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        """Any bytes are a commit, or a refusal that names the file."""
        folder = tmp_path_factory.getbasetemp() / "fuzzed_commit"
        file = put(commit_file(folder, 0), content)
        log = DeltaLog(str(folder), "id", 0, (0,))
        found = outcome(lambda: read_commit(log, 0, storage=Storage()))

        assert isinstance(found, Commit) or (isinstance(found, RefusedError) and found.where == str(file))


class TestSnapshot:
    """The files of a whole version."""

    def test_files_of_a_version(self, tmp_path: Path, storage: Storage) -> None:
        """A snapshot has what was added and not removed by then."""
        make_delta(tmp_path, [1, 2], [3])
        DeltaTable(tmp_path).delete("part = 1")
        log = opened(tmp_path)

        assert [len(snapshot_files(log, version, storage=storage)) for version in (0, 1, 2)] == [2, 3, 2]
        assert sum(file.rows or 0 for file in snapshot_files(log, 2, storage=storage)) == 2

    def test_order(self, tmp_path: Path, storage: Storage) -> None:
        """Files come as a stream reads them: by modification time, not by version."""
        make_delta(tmp_path, [1], [2], [3])
        for version, (time_ms, size) in enumerate([(300, 30), (100, 10), (200, 20)]):
            edit_commit(tmp_path, version, {"modificationTime": time_ms, "size": size}, action="add")

        assert [file.size_bytes for file in snapshot_files(opened(tmp_path), 2, storage=storage)] == [10, 20, 30]

    @pytest.mark.parametrize(("without", "rows"), [((1,), [1, None]), ((0, 1), [None, None])])
    def test_rows_that_are_not_known(
        self, tmp_path: Path, storage: Storage, without: tuple[int, ...], rows: list[int | None]
    ) -> None:
        """A file without statistics, and a table without any, has rows that nobody counted."""
        make_delta(tmp_path, [1], [2])
        for version in (0, 1):
            stats = {"stats": None} if version in without else {}
            edit_commit(tmp_path, version, {"modificationTime": version} | stats, action="add")

        assert [file.rows for file in snapshot_files(opened(tmp_path), 1, storage=storage)] == rows

    def test_vacuumed_log(self, tmp_path: Path, storage: Storage) -> None:
        """A version that can't be rebuilt any more is a storage error."""
        make_delta(tmp_path, [1], [2], [3])
        log = opened(tmp_path)
        shutil.rmtree(tmp_path / "_delta_log")

        with pytest.raises(StorageError) as caught:
            snapshot_files(log, 1, storage=storage)

        assert caught.value.where == str(tmp_path)


def test_a_path_that_delta_rs_misreads(tmp_path: Path) -> None:
    """A `%20` in a folder's name would be taken for a space: another table, if there is one."""
    write_deltalake(str(tmp_path / "a b"), pa.table({"id": [1]}))
    shutil.copytree(tmp_path / "a b", tmp_path / "a%20b")

    with pytest.raises(DeclarationError, match="delta-rs"):
        open_log(f"{tmp_path}/a%20b", storage=Storage())
