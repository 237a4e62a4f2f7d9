"""The results that a transform gives for several sinks: each is checked as the result for one is.

The query itself gives the rows of the source as they are read. The transform gets each batch of them, once that is
read, so it is read once; and what only a whole stream has, state above all, it can't keep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError, QueryRefusedError
from sluice.spark.active_session import active, copied
from sluice.spark.plan_reader import PlanReader
from sluice.spark.plan_tree import Node, has_stream, is_stateful, parse_plan
from sluice.spark.transform_call import call_for_sinks, check_stream
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HIDDEN = re.compile(r"\binput_file_(?:name|block_start|block_length)\(\)")
_UNTYPED = re.compile(r'"(?:type|elementType|keyType|valueType)":"void"')
_COUNTING = {"GlobalLimit", "LocalLimit", "Offset"}


def divided_results(
    stream: Stream, transform: Any, frames: Mapping[str, DataFrame], plans: PlanReader, place: str
) -> dict[str, DataFrame]:
    """Call a transform on its source, and make sure that it gives the same of each batch as of the stream.

    Args:
        stream: One with several sinks.
        transform: The function.
        frames: Its only source, by name, as a stream.
        plans: Reads plans.
        place: Where the transform is, for messages.

    Returns:
        The results by the names of the sinks, each of the whole stream.

    Raises:
        DeclarationError: The transform fails, gives something else, or something else of a batch.
        QueryRefusedError: Spark does not run one of them as a stream, or would keep state for it.
    """
    (source,) = frames.values()
    with active(source.sparkSession):
        results = call_for_sinks(transform, frames, place, stream.outputs)
    for sink, result in results.items():
        what = f"the result for sink `{sink}`"
        check_stream(plans, result, stream, place, what, remedy="change the transform")
        if not result.columns or _UNTYPED.search(result.schema.json()) is not None:
            raise QueryRefusedError(
                f"{what} has " + ("a column without a type" if result.columns else "no column"),
                where=place,
                remedy="cast it to what it will be, as by `CAST(NULL AS string)`" if result.columns else "give it one",
            )
        analysed = plans.analysed_text(result)
        if (hidden := _HIDDEN.search(analysed)) is not None:
            raise QueryRefusedError(
                f"{what} asks for `{hidden[0]}`, and with several sinks a batch is read before",
                where=place,
                remedy="use what the source declares; what else a stream has is for one sink",
            )
        if any(map(_needs_whole_stream, parse_plan(analysed).walk())):
            raise QueryRefusedError(
                f"{what} needs state, and with several sinks each batch is computed by itself",
                where=place,
                remedy="write what needs state into a table of its own, and let a stream with `sinks` follow that one",
            )
    _check_batch(transform, frames, results, place)
    return results


def _check_batch(transform: Any, frames: Mapping[str, DataFrame], results: Mapping[str, DataFrame], place: str) -> None:
    """A batch has the columns of the source, and nothing that is hidden behind it, such as `_metadata`."""
    ((name, source),) = frames.items()
    # As Spark gives it to each batch; what a transform leaves there, a view above all, no batch finds.
    session = copied(source.sparkSession)
    try:
        with active(session):
            empty = session.createDataFrame([], source.schema)
            found = call_for_sinks(transform, {name: empty}, place, results)
        columns = {sink: frame.dtypes for sink, frame in found.items()}
    except DeclarationError as exc:
        raise DeclarationError(
            f"{exc.problem}; with several sinks it gets each batch by itself, with the columns of the source alone",
            where=exc.where,
            remedy=f"{exc.remedy}; what else a stream has than its columns, such as `_metadata`, is for one sink",
        ) from exc
    for sink, result in results.items():
        if columns[sink] != result.dtypes:
            raise DeclarationError(
                f"the result for sink `{sink}` has other columns for a batch than for the stream",
                where=place,
                remedy="let them depend on nothing but the source's columns",
            )


def _needs_whole_stream(node: Node) -> bool:
    """Whether an operator of an analysed plan keeps state, or counts rows, of more than a batch."""
    if node.kind == "Join":
        # With a table, each row is joined by itself.
        return all(map(has_stream, node.children))
    return (is_stateful(node) or node.kind in _COUNTING) and has_stream(node)
