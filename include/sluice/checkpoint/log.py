"""Spark's numbered logs: `offsets/`, `commits/`, `sources/<n>/`, `_spark_metadata/`.

A log is a folder of files named by a number; the first line of each is its version. Logs of files are compacted:
every so many ids the file is `<id>.compact` and holds all entries so far. Dot-files are sidecars (`.N.crc`) and
temporary files; other names are tolerated and ignored, as Spark does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import msgspec

from sluice.errors import Problem, RefusedError, StorageError, TooLargeError
from sluice.free_memory import available_bytes
from sluice.locations import join
from sluice.storage import Storage

MOST_BYTES = 64 * 1024 * 1024 * 1024
"""The largest log of files: some hundred millions of them."""
DEFAULT_COMPACT_INTERVAL = 10
"""`spark.sql.streaming.fileSource.log.compactInterval` unless a session says otherwise; ours never does."""

E = TypeVar("E")

_PIECE_BYTES = 8 * 1024 * 1024
"""How much of a log is taken apart at once: all of it would cost several times its size."""
_BYTES_PER_BYTE = 3
"""The memory that reading a log of files takes, by its size (measured: 2.8, at 150 bytes an entry)."""

_ID = re.compile(r"0|[1-9]\d{0,17}")
_SIDECAR = re.compile(r"\.(\d{1,18})(?:\.compact)?\.crc")
_VERSION = re.compile(r"v(\d{1,9})")


@dataclass(frozen=True)
class LogFolder:
    """The names in one numbered log."""

    location: str
    ids: tuple[int, ...]
    """Ids of plain files, ascending."""
    compact_ids: tuple[int, ...]
    """Ids of `.compact` files, ascending."""
    sidecars: Mapping[int, str]
    """The `.crc` files by the id of the file that they are beside, or were."""

    @property
    def latest(self) -> int | None:
        """The newest id, plain or compacted; None in an empty log."""
        newest = [ids[-1] for ids in (self.ids, self.compact_ids) if ids]
        return max(newest, default=None)

    @property
    def gap(self) -> int | None:
        """The newest id that is missing after the newest compaction; None when all are there."""
        newest_compact = self.compact_ids[-1] if self.compact_ids else -1
        present = {log_id for log_id in self.ids if log_id > newest_compact}
        latest = newest_compact if self.latest is None else self.latest
        if len(present) == latest - newest_compact:
            return None
        # Looked for, not listed: ids come from file names, and may be as far apart as names can tell.
        return next(log_id for log_id in range(latest, newest_compact, -1) if log_id not in present)

    def file(self, log_id: int) -> str:
        """The location of one id's file."""
        return join(self.location, f"{log_id}.compact" if log_id in self.compact_ids else str(log_id))


