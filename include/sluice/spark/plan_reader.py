"""What must be known of a query before it starts, whichever Spark tells it: one in this process, or a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from sluice.errors import DeclarationError
from sluice.home import SourceLine
from sluice.sinks.contract import OutputMode
from sluice.trigger import LiveKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class WatermarkNode:
    """One `withWatermark` of an analysed plan."""

    input: str
    """`clicks.clicked_at`: the sources below it, and its column; numbered where several have the same."""
    delay_ms: int
    key: str | None
    """What Spark's measures of it are found by; None when it can't be measured."""
    feed: str = ""
    """Tells what it is fed by from anything else."""


class PlanReader(Protocol):
    """Reads Spark's analysed plans. What Spark refuses is raised as Spark raises it."""

    def mark(self, frame: DataFrame, name: str) -> DataFrame:
        """A source's DataFrame, analysed, such that its name is found again in the plan of a query that uses it."""

    def source_lines(self, frame: DataFrame) -> tuple[SourceLine, ...]:
        """The order of sources as Spark numbers them.

        Every streaming leaf of the analysed plan has a line, and every leaf that differs from those before it has a
        log.

        Raises:
            DeclarationError: The query reads a stream that is no source of ours.
        """

    def watermarks(self, frame: DataFrame) -> tuple[WatermarkNode, ...]:
        """Every `withWatermark` of a query, in the order of its plan; one that a self-join uses twice comes once."""

    def observing(self) -> AbstractContextManager[None]:
        """While it is open, whatever `withWatermark` gives is made such that it can be measured."""

    def event_times(
        self, query: StreamingQuery, nodes: Sequence[WatermarkNode], reports: Mapping[int, Mapping[str, Any]]
    ) -> dict[str, int] | None:
        """The newest event time of each input, over all batches of a start that has ended.

        Args:
            query: The start.
            nodes: The inputs.
            reports: Spark's report of every batch that it committed, by batch id; an empty one where it is lost.

        Returns:
            By input, milliseconds since the epoch; inputs without an event are absent. None when Spark does not tell.
        """

    def times_of_batch(
        self, frame: DataFrame, query: StreamingQuery, nodes: Sequence[WatermarkNode], batch_id: int
    ) -> dict[str, int] | None:
        """The newest event time of each input in a batch that is under way, once its rows are computed.

        Args:
            frame: The result of the query.
            query: Its start.
            nodes: The inputs.
            batch_id: The batch.

        Returns:
            As of `event_times`.
        """

    def analysed_text(self, frame: DataFrame) -> str:
        """The tree of the analysed plan, a line for each node; streaming ones are marked by `~`."""

    def analysed_json(self, frame: DataFrame) -> str | None:
        """The same with its expressions, in Spark's JSON; None where Spark is a server, which does not show it."""

    def optimised_text(self, frame: DataFrame) -> str:
        """The optimised plan of a query, as a tree: what Spark computes, and keeps, of what the query says."""

    def python_functions(self, frame: DataFrame) -> Iterator[tuple[str, bytes]]:
        """The functions in Python that a query calls for its columns, as Spark sends them to its workers.

        Each by the number that its call has in the text of the optimised plan, or by its name where that is not told.
        """

    def settings(self, session: SparkSession) -> Mapping[str, str]:
        """What somebody has set in a session, or in the Spark that it is of; not what nobody has."""

    def static_versions(self, frame: DataFrame) -> Mapping[str, int]:
        """By location, the versions of the Delta tables that a query reads beside its streams, where the plan tells."""

    def literals(self, frame: DataFrame) -> Iterator[str]:
        """The texts that stand as literals in a query's plan. Costs too much to be asked but when something failed."""

    def check_stream(self, frame: DataFrame, output_mode: OutputMode) -> None:
        """Let Spark's own checker refuse what can't run as a stream; nothing is written anywhere."""

    def check_live(self, frame: DataFrame, output_mode: OutputMode, kind: LiveKind) -> None:
        """Let Spark's own checker refuse what can't run with a live trigger. A server says so when it starts."""

    def check_batch(self, frame: DataFrame) -> None:
        """Let Spark refuse what can't run as a batch; nothing is read."""

    def explain(self, frame: DataFrame) -> str:
        """Spark's text of the physical plan: unlike the analysed one, it does not show the options of sources."""


def numbered(nodes: Iterable[WatermarkNode]) -> tuple[WatermarkNode, ...]:
    """The same nodes, with inputs that differ: the second of a name becomes `a.at (2)`."""
    seen: dict[str, int] = {}
    found: list[WatermarkNode] = []
    for node in nodes:
        number = seen[node.input] = seen.get(node.input, 0) + 1
        found.append(node if number == 1 else replace(node, input=f"{node.input} ({number})"))
    return tuple(found)


def stream_of_its_own(leaf: str) -> DeclarationError:
    """The error about a streaming leaf that no source of ours has made; it shows no options, which may be secrets."""
    return DeclarationError(
        "the transform reads a stream of its own",
        where=leaf.split(maxsplit=1)[0],
        remedy="declare it as a source, and take it as a parameter",
    )
