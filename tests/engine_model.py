"""A model of Spark's micro-batch engine on a real checkpoint folder: what the next start does, silent losses included.

It follows what was observed on Spark 4.2 and shares no code with the library: it reads the two logs, runs the newest
batch that is not committed exactly as logged, or plans one by itself, and writes the commit with its watermark. File
and Delta sources and one stateful operator are modelled as far as a planner can tell them apart.
"""

from __future__ import annotations

import json
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

import pyarrow.parquet as pq

Row = dict[str, Any]
Step = Callable[[str], None]
"""Is told the name of every point at which a crash leaves something behind."""

COMPACT_INTERVAL = 10
GLOB_CHARACTERS = frozenset("*?[]{}\\")
PINNED_CONF = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "HDFSBackedStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion": "2",
    "spark.sql.streaming.stateStore.rocksdb.formatVersion": "5",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
    "spark.sql.streaming.aggregation.stateFormatVersion": "2",
    "spark.sql.function.protobufExtensions.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.join.stateFormatVersion": "2",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan": "false",
}


class EngineError(Exception):
    """Spark fails the query."""

    def getCondition(self) -> None:  # noqa: N802 - Spark's errors have it
        """None: an error of Java's own."""

    def getMessageParameters(self) -> dict[str, str]:  # noqa: N802 - Spark's errors have it
        """It has no parameters."""
        return {}


