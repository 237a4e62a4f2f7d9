"""Two streams that write to one place: what comes of it, by the kind of sink."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.errors import DeclarationError, Problem
from sluice.sinks.keyed import KeyedSink
from sluice.stream import Stream
from sluice.table_writers import other_writer


def shared_sink(stream: Stream, others: Mapping[str, Stream]) -> Problem | None:
    """What is to be said of a stream whose sink another stream of the project writes to; None when none does.

    Args:
        stream: The declaration, with absolute locations.
        others: The streams of the project, with absolute locations.

    Raises:
        DeclarationError: Rows of one of them would be lost for certain.
    """
    for name, other in others.items():
        clash = stream.sink.clash(other.sink, stream.name) if name != stream.name else None
        if clash is not None:
            where = f"{stream.place}; {other.place}"
            raise DeclarationError(f"stream `{name}` {clash.problem}", where=where, remedy=clash.remedy)
    places = filter(None, (stream.sink.location, *stream.sink.side_tables.values()))
    found = ((place, other_writer(place, stream, others)) for place in places)
    place, writer = next((each for each in found if each[1] is not None), ("", None))
    if writer is None:
        return None
    other = writer.stream
    why = None
    if stream.sink.is_of_one_query or other.sink.is_of_one_query:
        why = "Spark's manifest there tells of the batches of one, and passes over those of the other as done"
    elif any(isinstance(each.sink, KeyedSink) for each in (stream, other)):
        why = "which row of a key counts would go by which of them ran last"
    elif "complete" in {stream.output_mode, other.output_mode}:
        why = "in output mode `complete` every batch of one deletes the rows of the other"
    if why is not None:
        raise DeclarationError(
            f"stream `{other.name}` writes to the same place: {why}",
            where=f"{stream.place}, {place}; {other.place}",
            remedy="give each stream a sink of its own",
        )
    return Problem(
        code="SINK_SHARED",
        file=place,
        cause=f"stream `{other.name}` writes to the same table ({other.place})",
        consequence="both append; a backfill or an audit of one concerns the rows of the other, too",
        remedy="give each stream a sink of its own, or declare one stream with both sources",
        is_blocking=False,
    )
