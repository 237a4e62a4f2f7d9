"""The query of a stream: its transform called on its sources, and what Spark's analysed plan tells about it."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluice.errors import BatchFailedError, DeclarationError, QueryRefusedError
from sluice.home import SourceLine
from sluice.interval import KINDS
from sluice.locations import spark_location
from sluice.planning.declared_sql import DeclaredSql
from sluice.planning.transform_text import check_parameters
from sluice.project import Project
from sluice.several_sinks import SeveralSinks
from sluice.sinks.contract import BatchSink
from sluice.sinks.row_contract import RowSink
from sluice.sources.contract import FolderTypedSource, Slice
from sluice.spark.classic_plan import ClassicPlans, newest_batch
from sluice.spark.code_shipping import carrying_code, ship_code
from sluice.spark.connect_plan import ConnectPlans
from sluice.spark.connect_session import is_connected
from sluice.spark.divided_query import divided_results
from sluice.spark.function_packing import pack_functions, pack_readers
from sluice.spark.merge_keys import check_merge_keys
from sluice.spark.named_tables import check_tables
from sluice.spark.partition_times import check_times, has_hours_twice
from sluice.spark.plan_reader import PlanReader, WatermarkNode
from sluice.spark.plan_tree import parse_plan
from sluice.spark.python_zone import TIME_ZONE
from sluice.spark.query_words import note_query
from sluice.spark.shown_error import spark_message
from sluice.spark.shown_plan import without_literals
from sluice.spark.timers import has_timers, next_timer_ms
from sluice.spark.transform import SqlTransform, load_transform
from sluice.spark.transform_call import call_transform, check_stream
from sluice.spark_setting import spark_setting
from sluice.sql_text import string_literal
from sluice.storage import Storage
from sluice.stream import Stream
from sluice.trigger import StartTrigger, trigger_words

_MOST_EXPLAIN = 50_000
"""How many characters of Spark's plan are kept: a record is written anew with every batch."""

_ANOTHER_BATCH = "sluice: another batch than the planned one"
RAN_ANOTHER_BATCH = f"[USER_RAISED_EXCEPTION] {_ANOTHER_BATCH}"
"""What Spark says where a query runs one that it may not; its plan, which errors quote as well, has half of it."""

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHECKS_STATE = "spark.sql.streaming.stateStore.stateSchemaCheck"
"""Whether Spark looks at each start whether the query fits its state. Columns may be null in a batch with rows and not
in one without: in a run, whose batches are a start each, it would refuse the state that it has just written."""


