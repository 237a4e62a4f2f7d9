"""`offsets/N` and `commits/N`: what a batch was planned to read, and that it was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sluice.checkpoint.log import LogFile, damaged, read_log_file
from sluice.storage import Storage
from sluice.typed_json import decode_as

NO_OFFSET = "-"
"""The line of a source that has no offset yet."""

_MAX_BYTES = 64 * 1024 * 1024


class _Metadata(msgspec.Struct, rename="camel"):
    batch_watermark_ms: int = 0
    batch_timestamp_ms: int = 0
    conf: dict[str, str] = {}


class _Commit(msgspec.Struct, rename="camel"):
    next_batch_watermark_ms: int = 0
    state_unique_ids: dict[str, Any] | None = None


@dataclass(frozen=True)
class OffsetFile:
    """One planned batch."""

    batch_id: int
    version: int
    watermark_ms: int
    """The event-time watermark that the batch runs with, in milliseconds since the epoch; 0 for none."""
    timestamp_ms: int
    """What `current_timestamp()` returns in the batch, in milliseconds since the epoch."""
    conf: Mapping[str, str]
    """The settings that are pinned for the life of the checkpoint."""
    offsets: Mapping[str, str | None]
    """End offset (JSON) by source key, in plan order: `0`, `1`, ... (v1) or names (v2); None for no offset yet."""
    is_epoch: bool = False
    """Whether a continuous query has written it, of an epoch: it has neither a clock nor settings."""


@dataclass(frozen=True)
class CommitFile:
    """One batch that is done."""

    batch_id: int
    version: int
    next_watermark_ms: int
    """The watermark for the next batch, in milliseconds since the epoch; 0 for none."""


def read_offset_file(location: str, batch_id: int, *, storage: Storage) -> OffsetFile | None:
    """Read one `offsets/N`, of log format v1 or v2; None when there is none.

    Raises:
        RefusedError: It is damaged or of an unknown version.
    """
    file = read_log_file(location, storage=storage, max_version=2, max_bytes=_MAX_BYTES)
    if file is None:
        return None
    if len(file.lines) < 2:
        raise damaged(location, "the file ends before the first source's offset")
    # A continuous query leaves the metadata line empty.
    metadata = _parse(file, file.lines[0], _Metadata, "line 2") if file.lines[0] else _Metadata()
    offsets: dict[str, str | None] = {}
    for index, line in enumerate(file.lines[1:]):
        key, offset = (str(index), line) if file.version == 1 else _keyed(file, line, index)
        if offset == NO_OFFSET.encode():
            offsets[key] = None
        else:
            _parse(file, offset, msgspec.Raw, f"line {index + 3}")
            offsets[key] = offset.decode()
    return OffsetFile(
        batch_id=batch_id,
        version=file.version,
        watermark_ms=metadata.batch_watermark_ms,
        timestamp_ms=metadata.batch_timestamp_ms,
        conf=metadata.conf,
        offsets=offsets,
        is_epoch=not file.lines[0],
    )


def read_commit_file(location: str, batch_id: int, *, storage: Storage) -> CommitFile | None:
    """Read one `commits/N`, of version v1 or v2 (with state ids); None when there is none.

    Raises:
        RefusedError: It is damaged or of an unknown version.
    """
    file = read_log_file(location, storage=storage, max_version=2, max_bytes=_MAX_BYTES)
    if file is None:
        return None
    if not file.lines:
        raise damaged(location, "the file ends after its version line")
    commit = _parse(file, file.lines[0], _Commit, "line 2")
    return CommitFile(batch_id=batch_id, version=file.version, next_watermark_ms=commit.next_batch_watermark_ms)


def encode_offset_file(planned: OffsetFile) -> bytes:
    """The bytes of a planned batch, exactly as Spark writes them in log format v1."""
    metadata = {
        "batchWatermarkMs": planned.watermark_ms,
        "batchTimestampMs": planned.timestamp_ms,
        "conf": dict(planned.conf),
    }
    lines = [NO_OFFSET if offset is None else offset for offset in planned.offsets.values()]
    return "\n".join(["v1", msgspec.json.encode(metadata).decode(), *lines]).encode()


def decoded_offset(offset: str | None) -> Any:
    """An offset as documents show it; None for none yet."""
    return None if offset is None else msgspec.json.decode(offset)


def logged_offset(offset: str | None) -> int | None:
    """The `logOffset` of a file source's offset; None for offsets of other kinds."""
    document = decoded_offset(offset)
    found = document.get("logOffset") if isinstance(document, dict) else None
    return found if isinstance(found, int) else None


def _keyed(file: LogFile, line: bytes, index: int) -> tuple[str, bytes]:
    key, separator, offset = line.partition(b":")
    if not separator or not key:
        raise damaged(file.location, f"line {index + 3} has no source name")
    return key.decode(errors="replace"), offset


def _parse(file: LogFile, line: bytes, kind: Any, place: str) -> Any:
    try:
        if kind is msgspec.Raw:
            # Any well-formed JSON will do; what it means is the source's business.
            return msgspec.json.decode(line)
        return decode_as(line, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise damaged(file.location, f"{place} does not parse: {exc}") from exc
