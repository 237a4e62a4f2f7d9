"""Sluice's own JSON files: one format number, read strictly, written whole."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import msgspec

from sluice.errors import Problem, RefusedError
from sluice.storage import Storage
from sluice.typed_json import decode_as

FORMAT = 1
"""The newest document format that this version reads, and the one it writes."""

_MAX_BYTES = 256 * 1024 * 1024
"""Sketches of distinct values are some ten thousand bytes of each batch of a run, which may have thousands."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every JSON file of ours; unknown fields are ignored, missing ones are an error."""

    format: int = FORMAT
    if_lost: ClassVar[str] = "there is no going on without it"
    """What to do where a damaged file of the kind can't be restored, and what that costs."""


D = TypeVar("D", bound=Document)


def read_document(storage: Storage, location: str, kind: type[D]) -> D | None:
    """Read one of our files; None when there is none.

    Raises:
        RefusedError: It does not parse, lacks a field, or was written by a newer Sluice.
        StorageError: It can't be read.
    """
    content = storage.read(location, max_bytes=_MAX_BYTES)
    if content is None:
        return None
    try:
        document_format = decode_as(content, Document).format
        if document_format > FORMAT:
            raise RefusedError(
                Problem(
                    code="DOCUMENT_TOO_NEW",
                    file=location,
                    cause=f"the file has format {document_format}, this Sluice reads up to {FORMAT}",
                    consequence="what it says could be misread",
                    remedy="upgrade Sluice",
                )
            )
        return decode_as(content, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise damaged_document(location, f"the file does not parse: {exc}", kind) from exc


def damaged_document(location: str, cause: str, kind: type[Document]) -> RefusedError:
    """The refusal for one of our files that says nothing that can be understood."""
    return RefusedError(
        Problem(
            code="DOCUMENT_DAMAGED",
            file=location,
            cause=cause,
            consequence="what it says is not known",
            remedy=f"restore it from a backup; without one, {kind.if_lost}",
        )
    )


def encode_document(document: Any) -> bytes:
    """The bytes of one of our files: indented JSON that a person can read, with a final newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
