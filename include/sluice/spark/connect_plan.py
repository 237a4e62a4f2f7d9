"""Reads the plans of a Spark Connect server, from the text of its EXPLAIN: a client has no other way to see them.

The text does not show the options of a source. So every source gets an alias, which stands above its leaf in the
analysed plan, and changes nothing of what is computed or of what a checkpoint says.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from sluice.home import SourceLine
from sluice.sinks.contract import OutputMode
from sluice.spark.plan_reader import WatermarkNode, numbered, stream_of_its_own
from sluice.spark.plan_tree import Node, digest_of, parse_plan
from sluice.times import epoch_micros
from sluice.trigger import LiveKind
from sluice.watermarks import WATERMARK_METRICS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_ALIAS = "__sluice_source_"
_LOGICAL = re.compile(
    r"^== Analyzed Logical Plan ==\n.*?\n(?P<analysed>.*?)\n\n"
    r"== Optimized Logical Plan ==\n(?P<optimised>.*?)\n+== Physical Plan ==",
    re.DOTALL | re.MULTILINE,
)
_LEAVES = {"StreamingRelation", "StreamingRelationV2", "StreamingExecutionRelation", "StreamingDataSourceV2Relation"}
_REFUSED = re.compile(r"== Physical Plan ==\n(?:org\.apache\.spark\.)\S*Exception: (.*)")
_REFUSED_PLAN = re.compile(r"org\.apache\.spark\.\S*Exception")
_WATERMARK = re.compile(r" [0-9a-f-]{36}, (?P<column>.+)#\d+(?:-T\d+ms)?: .+, (?P<delay>[^,]+)", re.DOTALL)
_UNIT_MS = {
    "years": 372 * 86_400_000,
    "months": 31 * 86_400_000,
    "days": 86_400_000,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1000,
}
"""Of a delay, as Spark's plan spells it: a month has 31 days, and a year twelve of them."""
_SPARKS_OWN = "eventTime"
"""The key of an only watermark: Spark reports that of the first one in the plan that has events."""
_NO_START = "Async progress tracking cannot be used with Once trigger"
"""What Spark says to a query that it has checked and that is not to start; see `ConnectPlans.check_stream`."""


class RefusedByServer(Exception):  # noqa: N818 - Spark's own words, not an error of ours
    """What a server says of a query in the text of its plan."""


class ConnectPlans:
    """The plan reader of a Connect session."""

    def mark(self, frame: DataFrame, name: str) -> DataFrame:
        marked = frame.alias(f"{_ALIAS}{name}")
        # A server analyses nothing before it is asked to.
        _ = marked.schema
        return marked

    def source_lines(self, frame: DataFrame) -> tuple[SourceLine, ...]:
        """A union of a source with itself has two lines and two logs: the server analyses each use by itself."""
        leaves: list[str] = []
        lines: list[SourceLine] = []
        for name, leaf in _streaming_leaves(parse_plan(_analysed(frame))):
            if name is None:
                raise stream_of_its_own(leaf)
            if leaf not in leaves:
                leaves.append(leaf)
            lines.append(SourceLine(name, str(leaves.index(leaf))))
        return tuple(lines)

    def watermarks(self, frame: DataFrame) -> tuple[WatermarkNode, ...]:
        """A self-join has two of each: the server analyses each use by itself."""
        nodes = list(watermark_nodes(parse_plan(_analysed(frame))))
        return numbered(nodes if len(nodes) > 1 else [replace(node, key=_SPARKS_OWN) for node in nodes])

    @contextmanager
    def observing(self) -> Iterator[None]:
        """A server tells event times only where they are observed, so `withWatermark` does that, too."""
        from pyspark.sql import functions as sql
        from pyspark.sql.connect.dataframe import DataFrame
        from pyspark.sql.types import StructType

        original, numbers = DataFrame.withWatermark, count()

        def observed(frame: Any, eventTime: str, delayThreshold: str) -> Any:  # noqa: N803 - pyspark's own
            marked = original(frame, eventTime, delayThreshold)
            is_window = isinstance(marked.schema[eventTime].dataType, StructType)
            column = sql.col(eventTime)
            newest = sql.unix_millis(sql.max(column["end"] if is_window else column))
            return marked.observe(f"{WATERMARK_METRICS}{next(numbers)}", newest.alias("event_ms"))

        DataFrame.withWatermark = observed  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            DataFrame.withWatermark = original  # type: ignore[method-assign]

    def event_times(
        self, query: StreamingQuery, nodes: Sequence[WatermarkNode], reports: Mapping[int, Mapping[str, Any]]
    ) -> dict[str, int] | None:
        if not all(reports.values()):
            return None
        found: dict[str, int] = {}
        for node in nodes:
            times = [time for report in reports.values() if (time := _event_ms(report, node.key)) is not None]
            if times:
                found[node.input] = max(times)
        return found

    def times_of_batch(
        self, frame: DataFrame, query: StreamingQuery, nodes: Sequence[WatermarkNode], batch_id: int
    ) -> dict[str, int] | None:
        """A server tells once the batch is done."""
        return None

    def analysed_text(self, frame: DataFrame) -> str:
        return _analysed(frame)

    def analysed_json(self, frame: DataFrame) -> str | None:
        return None

    def optimised_text(self, frame: DataFrame) -> str:
        """A query in SQL over a view, a server takes for a batch, and does not optimise."""
        found = _logical(frame)
        return found["analysed" if _REFUSED_PLAN.match(found["optimised"]) else "optimised"]

    def python_functions(self, frame: DataFrame) -> Iterator[tuple[str, bytes]]:
        """Those that a query in SQL calls, the server knows, and does not tell."""
        plan: Any = frame
        for found in _messages(plan._plan.to_proto(frame.sparkSession.client)):
            if found.DESCRIPTOR.name == "CommonInlineUserDefinedFunction":
                yield found.function_name, found.python_udf.command

    def settings(self, session: SparkSession) -> Mapping[str, str]:
        return session.conf.getAll

    def static_versions(self, frame: DataFrame) -> Mapping[str, int]:
        """The text of a plan does not tell them."""
        return {}

    def literals(self, frame: DataFrame) -> Iterator[str]:
        plan: Any = frame
        for found in _messages(plan._plan.to_proto(frame.sparkSession.client)):
            if found.DESCRIPTOR.name == "Literal" and found.HasField("string"):
                yield found.string

    def check_stream(self, frame: DataFrame, output_mode: OutputMode) -> None:
        """Start it with an option that Spark refuses right after its checks, before it has read or written anything."""
        writer = frame.writeStream.format("noop").outputMode(output_mode)
        try:
            query = writer.option("asyncProgressTrackingEnabled", value=True).trigger(once=True).start()
        except Exception as exc:
            if _NO_START not in str(exc):
                raise
            return
        query.stop()
        raise RefusedByServer("the server starts what it has to refuse: it is no Spark that Sluice knows")

    def check_live(self, frame: DataFrame, output_mode: OutputMode, kind: LiveKind) -> None:
        """The server checks it as it starts the query."""

    def check_batch(self, frame: DataFrame) -> None:
        if (refused := _REFUSED.match(_explained(frame))) is not None:
            raise RefusedByServer(refused[1])

    def explain(self, frame: DataFrame) -> str:
        return _explained(frame, mode="formatted")


