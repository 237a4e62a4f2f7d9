"""What unit tests are built from: checkpoints in Spark's own bytes, Delta tables, declarations, a clock that obeys.

The bytes of Spark's files are written here by hand, not by Sluice, so that a test compares two independent hands.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from sluice import Stream, sinks, sources
from sluice.checkpoint.log import list_log
from sluice.checkpoint.source_log import LogEntry, SourceLog, read_source_log
from sluice.sources.contract import OwnLog, Position
from sluice.sources.files.source import FilesSource
from sluice.storage import Storage

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOW_MS = 1_769_860_800_000
SCHEMA = "id bigint, at timestamp"
QUERY_ID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
CONF = {
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.join.stateFormatVersion": "2",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.shuffle.partitions": "2",
}


def anything(**frames: Any) -> None:
    """A transform for tests that plan and never run: it takes whatever sources there are."""


class ManualClock:
    """A clock that stands still until it is moved, also backwards."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def put(path: Path, content: str | bytes = "{}", *, mtime_ms: int | None = None) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if mtime_ms is not None:
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
    return path


def put_files(folder: Path, names: Iterable[str], *, first_ms: int = NOW_MS) -> list[Path]:
    """Write files whose modification times are one second apart, in order."""
    return [put(folder / name, mtime_ms=first_ms + 1000 * number) for number, name in enumerate(names)]


def make_stream(**changes: Any) -> Stream:
    """A stream of JSON files into a Delta table, with changes."""
    declared: dict[str, Any] = {
        "name": "visits",
        "sources": {"visits": sources.files("data/visits", format="json", schema=SCHEMA)},
        "transform": "jobs.visits:visits",
        "sink": sinks.delta("data/lake/visits"),
    }
    return Stream(**declared | changes)


def make_files_source(path: Path | str, **options: Any) -> FilesSource:
    """A source of JSON files."""
    return sources.files(str(path), **{"format": "json", "schema": SCHEMA} | options)


def offsets_bytes(*lines: str, watermark_ms: int = 0, timestamp_ms: int = NOW_MS, version: str = "v1") -> bytes:
    """An `offsets/N` as Spark writes it."""
    metadata = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": timestamp_ms, "conf": CONF}
    return "\n".join([version, json.dumps(metadata, separators=(",", ":")), *lines]).encode()


def commit_bytes(next_watermark_ms: int = 0) -> bytes:
    """A `commits/N` as Spark writes it."""
    return f'v1\n{{"nextBatchWatermarkMs":{next_watermark_ms}}}'.encode()


def entry_line(entry: LogEntry) -> str:
    """One line of a file source's log as Spark writes it."""
    return f'{{"path":"{entry.path}","timestamp":{entry.timestamp_ms},"batchId":{entry.batch_id}}}'


def log_bytes(entries: Iterable[LogEntry]) -> bytes:
    """One file of a file source's log as Spark writes it."""
    return "\n".join(["v1", *map(entry_line, entries)]).encode()


def manifest_line(path: str, size_bytes: int, mtime_ms: int, *, action: str = "add", is_dir: bool = False) -> str:
    """A line of a file sink's manifest."""
    status = {
        "path": path,
        "size": size_bytes,
        "isDir": is_dir,
        "modificationTime": mtime_ms,
        "blockReplication": 1,
        "blockSize": 33_554_432,
        "action": action,
    }
    return json.dumps(status, separators=(",", ":"))


def make_entry(path: Path | str, log_id: int, *, timestamp_ms: int = NOW_MS) -> LogEntry:
    """An entry of a file source's log for a local file with a plain name."""
    return LogEntry(f"file://{path}", timestamp_ms, log_id)


def make_source_log(folder: Path, entries: Iterable[LogEntry]) -> Path:
    """A file source's log, compacted at every tenth id as Spark does; Spark's clean-up has yet to come."""
    taken = sorted(entries, key=lambda entry: entry.batch_id)
    for log_id in range(taken[-1].batch_id + 1 if taken else 0):
        if (log_id + 1) % 10 == 0:
            put(folder / f"{log_id}.compact", log_bytes(entry for entry in taken if entry.batch_id <= log_id))
        else:
            put(folder / str(log_id), log_bytes(entry for entry in taken if entry.batch_id == log_id))
    return folder


