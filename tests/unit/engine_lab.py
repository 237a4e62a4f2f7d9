"""A project whose Spark is the model of `engine_model`: the product's own runner, planner and writer on real files.

Two kinds of faults can be set to the n-th change that anybody makes on disk: a kill, after which nothing more is
written and the lease stays behind, or an error, after which the run goes on to close its record.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal
from unittest.mock import patch
from uuid import uuid4

from sluice import Stream, sources
from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.errors import StorageError
from sluice.generation_notes import KeptState
from sluice.home import SourceLine
from sluice.locations import join
from sluice.plan import Plan
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request, plan_stream
from sluice.project import Project
from sluice.running import analysed_query, begun_query, runner
from sluice.running.preparation import prepare_run
from sluice.runs.record import RunRecord
from sluice.sinks.contract import BatchOutcome, Sink, SinkState
from sluice.sources.contract import Bound, Source
from sluice.sources.delta.source import DeltaSource as DeltaDeclaration
from sluice.sources.files.source import FilesSource
from sluice.spark.plan_reader import WatermarkNode, numbered
from sluice.spark.query import Query
from sluice.storage import Storage
from tests.engine_model import (
    PINNED_CONF,
    DeltaSource,
    Engine,
    EngineError,
    FileSource,
    HeldRows,
    Log,
    ModelSource,
    Row,
)

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Second 0 of every test: files and bounds count from here; the clock of the runs begins an hour later."""
NAME = "numbers"
EVERYTHING = Limits()


_PLAN = SimpleNamespace(treeString=lambda: "the model", collectLeaves=lambda: SimpleNamespace(size=lambda: 0))
_INLINE = "org.apache.spark.sql.catalyst.optimizer.InlineCTE"
_NO_COLUMNS = SimpleNamespace(json=lambda: '{"type": "struct", "fields": []}')
_ANALYSED = SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: _PLAN))
"""What a batch is begun with is told from other transforms by its text."""


class KilledError(BaseException):
    """The process is gone."""


@dataclass
class Fault:
    """Something that happens at the n-th change on disk, and, when it is a kill, at every later one."""

    kind: Literal["kill", "error"] = "kill"
    countdown: int | None = None
    beside: Callable[[str], None] | None = None
    """What somebody else does just before every change, which it is told."""

    def kill(self) -> None:
        """From now on nothing is written any more."""
        self.kind, self.countdown = "kill", 0

    def step(self, name: str) -> None:
        if self.beside is not None:
            beside, self.beside = self.beside, None
            beside(name)
            self.beside = beside
        if self.countdown is None:
            return
        self.countdown -= 1
        if self.kind == "kill" and self.countdown < 0:
            raise KilledError(name)
        if self.kind == "error" and self.countdown == -1:
            raise EngineError(name)