@dataclass(frozen=True)
class Log:
    """One of Spark's numbered logs."""

    folder: Path

    def latest(self) -> int | None:
        names = [entry.name for entry in self.folder.iterdir()] if self.folder.is_dir() else []
        ids = [name.removesuffix(".compact") for name in names if not name.startswith(".")]
        return max((int(name) for name in ids if name.isdigit()), default=None)

    def read(self, name: int | str) -> list[str]:
        """The lines after the version; damage fails the query as it does Spark."""
        file = self.folder / str(name)
        if not file.is_file():
            raise EngineError(f"batch {name} doesn't exist: {file}")
        header, *lines = file.read_text("utf-8", errors="replace").split("\n")
        if not header:
            raise EngineError(f"Incomplete log file: {file}")
        if header not in {"v1", "v2"}:
            raise EngineError(f"MALFORMED_LOG_FILE or INVALID_LOG_VERSION: {file}")
        return [line for line in lines if line]

    def add(self, name: int | str, lines: Sequence[str]) -> None:
        file, sidecar = self.folder / str(name), self.folder / f".{name}.crc"
        if file.exists():
            raise EngineError(f"CONCURRENT_STREAM_LOG_UPDATE: multiple streaming jobs detected for {name}")
        if sidecar.exists():
            raise EngineError(f"Multiple streaming queries are concurrently using {self.folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(["v1", *lines]), "utf-8")
        sidecar.write_bytes(b"crc\0")


class ModelSource(Protocol):
    """One source of a running query."""

    def open(self) -> None:
        """What happens when the query starts: fails where Spark does."""

    def plan(self, start: str | None, *, is_limited: bool) -> str | None:
        """Spark's own planning: the end of the next batch, which is `start` when nothing is new."""

    def rows(self, start: str | None, end: str) -> Iterator[Row]:
        """The rows of a batch."""


@dataclass
class FileSource:
    """Spark's file source, without `maxFileAge`."""

    landing: Path
    log: Log
    max_files: int | None = None
    step: Step = lambda _: None

    def open(self) -> None:
        self._entries()

    def plan(self, start: str | None, *, is_limited: bool) -> str | None:
        latest = self.log.latest()
        log_id = -1 if latest is None else latest
        entries = self._entries()
        seen = {entry["path"] for entry in entries}
        files = sorted((path.stat().st_mtime_ns // 1_000_000, java_uri(path)) for path in self._listed())
        new = [(mtime, uri) for mtime, uri in files if uri not in seen]
        if is_limited and self.max_files is not None:
            new = new[: self.max_files]
        if new:
            log_id += 1
            added = [{"path": uri, "timestamp": mtime, "batchId": log_id} for mtime, uri in new]
            is_compact = _is_compaction(log_id)
            self.step("before the source log")
            lines = [json.dumps(entry, ensure_ascii=False) for entry in (entries if is_compact else []) + added]
            self.log.add(f"{log_id}.compact" if is_compact else log_id, lines)
        return f'{{"logOffset":{log_id}}}' if log_id >= 0 else None

    def rows(self, start: str | None, end: str) -> Iterator[Row]:
        first = -1 if start is None else json.loads(start)["logOffset"]
        taken = [
            entry for log_id in range(first + 1, json.loads(end)["logOffset"] + 1) for entry in self._taken(log_id)
        ]
        files = [java_path(entry["path"]) for entry in taken]
        globs = [file for file in files if GLOB_CHARACTERS & set(file.name)]
        for file in files:
            # A name with a glob character makes Spark read the other files of its batch twice.
            for _ in range(2 if globs and len(files) > 1 and file not in globs else 1):
                yield from _json_rows(file)

    def _listed(self) -> list[Path]:
        if not self.landing.is_dir():
            raise EngineError(f"PATH_NOT_FOUND: {self.landing}")
        return [path for path in self.landing.iterdir() if not path.name.startswith((".", "_"))]

    def _entries(self) -> list[dict[str, Any]]:
        """Everything that was taken: the newest compacted file and every file after it, all of which must be there."""
        latest = self.log.latest()
        if latest is None:
            return []
        first = max((latest + 1) // COMPACT_INTERVAL * COMPACT_INTERVAL - 1, 0)
        return [entry for log_id in range(first, latest + 1) for entry in self._read(_name(log_id))]

    def _taken(self, log_id: int) -> list[dict[str, Any]]:
        is_there = (self.log.folder / _name(log_id)).exists()
        found = self._read(_name(log_id)) if is_there else self._entries()
        of_batch = [entry for entry in found if entry["batchId"] == log_id]
        if not is_there and not of_batch:
            raise EngineError(f"batch {log_id} doesn't exist: {self.log.folder}")
        return of_batch

    def _read(self, name: str) -> list[dict[str, Any]]:
        return [_decoded(line) for line in self.log.read(name)]


@dataclass
class DeltaSource:
    """Delta's source on a table that is only appended to, with delta-rs' own log files."""

    table: Path
    starting_version: int | None = None

    def open(self) -> None:
        self._versions()

    def plan(self, start: str | None, *, is_limited: bool) -> str | None:
        latest = max(self._versions())
        end = {"reservoirVersion": latest + 1, "index": -1, "isStartingVersion": False}
        return _compact_json({"sourceVersion": 1, "reservoirId": self._table_id()} | end)

    def rows(self, start: str | None, end: str) -> Iterator[Row]:
        last = json.loads(end)
        if last["reservoirId"] != self._table_id():
            raise EngineError("DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE")
        at = json.loads(start) if start is not None else None
        for version, index, path in self._files(at, last):
            limit = (last["reservoirVersion"], last["index"])
            is_before = at is not None and (version, index) <= (at["reservoirVersion"], at["index"])
            if not is_before and (version, index) <= limit:
                yield from pq.ParquetFile(self.table / path).read().to_pylist()

    def _files(self, at: dict[str, Any] | None, last: dict[str, Any]) -> Iterator[tuple[int, int, str]]:
        """Every file that could be in the batch, with its version and its place in it."""
        versions = self._versions()
        first = self.starting_version
        if at is not None:
            first = at["reservoirVersion"]
        if first is None or (at is not None and at["isStartingVersion"]):
            snapshot = first
            if snapshot is None:
                snapshot = last["reservoirVersion"] - (0 if last["isStartingVersion"] else 1)
            first = snapshot + 1
            adds = [add for version in sorted(versions) if version <= snapshot for add in versions[version]]
            ordered = sorted(adds, key=lambda add: (add["modificationTime"], add["path"]))
            yield from ((snapshot, index, unquote(add["path"])) for index, add in enumerate(ordered))
        for version in range(first, last["reservoirVersion"] + 1):
            if version not in versions and version < last["reservoirVersion"]:
                raise EngineError("DELTA_STREAMING_TRAILING_COMMIT_MISSING")
            for index, add in enumerate(versions.get(version, [])):
                yield version, index, unquote(add["path"])

    def _versions(self) -> dict[int, list[dict[str, Any]]]:
        files = sorted((self.table / "_delta_log").glob("*.json"))
        return {int(file.stem): [action["add"] for action in _json_rows(file) if "add" in action] for file in files}

    def _table_id(self) -> str:
        actions = _json_rows(min((self.table / "_delta_log").glob("*.json")))
        return next(str(action["metaData"]["id"]) for action in actions if "metaData" in action)


class ModelSink(Protocol):
    """Where batches go."""

    def add_batch(self, query_id: str, batch_id: int, rows: list[Row]) -> None:
        """Take one batch; an idempotent sink passes over one that it holds."""

    def passes_over(self, query_id: str, batch_id: int) -> bool:
        """Whether it holds the batch, and does not even read it again."""


@dataclass(frozen=True)
class HeldRows:
    """One stateful operator in append mode: a row waits until the watermark has passed its `at`, then goes out.

    Rows that come when the watermark has passed them are late, and are dropped. Every source line of the query has a
    watermark of its own, and the whole is the smallest of them: as far as the rows of one start tell.
    """

    delay_ms: int


@dataclass
class Engine:
    """One query on one checkpoint; every call is one start of it."""

    checkpoint: Path
    sources: Sequence[ModelSource]
    """One per source line of an offset file; a source that the query uses twice stands here twice."""
    sink: ModelSink
    operator: HeldRows | None = None
    step: Step = lambda _: None
    now_ms: int = 0
    ran: list[int] = field(default_factory=list)
    """Every batch that reached the sink, in order."""
    newest: dict[int, int] = field(default_factory=dict)
    """The newest `at` that the newest start has seen, by source line."""

    def once(self) -> list[Row]:
        """Trigger Once: the planned batch as logged, or one batch of everything that is new; gives its reports."""
        start = self._start()
        if start.end is None and not self._plan(start, is_limited=False, was_data=False):
            return []
        return [self._run(start)]

    def available_now(self) -> list[Row]:
        """Trigger AvailableNow: the planned batch, then batches within the limits, then what is due by time."""
        start, reports, was_data = self._start(), [], False
        while start.end is not None or self._plan(start, is_limited=True, was_data=was_data):
            before = start.watermark_ms
            reports.append(self._run(start))
            was_data = self.operator is not None and start.watermark_ms > before
        return reports

    def _start(self) -> _Start:
        self.newest = {}
        offsets, commits = Log(self.checkpoint / "offsets"), Log(self.checkpoint / "commits")
        planned, committed = offsets.latest(), commits.latest()
        previous: Sequence[str | None] = ()
        query_id = self._query_id(is_new=planned is None and committed is None)
        run = _Start(query_id, str(uuid.uuid4()), offsets, commits)
        if planned is None:
            if committed is not None:
                raise EngineError("assertion failed")
            run.ends = [None] * len(self.sources)
        else:
            metadata, lines = _offset_lines(offsets, planned)
            previous = _offset_lines(offsets, planned - 1)[1] if planned > 0 else [None] * len(lines)
            if len(lines) != len(self.sources):
                raise EngineError(f"There are [{len(lines)}] sources in the checkpoint offsets")
            run.batch_id, run.ends, run.end, run.watermark_ms = planned, previous, lines, metadata["batchWatermarkMs"]
            next_watermark_ms = _watermark(commits, committed)
            if committed == planned:
                run.batch_id, run.ends, run.end = planned + 1, lines, None
                run.watermark_ms = max(run.watermark_ms, next_watermark_ms)
        for source in self.sources:
            source.open()
        if planned is not None and run.end is None:
            # Spark asks every source for the last committed batch again before it plans the next.
            self._rows(previous, run.ends)
        return run

    def _query_id(self, *, is_new: bool) -> str:
        file = self.checkpoint / "metadata"
        if not file.exists():
            if not is_new:
                raise EngineError("STREAMING_CHECKPOINT_MISSING_METADATA_FILE")
            self.checkpoint.mkdir(parents=True, exist_ok=True)
            file.write_text(_compact_json({"id": str(uuid.uuid4())}))
        return str(_decoded(file.read_text(errors="replace"))["id"])

    def _plan(self, run: _Start, *, is_limited: bool, was_data: bool) -> bool:
        planned: dict[int, str | None] = {}
        for source, at in zip(self.sources, run.ends, strict=True):
            if id(source) not in planned:
                planned[id(source)] = source.plan(at, is_limited=is_limited)
        ends = [planned[id(source)] for source in self.sources]
        if ends == run.ends and not was_data:
            return False
        metadata = {"batchWatermarkMs": run.watermark_ms, "batchTimestampMs": self.now_ms, "conf": PINNED_CONF}
        self.step("before the offsets")
        run.offsets.add(run.batch_id, [_compact_json(metadata), *("-" if end is None else end for end in ends)])
        run.end = ends
        return True

    def _run(self, run: _Start) -> Row:
        if run.end is None:
            raise AssertionError("nothing is planned")
        is_passed_over = self.sink.passes_over(run.query_id, run.batch_id)
        by_line = [] if is_passed_over else self._rows(run.ends, run.end)
        rows = [row for found in by_line for row in found]
        for line, found in enumerate(by_line):
            self.newest[line] = max([self.newest.get(line, 0), *(row.get("at", 0) for row in found)])
        emitted, next_watermark_ms = rows, run.watermark_ms
        if self.operator is not None and not is_passed_over:
            emitted, next_watermark_ms = self._hold(run, rows, self.operator)
        self.step("before the sink")
        self.sink.add_batch(run.query_id, run.batch_id, emitted)
        self.ran.append(run.batch_id)
        self.step("before the commit")
        run.commits.add(run.batch_id, [_compact_json({"nextBatchWatermarkMs": next_watermark_ms})])
        self.step("after the commit")
        # A source that the query uses twice is the same object twice, and is reported once.
        first = {id(source): end for source, end in reversed(list(zip(self.sources, run.end, strict=True)))}
        once = dict.fromkeys(id(source) for source in self.sources)
        ends = [None if first[key] is None else json.loads(first[key]) for key in once]
        report = {
            "runId": run.run_id,
            "batchId": run.batch_id,
            "numInputRows": len(rows),
            "durationMs": {"addBatch": 1},
            "sources": [{"endOffset": end} for end in ends],
            "sink": {"numOutputRows": len(emitted)},
        }
        run.batch_id, run.ends, run.end, run.watermark_ms = run.batch_id + 1, run.end, None, next_watermark_ms
        return report

    def _rows(self, starts: Sequence[str | None], ends: Sequence[str | None]) -> list[list[Row]]:
        """The rows of a batch, by source line."""
        ranges = zip(self.sources, starts, ends, strict=True)
        return [list(source.rows(start, end)) if end not in {None, start} else [] for source, start, end in ranges]

    def _hold(self, run: _Start, rows: list[Row], operator: HeldRows) -> tuple[list[Row], int]:
        folder = self.checkpoint / "state" / "0" / "0"
        loaded = folder / f"{run.batch_id}.delta"
        if run.batch_id > 0 and not loaded.exists():
            raise EngineError(f"CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS: {loaded}")
        held = json.loads(loaded.read_text()) if run.batch_id > 0 else []
        held += [row for row in rows if row["at"] >= run.watermark_ms]
        folder.mkdir(parents=True, exist_ok=True)
        write_operator_metadata(self.checkpoint / "state" / "0", "heldRows")
        waiting = [row for row in held if row["at"] >= run.watermark_ms]
        (folder / f"{run.batch_id + 1}.delta").write_text(json.dumps(waiting))
        reached = min(self.newest.get(line, 0) - operator.delay_ms for line in range(len(self.sources)))
        return [row for row in held if row["at"] < run.watermark_ms], max(run.watermark_ms, reached)


@dataclass
class _Start:
    query_id: str
    run_id: str
    offsets: Log
    commits: Log
    batch_id: int = 0
    ends: list[str | None] = field(default_factory=list)
    """Where the batch begins: the ends of the one before."""
    end: list[str | None] | None = None
    """Where the planned batch ends; None when none is planned."""
    watermark_ms: int = 0


def write_operator_metadata(folder: Path, name: str) -> None:
    """Describe a stateful operator of one partition, as Spark does."""
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 1}
    info = {"operatorInfo": {"operatorId": int(folder.name), "operatorName": name}, "stateStoreInfo": [store]}
    (folder / "_metadata").mkdir(parents=True, exist_ok=True)
    (folder / "_metadata" / "metadata").write_text("v1\n" + _compact_json(info))


def java_uri(path: Path) -> str:
    """A path as Java's `Path.toUri` spells it."""
    return "file://" + "".join(map(_java_character, str(path)))


def java_path(uri: str) -> Path:
    """The path of a URI as Java's `new Path(new URI(uri))` reads it."""
    if not uri.startswith("file:///") or any(character.isspace() for character in uri):
        raise EngineError(f"Illegal character in path: {uri}")
    return Path(unquote(uri.removeprefix("file://")))


def _java_character(character: str) -> str:
    is_other = not character.isascii() and unicodedata.category(character) not in {"Zs", "Zl", "Zp", "Cc"}
    return character if is_other else quote(character, safe="/:@!$&'()*+,;=~")


def _is_compaction(log_id: int) -> bool:
    return (log_id + 1) % COMPACT_INTERVAL == 0


def _name(log_id: int) -> str:
    return f"{log_id}.compact" if _is_compaction(log_id) else str(log_id)


def _offset_lines(offsets: Log, batch_id: int) -> tuple[Row, list[str | None]]:
    lines = offsets.read(batch_id)
    if len(lines) < 2:
        raise EngineError("next on empty iterator")
    for line in lines:
        if line != "-":
            _decoded(line)
    return _decoded(lines[0]), [None if line == "-" else line for line in lines[1:]]


def _watermark(commits: Log, committed: int | None) -> int:
    lines = commits.read(committed) if committed is not None else []
    return int(_decoded(lines[0])["nextBatchWatermarkMs"]) if lines else 0


def _json_rows(file: Path) -> list[Row]:
    """The rows of a file of JSON lines; a file that is gone reads as empty, without a word."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line] if file.exists() else []


def _decoded(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as exc:
        raise EngineError(f"Unexpected end-of-input, or an unexpected character: {exc}") from exc


def _compact_json(document: Row) -> str:
    return json.dumps(document, separators=(",", ":"))