def make_checkpoint(root: Path, *, planned: int = 3, committed: int | None = None, watermark_ms: int = 0) -> Path:
    """A checkpoint of a file source that took one file a batch, as Spark leaves it on a local disk.

    Args:
        root: The checkpoint's folder; the input files are in `landing` beside it.
        planned: How many batches are planned.
        committed: How many of them are committed; all by default.
        watermark_ms: The watermark of every batch.
    """
    landing = root.parent / "landing"
    put(root / "metadata", f'{{"id":"{QUERY_ID}"}}')
    entries = []
    for batch_id in range(planned):
        file = put(landing / f"part-{batch_id}.json", mtime_ms=NOW_MS + 1000 * batch_id)
        entries.append(make_entry(file, batch_id, timestamp_ms=NOW_MS + 1000 * batch_id))
        put(root / "offsets" / str(batch_id), offsets_bytes(f'{{"logOffset":{batch_id}}}', watermark_ms=watermark_ms))
        put(root / "offsets" / f".{batch_id}.crc", b"crc\0")
        if committed is None or batch_id < committed:
            put(root / "commits" / str(batch_id), commit_bytes(watermark_ms))
            put(root / "commits" / f".{batch_id}.crc", b"crc\0")
    make_source_log(root / "sources" / "0", entries)
    return root


def file_position(checkpoint: Path, *, log_offset: int | None = None, **changes: Any) -> Position:
    """How far a checkpoint has read its file source."""
    folder = list_log(str(checkpoint / "sources" / "0"), storage=Storage())
    log = SourceLog() if folder is None else read_source_log(folder, storage=Storage())
    end = log.latest_id if log_offset is None else log_offset
    return Position(f'{{"logOffset":{end}}}' if end >= 0 else None, OwnLog(log, **changes))


def make_delta(path: Path, *versions: Iterable[int], app_id: str | None = None) -> Path:
    """A Delta table written by delta-rs: one version of ids each, one file per id.

    Args:
        path: The table's folder, new or with a table.
        versions: The ids that each version appends.
        app_id: The application whose transactions the versions carry, numbered from 0.
    """
    for number, ids in enumerate(versions):
        transactions = [Transaction(app_id, number)] if app_id else None
        write_deltalake(
            path,
            pa.table({"id": (rows := list(ids)), "part": rows}, pa.schema({"id": pa.int64(), "part": pa.int64()})),
            mode="append",
            partition_by=["part"] if not (path / "_delta_log").exists() else None,
            commit_properties=CommitProperties(app_transactions=transactions),
        )
    return path


def clean_log(table: Path, first: int | None = None) -> Path:
    """Do as Delta does where a log is older than it is kept: a checkpoint, and nothing of the log before it.

    Args:
        table: The table's folder.
        first: The version of the checkpoint; the newest one by default, and nothing is done where it is below 0.
    """
    newest = DeltaTable(table).version()
    first = newest if first is None else first
    if first < 0:
        return table
    DeltaTable(table, version=first).create_checkpoint()
    for checkpoint in (table / "_delta_log").glob("[0-9]*.checkpoint.*"):
        if int(checkpoint.name.partition(".")[0]) < first:
            checkpoint.unlink()
    return expire_commits(table, keep=newest - first + 1)


def expire_commits(table: Path, *, keep: int = 1) -> Path:
    """Delete the commits of a Delta table, but for the newest ones, whichever checkpoints are there."""
    log = table / "_delta_log"
    for commit in sorted(log.glob("*.json"))[:-keep]:
        if commit.stem.isdigit():
            commit.unlink()
            for checksum in (commit.with_suffix(".crc"), log / f".{commit.name}.crc", log / f".{commit.stem}.crc.crc"):
                checksum.unlink(missing_ok=True)
    return table


def commit_file(table: Path, version: int) -> Path:
    """The commit file of one version of a Delta table."""
    return table / "_delta_log" / f"{version:020d}.json"


def edit_commit(table: Path, version: int, changes: Mapping[str, Any], *, action: str = "commitInfo") -> None:
    """Change fields of every action of one kind in a commit file."""
    actions = [json.loads(line) for line in commit_file(table, version).read_text().splitlines()]
    for found in actions:
        if action in found:
            found[action] |= changes
    commit_file(table, version).write_text("\n".join(map(json.dumps, actions)))


def set_commit_times(table: Path, *times_ms: int) -> None:
    """Give the versions of a Delta table, from 0 on, commit times."""
    for version, time_ms in enumerate(times_ms):
        edit_commit(table, version, {"timestamp": time_ms})
