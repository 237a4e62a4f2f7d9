"""`_spark_metadata`: the manifest in which Spark's file sink records what it wrote."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sluice.checkpoint.log import damaged, list_log, read_log_of_files
from sluice.checkpoint.source_log import log_file_name
from sluice.locations import join
from sluice.storage import Storage

FOLDER = "_spark_metadata"


class _Status(msgspec.Struct, rename="camel"):
    path: str
    size: int
    modification_time: int
    action: str
    is_dir: bool = False


_STATUSES = msgspec.json.Decoder(list[_Status])


@dataclass(frozen=True)
class ManifestFile:
    """One file that a file sink has published."""

    path: str
    """The file as a URI."""
    size_bytes: int
    mtime_ms: int


def latest_batch(path: str, *, storage: Storage) -> int | None:
    """The newest batch that a file sink holds; None when it holds none. Spark's sink skips every id up to it."""
    folder = list_log(join(path, FOLDER), storage=storage)
    return None if folder is None else folder.latest


def newest_file(path: str, *, storage: Storage) -> str | None:
    """A file that a file sink has published lately, as a URI; None when it has published none, or no longer tells.

    Raises:
        RefusedError: The manifest is damaged.
    """
    folder = list_log(join(path, FOLDER), storage=storage)
    if folder is None:
        return None
    # A compacted one has every file that there is: it takes longest.
    for log_id in (*reversed(folder.ids), *folder.compact_ids[-1:]):
        added = [status.path for status in _read(folder.file(log_id), storage) if status.action == "add"]
        if added:
            return added[-1]
    return None


def files_of_batch(path: str, batch_id: int, *, storage: Storage) -> list[str] | None:
    """The files that a batch has published, as URIs; None when the manifest does not tell any more.

    Raises:
        RefusedError: The manifest is damaged.
    """
    folder = list_log(join(path, FOLDER), storage=storage)
    if folder is None or folder.latest != batch_id:
        return None
    added = [status.path for status in _read(folder.file(batch_id), storage) if status.action == "add"]
    if batch_id not in folder.compact_ids:
        return added
    # A compacted one has those of every batch before, too.
    first = folder.compact_ids[-2] if len(folder.compact_ids) > 1 else 0
    there = {*folder.ids, *folder.compact_ids}
    if any(log_id not in there for log_id in range(first, batch_id)):
        return None
    before = {status.path for log_id in range(first, batch_id) for status in _read(folder.file(log_id), storage)}
    return [file for file in added if file not in before]


def read_manifest(path: str, *, storage: Storage) -> list[ManifestFile] | None:
    """The files that count in a file sink's folder; None when the folder is no file sink's.

    Raises:
        RefusedError: The manifest is damaged.
    """
    folder = list_log(join(path, FOLDER), storage=storage)
    if folder is None or folder.latest is None:
        return None
    if folder.gap is not None:
        lost = join(folder.location, log_file_name(folder.gap, folder.compact_ids))
        raise damaged(lost, "the file is gone, and the manifest goes on after it")
    live: dict[str, ManifestFile] = {}
    for log_id in range(folder.compact_ids[-1] if folder.compact_ids else 0, folder.latest + 1):
        for status in _read(folder.file(log_id), storage):
            if status.action == "delete":
                live.pop(status.path, None)
            elif not status.is_dir:
                live[status.path] = ManifestFile(status.path, status.size, status.modification_time)
    return list(live.values())


def _read(location: str, storage: Storage) -> list[_Status]:
    file = read_log_of_files(location, storage=storage)
    if file is None:
        raise damaged(location, "the file is gone")
    return file.entries(_STATUSES)