def _analysed(frame: DataFrame) -> str:
    """The tree of the analysed plan as text; the line of the schema before it is left out."""
    return _logical(frame)["analysed"]


def _logical(frame: DataFrame) -> re.Match[str]:
    found = _LOGICAL.search(_explained(frame, mode="extended"))
    if found is None:
        raise RefusedByServer("the server does not show its plan in full")
    return found


def _explained(frame: Any, *, mode: str = "simple") -> str:
    return str(frame._explain_string(mode=mode))


def _event_ms(report: Mapping[str, Any], key: str | None) -> int | None:
    if key == _SPARKS_OWN:
        newest = report.get("eventTime", {}).get("max")
        return None if newest is None else epoch_micros(datetime.fromisoformat(newest)) // 1000
    observed = report.get("observedMetrics", {}).get(key) or {}
    event_ms = observed.get("event_ms")
    return None if event_ms is None else int(event_ms)


def watermark_nodes(
    node: Node, source: str = "", metric: str | None = None
) -> Generator[WatermarkNode, None, list[str]]:
    """Every `EventTimeWatermark` of a plan, each with the metric that stands right above it.

    Returns:
        The names of the sources below the node.
    """
    if node.kind == "SubqueryAlias" and node.rest.startswith(f" {_ALIAS}"):
        source = node.rest.removeprefix(f" {_ALIAS}")
    if node.kind in _LEAVES:
        return [source]
    above = node.rest.strip().partition(",")[0] if node.kind == "CollectMetrics" else None
    below: list[str] = []
    for child in node.children:
        below += yield from watermark_nodes(child, source, above)
    if node.kind == "EventTimeWatermark":
        found = _WATERMARK.fullmatch(node.rest)
        if found is None:
            raise RefusedByServer(f"the server shows a watermark that Sluice can't read: {node.rest.strip()}")
        name = f"{'+'.join(dict.fromkeys(below))}.{found['column']}"
        is_ours = metric is not None and metric.startswith(WATERMARK_METRICS)
        feed = digest_of(islice(node.walk(), 1, None))
        yield WatermarkNode(name, delay_ms(found["delay"]), metric if is_ours else None, feed)
    return below


def delay_ms(text: str) -> int:
    """The delay of a watermark in milliseconds, from Spark's text of it: `1 hours 30 minutes`, `2.5 seconds`."""
    words = text.split()
    return sum(int(Decimal(amount) * _UNIT_MS[unit]) for amount, unit in zip(words[::2], words[1::2], strict=True))


def _messages(message: Any) -> Iterator[Any]:
    """What a client's plan is made of."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in value if isinstance(value, Sequence) or hasattr(value, "append") else [value]:
                yield from _messages(part)


def _streaming_leaves(node: Node, source: str | None = None) -> Iterator[tuple[str | None, str]]:
    """The streaming leaves of a plan in order, each with the name of the source that it belongs to."""
    if node.kind == "SubqueryAlias" and node.rest.startswith(f" {_ALIAS}"):
        source = node.rest.removeprefix(f" {_ALIAS}")
    elif node.kind in _LEAVES:
        yield source, f"{node.kind}{node.rest}"
    for child in node.children:
        yield from _streaming_leaves(child, source)