@dataclass(frozen=True)
class Query:
    """A stream's query, analysed and not started."""

    project: Project
    stream: Stream
    frame: DataFrame
    lines: tuple[SourceLine, ...]
    """One per source line of an offset file, in Spark's order."""
    has_timers: bool
    """Whether an operator has time-outs or timers in processing time."""
    watermarks: tuple[WatermarkNode, ...] = ()
    """Every `withWatermark`, in the order of Spark's plan."""
    folders: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source, the types of its columns that are names of folders."""
    write: Callable[[DataFrame, int], None] | None = None
    """Writes a batch, in the place of the sink's own stream writer."""
    passes_rows: bool = False
    """Whether Spark passes each row on as it comes: no function of ours sees a batch."""
    only_at_ms: int | None = None
    """The clock of the one batch that it may run, in milliseconds since the epoch; None for whichever Spark plans."""
    fits_state: bool = False
    """Whether it is known to go on with the state of its checkpoint: Spark need not look whether it does."""
    sql: DeclaredSql | None = None
    """What it was made of, as it was read then; None for a function."""
    frames: Mapping[str, DataFrame] = field(default_factory=dict, repr=False)
    """By source, what was read of it."""
    results: Mapping[str, DataFrame] = field(default_factory=dict, repr=False)
    """By each of several sinks, its result; the query itself gives the rows of the source, as they are read."""
    transform: Callable[..., Any] | None = field(default=None, repr=False)
    """What was called, and is called with each batch of such a query; a file that is edited meanwhile is not read."""

    @property
    def place(self) -> str:
        """Where the transform is, for messages."""
        return self.stream.place if self.transform is None else _place(self.transform, self.stream)

    def start(self, checkpoint: str, *, trigger: StartTrigger) -> StreamingQuery:
        """Start it."""
        if self.write is not None:
            writer = self.frame.writeStream.foreachBatch(self.write)
        elif self.passes_rows and isinstance(self.stream.sink, RowSink):
            writer = self.stream.sink.row_writer(self.frame)
        else:
            sink = self.stream.sink
            fitted = sink.fitted(self._only_planned(), self.stream.output_mode, storage=self.project.storage())
            writer = sink.writer(fitted, load_function=self._load_sink_function)
        writer = writer.outputMode(self.stream.output_mode).option("checkpointLocation", spark_location(checkpoint))
        given: Any = trigger_words(trigger)
        writer = writer.trigger(**given)
        with spark_setting(self.frame.sparkSession, _CHECKS_STATE, "false") if self.fits_state else nullcontext():
            return writer.start()

    def _only_planned(self) -> DataFrame:
        """Its result, of which no row comes out in another batch than the planned one.

        Where that is committed by then, Spark plans another one, of whatever is there; its clock tells them apart. What
        comes out of state in a later batch alone, such a batch still takes in.
        """
        if self.only_at_ms is None:
            return self.frame
        is_planned = f"current_timestamp() = timestamp_millis({self.only_at_ms})"
        return self.frame.where(f"assert_true({is_planned}, {string_literal(_ANOTHER_BATCH)}) IS NULL")

    def function_of_batches(self) -> Callable[[DataFrame, int], None] | None:
        """The function that writes its batches, if one does."""
        if self.passes_rows:
            return None
        if self.write is not None or not isinstance(self.stream.sink, BatchSink):
            return self.write
        return self.stream.sink.batch_function(self.project.load_function)

    @property
    def outputs(self) -> Sequence[tuple[str, Stream, DataFrame]]:
        """What it writes: the name of each of several sinks, or none; the stream with that sink alone; its result."""
        streams = self.stream.outputs
        several = [(name, streams[name], frame) for name, frame in self.results.items()]
        return several or [("", self.stream, self.frame)]

    @property
    def knows_files(self) -> bool:
        """Whether Spark tells which files a batch reads: one in this process does, a server does not."""
        return not is_connected(self.frame.sparkSession)

    def files_of_batch(self, started: StreamingQuery) -> frozenset[str]:
        """The files that the newest batch of a query reads, once Spark has begun it: those that it has found.

        Args:
            started: The query, running or ended, of a Spark in this process.
        """
        newest = self.newest_batch(started)
        return frozenset() if newest is None else newest[1]

    def newest_batch(self, started: StreamingQuery) -> tuple[int, frozenset[str]] | None:
        """The newest batch of a query, and the files that it reads; None before Spark has begun one.

        Args:
            started: The query, running or ended, of a Spark in this process.
        """
        return newest_batch(self.frame.sparkSession, started)

    def start_replay(self, checkpoint: str) -> StreamingQuery:
        """Start it without a sink: it runs the planned batch, and nothing is kept but what is measured."""
        writer = self.frame.writeStream.format("noop").outputMode(self.stream.output_mode)
        return writer.option("checkpointLocation", spark_location(checkpoint)).trigger(once=True).start()

    def event_times(
        self, started: StreamingQuery, reports: Mapping[int, Mapping[str, Any]], batch_ids: Iterable[int]
    ) -> dict[str, int] | None:
        """The newest event time of each input in the batches of a start; see `PlanReader.event_times`."""
        known = {batch_id: reports.get(batch_id, {}) for batch_id in batch_ids}
        return plan_reader(self.frame.sparkSession).event_times(started, self.watermarks, known)

    def times_of_batch(self, query_id: str, batch_id: int) -> dict[str, int] | None:
        """The newest event time of each input in a batch that is under way; see `PlanReader.times_of_batch`."""
        streams = self.frame.sparkSession.streams.active if self.knows_files else ()
        started = next((found for found in streams if found.id == query_id), None)
        if started is None:
            return None
        reader = plan_reader(self.frame.sparkSession)
        return reader.times_of_batch(self.frame, started, self.watermarks, batch_id)

    def next_timer_ms(self, checkpoint: str, storage: Storage) -> int | None:
        """When its next time-out or timer is due; see `timers.next_timer_ms`."""
        return next_timer_ms(self.frame.sparkSession, checkpoint, storage=storage)

    def explain(self) -> str | None:
        """See `explain_frame`; with several sinks, the plan of each one's result."""
        if not self.results:
            return explain_frame(self.frame)
        texts = {name: explain_frame(result) for name, result in self.results.items()}
        return "\n".join(f"sink `{name}`:\n{text}" for name, text in texts.items() if text is not None) or None

    def _load_sink_function(self, reference: str) -> Any:
        function = self.project.load_function(reference)
        if is_connected(self.frame.sparkSession):
            return carrying_code(self.project, self.stream, function)
        return function


def explain_frame(frame: DataFrame) -> str | None:
    """Spark's text of a plan, without literals, and cut where it is too long; None when Spark does not tell.

    Never raises.
    """
    try:
        text = without_literals(plan_reader(frame.sparkSession).explain(frame))
    except Exception:  # it is only for people to read: no run fails for it
        logger.warning("Spark does not explain its plan", exc_info=True)
        return None
    return (
        text if len(text) <= _MOST_EXPLAIN else f"{text[:_MOST_EXPLAIN]}\n(cut here: it has {len(text):,} characters)"
    )


