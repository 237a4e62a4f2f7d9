"""A stream that has no checkpoint: it is new, or its past is away, or stands in the home under another name."""

from __future__ import annotations

from collections.abc import Iterator

from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.delta_log.table import open_log
from sluice.errors import Problem, RefusedError
from sluice.home import StreamHome
from sluice.project import Project
from sluice.sinks.contract import Sink, SinkState
from sluice.stream import Stream

LEAVE_NO_RECORD = frozenset({"HOME_MISSING", "STREAM_RENAMED"})
"""The refusals after which a folder is put where that of the stream would be: a record would make it, as if all were
well, or stand in the way."""
_TWICE = "every row that it reads again would be there twice"


def writers_before(
    stream: Stream, home: StreamHome, checkpoint: CheckpointState, sink: SinkState, number: int
) -> frozenset[str]:
    """Which other streams of the home have written the tables of a stream that is about to begin; none once it has.

    Args:
        stream: The declaration, with absolute locations.
        home: The stream's folder in the home.
        checkpoint: What is at the place of its checkpoint.
        sink: What the sink holds.
        number: The live generation.

    Returns:
        The names of their folders in the home, whether anything declares them or not.

    Raises:
        RefusedError: The stream is not new: its checkpoint is away, or its home.
        StorageError: A table or the home can't be read.
    """
    if not checkpoint.is_new or checkpoint.query_id is not None:
        return frozenset()
    tables = [stream.sink] if sink.exists else []
    # Where every row was put there, the sink has none that would tell.
    quarantine = stream.quarantine_table if stream.quality is not None else None
    if quarantine is not None and open_log(quarantine.location or "", storage=home.storage) is not None:
        tables.append(quarantine)
    if tables and home.has_begun(number):
        raise RefusedError(
            Problem(
                code="CHECKPOINT_GONE",
                file=checkpoint.location,
                cause="the stream has run before, and there is no checkpoint",
                consequence=f"the stream would begin anew, and {_TWICE}",
                remedy="restore the folder from a backup; to begin anew, declare a new stream with a sink of its own",
            )
        )
    if not tables or home.is_first_run():
        return frozenset()
    found: set[str] = set()
    for table in tables:
        found.update(_writers(table, home))
        unknown = table.why_unknown(None, 0, None, storage=home.storage)
        if unknown is not None:
            raise _home_missing(
                home, f"whether a query has streamed into {table.location} can't be told: {unknown.why}"
            )
    return frozenset(found - {home.location.rpartition("/")[2]})


def _writers(table: Sink, home: StreamHome) -> Iterator[str]:
    """The streams of the home whose batches a table has.

    Raises:
        RefusedError: It has those of another query, too.
    """
    known: dict[str, str] | None = None
    for query in table.streaming_queries(storage=home.storage):
        known = home.known_queries() if known is None else known
        if query not in known:
            none = "which is none of another stream of this home"
            raise _home_missing(home, f"query {query} has streamed into {table.location}, {none}")
        yield known[query]


def _home_missing(home: StreamHome, what: str) -> RefusedError:
    return RefusedError(
        Problem(
            code="HOME_MISSING",
            file=home.location,
            cause=f"the home has no checkpoint of the stream, and {what}",
            consequence=f"the stream would begin anew, and {_TWICE}",
            remedy="mount or restore the home; if this really is the stream's first run, make an empty file"
            f" {home.first_run_file()}",
        )
    )


def renamed(project: Project, home: StreamHome, writers: frozenset[str]) -> Problem | None:
    """That a stream which is about to begin may be one that was declared under another name; None when it is not.

    Args:
        project: The project of the stream.
        home: The stream's folder in the home.
        writers: See `writers_before`.
    """
    if not writers:
        return None
    declared = project.declarations()
    earlier = sorted(writers.difference(declared.names))
    if not earlier:
        return None
    name, folder = earlier[0], project.home_named(earlier[0]).location
    unread = "".join(f" ({file} does not load)" for file in declared.unreadable)
    is_taken = home.storage.list_folder(home.location) is not None
    return Problem(
        code="STREAM_RENAMED",
        file=folder,
        cause=f"the stream has no checkpoint, and its table has batches of stream `{name}`, which is not declared any"
        f" more{unread}",
        consequence=f"if it is that one under another name, {_TWICE}",
        remedy=f"declare it as `{name}` again; or move {folder} to {home.location}"
        f"{', in place of the folder that is there' if is_taken else ''}; or give the stream a sink of its own. If it"
        f" is another one, whose rows are other ones, make an empty file {home.first_run_file()}",
    )


def why_missing(project: Project, stream: Stream, home: StreamHome) -> Problem | None:
    """Why a stream that has not begun is no new one, in the words of a run; None when it is, and once it has begun.

    Raises:
        RefusedError: A file of the home is damaged.
        StorageError: A table, the checkpoint or the home can't be read.
    """
    number = home.current_generation()
    if home.generation(number) is not None:
        return None
    checkpoint = read_checkpoint(home.checkpoint_location(number), storage=home.storage)
    try:
        sink = stream.sink.state(checkpoint.query_id, storage=home.storage)
        return renamed(project, home, writers_before(stream, home, checkpoint, sink, number))
    except RefusedError as refused:
        return refused.finding
