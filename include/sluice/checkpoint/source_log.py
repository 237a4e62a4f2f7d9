"""The log of a source: `sources/<n>/<id>` and `<id>.compact`, one JSON line per file; or where it begins, in `0`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from sluice.checkpoint.log import LogFolder, compact_interval, damaged, read_log_of_files
from sluice.errors import Problem, RefusedError
from sluice.locations import join
from sluice.storage import Storage


class LogEntry(msgspec.Struct, frozen=True, gc=False, rename={"timestamp_ms": "timestamp", "batch_id": "batchId"}):
    """One file in the log that Spark's file source keeps in its checkpoint.

    A msgspec struct, not a dataclass: a log has as many as there were files, and each costs the planner.
    """

    path: str
    """The file as a URI, spelled as Java's `Path.toUri` spells it."""
    timestamp_ms: int
    """Its modification time, in milliseconds since the epoch."""
    batch_id: int
    """The log id that took it."""


@dataclass(frozen=True)
class SourceLog:
    """The log of one source: which files it has taken, by log id; or where it begins, as that of Kafka has it."""

    latest_id: int = -1
    entries: Sequence[LogEntry] = ()
    compact_ids: tuple[int, ...] = ()
    """The ids whose file is a `.compact` one, ascending."""
    start: str | None = None
    """Where the source begins, as an offset of its own; None for a log of files."""

    @property
    def paths(self) -> set[str]:
        """Every path that was taken."""
        return {entry.path for entry in self.entries}

    def extended(self, log_id: int, added: tuple[LogEntry, ...]) -> SourceLog:
        """The log with what one more id has taken."""
        is_compact = log_file_name(log_id, self.compact_ids).endswith(".compact")
        return SourceLog(
            log_id, (*self.entries, *added), (*self.compact_ids, log_id) if is_compact else self.compact_ids
        )

    def taken(self, first_id: int, last_id: int) -> tuple[LogEntry, ...]:
        """The files that the log ids from `first_id` to `last_id` took."""
        return tuple(entry for entry in self.entries if first_id <= entry.batch_id <= last_id)


@dataclass(frozen=True)
class LogAddition:
    """What a batch adds to its source's own log: nothing, where the source keeps none."""

    entries: tuple[LogEntry, ...] = ()
    sizes: tuple[int, ...] = ()
    """The bytes of each of these files, in this order; the log does not keep them."""
    is_there: bool = False
    """Whether the log has them already: a crash came between the two logs."""
    start: str | None = None
    """Where a source begins that logs that alone, once, before its first batch; None where it does not."""

    def __bool__(self) -> bool:
        return bool(self.entries)


_START_FILE = "0"
_START_HEAD = b"\0v1\n"
"""In front of where a source begins; Kafka's first version expected any byte before the version's line."""
_ENTRIES = msgspec.json.Decoder(list[LogEntry])


def encode_start(start: str) -> tuple[str, bytes]:
    """The name and the bytes of the file that says where a source begins, as Spark writes it."""
    return _START_FILE, _START_HEAD + start.encode()


def read_start(content: bytes) -> str | None:
    """Where a source begins, by its file; None where the file is one of another kind."""
    return content.removeprefix(_START_HEAD).decode("utf-8", "replace") if content.startswith(_START_HEAD) else None


def read_source_log(folder: LogFolder, *, storage: Storage) -> SourceLog:
    """Read what a file source has taken: the newest compacted file and every file after it.

    Raises:
        RefusedError: A file that Spark needs is missing or damaged.
    """
    latest = folder.latest
    if latest is None:
        return SourceLog()
    if folder.gap is not None:
        raise _missing(folder, folder.gap, latest)
    entries: list[LogEntry] = []
    for log_id in range(folder.compact_ids[-1] if folder.compact_ids else 0, latest + 1):
        entries += read_source_entries(folder.file(log_id), storage=storage)
    return SourceLog(latest, entries, folder.compact_ids)


def read_source_entries(location: str, *, storage: Storage) -> list[LogEntry]:
    """Read one file of a source's log.

    Raises:
        RefusedError: It is missing or damaged.
    """
    file = read_log_of_files(location, storage=storage)
    if file is None:
        raise damaged(location, "the file is gone")
    entries = file.entries(_ENTRIES)
    if not entries:
        raise damaged(location, "the file ends after its version line; Spark logs no batch without files")
    return entries


def read_entries(folder: LogFolder, first_id: int, last_id: int, *, storage: Storage) -> list[LogEntry]:
    """What the log ids after `first_id` up to `last_id` took, from the files that hold them.

    Raises:
        RefusedError: A file that holds them is missing or damaged.
    """
    entries: list[LogEntry] = []
    for log_id in range(first_id + 1, last_id + 1):
        compact = min((found for found in folder.compact_ids if found >= log_id), default=None)
        holder = log_id if log_id in folder.ids else compact
        if holder is None:
            raise _missing(folder, log_id, last_id)
        found = read_source_entries(folder.file(holder), storage=storage)
        entries += [entry for entry in found if entry.batch_id == log_id]
    return entries


def log_file_name(log_id: int, compact_ids: tuple[int, ...]) -> str:
    """The name that Spark gives the file of a log id, after the compactions that are there."""
    return f"{log_id}.compact" if (log_id + 1) % compact_interval(compact_ids) == 0 else str(log_id)


def encode_source_log(log: SourceLog, log_id: int, added: tuple[LogEntry, ...]) -> tuple[str, bytes]:
    """The name and the bytes of the log file that takes `added` under `log_id`, exactly as Spark writes them.

    On every compaction id the file is `<id>.compact` and repeats all earlier entries unchanged.
    """
    name = log_file_name(log_id, log.compact_ids)
    entries = [*log.entries, *added] if name.endswith(".compact") else added
    return name, b"\n".join([b"v1", *map(_ENCODER.encode, entries)])


_ENCODER = msgspec.json.Encoder()


def _missing(folder: LogFolder, log_id: int, latest: int) -> RefusedError:
    return RefusedError(
        Problem(
            code="SOURCE_LOG_GAP",
            file=join(folder.location, log_file_name(log_id, folder.compact_ids)),
            cause=f"entry {log_id} of the file source's log is missing, the newest is {latest}",
            consequence="Spark fails at the next start, or reads files again",
            remedy="restore the file and its `.crc` from a backup, or declare a new stream with a sink of its own",
        )
    )
