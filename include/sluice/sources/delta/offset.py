"""Offsets of a Delta source, as Spark writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from sluice.errors import RefusedError
from sluice.sources.contract import offset_of_another_kind
from sluice.typed_json import decode_as


class Offset(msgspec.Struct, rename="camel", frozen=True):
    """How far a Delta source was read; the names are Spark's."""

    reservoir_id: str
    reservoir_version: Annotated[int, msgspec.Meta(ge=0)]
    index: int
    is_starting_version: bool = False
    source_version: int = 1


def write_offset(position: Offset) -> str:
    """An offset as JSON, byte for byte as Spark writes it."""
    content = {
        "sourceVersion": 1,
        "reservoirId": position.reservoir_id,
        "reservoirVersion": position.reservoir_version,
        "index": position.index,
        "isStartingVersion": position.is_starting_version,
    }
    return msgspec.json.encode(content).decode()


def read_offset(offset: str, path: str) -> Offset:
    """An offset as a checkpoint has it.

    Raises:
        RefusedError: It is none of a Delta source.
    """
    try:
        return decode_as(offset, Offset)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RefusedError(offset_of_another_kind(offset, "Delta", path)) from exc


def last_version(end: Any) -> int | None:
    """The last version of which something was read, by an offset that was decoded; None where it does not tell."""
    try:
        offset = decode_as(msgspec.json.encode(end), Offset)
    except (msgspec.DecodeError, RecursionError):
        return None
    # `{V + 1, -1}` stands for all of version V.
    return offset.reservoir_version - 1 if offset.index == -1 else offset.reservoir_version


def before_all(table_id: str, started_at: Mapping[str, Any], snapshot: int) -> Offset:
    """Before the first batch: of a version's changes, or of the whole table as it is in a version."""
    version = started_at.get("version")
    return (
        Offset(table_id, snapshot, -1, is_starting_version=True) if version is None else Offset(table_id, version, -1)
    )