@dataclass(frozen=True)
class LogFile:
    """One file of a log: its version and what follows it."""

    location: str
    version: int
    content: bytes
    """The whole file: a log of millions of files is not copied."""
    begin: int
    """Where the line after the version begins."""

    @cached_property
    def lines(self) -> tuple[bytes, ...]:
        r"""The lines after the version. Only `\n` ends one: a path may hold any other that Python would split at."""
        body = self.content[self.begin :].rstrip(b"\n")
        return tuple(body.split(b"\n")) if body else ()

    def entries(self, decoder: msgspec.json.Decoder[list[E]]) -> list[E]:
        """What the lines after the version hold, one JSON document each; empty lines are passed over.

        Raises:
            RefusedError: One does not parse, or there is none.
        """
        found: list[E] = []
        at = self.begin
        try:
            while at < len(self.content):
                end = self.content.find(b"\n", at + _PIECE_BYTES)
                piece = self.content[at : end if end >= 0 else None]
                found += decoder.decode(b"[" + b",".join(line for line in piece.split(b"\n") if line) + b"]")
                at = end + 1 if end >= 0 else len(self.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise damaged(self.location, f"an entry does not parse: {exc}") from exc
        return found


def list_log(location: str, *, storage: Storage) -> LogFolder | None:
    """List a log; None when its folder does not exist."""
    folder = storage.list_folder(location)
    if folder is None:
        return None
    plain: list[int] = []
    compacted: list[int] = []
    sidecars: dict[int, str] = {}
    for name in folder.files:
        if _ID.fullmatch(name):
            plain.append(int(name))
        elif name.endswith(".compact") and _ID.fullmatch(name[: -len(".compact")]):
            compacted.append(int(name[: -len(".compact")]))
        elif match := _SIDECAR.fullmatch(name):
            sidecars[int(match[1])] = name
    return LogFolder(location, tuple(sorted(plain)), tuple(sorted(compacted)), sidecars)


def read_log_file(location: str, *, storage: Storage, max_version: int, max_bytes: int) -> LogFile | None:
    """Read one file of a log; None when there is none.

    Raises:
        RefusedError: It is empty, has no version line, or a version that Spark 4.2 does not write.
        StorageError: It can't be read.
    """
    content = storage.read(location, max_bytes=max_bytes)
    if content is None:
        return None
    if not content.strip():
        raise damaged(location, "the file is empty")
    header = content[: content.find(b"\n")] if b"\n" in content else content
    match = _VERSION.fullmatch(header.decode("ascii", errors="replace"))
    if match is None:
        raise damaged(location, f"the first line is no version: {header[:40]!r}")
    version = int(match[1])
    if not 1 <= version <= max_version:
        raise RefusedError(
            Problem(
                code="LOG_VERSION_UNKNOWN",
                file=location,
                cause=f"the file has version v{version}; Spark 4.2 writes up to v{max_version}",
                consequence="Spark 4.2 refuses to read it",
                remedy="upgrade Spark and Sluice; never edit the version",
            )
        )
    return LogFile(location, version, content, len(header) + 1)


def read_log_of_files(location: str, *, storage: Storage) -> LogFile | None:
    """Read one file of a log of files, as large as memory allows; None when there is none.

    Raises:
        RefusedError: See `read_log_file`.
        StorageError: It can't be read, or there is not memory enough.
    """
    available = available_bytes()
    most = MOST_BYTES if available is None else min(MOST_BYTES, available // _BYTES_PER_BYTE)
    try:
        return read_log_file(location, storage=storage, max_version=1, max_bytes=most)
    except TooLargeError as exc:
        needed, free = _gigabytes(exc.size_bytes * _BYTES_PER_BYTE), _gigabytes(available or MOST_BYTES)
        raise StorageError(
            f"the log of files has {exc.size_bytes:,} bytes: reading it takes {needed} of memory, {free} are free",
            where=location,
            remedy="give this process more memory, and leave the file as it is: without it, every file is read again",
        ) from exc


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:,.1f} GB"


def damaged(location: str, cause: str) -> RefusedError:
    """The refusal for a file of a checkpoint that does not parse."""
    return RefusedError(
        Problem(
            code="FILE_DAMAGED",
            file=location,
            cause=cause,
            consequence="Spark fails at the next start, mostly without naming the file",
            remedy="restore the file and its `.crc` from a backup, or declare a new stream with a sink of its own",
        )
    )


def compact_interval(compact_ids: tuple[int, ...], default: int = DEFAULT_COMPACT_INTERVAL) -> int:
    """The interval that Spark goes on with, given the `.compact` files that are there.

    The rules are those of `CompactibleFileStreamLog`: two or more files tell it by their distance; a single one
    allows the smallest divisor of its id + 1 that is not below the default.
    """
    if not compact_ids:
        return default
    if len(compact_ids) >= 2:
        return compact_ids[-1] - compact_ids[-2]
    length = compact_ids[0] + 1
    if length <= default or default >= length // 2:
        return length
    # By the smaller divisor of each pair: ids come from file names, and a huge one must not cost minutes.
    smaller = (divisor for divisor in range(1, min(math.isqrt(length), 1_000_000) + 1) if length % divisor == 0)
    return min(divisor for small in smaller for divisor in (small, length // small) if divisor >= default)
