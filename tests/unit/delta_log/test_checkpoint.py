"""The checkpoints of a Delta log tell of transactions whose commits are gone."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import parquet

from sluice import sinks
from sluice.delta_log.checkpoint import AppTransaction, LogCheckpoint, checkpoint_transactions, complete_checkpoints
from sluice.delta_log.table import last_transaction, load_table, open_log, transactions
from sluice.errors import StorageError
from sluice.storage import Storage
from tests.builders import NOW_MS, QUERY_ID, expire_commits, make_delta, put
from tests.unit.conftest import BUCKET

VERSION = f"{7:020d}"
UUID = "d785be34-48cb-462c-a835-6a4e8f4a1d20"


def write_parquet(log: Path, name: str, rows: list[dict[str, object]], schema: pa.Schema) -> None:
    log.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows, schema), log / name, row_group_size=2)


def schema(*parts: str) -> pa.Schema:
    kinds = {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}
    return pa.schema({"add": pa.struct({"path": pa.string()}), "txn": pa.struct({part: kinds[part] for part in parts})})


def read(table: Path, *names: str) -> list[AppTransaction]:
    return checkpoint_transactions(str(table), LogCheckpoint(7, names), storage=Storage())


class TestCompleteCheckpoints:
    """Which files make a checkpoint."""

    def test_every_kind(self) -> None:
        """One file, several, and those of the second kind; what else lies in the folder is none."""
        names = {
            f"{VERSION}.checkpoint.parquet",
            f"{8:020d}.checkpoint.0000000002.0000000002.parquet",
            f"{8:020d}.checkpoint.0000000001.0000000002.parquet",
            f"{9:020d}.checkpoint.{UUID}.json",
            f"{10:020d}.checkpoint.{UUID}.parquet",
            f"{9:020d}.json",
            f"{9:020d}.crc",
            f".{VERSION}.checkpoint.parquet.crc",
            "_last_checkpoint",
        }
        assert [(found.version, len(found.files)) for found in complete_checkpoints(names)] == [
            (7, 1),
            (8, 2),
            (9, 1),
            (10, 1),
        ]

    def test_a_part_that_is_missing(self) -> None:
        """Its writer died: readers pass over it."""
        assert complete_checkpoints([f"{8:020d}.checkpoint.0000000001.0000000002.parquet"]) == ()


class TestReading:
    """What a checkpoint tells."""

    ROWS = (
        {"add": {"path": "a"}, "txn": None},
        {"add": {"path": "b"}, "txn": None},
        {"add": None, "txn": {"appId": QUERY_ID, "version": 4, "lastUpdated": NOW_MS}},
        {"add": {"path": "c"}, "txn": None},
        {"add": None, "txn": {"appId": "mine", "version": 2, "lastUpdated": None}},
    )
    TOLD = (AppTransaction(QUERY_ID, 4, NOW_MS), AppTransaction("mine", 2, None))

    def test_parquet(self, tmp_path: Path) -> None:
        """Of every application the newest transaction, with its time where there is one."""
        write_parquet(tmp_path / "_delta_log", "a.parquet", [*self.ROWS], schema("appId", "version", "lastUpdated"))
        assert read(tmp_path, "a.parquet") == [*self.TOLD]

    def test_an_object_store(self, tmp_path: Path, object_storage: Storage) -> None:
        """The same from an object."""
        write_parquet(tmp_path / "_delta_log", "a.parquet", [*self.ROWS], schema("appId", "version", "lastUpdated"))
        table, checkpoint = f"{BUCKET}/lake", LogCheckpoint(7, ("a.parquet",))
        object_storage.replace(f"{table}/_delta_log/a.parquet", (tmp_path / "_delta_log" / "a.parquet").read_bytes())
        assert checkpoint_transactions(table, checkpoint, storage=object_storage) == [*self.TOLD]
        object_storage.delete(f"{table}/_delta_log/a.parquet")
        with pytest.raises(StorageError, match="can't be read"):
            checkpoint_transactions(table, checkpoint, storage=object_storage)

    def test_columns_that_are_not_there(self, tmp_path: Path) -> None:
        """A writer need not note the time; and a checkpoint without transactions may lack the column."""
        write_parquet(tmp_path / "_delta_log", "a.parquet", [*self.ROWS], schema("appId", "version"))
        write_parquet(
            tmp_path / "_delta_log",
            "b.parquet",
            [{"add": {"path": "a"}}],
            pa.schema({"add": pa.struct({"path": pa.string()})}),
        )
        assert [(found.application, found.time_ms) for found in read(tmp_path, "b.parquet", "a.parquet")] == [
            (QUERY_ID, None),
            ("mine", None),
        ]

    def test_json(self, tmp_path: Path) -> None:
        """One of the second kind may be lines, as a commit is."""
        lines = [{"checkpointMetadata": {"version": 7}}, *({"txn": row["txn"]} for row in self.ROWS if row["txn"])]
        put(tmp_path / "_delta_log" / "a.json", "\n".join(map(json.dumps, lines)))
        assert read(tmp_path, "a.json") == [*self.TOLD]

    @pytest.mark.parametrize("name", ["a.parquet", "a.json"])
    @pytest.mark.parametrize("content", [b"PAR1 damaged", None])
    def test_damage(self, tmp_path: Path, name: str, content: bytes | None) -> None:
        """What can't be read is told with its file: nobody takes it for a table without transactions."""
        if content is not None:
            put(tmp_path / "_delta_log" / name, content)
        with pytest.raises(StorageError, match=f"checkpoint of the Delta log can't be read.*{name}"):
            read(tmp_path, name)


