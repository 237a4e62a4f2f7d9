"""What these tests share: a project in a temporary folder, runs of it, and what plain Spark does with the same."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from sluice import Stream
from sluice.plan import Plan
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request, plan_stream
from sluice.project import Project
from sluice.running.preparation import Clock
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecord
from sluice.runs.stop import StopEvent
from sluice.sources.contract import Bound
from sluice.testing.stops import StopAfter
from sluice.times import system_clock

FIRST_MTIME = 1_700_000_000
"""Modification time of the first file that `write_files` makes, in seconds since the epoch; each next is 1 s later."""
NO_LIMITS = Limits()


@dataclass(frozen=True)
class Held:
    """The rows of a table as a DataFrame gives them; Spark is asked for all but the rows, which cost it a job."""

    spark: SparkSession
    rows: pa.Table

    def collect(self) -> list[Row]:
        rows: list[Row] = ArrowTableToRowsConversion.convert(self.rows, self._schema)
        return rows

    def count(self) -> int:
        return int(self.rows.num_rows)

    @property
    def columns(self) -> list[str]:
        return list(self.rows.column_names)

    def select(self, *columns: Any) -> Held | DataFrame:
        if all(isinstance(column, str) and column in self.columns for column in columns):
            return Held(self.spark, self.rows.select(columns))
        return self._frame.select(*columns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)

    @property
    def _schema(self) -> StructType:
        return from_arrow_schema(self.rows.schema)

    @property
    def _frame(self) -> DataFrame:
        # Spark takes no column that has no piece.
        pieces = [pa.chunked_array(column.chunks or [pa.array([], column.type)]) for column in self.rows.columns]
        frame: DataFrame = self.spark.createDataFrame(pa.table(pieces, schema=self.rows.schema))
        return frame


@dataclass(frozen=True)
class Lab:
    """A project in a temporary folder, with a Spark that is warm."""

    spark: SparkSession
    root: Path
    import_roots: tuple[str, ...] = ()
    """Where transforms are imported from, beside what the tests import anyway."""

    @property
    def project(self) -> Project:
        return Project(
            root=str(self.root),
            name="lab",
            home=str(self.root / "home"),
            stream_folders=(),
            import_roots=self.import_roots,
            spark_master="local[2]",
        )

    def plan(self, stream: Stream, limits: Limits = NO_LIMITS, *, clock: Clock = system_clock) -> Plan:
        return plan_stream(self.project, Request(self.project.resolve(stream), limits), clock=clock)

    def run(
        self,
        stream: Stream,
        limits: Limits = NO_LIMITS,
        *,
        run_key: str | None = None,
        stop_after: int | None = None,
        clock: Clock = system_clock,
    ) -> RunRecord:
        """Run a stream; `stop_after` a number of batches, as a stop request from outside does."""
        stop = StopEvent()
        request = Request(self.project.resolve(stream), limits, run_key)
        observer = StopAfter(stop, stop_after)
        return run_stream(self.project, request, session=self.spark, observer=observer, stop=stop, clock=clock)

    def checkpoint(self, stream: Stream) -> Path:
        return self.root / "home" / stream.name / "generations" / "0001"

    def table(self, path: str) -> Held:
        """A Delta table of the project, as delta-rs reads it: Spark, which wrote it, would need a second or two."""
        return Held(self.spark, DeltaTable(str(self.root / path)).to_pyarrow_table())

    def spark_table(self, path: str) -> DataFrame:
        """The same as Spark reads it, where that is what a test is about."""
        return self.spark.read.format("delta").load(str(self.root / path))

    def records(self, stream: Stream) -> list[dict[str, Any]]:
        """Every run record on disk, oldest first."""
        files = sorted((self.root / "home" / stream.name / "runs").glob("*.json"))
        return [json.loads(file.read_bytes()) for file in files]


def bounded(until: Any = None, *, to_version: int | None = None, **limits: Any) -> Limits:
    return Limits(Bound(until, to_version), **limits)


def write_files(folder: Path, contents: Mapping[str, str], *, first: int = 0) -> list[Path]:
    """Write files whose modification times are one second apart, in order."""
    paths = []
    for number, (name, content) in enumerate(contents.items(), first):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
        touch(path, number)
        paths.append(path)
    return paths


def touch(path: Path, seconds: float) -> None:
    """Give a file the time `FIRST_MTIME + seconds`."""
    os.utime(path, (FIRST_MTIME + seconds, FIRST_MTIME + seconds))


def write_numbers(folder: Path, count: int, *, first: int = 0, rows: int = 1) -> None:
    """Write `count` JSON files of `rows` rows each: `{"id": N}`, N counting from `first * rows`."""
    contents = {}
    for number in range(first, first + count):
        lines = [json.dumps({"id": number * rows + row}) for row in range(rows)]
        contents[f"{number:04d}.json"] = "\n".join(lines)
    write_files(folder, contents, first=first)


def reader(spark: SparkSession, schema: str = "id bigint", **options: Any) -> DataStreamReader:
    """Spark's own reader of files, which forgets no late file."""
    return spark.readStream.schema(schema).option("maxFileAge", "36500d").options(**options)


