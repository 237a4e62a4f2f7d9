"""Reads the plans of a Spark in this process, through its JVM."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from sluice.home import SourceLine
from sluice.locations import local_path
from sluice.sinks.contract import OutputMode
from sluice.sources.contract import SOURCE_TAG
from sluice.spark.plan_columns import PYTHON
from sluice.spark.plan_reader import WatermarkNode, numbered, stream_of_its_own
from sluice.spark.plan_tree import BY_CODE, digest_of, parse_plan
from sluice.trigger import LiveKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TRACKER = "org.apache.spark.sql.execution.streaming.runtime.WatermarkTracker"
_CHECKER = "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker"


class ClassicPlans:
    """The plan reader of a classic session."""

    def mark(self, frame: DataFrame, name: str) -> DataFrame:
        """The source's options are in the plan, and name it."""
        return frame

    def source_lines(self, frame: DataFrame) -> tuple[SourceLine, ...]:
        """A union of a source with itself has two lines and one log; a common table expression is read in one place."""
        leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
        distinct: list[Any] = []
        lines: list[SourceLine] = []
        for leaf in _each(leaves):
            if not leaf.isStreaming() or _class_name(leaf) == "CTERelationRef":
                continue
            log = next((number for number, seen in enumerate(distinct) if seen.equals(leaf)), len(distinct))
            if log == len(distinct):
                distinct.append(leaf)
            lines.append(SourceLine(_tag(leaf), str(log)))
        return tuple(lines)

    def watermarks(self, frame: DataFrame) -> tuple[WatermarkNode, ...]:
        """Spark names each by an id of its own, which all copies of it share."""
        node_class = java_class(frame.sparkSession, "org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark")
        found: dict[str, WatermarkNode] = {}
        for node, below in _watermark_nodes(_analysed(frame)):
            names = "+".join(dict.fromkeys(below))
            key = str(node.nodeId().toString())
            delay_ms = int(node_class.getDelayMs(node.delay()))
            feed = digest_of(parse_plan(str(node.child().toString())).walk())
            found.setdefault(key, WatermarkNode(f"{names}.{node.eventTime().name()}", delay_ms, key, feed))
        return numbered(found.values())

    def observing(self) -> AbstractContextManager[None]:
        """Spark's own measures can be read."""
        return nullcontext()

    def event_times(
        self, query: StreamingQuery, nodes: Sequence[WatermarkNode], reports: Mapping[int, Mapping[str, Any]]
    ) -> dict[str, int] | None:
        """What Spark computes its watermark from: its tracker has it, and nothing else."""
        started: Any = query
        return _event_times(started._jsq.streamingQuery().watermarkTracker(), nodes)

    def times_of_batch(
        self, frame: DataFrame, query: StreamingQuery, nodes: Sequence[WatermarkNode], batch_id: int
    ) -> dict[str, int] | None:
        """Spark's own tracker looks once the batch is written: another one sees before it what it will see."""
        started: Any = query
        execution = started._jsq.streamingQuery().lastExecution()
        if execution is None or int(execution.currentBatchId()) != batch_id:
            return None
        session = frame.sparkSession
        tracker = java_class(session, _TRACKER).apply(session._jsparkSession.conf(), execution.logical())
        tracker.updateWatermark(execution.executedPlan())
        return _event_times(tracker, nodes)

    def analysed_text(self, frame: DataFrame) -> str:
        # `toString` of a source alone is its name.
        return str(_analysed(frame).treeString())

    def analysed_json(self, frame: DataFrame) -> str | None:
        return str(_analysed(frame).toJSON())

    def optimised_text(self, frame: DataFrame) -> str:
        return str(_optimised(frame).treeString())

    def python_functions(self, frame: DataFrame) -> Iterator[tuple[str, bytes]]:
        for node in _below(_optimised(frame)):
            if _class_name(node) in PYTHON:
                for call in _below(*_each(node.udfs())):
                    if _class_name(call) == "PythonUDF":
                        yield _python_function(call)
            elif BY_CODE.fullmatch(_class_name(node)) is not None:
                yield _python_function(node.functionExpr())

    def settings(self, session: SparkSession) -> Mapping[str, str]:
        # One by one, they take as long as a batch.
        java = java_class(session, "com.fasterxml.jackson.databind.ObjectMapper")()
        return dict(json.loads(java.writeValueAsString(session._jsparkSession.conf().getAllAsJava())))

    def static_versions(self, frame: DataFrame) -> Mapping[str, int]:
        found = {}
        leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
        for leaf in _each(leaves):
            place = _files_index(leaf)
            if place is not None and _class_name(place) == "TahoeLogFileIndex":
                found[local_path(str(place.path().toString()))] = int(place.version())
        return found

    def literals(self, frame: DataFrame) -> Iterator[str]:
        yield from _literals(json.loads(str(frame._jdf.queryExecution().analyzed().toJSON())))

    def check_stream(self, frame: DataFrame, output_mode: OutputMode) -> None:
        analyzed = frame._jdf.queryExecution().analyzed()
        java_class(frame.sparkSession, _CHECKER).checkForStreaming(analyzed, java_mode(frame.sparkSession, output_mode))

    def check_live(self, frame: DataFrame, output_mode: OutputMode, kind: LiveKind) -> None:
        session, analyzed = frame.sparkSession, frame._jdf.queryExecution().analyzed()
        checker, mode = java_class(session, _CHECKER), java_mode(session, output_mode)
        if kind == "continuous":
            checker.checkForContinuous(analyzed, mode)
        elif kind == "real-time":
            checker.checkAdditionalRealTimeModeConstraints(analyzed, mode)

    def check_batch(self, frame: DataFrame) -> None:
        execution = frame._jdf.queryExecution()
        java_class(frame.sparkSession, _CHECKER).checkForBatch(execution.analyzed())
        # Some operators are refused here only.
        execution.executedPlan()

    def explain(self, frame: DataFrame) -> str:
        python = java_class(frame.sparkSession, "org.apache.spark.sql.api.python.PythonSQLUtils")
        # Of a query in SQL over a view, Spark sees that it is a stream only in what is built on its analysed plan.
        return str(python.explainString(frame.select("*")._jdf.queryExecution(), "formatted"))