class FaultyStorage(Storage):
    """The product's storage, every change of which is a point where a fault can be."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault

    def put_if_absent(self, location: str, content: bytes) -> bool:
        self._step(location, content)
        return super().put_if_absent(location, content)

    def replace(self, location: str, content: bytes) -> None:
        self._step(location, content)
        super().replace(location, content)

    def delete(self, location: str) -> None:
        self._step(location, b"")
        super().delete(location)

    def _step(self, location: str, content: bytes) -> None:
        try:
            self.fault.step(location)
        except EngineError as exc:
            raise StorageError("could not write it: no space left", where=location) from exc
        except KilledError:
            # What a write leaves that was cut off in the middle.
            folder, name = os.path.split(location)
            if os.path.isdir(folder):
                Path(folder, f".{name}.{uuid4().hex}.tmp").write_bytes(content[: len(content) // 2])
            raise


@dataclass(frozen=True)
class RowSink(Sink):
    """A sink of rows in files, one per batch; tells its identity and, when it is idempotent, what it holds."""

    kind: ClassVar[str] = "rows"

    path: str

    @property
    def location(self) -> str:
        return self.path

    def state(self, query_id: str | None, *, storage: Storage) -> SinkState:
        identity = Path(self.path, "identity")
        if not identity.exists():
            return SinkState(exists=False)
        held = [int(file.stem) for file in Path(self.path, str(query_id)).glob("*.json")]
        return SinkState(exists=True, identity=identity.read_text(), last_batch=max(held, default=None))

    def outcome(self, query_id: str, batch_id: int, *, storage: Storage) -> BatchOutcome | None:
        file = Path(self.path, query_id, f"{batch_id}.json")
        return BatchOutcome(len(json.loads(file.read_text()))) if file.exists() else None

    def writer(self, frame: Any, *, load_function: Any) -> Any:
        raise NotImplementedError

    def add_batch(self, query_id: str, batch_id: int, rows: list[Row]) -> None:
        """Hold a batch by query and batch id, as Delta does: an id that is not above the newest is passed over."""
        folder = Path(self.path, query_id)
        folder.mkdir(parents=True, exist_ok=True)
        if not Path(self.path, "identity").exists():
            Path(self.path, "identity").write_text(str(uuid4()))
        newest = max((int(file.stem) for file in folder.glob("*.json")), default=-1)
        # A batch without rows leaves no trace in a Delta table.
        if newest < batch_id and rows:
            (folder / f"{batch_id}.json").write_text(json.dumps(rows))

    def passes_over(self, query_id: str, batch_id: int) -> bool:
        return self.is_idempotent and self.state(query_id, storage=Storage()).holds(batch_id)

    def batches(self) -> dict[str, list[Row]]:
        """Everything that the sink holds, by batch."""
        files = sorted(Path(self.path).glob("*/*.json"))
        return {file.stem: json.loads(file.read_text()) for file in files}

    def ids(self) -> Counter[int]:
        """How often the sink holds each row."""
        return Counter(row["id"] for rows in self.batches().values() for row in rows)


class TransactionalSink(RowSink):
    """Passes over a batch that it holds."""

    is_idempotent: ClassVar[bool] = True


class AppendingSink(RowSink):
    """Takes every batch that it is given, and does not know what it holds."""

    def state(self, query_id: str | None, *, storage: Storage) -> SinkState:
        return SinkState(exists=True)

    def add_batch(self, query_id: str, batch_id: int, rows: list[Row]) -> None:
        folder = Path(self.path, query_id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{batch_id}-{uuid4().hex}.json").write_text(json.dumps(rows))


class Nowhere:
    """A sink that keeps nothing."""

    def add_batch(self, query_id: str, batch_id: int, rows: list[Row]) -> None:
        pass

    def passes_over(self, query_id: str, batch_id: int) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class ModelQuery(Query):
    """A query that the model of Spark runs."""

    engine: Callable[[str], Engine]
    timer_ms: int | None = None

    @property
    def knows_files(self) -> bool:
        return False

    def next_timer_ms(self, checkpoint: str, storage: Storage) -> int | None:
        return self.timer_ms

    def start_replay(self, checkpoint: str) -> Any:
        return self._started(replace(self.engine(checkpoint), sink=Nowhere()), once=True)

    def event_times(self, started: Any, reports: Any, batch_ids: Iterable[int]) -> dict[str, int]:
        return {self.watermarks[line].input: newest for line, newest in started.newest.items() if newest}

    def start(self, checkpoint: str, *, trigger: Any) -> Any:
        return self._started(self.engine(checkpoint), once=trigger == "once")

    def _started(self, engine: Engine, *, once: bool) -> Any:
        reports, error = [], None
        try:
            reports = engine.once() if once else engine.available_now()
        except EngineError as exc:
            error = exc

        told = [SimpleNamespace(json=partial(json.dumps, report)) for report in reports]
        execution = SimpleNamespace(queryExecutionThread=lambda: SimpleNamespace(isAlive=lambda: False))

        def await_termination(timeout: float | None = None) -> bool:
            if error is not None and timeout is None:
                raise error
            return True

        return SimpleNamespace(
            awaitTermination=await_termination,
            _jsq=SimpleNamespace(recentProgress=lambda: told, streamingQuery=lambda: execution),
            runId=reports[0]["runId"] if reports else str(uuid4()),
            exception=lambda: error,
            isActive=False,
            stop=lambda: None,
            newest=engine.newest,
        )


@dataclass(frozen=True)
class LabProject(Project):
    """A project with a storage of the test's own."""

    its_storage: Storage = field(default_factory=Storage)

    def storage(self) -> Storage:
        return self.its_storage


