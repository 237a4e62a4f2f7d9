"""A stream that is open in a bench: its runs, and what they leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.errors import DeclarationError
from sluice.home import StreamHome
from sluice.lineage.settings import SILENT, using
from sluice.monitoring.progress import read_progress
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecord
from sluice.runs.stop import StopEvent
from sluice.several_sinks import SeveralSinks
from sluice.sinks.bench import ReadBackSink
from sluice.sinks.contract import Sink
from sluice.sources.contract import Bound
from sluice.spark.active_session import active
from sluice.spark.left_behind import forget_state, forget_tables
from sluice.spark.query import build_query
from sluice.storage import Storage
from sluice.stream import Stream
from sluice.testing.clock import BenchClock
from sluice.testing.crash import Kill, KilledError, Moment
from sluice.testing.outputs import read_rows
from sluice.testing.project import BenchProject
from sluice.testing.session import bench_session
from sluice.testing.stops import StopAfter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OpenedStream:
    """A stream that reads and writes in a bench alone.

    Args:
        stream: The stream, in its places there.
        project: The bench's project.
        clock: The bench's clock.
    """

    def __init__(self, stream: Stream, project: BenchProject, clock: BenchClock) -> None:
        self.stream, self.project, self.clock = stream, project, clock
        self.home = StreamHome(f"{project.home}/{stream.name}", Storage())

    @cached_property
    def session(self) -> SparkSession:
        """The session that its runs take."""
        return bench_session(self.project, self.stream)

    @property
    def checkpoint(self) -> CheckpointState:
        """What its checkpoint says."""
        location = self.home.checkpoint_location(self.home.current_generation())
        return read_checkpoint(location, storage=self.home.storage)

    @property
    def watermark(self) -> datetime | None:
        """The watermark that its committed batches leave; None for none."""
        found = read_progress(self.home).watermark_ms
        return None if found is None else _EPOCH + timedelta(milliseconds=found)

    def run(self, until: datetime | None = None, stop_after: int | None = None) -> RunRecord:
        """Run it, as `sluice run` does.

        Args:
            until: What arrived before it counts.
            stop_after: After how many batches the run is asked to stop.

        Raises:
            SluiceError: The run failed, or was refused.
        """
        with self._stamping():
            return self._run(until, stop_after)

    def crash(self, at: Moment, batch: int, until: datetime | None) -> RunRecord | None:
        """Run it, and kill it at a moment; gives the record of a run that had no such moment.

        Raises:
            SluiceError: The run failed before it.
        """
        generation, checkpoint = self.home.current_generation(), self.checkpoint
        kill = Kill(
            moment=at,
            nth=batch,
            root=Path(self.project.home).parent,
            checkpoint=self.home.checkpoint_location(generation),
            sink=self.written_last,
            holds=lambda batch_id: self._sink_holds(generation, batch_id),
            pending=checkpoint.planned_id if checkpoint.is_pending else None,
        )
        with self._stamping():
            self.project.watch.kill = kill
            try:
                kill.begin()
                return self._run(until)
            except KilledError:
                return None
            finally:
                self.project.watch.kill = None
                kill.leave()
                if kill.is_dead:
                    forget_state(self.session)
                    forget_tables(self.session)

    def rows(self, sink: Sink) -> tuple[StructType | None, list[dict[str, Any]]]:
        """The columns and the rows of its sink, or of its quarantine; see `read_rows`."""
        only_newest = self.stream.output_mode == "complete"
        return read_rows(sink, self.session, lambda: self._result(sink), only_newest=only_newest)

    @property
    def written_last(self) -> Sink:
        """Its sink; of several, the one that has a batch once all have it."""
        sink = self.stream.sink
        return sink.main if isinstance(sink, SeveralSinks) else sink

    def sink(self, name: str | None) -> Sink:
        """Its sink, or the one of several that has a name.

        Raises:
            DeclarationError: It has no such sink, or several and none is named.
        """
        sink = self.stream.sink
        parts = sink.parts if isinstance(sink, SeveralSinks) else {}
        if (name is None) != bool(parts) and (name is None or name in parts):
            return sink if name is None else parts[name]
        raise DeclarationError(
            f"it has no sink `{name}`" if name is not None else "it has several sinks",
            where=self.stream.place,
            remedy=f"name one: sink={' or '.join(map(repr, parts))}" if parts else "leave `sink` out",
        )

    @property
    def quarantine(self) -> Sink:
        """Where rows go that its suite takes out.

        Raises:
            DeclarationError: It has no suite, or its sink can't be split.
        """
        if self.stream.quality is None:
            raise DeclarationError("it has no suite", where=self.stream.place, remedy="declare `quality`")
        return cast("Sink", self.stream.split_tables[1])

    def close(self) -> None:
        """Let go of what it has left in the memory of this process."""
        if isinstance(self.stream.sink, ReadBackSink):
            self.stream.sink.bring_back(None)
        if "session" in self.__dict__:
            forget_tables(self.session)

    def _run(self, until: datetime | None, stop_after: int | None = None) -> RunRecord:
        stop = StopEvent()
        with active(self.session), using(SILENT):
            return run_stream(
                self.project,
                Request(self.stream, Limits(Bound(until))),
                session=self.session,
                observer=StopAfter(stop, stop_after),
                stop=stop,
                clock=self.clock,
            )

    @contextmanager
    def _stamping(self) -> Iterator[None]:
        """Give the commits of a run the time of the bench, and let the next run be later."""
        sink, quarantine = self.stream.sink, self.stream.quarantine_table
        written = sink.parts.values() if isinstance(sink, SeveralSinks) else (sink, quarantine)
        tables = [table for table in written if isinstance(table, ReadBackSink)]
        before = [(table, table.newest_commit()) for table in tables]
        try:
            yield
        finally:
            for table, newest in before:
                table.stamp_commits(self.clock(), after=newest)
            self.clock.tick()

    def _result(self, sink: Sink) -> StructType:
        """The columns that a sink gets, or its quarantine."""
        with active(self.session):
            outputs = build_query(self.project, self.stream, self.session, {}).outputs
        return next((frame for _, stream, frame in outputs if stream.sink == sink), outputs[0][2]).schema

    def _sink_holds(self, generation: int, batch_id: int) -> bool:
        known = self.home.generation(generation)
        return known is not None and self.stream.sink.state(known.query_id, storage=Storage()).holds(batch_id)
