"""Runs a committed batch once more on a copy of the checkpoint, without a sink: only to measure it."""

from __future__ import annotations

from uuid import uuid4

from sluice.checkpoint.log import list_log
from sluice.checkpoint.writer import write_metadata
from sluice.errors import BatchFailedError
from sluice.locations import join
from sluice.spark.progress import ProgressLog
from sluice.spark.query import Query, spark_failed
from sluice.storage import Storage


def replay_batch(
    query: Query, checkpoint: str, batch_id: int, progress: ProgressLog, *, storage: Storage
) -> dict[str, int]:
    """The newest event time of each input in a batch, in milliseconds; inputs without an event are absent.

    Args:
        query: The query of the checkpoint.
        checkpoint: Where the batch was committed; it is only read.
        batch_id: The batch. What it has read must still be there.
        progress: Hears Spark's reports.
        storage: Where it is.

    Raises:
        BatchFailedError: Spark failed, or does not tell.
        StorageError: The copy could not be made.
    """
    folder = copy_checkpoint(checkpoint, "sources", "state", "commits", "offsets", storage=storage)
    _cut_back(folder, batch_id, storage)
    try:
        started = query.start_replay(folder)
        started.awaitTermination()
    except Exception as exc:
        where = f"stream `{query.stream.name}`, {folder}"
        raise spark_failed(exc, where=where, consequence=f"the next run measures batch {batch_id}") from exc
    event_times = query.event_times(started, progress.reports(started, range(batch_id, batch_id + 1)), [batch_id])
    if event_times is None:
        raise BatchFailedError(
            f"Spark has not reported how far batch {batch_id} took the watermarks",
            where=f"stream `{query.stream.name}`",
            remedy="try again",
        )
    storage.delete_folder(folder)
    return event_times


def copy_checkpoint(checkpoint: str, *names: str, storage: Storage) -> str:
    """Copy folders of a checkpoint, for a query of its own; returns where. A copy that is there is written over.

    Raises:
        StorageError: The copy could not be made.
    """
    # Where Spark sees the checkpoint, it sees what is beside it.
    folder = f"{checkpoint.rstrip('/')}.replay"
    storage.delete_folder(folder)
    for name in names:
        storage.copy_folder(join(checkpoint, name), join(folder, name))
    write_metadata(folder, str(uuid4()), storage=storage)
    return folder


def _cut_back(checkpoint: str, batch_id: int, storage: Storage) -> None:
    """Leave a copy as it was when the batch was planned and not committed."""
    for name, first in (("offsets", batch_id + 1), ("commits", batch_id)):
        log = list_log(join(checkpoint, name), storage=storage)
        for log_id in log.ids if log is not None else ():
            if log_id >= first:
                storage.delete(join(checkpoint, name, f".{log_id}.crc"))
                storage.delete(join(checkpoint, name, str(log_id)))
