"""The query of a stream: its transform called on its sources, and what Spark's analysed plan tells about it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError, QueryRefusedError
from sluice.home import SourceLine
from sluice.project import Project, error_line
from sluice.storage import spark_location
from sluice.stream import SOURCE_TAG, Slice, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Query:
    """A stream's query, analysed and not started."""

    project: Project
    stream: Stream
    frame: DataFrame
    lines: tuple[SourceLine, ...]
    """One per source line of an offset file, in Spark's order."""
    has_timers: bool
    """Whether an operator has processing-time timers."""

    def start(self, checkpoint: str, *, once: bool) -> StreamingQuery:
        """Start it: with Once, which runs the planned batch and stops, or with AvailableNow."""
        writer = self.stream.sink.writer(self.frame, load_function=self.project.load_function)
        writer = writer.outputMode(self.stream.output_mode).option("checkpointLocation", spark_location(checkpoint))
        # One by one: pyspark takes exactly one keyword here.
        writer = writer.trigger(once=True) if once else writer.trigger(availableNow=True)
        return writer.start()


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
    transform = project.load_function(stream.transform)
    place = _place(transform, stream)
    _check_parameters(transform, stream, place)
    frames = {name: _read(stream, name, session, started_at.get(name, {})) for name in stream.sources}
    frame = _call(transform, frames, place)
    _check_supported(frame, stream, session, place)
    if stream.sink.function is not None:
        project.load_function(stream.sink.function)
    lines = _source_lines(frame)
    if not lines:
        raise DeclarationError(
            "the transform uses none of its sources as a stream", where=place, remedy="build the result from them"
        )
    analysed = frame._jdf.queryExecution().analyzed().toString()
    return Query(project, stream, frame, lines, "ProcessingTime" in analysed)


def build_batch(project: Project, stream: Stream, session: SparkSession, taken: Mapping[str, Slice]) -> DataFrame:
    """Call the transform on slices of the sources, read as batch DataFrames.

    Raises:
        DeclarationError: The transform does not import, has other parameters than the sources' names, or fails.
        QueryRefusedError: Spark does not run such a query as a batch.
    """
    transform = project.load_function(stream.transform)
    place = _place(transform, stream)
    _check_parameters(transform, stream, place)
    sources = stream.sources.items()
    frames = {name: source.read_batch(session, name=name, taken=taken[name]) for name, source in sources}
    frame = _call(transform, frames, place)
    execution = frame._jdf.queryExecution()
    try:
        if session._jvm is not None:
            checker = session._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
            checker.checkForBatch(execution.analyzed())
        # Some operators are refused here only.
        execution.executedPlan()
    except Exception as exc:
        raise QueryRefusedError(
            f"Spark does not run this query as a batch: {spark_message(exc)}", where=place, remedy="run it as a stream"
        ) from exc
    return frame


def _read(stream: Stream, name: str, session: SparkSession, started_at: Mapping[str, Any]) -> DataFrame:
    try:
        return stream.sources[name].read_stream(session, name=name, started_at=started_at)
    except Exception as exc:
        raise DeclarationError(
            f"source `{name}` can't be read: {spark_message(exc)}",
            where=f"stream `{stream.name}`, {stream.sources[name].location}",
            remedy="correct its declaration, or bring back what it reads",
        ) from exc


def _check_parameters(transform: Any, stream: Stream, place: str) -> None:
    parameters = inspect.signature(transform).parameters
    needed = [name for name, found in parameters.items() if found.default is inspect.Parameter.empty]
    takes_any = any(found.kind is inspect.Parameter.VAR_KEYWORD for found in parameters.values())
    missing = [name for name in stream.sources if name not in parameters and not takes_any]
    unfilled = [name for name in needed if name not in stream.sources and not takes_any]
    if missing or unfilled:
        raise DeclarationError(
            f"the transform's parameters are ({', '.join(parameters)}), the sources ({', '.join(stream.sources)})",
            where=place,
            remedy="name the parameters as the sources",
        )


def _call(transform: Any, frames: dict[str, DataFrame], place: str) -> DataFrame:
    from pyspark.sql import DataFrame

    try:
        result = transform(**frames)
    except Exception as exc:
        raise DeclarationError(
            f"the transform fails: {spark_message(exc)}",
            where=error_line(exc, transform.__code__.co_filename) or place,
            remedy="correct the transform",
        ) from exc
    if not isinstance(result, DataFrame):
        raise DeclarationError(
            f"the transform returns {type(result).__name__}, not a DataFrame", where=place, remedy="return the result"
        )
    if not result.isStreaming and any(frame.isStreaming for frame in frames.values()):
        raise DeclarationError(
            "the transform returns a DataFrame that is no stream",
            where=place,
            remedy="build the result from the sources, without collecting or reading them again",
        )
    return result


def _check_supported(frame: DataFrame, stream: Stream, session: SparkSession, place: str) -> None:
    """Let Spark's own checker refuse what can't run as a stream, before anything is written anywhere."""
    jvm = session._jvm
    if jvm is None:  # pragma: no cover - a classic session always has one
        return
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[stream.output_mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except Exception as exc:
        raise QueryRefusedError(
            f"Spark does not run this query as a stream: {spark_message(exc)}",
            where=place,
            remedy="change the transform or the output mode",
        ) from exc


def _source_lines(frame: DataFrame) -> tuple[SourceLine, ...]:
    """Read the order of sources as Spark numbers them.

    Every streaming leaf of the analysed plan has a line, and every leaf that differs from those before it has a
    log: a union of a source with itself has two lines and one log.
    """
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    distinct: list[Any] = []
    lines: list[SourceLine] = []
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if not leaf.isStreaming():
            continue
        log = next((number for number, seen in enumerate(distinct) if seen.equals(leaf)), len(distinct))
        if log == len(distinct):
            distinct.append(leaf)
        lines.append(SourceLine(_tag(leaf), str(log)))
    return tuple(lines)


def _tag(leaf: Any) -> str:
    has_options = str(leaf.getClass().getSimpleName()) == "StreamingRelation"
    tag = leaf.dataSource().options().get(SOURCE_TAG) if has_options else None
    if tag is None or tag.isEmpty():
        raise DeclarationError(
            "the transform reads a stream of its own",
            where=str(leaf.toString()),
            remedy="declare it as a source, and take it as a parameter",
        )
    return str(tag.get())


def _place(transform: Any, stream: Stream) -> str:
    code = getattr(transform, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else f"stream `{stream.name}`, {stream.transform}"


def spark_message(exc: BaseException) -> str:
    """Spark's own words and those of the causes, without the JVM's stack."""
    said = _words(str(exc)) or type(exc).__name__
    cause = getattr(exc, "_origin", None)
    while cause is not None:
        words = _words(str(cause.getMessage() or cause.getClass().getName()))
        if words not in said:
            said += f"; caused by: {words}"
        cause = cause.getCause()
    return said[:2000]


def _words(text: str) -> str:
    for end in ("\n\tat ", "\nJVM stacktrace", "\n=== Streaming Query ===", "\nTraceback", "\n at [Source", ";\n"):
        text = text.partition(end)[0]
    return " ".join(text.split())
