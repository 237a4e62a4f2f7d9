"""Profiles what a stream has, and suggests a suite from it: two passes over a slice that Spark keeps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sluice.checkpoint.source_log import LogEntry, SourceLog
from sluice.errors import DeclarationError, SluiceError
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.project import Project
from sluice.quality.columns import Schema
from sluice.quality.suggest import ROWS, few_valued, profile_measures, suggest_suite
from sluice.runs.driver import Drivers
from sluice.runs.record import new_run_id
from sluice.sinks.contract import VersionedSink
from sluice.sources.contract import Bound, OwnLog, Position, Slice, Source
from sluice.spark.query import build_batch, spark_failed
from sluice.spark.session import close_session, open_session
from sluice.storage import Storage
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MEASURES_PER_PASS = 400
"""Spark compiles a pass into one method; far longer ones it interprets."""


def suggest(
    project: Project, stream: Stream, *, rows: int, now: datetime, session: SparkSession | None = None
) -> dict[str, Any]:
    """Suggest a suite: from the sink's table where there is one, else from what the sources have, as a batch.

    Args:
        project: The project of the stream.
        stream: The stream, with its paths resolved.
        rows: How many rows to look at, at most.
        now: What counts as arrived.
        session: A Spark session to use in place of one that the project's settings describe.

    Returns:
        The suite as JSON, in the form that Great Expectations writes.

    Raises:
        DeclarationError: The declaration is wrong, there are no rows, or the transform fails.
        QueryRefusedError: Spark does not run the transform as a batch.
        StorageError: The table or a source can't be read right now.
        BatchFailedError: Spark failed.
    """
    storage = project.storage()
    CheckedDeclaration.of(project, stream, project.streams()).check_table(storage=storage)
    with Drivers(project.stream_home(stream)).telling(new_run_id(now, None)):
        opened = session or open_session(project, stream)
        try:
            schema, profile, seen_in = _profile(project, stream, opened, rows, storage, now)
        except SluiceError:
            raise
        except Exception as exc:
            raise spark_failed(exc, where=f"stream `{stream.name}`", consequence="nothing was suggested") from exc
        finally:
            if session is None:
                close_session(opened)
    return suggest_suite(stream.name, schema, profile, seen_in)


def _profile(  # noqa: PLR0917 - what a profile is made of
    project: Project, stream: Stream, session: SparkSession, rows: int, storage: Storage, now: datetime
) -> tuple[Schema, dict[str, Any], str]:
    frame, seen_in = _slice(project, stream, session, storage, now)
    frame = frame.limit(rows).persist()
    try:
        schema = Schema.of(dict(frame.dtypes))
        profile = _measure(frame, profile_measures(schema))
        if not profile[ROWS]:
            raise DeclarationError(
                "there are no rows to look at", where=seen_in, remedy="run the stream, or bring input to its sources"
            )
        return schema, profile | _measure(frame, few_valued(schema, profile)), seen_in
    finally:
        frame.unpersist()


def _slice(
    project: Project, stream: Stream, session: SparkSession, storage: Storage, now: datetime
) -> tuple[DataFrame, str]:
    sink = stream.sink
    if isinstance(sink, VersionedSink) and sink.state(None, storage=storage).exists:
        return sink.read_rows(session), f"the table {sink.location}"
    taken = {name: _everything(source, storage, now) for name, source in stream.sources.items()}
    return build_batch(project, stream, session, taken), f"what {', '.join(stream.sources)} had, through the transform"


def _everything(source: Source, storage: Storage, now: datetime) -> Slice:
    """All that a source has: the slice of a stream that has read it."""
    found = source.available(Position(None), Bound(), storage=storage, now=now)
    if not found.steps:
        return source.slice(Position(None), None, storage=storage)
    entries: list[LogEntry] = [entry for step in found.steps for entry in step.added.entries]
    log = SourceLog(entries[-1].batch_id, entries) if entries else SourceLog()
    position = Position(found.steps[-1].end, OwnLog(log), found.started_at)
    return source.slice(position, None, storage=storage)


def _measure(frame: DataFrame, measures: Mapping[str, str]) -> dict[str, Any]:
    from pyspark.sql import functions

    found: dict[str, Any] = {}
    named = list(measures.items())
    for start in range(0, len(named), _MEASURES_PER_PASS):
        part = [functions.expr(sql).alias(name) for name, sql in named[start : start + _MEASURES_PER_PASS]]
        row = frame.agg(*part).first()
        found |= row.asDict() if row is not None else {}
    return found
