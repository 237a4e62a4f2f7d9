"""A Delta table as the sink: what it holds of a query, told by its own log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sluice import sinks
from sluice.errors import DeclarationError, RefusedError
from sluice.sinks.contract import BatchOutcome, SinkState, SinkUse
from sluice.sinks.delta.sink import DeltaSink
from sluice.storage import DEFAULT_MAX_BYTES, Storage
from sluice.surroundings import Surroundings
from tests.builders import QUERY_ID, commit_file, edit_commit, make_delta, put


class CountingStorage(Storage):
    """Notes which files are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_files: list[str] = []

    def read(self, location: str, *, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes | None:
        self.read_files.append(location)
        return super().read(location, max_bytes=max_bytes)


def make_sink(table: Path) -> DeltaSink:
    return sinks.delta(str(table))


def state(table: Path, query_id: str | None = QUERY_ID) -> SinkState:
    return make_sink(table).state(query_id, storage=Storage())


def outcome(table: Path, batch_id: int, query_id: str = QUERY_ID) -> BatchOutcome | None:
    return make_sink(table).outcome(query_id, batch_id, storage=Storage())


class TestDeclaration:
    """`sinks.delta(...)`."""

    def test_options(self, tmp_path: Path) -> None:
        """Partitions and options are kept; the path is one of the project's."""
        sink = sinks.delta("lake", partition_by=["day"], optimize_write=True, schema_evolution="add").resolved(
            Surroundings(str(tmp_path))
        )

        assert (sink.location, sink.partition_by, sink.options, sink.schema_evolution) == (
            f"{tmp_path}/lake",
            ("day",),
            {"optimizeWrite": "true"},
            "add",
        )
        assert sink.is_idempotent

    def test_unknown_option(self) -> None:
        """A misspelt option is refused with the nearest name, ours included."""
        with pytest.raises(DeclarationError, match="did you mean `partition_by`"):
            sinks.delta("lake", partition_bye=["day"])
        with pytest.raises(DeclarationError, match="write it as `overwrite_schema`"):
            sinks.delta("lake", overwriteSchema=True)

    def test_path_outside(self, tmp_path: Path) -> None:
        """A path that leaves the project is refused by name."""
        with pytest.raises(DeclarationError, match=r"sinks\.delta\('\.\./lake'\)"):
            sinks.delta("../lake").resolved(Surroundings(str(tmp_path)))


class TestState:
    """What the sink says about itself."""

    def test_no_table(self, tmp_path: Path) -> None:
        """A table that is yet to be made does not exist, before and after the query has its id."""
        assert state(tmp_path / "lake", None) == SinkState(exists=False)
        assert state(tmp_path / "lake") == SinkState(exists=False)

    def test_newest_batch(self, tmp_path: Path) -> None:
        """The table's log knows its identity, its version, and the query's newest batch."""
        make_delta(tmp_path, [1], [2], [3], app_id=QUERY_ID)

        identity = str(DeltaTable(tmp_path).metadata().id)
        assert state(tmp_path) == SinkState(exists=True, identity=identity, last_batch=2, version=2)

    def test_another_query(self, tmp_path: Path) -> None:
        """Another query's batches are not ours; without an id there are none."""
        make_delta(tmp_path, [1], app_id="another")

        assert state(tmp_path).last_batch is None
        assert state(tmp_path, None).last_batch is None
        assert state(tmp_path, None).exists

    def test_replaced_table(self, tmp_path: Path) -> None:
        """A table that was made anew has another identity."""
        before = state(make_delta(tmp_path / "lake", [1])).identity
        shutil.rmtree(tmp_path / "lake")

        assert state(make_delta(tmp_path / "lake", [1])).identity != before

    def test_files_that_are_no_table(self, tmp_path: Path) -> None:
        """A first run writes no table over files; what a killed first batch left is no hindrance."""
        put(tmp_path / "part-0.parquet")

        with pytest.raises(RefusedError) as caught:
            state(tmp_path, None)
        assert caught.value.finding.code == "NOT_A_DELTA_TABLE"
        assert state(tmp_path, QUERY_ID) == SinkState(exists=False)


class TestOutcome:
    """What the log says of one batch."""

    def test_batches(self, tmp_path: Path) -> None:
        """A batch is found with its version and the rows that Spark wrote."""
        make_delta(tmp_path, [1], [2], app_id=QUERY_ID)
        make_delta(tmp_path, [9])
        edit_commit(tmp_path, 1, {"operationMetrics": {"numOutputRows": "17"}})

        assert outcome(tmp_path, 1) == BatchOutcome(17, version=1)
        assert outcome(tmp_path, 0) == BatchOutcome(1, version=0)
        assert outcome(tmp_path, 2) is None
        assert outcome(tmp_path, 1, "another") is None

    def test_batch_that_the_sink_skipped(self, tmp_path: Path) -> None:
        """A batch without rows makes no version: it is not known between its neighbours."""
        make_delta(tmp_path, [1], [2], app_id=QUERY_ID)
        edit_commit(tmp_path, 1, {"version": 5}, action="txn")

        assert [batch_id for batch_id in range(7) if outcome(tmp_path, batch_id)] == [0, 5]

    def test_older_commits_are_not_read(self, tmp_path: Path) -> None:
        """Once an older batch of the query is met, the log is not searched any further."""
        make_delta(tmp_path, [1], [2], [3], app_id=QUERY_ID)
        DeltaTable(tmp_path).create_checkpoint()
        put(commit_file(tmp_path, 0), b"damaged")

        assert outcome(tmp_path, 7) is None
        assert outcome(tmp_path, 1) == BatchOutcome(1, version=1)

    def test_several_batches(self, tmp_path: Path) -> None:
        """Each as if it were asked for alone, by one look at the log: no commit of it is read twice."""
        make_delta(tmp_path, [1], [2, 3], [4], [5], app_id=QUERY_ID)
        edit_commit(tmp_path, 2, {"appId": "another"}, action="txn")
        edit_commit(tmp_path, 3, {"version": 7}, action="txn")
        storage = CountingStorage()

        found = make_sink(tmp_path).outcomes(QUERY_ID, [7, 9, 5, 1], storage=storage)

        assert found == {7: BatchOutcome(1, version=3), 1: BatchOutcome(2, version=1)}
        assert storage.read_files == [str(commit_file(tmp_path, version)) for version in (3, 2, 1)]
        assert {batch_id: outcome(tmp_path, batch_id) for batch_id in (7, 9, 5, 1)} == dict.fromkeys([9, 5]) | found

    def test_no_table(self, tmp_path: Path) -> None:
        """A table that is not there knows no batch."""
        assert outcome(tmp_path / "lake", 0) is None

    @pytest.mark.parametrize(("rows", "expected"), [("0", 0), (5, 5), ("x", 3), (-1, 3), (None, 3), (1.5, 3)])
    def test_rows(self, tmp_path: Path, rows: object, expected: int | None) -> None:
        """Only a count is a count; without one, the files say how many rows they have."""
        make_delta(tmp_path, [1, 2, 3], app_id=QUERY_ID)
        edit_commit(tmp_path, 0, {"operationMetrics": {"numOutputRows": rows}})

        assert outcome(tmp_path, 0) == BatchOutcome(expected, version=0)


class TestIntervalColumn:
    """The column of intervals, in a table that is there."""

    @pytest.mark.parametrize(("column", "told"), [("nope", "is no column of the table"), ("id", "is of type long")])
    def test_wrong_ones(self, tmp_path: Path, column: str, told: str) -> None:
        """It has to be there, and to be a date or time."""
        make_delta(tmp_path / "lake", [1])
        sink = sinks.delta(str(tmp_path / "lake"))

        with pytest.raises(DeclarationError, match=told):
            sink.check_table(SinkUse("append", column, {}, "here", Storage()))

    def test_one_that_may_come(self, tmp_path: Path) -> None:
        """Where the table follows the result, it may be missing; but one that is there is of its type."""
        make_delta(tmp_path / "lake", [1])
        sink = sinks.delta(str(tmp_path / "lake"), schema_evolution="add")

        sink.check_table(SinkUse("append", "day", {}, "here", Storage()))
        with pytest.raises(DeclarationError, match="is of type long"):
            sink.check_table(SinkUse("append", "id", {}, "here", Storage()))

    def test_no_table_yet(self, tmp_path: Path) -> None:
        """Only the first batch tells what columns there are."""
        sinks.delta(str(tmp_path / "lake")).check_table(SinkUse("append", "day", {}, "here", Storage()))
