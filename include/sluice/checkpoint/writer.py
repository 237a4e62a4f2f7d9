"""Writes one planned batch into a checkpoint: the only change that Sluice ever makes to a live one.

The order is the engine's own: the logs of the file sources, then `offsets/N`, each durable before the next. A crash
in between leaves an orphan entry in a source's log, which the next plan adopts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from sluice.checkpoint.offsets import OffsetFile, encode_offset_file
from sluice.checkpoint.places import metadata_file, offset_file, offsets_folder, source_log
from sluice.checkpoint.source_log import LogEntry, SourceLog, encode_source_log, encode_start
from sluice.errors import Problem, RefusedError
from sluice.locations import join
from sluice.storage import Storage

_UNFINISHED = re.compile(r"\.+\d+\.[0-9a-f-]{32,36}\.tmp(?:\.crc)?")
"""What Spark and Sluice call a file of a log until it is whole."""


def write_metadata(location: str, query_id: str, *, storage: Storage) -> None:
    """Give a new checkpoint its query id, as Spark writes it.

    Raises:
        RefusedError: It has got another one meanwhile: somebody else writes this checkpoint.
        StorageError: It could not be written.
    """
    _put(metadata_file(location), f'{{"id":"{query_id}"}}'.encode(), storage)


def write_planned_batch(
    location: str,
    planned: OffsetFile,
    entries: Mapping[str, tuple[int, tuple[LogEntry, ...]]],
    logs: Mapping[str, SourceLog],
    starts: Mapping[str, str] = MappingProxyType({}),
    *,
    storage: Storage,
) -> None:
    """Write a batch for Spark to run.

    Args:
        location: The checkpoint.
        planned: The batch.
        entries: By log folder name, the log id and the files that it takes.
        logs: By log folder name, what was taken before.
        starts: By log folder name, where a source begins that logs that alone.
        storage: Where to write.

    Raises:
        RefusedError: Something else is in the place of a file: somebody else writes this checkpoint.
        StorageError: A file could not be written.
    """
    for key, (log_id, added) in entries.items():
        name, content = encode_source_log(logs.get(key, SourceLog()), log_id, added)
        _put(join(source_log(location, key), name), content, storage)
    for key, start in starts.items():
        name, content = encode_start(start)
        _put(join(source_log(location, key), name), content, storage)
    _put(offset_file(location, planned.batch_id), encode_offset_file(planned), storage)


def rewrite_planned_batch(location: str, planned: OffsetFile, *, storage: Storage) -> None:
    """Write a batch anew that was planned and never ran: what it reads stays, what it pins changes.

    Raises:
        StorageError: It could not be written.
    """
    offsets = offsets_folder(location)
    # Of one that Spark has planned, the checksum would not fit any more.
    storage.delete(join(offsets, f".{planned.batch_id}.crc"))
    storage.replace(join(offsets, str(planned.batch_id)), encode_offset_file(planned))


def clear_unfinished(location: str, *, storage: Storage) -> None:
    """Delete what a kill has left of an offset file in the making: Spark begins a checkpoint in an empty folder.

    Raises:
        StorageError: It can't be deleted.
    """
    offsets = offsets_folder(location)
    listed = storage.list_folder(offsets)
    for name in filter(_UNFINISHED.fullmatch, listed.files if listed is not None else ()):
        storage.delete(join(offsets, name))


def _put(file: str, content: bytes, storage: Storage) -> None:
    if storage.put_if_absent(file, content) or _holds(file, content, storage):
        return
    raise RefusedError(
        Problem(
            code="CHECKPOINT_CHANGED",
            file=file,
            cause="the file appeared while the batch was being planned",
            consequence="two writers on one checkpoint lose or double rows",
            remedy="find the other writer (another Airflow, a notebook, a streaming job) and stop it",
        )
    )


def _holds(file: str, content: bytes, storage: Storage) -> bool:
    found = storage.stat(file)
    return (
        found is not None and found.size_bytes == len(content) and storage.read(file, max_bytes=len(content)) == content
    )
