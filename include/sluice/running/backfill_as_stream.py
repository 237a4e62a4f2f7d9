"""Runs a transform over a slice as a stream on a checkpoint of its own, for operators that Spark refuses in a batch.

Everything is one planned batch, so that no row is late. Where the live stream keeps rows back until the watermark
passes, a second batch without data runs with the live watermark: what comes out is what the live stream has emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from sluice.checkpoint.offsets import OffsetFile, read_commit_file
from sluice.checkpoint.places import commit_file
from sluice.checkpoint.writer import write_metadata, write_planned_batch
from sluice.errors import BatchFailedError
from sluice.interval import Interval
from sluice.locations import join, spark_location
from sluice.project import Project
from sluice.running.planned_files import told
from sluice.sources.contract import Bound, LoggingSource, Position, Slice
from sluice.sources.files.declared import files
from sluice.spark.query import Query, build_query, read_slice, spark_failed
from sluice.spark.session import choose_shuffle_partitions, pinned_conf
from sluice.storage import Storage
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def run_bounded_stream(
    project: Project,
    stream: Stream,
    session: SparkSession,
    slices: Mapping[str, Slice],
    *,
    interval: Interval,
    watermark_ms: int | None,
    now: datetime,
    folder: str,
    storage: Storage,
) -> DataFrame:
    """The rows of an interval as a batch DataFrame; they lie below `folder` until it is deleted.

    Args:
        project: Where the transform is imported from.
        stream: The declaration.
        session: Spark.
        slices: What is read of each source.
        interval: The rows to keep.
        watermark_ms: The watermark that rows are emitted by; None when the stream keeps none back.
        now: The clock of the batches.
        folder: A new folder for the checkpoint and the rows.
        storage: Where the checkpoint is written.

    Raises:
        DeclarationError: The transform can't run on the sources, or a file's name is a pattern for Spark's stream.
        BatchFailedError: Spark failed.
    """
    stream, slices = _copied(stream, session, slices, join(folder, "slices"), now, storage)
    for name, source in stream.sources.items():
        if isinstance(source, LoggingSource):
            source.check_one_batch(slices[name])
    query = build_query(project, stream, session, {})
    checkpoint = join(folder, "checkpoint")
    if all(slices[line.source].end is None for line in query.lines):
        return session.createDataFrame([], query.frame.schema)
    choose_shuffle_partitions(session, project.conf_of(stream), [[taken.amount for taken in slices.values()]])
    write_metadata(checkpoint, str(uuid4()), storage=storage)
    entries = {line.log: (0, added.entries) for line in query.lines if (added := slices[line.source].added)}
    starts = {line.log: start for line in query.lines if (start := slices[line.source].added.start) is not None}
    folders: list[str] = []
    for batch in _batches(query, slices, watermark_ms, now):
        logged = entries if batch.batch_id == 0 else {}
        write_planned_batch(checkpoint, batch, logged, {}, starts, storage=storage)
        started = _run_one(query, checkpoint, join(folder, "rows"), interval)
        _check_read(query, started, [entry.path for _, taken in logged.values() for entry in taken])
        if read_commit_file(commit_file(checkpoint, batch.batch_id), batch.batch_id, storage=storage) is None:
            raise BatchFailedError(
                f"batch {batch.batch_id} of the backfill ended without a commit", where=checkpoint, remedy="try again"
            )
        folders.append(spark_location(join(folder, "rows", str(batch.batch_id))))
    return session.read.schema(query.frame.schema).parquet(*folders)


def _batches(
    query: Query, slices: Mapping[str, Slice], watermark_ms: int | None, now: datetime
) -> Iterator[OffsetFile]:
    """The batch that reads everything; and one without data, which emits up to the live watermark."""
    everything = OffsetFile(
        batch_id=0,
        version=1,
        watermark_ms=0,
        timestamp_ms=int(now.timestamp() * 1000),
        conf=pinned_conf(query.frame.sparkSession),
        offsets={str(index): slices[line.source].end for index, line in enumerate(query.lines)},
    )
    yield everything
    if watermark_ms:
        yield replace(everything, batch_id=1, watermark_ms=watermark_ms)


def _copied(  # noqa: PLR0917 - what a copy is made of
    stream: Stream, session: SparkSession, slices: Mapping[str, Slice], folder: str, now: datetime, storage: Storage
) -> tuple[Stream, Mapping[str, Slice]]:
    """Put copies in the place of those slices that a stream can't read from their source."""
    sources, copied = dict(stream.sources), dict(slices)
    for name, taken in slices.items():
        if not taken.is_beyond_offsets:
            continue
        rows = read_slice(stream, name, session, taken)
        place = join(folder, name)
        rows.write.mode("overwrite").parquet(spark_location(place))
        copy = files(place, format="parquet", schema=rows.schema.toDDL())
        found = copy.available(Position(None), Bound(), storage=storage, now=now).steps
        sources[name] = copy
        copied[name] = Slice(end=found[-1].end, added=found[-1].added) if found else Slice(end=None)
    return replace(stream, sources=sources), copied


def _check_read(query: Query, started: StreamingQuery, taken: Sequence[str]) -> None:
    """A file that vanished while Spark started was read as empty: its rows would be replaced by nothing."""
    found = query.files_of_batch(started) if taken and query.knows_files else taken
    missing = [path for path in taken if path not in found]
    if missing:
        raise BatchFailedError(
            f"{len(missing)} input files vanished before Spark read them{told(missing)}",
            where=missing[0],
            remedy="bring them back under the same names, then try again; nothing was replaced",
        )


def _run_one(query: Query, checkpoint: str, rows: str, interval: Interval) -> StreamingQuery:
    column = query.stream.interval_column or ""
    # Spark may call it in another process, where none of ours is: it takes along plain strings.
    condition = interval.condition(column, query.frame.schema[column].dataType.simpleString())
    place = spark_location(rows)

    def keep(frame: DataFrame, batch_id: int) -> None:
        frame.where(condition).write.mode("overwrite").parquet(f"{place}/{batch_id}")

    writer = query.frame.writeStream.foreachBatch(keep).outputMode(query.stream.output_mode)
    writer = writer.option("checkpointLocation", spark_location(checkpoint))
    try:
        started = writer.trigger(once=True).start()
        started.awaitTermination()
    except Exception as exc:
        where = f"stream `{query.stream.name}`, {checkpoint}"
        raise spark_failed(exc, where=where, consequence="this attempt replaced nothing") from exc
    return started
