"""Random histories of a Delta table and of the stream that reads it: a backfill sees what the stream has read, as it
is now."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from sluice import sources
from sluice.delta_log.table import open_log, read_commit, snapshot_files
from sluice.errors import RefusedError
from sluice.sources.contract import Bound, Position
from sluice.sources.files.listing import file_uri
from sluice.storage import Storage
from tests.builders import NOW

PARTS = 3
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, PARTS)),
    st.tuples(st.just("replace"), st.integers(0, PARTS - 1)),
    st.tuples(st.just("compact"), st.just(0)),
    st.tuples(st.just("read"), st.integers(1, 3)),
)


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(STEPS, min_size=3, max_size=12))
def test_any_history(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    """After every step: the rows that were read or that replaced others, and no other; or the stream is behind."""
    history = _History(tmp_path_factory.mktemp("table"))
    for step, number in steps:
        getattr(history, step)(number)
        found = history.sliced()
        if found is None:
            # Something was replaced that the stream may have had yet to read, and it has not passed over that yet.
            assert history.replaced_at >= history.next_version
        else:
            assert found == {row for row in history.rows if row not in history.unread}
    history.read(1000)
    assert history.sliced() == set(history.rows)


class _History:
    """A table of rows in parts, a file for each part of a commit, and a stream that reads a file at a time."""

    def __init__(self, table: Path) -> None:
        self.table, self.source = table, sources.delta(str(table), skip_change_commits=True, max_files_per_batch=1)
        self.rows: dict[int, int] = {}
        """The part of every row that is there now."""
        self.unread: set[int] = set()
        self.replaced_at = -1
        self.position = Position(None)
        self._newest = 0
        self.append(PARTS)
        self.read(1)

    @property
    def next_version(self) -> int:
        """The oldest version of which the stream has something yet to read, or to pass over."""
        return int(json.loads(self.position.offset or "{}")["reservoirVersion"])

    def append(self, parts: int) -> None:
        self._write(range(parts), mode="append")

    def replace(self, part: int) -> None:
        removed = {row for row, found in self.rows.items() if found == part}
        self.rows = {row: found for row, found in self.rows.items() if row not in removed}
        before = set(self.rows)
        self._write([part], mode="overwrite", predicate=f"part = {part}")
        if removed:
            # A stream passes over the whole version: nobody will read these rows.
            self.unread -= set(self.rows) - before
            self.replaced_at = DeltaTable(self.table).version()

    def compact(self, _number: int) -> None:
        DeltaTable(self.table).optimize.compact()

    def read(self, batches: int) -> None:
        found = self.source.available(self.position, Bound(), storage=Storage(), now=NOW)
        for step in found.steps[:batches]:
            self.unread -= self._rows_between(self.position.offset, step.end)
            self.position = Position(step.end, started_at=found.started_at)

    def sliced(self) -> set[int] | None:
        """The rows that a backfill reads; None when it is refused."""
        try:
            taken = self.source.slice(self.position, None, storage=Storage())
        except RefusedError as refused:
            if refused.finding.code != "BACKFILL_BEHIND_SOURCE":
                raise
            return None
        files = [unquote(path) for path in DeltaTable(self.table, version=taken.version).file_uris()]
        return self._content([file for file in files if file_uri(file) not in taken.left_out])

    def _write(self, parts: range | list[int], **how: str) -> None:
        added = {self._newest + number: part for number, part in enumerate(parts, 1)}
        self._newest += len(added)
        content = pa.table({"id": pa.array(added, pa.int64()), "part": pa.array(added.values(), pa.int64())})
        write_deltalake(self.table, content, partition_by=["part"], **how)  # type: ignore[call-overload]
        self.rows |= added
        self.unread |= set(added)

    def _rows_between(self, start: str | None, end: str) -> set[int]:
        """What Spark reads from one offset to another."""
        log = open_log(str(self.table), storage=Storage())
        assert log is not None
        first = json.loads(start) if start else {"reservoirVersion": 0, "index": -1, "isStartingVersion": True}
        last, taken = json.loads(end), set[str]()
        for version in range(first["reservoirVersion"], last["reservoirVersion"] + (last["index"] >= 0)):
            commit = read_commit(log, version, storage=Storage())
            assert commit is not None
            files = list(commit.files) if not commit.removes_data else []
            if version == first["reservoirVersion"] and first["isStartingVersion"]:
                files = snapshot_files(log, version, storage=Storage())
            skipped = first["index"] + 1 if version == first["reservoirVersion"] else 0
            ended = last["index"] + 1 if version == last["reservoirVersion"] else len(files)
            taken |= {file.path for file in files[skipped:ended]}
        return self._content([str(self.table / unquote(path)) for path in taken])

    def _content(self, files: list[str]) -> set[int]:
        read = [parquet.ParquetFile(file.removeprefix("file://")).read(["id"]) for file in files]
        rows = [row for found in read for row in found.column("id").to_pylist()]
        assert len(rows) == len(set(rows))
        return set(rows)