class TestExpiredCommits:
    """A table whose old commits are cleaned up."""

    @pytest.fixture
    def table(self, tmp_path: Path) -> Path:
        """Its first two versions are a query's; a checkpoint stands for them, and a newer one beside it."""
        table = make_delta(tmp_path / "lake", [1], [2], app_id=QUERY_ID)
        make_delta(table, [3])
        DeltaTable(table).create_checkpoint()
        make_delta(table, [4], app_id="mine")
        make_delta(table, [5])
        DeltaTable(table).create_checkpoint()
        return make_delta(table, [6])

    def test_the_checkpoint_is_read(self, table: Path) -> None:
        """Commits first, the newest before the others; then what only a checkpoint knows."""
        expire_commits(table, keep=3)
        log = open_log(str(table), storage=Storage())
        assert log is not None
        assert [(found.application, found.version) for found in transactions(log, storage=Storage())] == [
            ("mine", 0),
            (QUERY_ID, 1),
        ]

    def test_the_oldest_that_will_do(self, table: Path) -> None:
        """It knows transactions that a newer one has let expire; one that lacks commits after it will not do."""
        damaged, standing = (table / "_delta_log" / f"{version:020d}.checkpoint.parquet" for version in (4, 2))
        kept, sound = expire_commits(table, keep=3), damaged.read_bytes()
        log = open_log(str(kept), storage=Storage())
        assert log is not None
        damaged.write_bytes(b"")
        assert len([*transactions(log, storage=Storage())]) == 2

        damaged.write_bytes(sound)
        expire_commits(table, keep=1)
        standing.write_bytes(b"")
        log = open_log(str(table), storage=Storage())
        assert log is not None
        assert {found.application for found in transactions(log, storage=Storage())} == {QUERY_ID, "mine"}

    def test_a_log_from_the_beginning_on(self, table: Path) -> None:
        """No checkpoint is read where every commit is there."""
        log = open_log(str(table), storage=Storage())
        for checkpoint in (table / "_delta_log").glob("*.parquet"):
            checkpoint.write_bytes(b"")
        assert log is not None
        assert len([*transactions(log, storage=Storage())]) == 3

    def test_transactions_that_expire(self, tmp_path: Path) -> None:
        """A table may let them be forgotten, and delta-rs does: its log still has them."""
        table = make_delta(tmp_path / "lake", [1])
        properties = CommitProperties(app_transactions=[Transaction(QUERY_ID, 1, NOW_MS)])
        write_deltalake(table, DeltaTable(table).to_pyarrow_table(), mode="append", commit_properties=properties)
        DeltaTable(table).create_checkpoint()
        retention = {"delta.setTransactionRetentionDuration": "interval 1 days"}
        DeltaTable(table).alter.set_table_properties(retention)
        expire_commits(table)
        loaded = load_table(str(table), storage=Storage())
        assert loaded.transaction_version(QUERY_ID) is None
        assert last_transaction(loaded, str(table), QUERY_ID, storage=Storage()) == 1

    def test_another_query(self, table: Path) -> None:
        """It wrote at a time whose commits are gone: the checkpoint has the time of its last batch."""
        sink = sinks.delta(str(table))
        checkpoint = table / "_delta_log" / f"{2:020d}.checkpoint.parquet"
        rows = parquet.read_table(checkpoint)
        noted = [row and {**row, "lastUpdated": NOW_MS} for row in rows.column("txn").to_pylist()]
        position, kind = rows.column_names.index("txn"), schema("appId", "version", "lastUpdated").field("txn").type
        expire_commits(table, keep=3)
        parquet.write_table(rows.set_column(position, "txn", pa.array(noted, kind)), checkpoint)
        assert sink.other_query({"own"}, NOW_MS, storage=Storage()) == QUERY_ID
        assert sink.other_query({QUERY_ID}, NOW_MS, storage=Storage()) is None
        assert sink.other_query({"own"}, NOW_MS + 1, storage=Storage()) is None

    def test_a_log_without_commits(self, table: Path) -> None:
        """Nobody can read it; it is not taken for a table that is yet to be made."""
        for commit in (table / "_delta_log").glob("*.json"):
            commit.unlink()
        log = open_log(str(table), storage=Storage())
        assert log is not None
        assert log.versions == ()