def build_query(
    project: Project, stream: Stream, session: SparkSession, started_at: Mapping[str, Mapping[str, Any]]
) -> Query:
    """Call the transform on the sources, and let Spark analyse and check the result.

    Args:
        project: Where the transform is imported from.
        stream: The declaration.
        session: Spark.
        started_at: By source, what `starting` was resolved to.

    Raises:
        DeclarationError: The transform does not import, has other parameters than the sources' names, fails, or
            returns no streaming DataFrame; or a source can't be read with what is declared.
        QueryRefusedError: Spark does not run such a query as a stream.
    """
    ship_code(project, stream, session)
    check_tables(stream, session)
    transform = load_transform(project, stream)
    place = _place(transform, stream)
    _check_parameters(transform, stream, place)
    plans = plan_reader(session)
    pack_readers(project, stream, session)
    frames = {name: _read_stream(stream, name, session, started_at.get(name, {}), plans) for name in stream.sources}
    pack_functions(project, transform, session)
    functions = [transform, *([] if stream.sink.function is None else [project.load_function(stream.sink.function)])]
    for function in functions[1:]:
        stream.sink.check_function(function)
    note_query(project, functions, plans, frames)
    is_divided = isinstance(stream.sink, SeveralSinks)
    results = divided_results(stream, transform, frames, plans, place) if is_divided else {}
    frame = next(iter(frames.values())) if is_divided else call_transform(transform, frames, place)
    note_query(project, functions, plans, {**frames, **(results or {"": frame})})
    if len(plans.watermarks(frame)) > 1:
        with plans.observing():
            frame = call_transform(transform, frames, place)
        _check_watermarks(plans.watermarks(frame), place)
    check_stream(plans, frame, stream, place, "this query", remedy="change the transform or the output mode")
    analysed = plans.analysed_text(frame)
    _check_recursion(analysed, place)
    for name, output in stream.outputs.items():
        _check_partition_columns(project, output, results[name])
    _check_partition_columns(project, stream, frame)
    check_merge_keys(stream, frame, plans)
    _check_interval_column(stream, frame)
    for function in functions[1:]:
        pack_functions(project, function, session)
    lines = plans.source_lines(frame)
    if not lines:
        raise DeclarationError(
            "the transform uses none of its sources as a stream", where=place, remedy="build the result from them"
        )
    folders = {
        name: source.folder_types(frames[name])
        for name, source in stream.sources.items()
        if name in frames and isinstance(source, FolderTypedSource)
    }
    sql = transform.sql if isinstance(transform, SqlTransform) else None
    timers = has_timers(parse_plan(analysed))
    watermarks = plans.watermarks(frame)
    return Query(
        project,
        stream,
        frame,
        lines,
        timers,
        watermarks,
        folders,
        sql=sql,
        frames=frames,
        results=results,
        transform=transform,
    )


def build_batch(project: Project, stream: Stream, session: SparkSession, taken: Mapping[str, Slice]) -> DataFrame:
    """Call the transform on slices of the sources, read as batch DataFrames.

    Raises:
        DeclarationError: The transform does not import, has other parameters than the sources' names, or fails; or a
            source can't be read.
        QueryRefusedError: Spark does not run such a query as a batch.
    """
    ship_code(project, stream, session)
    check_tables(stream, session)
    transform = load_transform(project, stream)
    place = _place(transform, stream)
    _check_parameters(transform, stream, place)
    plans = plan_reader(session)
    pack_functions(project, transform, session)
    frames = {name: read_slice(stream, name, session, taken[name]) for name in stream.sources}
    note_query(project, [transform], plans, frames)
    frame = call_transform(transform, frames, place)
    note_query(project, [transform], plans, {**frames, "": frame})
    _check_interval_column(stream, frame)
    try:
        plans.check_batch(frame)
    except Exception as exc:
        raise QueryRefusedError(
            f"Spark does not run this query as a batch: {spark_message(exc)}", where=place, remedy="run it as a stream"
        ) from exc
    return frame


def read_slice(stream: Stream, name: str, session: SparkSession, taken: Slice) -> DataFrame:
    """A slice of a source as a batch DataFrame.

    Raises:
        DeclarationError: It can't be read.
    """
    return _read(stream, name, lambda: stream.sources[name].read_batch(session, name=name, taken=taken))


def run_through(frame: DataFrame) -> None:
    """Compute a batch whose rows are where they belong already, or are kept by Spark, and are not written by this."""
    frame.write.format("noop").mode("overwrite").save()


def plan_reader(session: SparkSession) -> PlanReader:
    """What reads the plans of a session."""
    return ConnectPlans() if is_connected(session) else ClassicPlans()


