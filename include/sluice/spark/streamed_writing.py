"""Whether Spark streams into a sink that it alone knows: it is asked, before a batch is planned that would go there."""

from __future__ import annotations

import logging

from sluice.errors import DeclarationError
from sluice.sinks.contract import FormatSink
from sluice.spark.query import Query
from sluice.spark.shown_error import is_refusal, spark_message

logger = logging.getLogger(__name__)

_NO_PLACE = "Can not create a Path from an empty string"
"""What a query fails of that has a sink, and no checkpoint."""


def check_streamed_writing(query: Query) -> None:
    """Make sure that Spark takes a sink, where the declaration does not tell. Nothing is written.

    Raises:
        DeclarationError: There is no such format, it takes no stream, or not with these options.
    """
    sink, stream = query.stream.sink, query.stream
    if not isinstance(sink, FormatSink):
        return
    writer = sink.writer(query.frame, load_function=query.project.load_function)
    try:
        # Spark makes the sink first, and then looks for the checkpoint.
        writer.outputMode(stream.output_mode).option("checkpointLocation", "").start().stop()
    except Exception as exc:
        if _NO_PLACE in str(exc):
            return
        if not is_refusal(exc):
            # What it could not reach, it may reach in the batch.
            logger.warning("whether Spark takes the sink is told when it writes", exc_info=True)
            return
        raise DeclarationError(
            f"Spark does not stream into `{sink.format}`: {spark_message(exc, told=[sink.format])}",
            where=f"{stream.place}, sink",
            remedy="correct the format and its options; what takes no stream is written by a function, batch by batch:"
            " `sinks.foreach_batch(...)`",
        ) from exc
