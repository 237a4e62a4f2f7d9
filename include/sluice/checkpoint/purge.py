"""Takes out of the logs of a checkpoint what no start needs any more.

Spark does so whenever it decides a batch. A batch that is planned it never decides: without this, the logs of a stream
would grow by a batch for ever, and that of a file source by all of its files every tenth time.
"""

from __future__ import annotations

from collections.abc import Iterable

from sluice.checkpoint.log import LogFolder, list_log
from sluice.checkpoint.places import commits_folder, offsets_folder, source_log
from sluice.locations import join
from sluice.storage import Storage


def purge_logs(location: str, logs: Iterable[str], keep: int, *, storage: Storage) -> None:
    """Delete what is older than the newest batches.

    Args:
        location: The checkpoint.
        logs: The folders of the file sources' own logs.
        keep: How many batches to keep before the newest one: Spark's `spark.sql.streaming.minBatchesToRetain`.
        storage: Where to delete.

    Raises:
        StorageError: A log can't be listed, or a file of it not be deleted; the older ones may be gone.
    """
    for folder in (offsets_folder, commits_folder):
        log = list_log(folder(location), storage=storage)
        if log is not None and log.latest is not None:
            _delete_before(log, log.latest - keep, storage)
    for name in logs:
        log = list_log(source_log(location, name), storage=storage)
        if log is not None and log.latest is not None:
            # The newest one that has all that is before the batches to be kept.
            newest = max((one for one in log.compact_ids if one <= log.latest - keep), default=0)
            _delete_before(log, newest, storage)


def _delete_before(log: LogFolder, first: int, storage: Storage) -> None:
    for one in sorted({*log.ids, *log.compact_ids}):
        if one >= first:
            return
        storage.delete(log.file(one))
        if one in log.sidecars:
            storage.delete(join(log.location, log.sidecars[one]))