def _read_stream(
    stream: Stream, name: str, session: SparkSession, started_at: Mapping[str, Any], plans: PlanReader
) -> DataFrame:
    source = stream.sources[name]
    return _read(stream, name, lambda: plans.mark(source.read_stream(session, name=name, started_at=started_at), name))


def _read(stream: Stream, name: str, read: Callable[[], DataFrame]) -> DataFrame:
    try:
        return read()
    except DeclarationError as exc:
        raise exc.at(f"{stream.place}, source `{name}`") from exc
    except Exception as exc:
        raise DeclarationError(
            f"source `{name}` can't be read: {spark_message(exc)}",
            where=f"{stream.place}, {stream.sources[name].location}",
            remedy="correct its declaration, or bring back what it reads",
        ) from exc


def _check_parameters(transform: Any, stream: Stream, place: str) -> None:
    if isinstance(transform, SqlTransform):
        return
    parameters = inspect.signature(transform).parameters
    needed = [name for name, found in parameters.items() if found.default is inspect.Parameter.empty]
    if not any(found.kind is inspect.Parameter.VAR_KEYWORD for found in parameters.values()):
        check_parameters(list(parameters), needed, stream, place)


def _check_watermarks(watermarks: Iterable[WatermarkNode], place: str) -> None:
    """A server tells how far each of several is only where `withWatermark` of Python has made it."""
    hidden = next((node.input for node in watermarks if node.key is None), None)
    if hidden is not None:
        raise DeclarationError(
            f"a server does not tell how far the watermark of `{hidden}` is, which is one of several in SQL: what waits"
            " for it would never come out",
            where=place,
            remedy="make it by `withWatermark` of a DataFrame; or run the stream without a server",
        )


def _check_recursion(analysed: str, place: str) -> None:
    """Spark's own check lets it pass, and the first batch then fails."""
    if any(node.kind == "UnionLoop" and node.is_streaming for node in parse_plan(analysed).walk()):
        raise QueryRefusedError(
            "Spark does not run this query as a stream: a recursive common table expression reads a source",
            where=place,
            remedy="let it read static tables alone, or write the steps out",
        )


def _check_partition_columns(project: Project, stream: Stream, frame: DataFrame) -> None:
    """Spark would find out in the first batch, once that is planned."""
    columns = frame.columns
    known = {name.lower() for name in columns}
    missing = next((name for name in stream.sink.partition_columns if name.lower() not in known), None)
    if missing is not None:
        near = difflib.get_close_matches(missing, columns, n=1)
        raise DeclarationError(
            f"`partition_by` names `{missing}`, which is no column of the result",
            where=stream.place,
            remedy=f"did you mean `{near[0]}`?" if near else f"the result has: {', '.join(columns)}",
        )
    zone = frame.sparkSession.conf.get(TIME_ZONE) or ""
    written = [stream.sink, stream.quarantine_table if stream.quality is not None else None]
    for table in filter(None, written) if has_hours_twice(zone) else ():
        partitions = table.partitions(dict(frame.dtypes), stream.output_mode, storage=project.storage())
        check_times(partitions, zone, place=stream.place)


def _check_interval_column(stream: Stream, frame: DataFrame) -> None:
    """The first backfill would find out, when the table has been written for long."""
    column, kinds = stream.interval_column, {found.name: found.dataType.simpleString() for found in frame.schema}
    if column is None or kinds.get(column) in KINDS:
        return
    dated = {name.lower(): name for name, kind in kinds.items() if kind in KINDS}
    near = [dated[folded] for folded in difflib.get_close_matches(column.lower(), dated, n=1)]
    what = f"of type {kinds[column]}" if column in kinds else "no column of the result"
    meant = f"did you mean `{near[0]}`?" if near else f"name a date or time column; the result has: {', '.join(kinds)}"
    raise DeclarationError(f"`interval_column` is `{column}`, which is {what}", where=stream.place, remedy=meant)


def _place(transform: Any, stream: Stream) -> str:
    if isinstance(transform, SqlTransform):
        return transform.sql.place
    code = getattr(transform, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else f"{stream.place}, {stream.transform_name}"


def spark_failed(exc: BaseException, *, where: str, consequence: str, condition: str = "") -> BatchFailedError:
    """The error to raise when Spark fails with an exception, at a place.

    Args:
        exc: The exception.
        where: The place.
        consequence: What that is for the batch.
        condition: How Spark calls it, where the exception is what a function raised.
    """
    named = f"[{condition}] " if condition else ""
    return BatchFailedError(
        f"Spark failed: {named}{spark_message(exc, is_of_rows=True)}",
        where=where,
        remedy=f"mend the cause (the driver's log has all of it); {consequence}",
    )