def _event_times(tracker: Any, nodes: Sequence[WatermarkNode]) -> dict[str, int]:
    """The newest event time of each input that a tracker of Spark's has seen one of."""
    reached = {}
    entries = tracker.watermarkMap().iterator()
    while entries.hasNext():
        entry = entries.next()
        if entry._2().isDefined():
            reached[str(entry._1().toString())] = int(entry._2().get())
    return {node.input: reached[node.key] + node.delay_ms for node in nodes if node.key in reached}


def java_class(session: SparkSession, name: str) -> Any:
    """A class of Spark's JVM by its whole name. py4j looks for each part of a dotted one, in every jar."""
    return getattr(cast("Any", session)._jvm, name)


def java_mode(session: SparkSession, output_mode: OutputMode) -> Any:
    """Spark's own object of an output mode."""
    return getattr(java_class(session, "org.apache.spark.sql.streaming.OutputMode"), output_mode.capitalize())()


def newest_batch(session: SparkSession, started: StreamingQuery) -> tuple[int, frozenset[str]] | None:
    """The newest batch of a query and the files that it reads, as a file source's log spells them; None before it.

    These are the ones that Spark found when it began the batch. One that was gone by then is read as empty, without a
    word; one that vanishes later fails the batch.
    """
    execution = cast("Any", started)._jsq.streamingQuery().lastExecution()
    if execution is None:
        return None
    leaves = execution.analyzed().collectLeaves()
    files: list[str] = []
    for leaf in _each(leaves):
        location = _files_index(leaf)
        if location is not None and _class_name(location) == "InMemoryFileIndex":
            # All at once: each string would be a call into the JVM.
            sequences = java_class(session, "scala.collection.immutable.ArraySeq")
            paths = sequences.unsafeWrapArray(location.inputFiles())
            files += str(paths.mkString("\n")).split("\n")
    return int(execution.currentBatchId()), frozenset(files)


def _files_index(leaf: Any) -> Any:
    """What tells the files of a leaf of a plan; None where it reads none."""
    if _class_name(leaf) != "LogicalRelation":
        return None
    kind = leaf.relation().getClass()
    # Delta has one without a name of its own.
    names = {str(kind.getSimpleName()), str(kind.getSuperclass().getSimpleName())}
    return leaf.relation().location() if "HadoopFsRelation" in names else None


def _class_name(found: Any) -> str:
    return str(found.getClass().getSimpleName())


def _analysed(frame: DataFrame) -> Any:
    """The analysed plan, each common table expression in the place of its uses: Spark numbers them by itself."""
    inline = java_class(frame.sparkSession, "org.apache.spark.sql.catalyst.optimizer.InlineCTE")
    always, keeps_unused = True, False
    return inline(always, keeps_unused).apply(frame._jdf.queryExecution().analyzed())


def _python_function(call: Any) -> tuple[str, bytes]:
    return str(call.resultId().id()), bytes(call.func().command().unsafeArray())


def _optimised(frame: DataFrame) -> Any:
    optimiser = frame.sparkSession._jsparkSession.sessionState().optimizer()
    return optimiser.execute(frame._jdf.queryExecution().analyzed())


def _below(*nodes: Any) -> Iterator[Any]:
    """Nodes of a tree, with all below them."""
    for node in nodes:
        yield node
        yield from _below(*_each(node.children()))


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


def _watermark_nodes(node: Any) -> Generator[tuple[Any, list[str]], None, list[str]]:
    """Every `EventTimeWatermark` below a node, with the names of the sources below it.

    Returns:
        The names of the sources below the node.
    """
    children = node.children()
    if not children.size():
        return [_tag(node)] if node.isStreaming() else []
    below: list[str] = []
    for child in _each(children):
        below += yield from _watermark_nodes(child)
    if _class_name(node) == "EventTimeWatermark":
        yield node, below
    return below


def _literals(node: Any) -> Iterator[str]:
    """The texts among the literals below a node of a plan in JSON."""
    if isinstance(node, dict):
        if str(node.get("class")).endswith(".Literal") and isinstance(node.get("value"), str):
            yield node["value"]
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from _literals(part)


def _tag(leaf: Any) -> str:
    """The name in the options of a reader, by the first or by the second of Spark's interfaces for sources."""
    kind, tag = _class_name(leaf), None
    if kind == "StreamingRelation":
        found = leaf.dataSource().options().get(SOURCE_TAG)
        tag = None if found.isEmpty() else found.get()
    elif kind == "StreamingRelationV2":
        tag = leaf.extraOptions().get(SOURCE_TAG)
    if tag is None:
        raise stream_of_its_own(str(leaf.toString()))
    return str(tag)
