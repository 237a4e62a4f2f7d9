"""Reads the plans of a Spark Connect server, from the text of its EXPLAIN: a client has no other way to see them.

The text does not show the options of a source. So every source gets an alias, which stands above its leaf in the
analysed plan, and changes nothing of what is computed or of what a checkpoint says.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sluice.home import SourceLine
from sluice.running.plan_reader import stream_of_its_own
from sluice.running.plan_tree import Node, parse_plan
from sluice.stream import OutputMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ALIAS = "__sluice_source_"
_ANALYSED = re.compile(
    r"^== Analyzed Logical Plan ==\n(.*?)\n\n== Optimized Logical Plan ==$", re.DOTALL | re.MULTILINE
)
_LEAVES = {"StreamingRelation", "StreamingRelationV2", "StreamingExecutionRelation", "StreamingDataSourceV2Relation"}
_REFUSED = re.compile(r"== Physical Plan ==\n(?:org\.apache\.spark\.)\S*Exception: (.*)")
_NO_START = "Async progress tracking cannot be used with Once trigger"
"""What Spark says to a query that it has checked and that is not to start; see `ConnectPlans.check_stream`."""


class RefusedByServer(Exception):  # noqa: N818 - Spark's own words, not an error of ours
    """What a server says of a query in the text of its plan."""


class ConnectPlans:
    """The plan reader of a Connect session."""

    def ship(self, function: Any) -> None:
        """Send the function's package along with it: the server can't import the project."""
        from pyspark import cloudpickle

        register: Any = cloudpickle.register_pickle_by_value
        package = str(function.__module__).partition(".")[0]
        for name in {package, function.__module__} & set(sys.modules):
            register(sys.modules[name])

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

    def has_timers(self, frame: DataFrame) -> bool:
        return "ProcessingTime" in _analysed(frame)

    def analysed_text(self, frame: DataFrame) -> str:
        return _analysed(frame)

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

    def check_batch(self, frame: DataFrame) -> None:
        if (refused := _REFUSED.match(_explained(frame))) is not None:
            raise RefusedByServer(refused[1])

    def explain(self, frame: DataFrame) -> str:
        return _explained(frame, mode="formatted")


def _analysed(frame: DataFrame) -> str:
    """The tree of the analysed plan as text, without the line of the schema."""
    found = _ANALYSED.search(_explained(frame, mode="extended"))
    if found is None:
        raise RefusedByServer("the server does not show its plan in full")
    return found[1].partition("\n")[2]


def _explained(frame: Any, *, mode: str = "simple") -> str:
    return str(frame._explain_string(mode=mode))


def _streaming_leaves(node: Node, source: str | None = None) -> Iterator[tuple[str | None, str]]:
    """The streaming leaves of a plan in order, each with the name of the source that it belongs to."""
    if node.kind == "SubqueryAlias" and node.rest.startswith(f" {_ALIAS}"):
        source = node.rest.removeprefix(f" {_ALIAS}")
    elif node.kind in _LEAVES:
        yield source, f"{node.kind}{node.rest}"
    for child in node.children:
        yield from _streaming_leaves(child, source)