def available_now(
    frame: DataFrame, checkpoint: Path, path: Path | None = None, *, sink: str = "noop", mode: str = "append"
) -> list[dict[str, Any]]:
    """Let Spark plan and run everything by itself; gives its progress reports, one per batch."""
    writer = frame.writeStream.format(sink).outputMode(mode).option("checkpointLocation", str(checkpoint))
    if path is not None:
        writer = writer.option("path", str(path))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    reports = [json.loads(report.json) for report in query.recentProgress]
    return [report for report in reports if "addBatch" in report["durationMs"]]


def log_of(checkpoint: Path, source: int = 0) -> dict[int, list[str]]:
    """The files that a file source took, by log id and in the log's order, from the log in the checkpoint."""
    taken: dict[int, dict[str, None]] = {}
    for file in log_files(checkpoint / "sources" / str(source)):
        for line in file.read_text("utf-8").split("\n")[1:]:
            entry = json.loads(line)
            taken.setdefault(entry["batchId"], {})[entry["path"]] = None
    return {log_id: list(paths) for log_id, paths in sorted(taken.items())}


def log_bytes(folder: Path) -> dict[str, bytes]:
    """Every file of one of Spark's logs. The clock of a batch, and that alone, may differ."""
    return {
        file.name: re.sub(rb'"batchTimestampMs":\d+', b'"batchTimestampMs":0', file.read_bytes())
        for file in log_files(folder)
    }


def log_files(folder: Path) -> list[Path]:
    """The files of one of Spark's logs, by id; without sidecars."""
    files = [file for file in folder.iterdir() if not file.name.startswith(".")] if folder.is_dir() else []
    return sorted(files, key=lambda file: int(file.name.split(".")[0]))


def offset_lines(checkpoint: Path) -> dict[int, list[Any]]:
    """The source lines of every `offsets/N`, decoded; None for `-`."""
    found = {}
    for file in log_files(checkpoint / "offsets"):
        lines = file.read_text("utf-8").split("\n")[2:]
        found[int(file.name)] = [None if line == "-" else json.loads(line) for line in lines]
    return found


def watermarks(checkpoint: Path) -> dict[int, int]:
    """The watermark that each `commits/N` leaves for the next batch, in milliseconds."""
    return {
        int(file.name): json.loads(file.read_text("utf-8").split("\n")[1])["nextBatchWatermarkMs"]
        for file in log_files(checkpoint / "commits")
    }


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content, to compare before and after."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def uncommit(checkpoint: Path, batch_id: int) -> None:
    """Leave a batch as a crash just before its commit does."""
    (checkpoint / "commits" / str(batch_id)).unlink()
    (checkpoint / "commits" / f".{batch_id}.crc").unlink()


def append_rows(spark: SparkSession, table: Path, numbers: Iterable[int], *, files: int = 1) -> None:
    """Let Spark append one version of `files` files to a Delta table."""
    frame = spark.createDataFrame([(number, number % files) for number in numbers], "id bigint, part bigint")
    frame.repartitionByRange(files, "part").select("id").write.format("delta").mode("append").save(str(table))


def append_outside(table: Path, numbers: Iterable[int]) -> None:
    """Let delta-rs append one version of one file to a Delta table."""
    write_deltalake(str(table), pa.table({"id": pa.array(list(numbers), pa.int64())}), mode="append")


def ids(frame: DataFrame | Held) -> list[int]:
    """The `id` column, sorted."""
    return sorted(row["id"] for row in frame.select("id").collect())


def rows(frame: DataFrame | Held) -> list[tuple[Any, ...]]:
    """Every row as a tuple, sorted."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def names(uris: Iterable[str]) -> list[str]:
    return [uri.rpartition("/")[2] for uri in uris]


class Reports(StreamingQueryListener):
    """Spark's progress reports of every batch that ran while it was open, oldest first."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._changed, self._running = spark, threading.Condition(), 0
        self.batches: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._spark.streams.addListener(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: not self._running, timeout=30)
        self._spark.streams.removeListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        with self._changed:
            self._running += 1

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        report = json.loads(event.progress.json)
        if "addBatch" in report["durationMs"]:
            self.batches.append(report)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()


def dropped_rows(report: Mapping[str, Any]) -> int:
    """How many rows a batch dropped because they came after the watermark."""
    return sum(operator["numRowsDroppedByWatermark"] for operator in report["stateOperators"])