@dataclass
class Lab:
    """One stream in a folder of its own."""

    root: Path
    stream: Stream
    lines: tuple[str, ...] = ()
    """The sources in the order of the query's plan; the declaration's unless given."""
    operator: HeldRows | None = None
    has_timers: bool = False
    timer_ms: int | None = None
    """When the next one is due, by the state; None where none waits."""
    fault: Fault = field(default_factory=Fault)
    now: datetime = EPOCH + timedelta(hours=1)
    rows: int = 0
    """How many rows have arrived: their ids count from 0."""
    started_at: Mapping[str, Any] = field(default_factory=dict)
    """What the runner told the query of where its sources start."""
    dies_at: str | None = None
    """The point of the engine at which the process is killed."""
    fails_at: str | None = None
    """The point of the engine at which Spark fails."""

    def __post_init__(self) -> None:
        self.storage = FaultyStorage(self.fault)
        settings: Any = {"stream_folders": (), "import_roots": (str(self.root),), "its_storage": self.storage}
        self.project = LabProject(str(self.root), "lab", str(self.root / "home"), **settings)
        self.stream = self.project.resolve(self.stream)
        self.lines = self.lines or tuple(self.stream.sources)

    @property
    def checkpoint(self) -> Path:
        return Path(self.project.stream_home(self.stream).checkpoint_location(1))

    @property
    def sink(self) -> RowSink:
        assert isinstance(self.stream.sink, RowSink)
        return self.stream.sink

    def state(self) -> CheckpointState:
        return read_checkpoint(str(self.checkpoint), storage=Storage())

    def clock(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def arrive(
        self, seconds: float = 0, name: str | None = None, *, source: str | None = None, rows: int = 1, at_ms: int = 0
    ) -> int:
        """Let a file with `rows` new rows arrive, modified at `seconds`; gives the id of its first row."""
        folder = Path(self.stream.sources[source or next(iter(self.stream.sources))].location)
        first = self.rows
        self.rows += rows
        made = [{"id": number, "at": at_ms} for number in range(first, self.rows)]
        write_file(folder / (name or f"{first:05d}.json"), made, seconds)
        return first

    def request(self, limits: Limits = EVERYTHING, run_key: str | None = None) -> Request:
        return Request(self.stream, limits, run_key)

    def plan(self, limits: Limits = EVERYTHING) -> Plan:
        return plan_stream(self.project, self.request(limits), clock=self.clock)

    def prepare(self, limits: Limits = EVERYTHING, run_key: str | None = None) -> RunRecord:
        return prepare_run(self.project, self.request(limits, run_key), clock=self.clock)

    def run(self, limits: Limits = EVERYTHING, run_key: str | None = None, **others: Any) -> RunRecord:
        """Run the product's own runner; with a fault, its process is gone afterwards."""
        request = self.request(limits, run_key)
        with (
            patch.object(analysed_query, "build_query", self._build_query),
            # The model has no plan of Spark's that could be told from another.
            patch.object(runner, "fingerprints", lambda *_, **__: {}),
            patch.object(begun_query, "read_kept_state", lambda _: KeptState("the model", ())),
            patch.object(runner, "first_batch_checked", lambda *_: contextlib.nullcontext()),
        ):
            try:
                return runner.run_stream(self.project, request, session=self._session(), clock=self.clock, **others)
            finally:
                if self.fault.countdown is not None or self.dies_at is not None:
                    self.fault.countdown = self.dies_at = None
                    self._bury()

    def engine(self, checkpoint: str | None = None) -> Engine:
        """Spark itself on the stream's checkpoint."""
        folder = Path(checkpoint or self.checkpoint)
        by_name: dict[str, ModelSource] = {}
        for name in self.lines:
            if name not in by_name:
                by_name[name] = self._model_source(name, Log(folder / "sources" / str(len(by_name))))
        used = [by_name[name] for name in self.lines]
        now_ms = int(self.now.timestamp() * 1000)
        return Engine(folder, used, self.sink, self.operator, self._step, now_ms)

    def _model_source(self, name: str, log: Log) -> ModelSource:
        source = self.stream.sources[name]
        if isinstance(source, DeltaDeclaration):
            return DeltaSource(Path(source.path), self.started_at.get(name, {}).get("version"))
        assert isinstance(source, FilesSource)
        return FileSource(Path(source.path), log, source.max_files_per_batch, self._step)

    def records(self) -> list[dict[str, Any]]:
        """Every run record on disk, oldest first."""
        return [json.loads(file.read_bytes()) for file in sorted((self.home / "runs").glob("[0-9]*.json"))]

    @property
    def home(self) -> Path:
        return self.root / "home" / NAME

    def _build_query(self, project: Project, stream: Stream, session: Any, started_at: Mapping[str, Any]) -> Query:
        logs: dict[str, int] = {}
        lines = tuple(SourceLine(name, str(logs.setdefault(name, len(logs)))) for name in self.lines)
        frame: Any = SimpleNamespace(sparkSession=session, _jdf=_ANALYSED, schema=_NO_COLUMNS)
        self.started_at = started_at
        delay_ms = self.operator.delay_ms if self.operator is not None else 0
        nodes = [WatermarkNode(f"{line.source}.at", delay_ms, line.source) for line in lines if self.operator]
        return ModelQuery(
            project, stream, frame, lines, self.has_timers, numbered(nodes), engine=self.engine, timer_ms=self.timer_ms
        )

    def _session(self) -> Any:
        conf = {**PINNED_CONF, "spark.sql.streaming.minBatchesToRetain": "100"}
        return SimpleNamespace(
            conf=SimpleNamespace(get=conf.__getitem__, set=conf.__setitem__),
            streams=SimpleNamespace(addListener=lambda _: None, removeListener=lambda _: None),
            sparkContext=SimpleNamespace(defaultParallelism=2, _gateway=None),
            # The plan of a model has no common table expression.
            _jvm=SimpleNamespace(**{_INLINE: lambda *_: SimpleNamespace(apply=lambda plan: plan)}),
        )

    def _step(self, name: str) -> None:
        if name == self.dies_at:
            self.fault.kill()
        elif name == self.fails_at:
            raise EngineError(name)
        self.fault.step(name)

    def _bury(self) -> None:
        """Give the owner of every lease a start time that no process has: it is dead."""
        for file in (self.home / "leases").glob("*/[0-9]*.json"):
            lease = json.loads(file.read_bytes())
            lease["processes"] = [{"pid": process["pid"], "started": -1} for process in lease["processes"]]
            file.write_text(json.dumps(lease))


def make_lab(
    root: Path, *, names: Iterable[str] = ("landing",), sink: type[RowSink] = TransactionalSink, **its: Any
) -> Lab:
    """A stream of JSON files; `its` are what a `Lab` has, or options of the sources."""
    own = {key: its.pop(key) for key in list(its) if key in {"lines", "operator", "has_timers", "timer_ms"}}
    declared = {}
    for name in names:
        (root / name).mkdir(parents=True)
        declared[name] = sources.files(str(root / name), format="json", schema="id bigint", **its)
    return Lab(root, make_stream(root, declared, sink), **own)


def make_stream(root: Path, declared: Mapping[str, Source], sink: type[RowSink] = TransactionalSink) -> Stream:
    """A stream of these sources into the folder `sink`."""
    return Stream(name=NAME, sources=declared, transform="tests.builders:anything", sink=sink(str(root / "sink")))


def leave_pending(lab: Lab, *, seconds: float = 0, point: str = "before the sink", by_sluice: bool = False) -> None:
    """Let one more file arrive, and the driver be killed in its batch: planned, and not committed."""
    lab.arrive(seconds)
    lab.dies_at = point
    with contextlib.suppress(KilledError):
        if by_sluice:
            lab.run()
        else:
            lab.engine().once()
        raise AssertionError(point)
    lab.fault.countdown = lab.dies_at = None


def change_json(file: Path, changes: Row, *, line: int = 0) -> None:
    """Change some keys of the JSON object in one line of a file."""
    lines = file.read_text().split("\n")
    lines[line] = json.dumps(json.loads(lines[line]) | changes)
    file.write_text("\n".join(lines))


def write_v2_offsets(file: Path, offsets: Mapping[str, str]) -> None:
    """Rewrite an offset file in the second format, whose sources have names."""
    metadata = file.read_text().split("\n")[1]
    file.write_text("\n".join(["v2", metadata, *(f"{name}:{offset}" for name, offset in offsets.items())]))


def write_file(file: Path, rows: Iterable[Row], seconds: float) -> None:
    """Write a file of JSON lines, modified `seconds` after the epoch of the tests."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    moment = int(EPOCH.timestamp()) * 1_000_000_000 + round(seconds * 1_000_000_000)
    os.utime(file, ns=(moment, moment))


def until(seconds: float | None, **limits: Any) -> Limits:
    """Limits with a bound `seconds` after the epoch of the tests."""
    return Limits(Bound(None if seconds is None else EPOCH + timedelta(seconds=seconds)), **limits)


def location(path: Path, *parts: str) -> str:
    return join(str(path), *parts)
