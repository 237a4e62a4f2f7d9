"""A stream whose sources read as its generation began to."""

from __future__ import annotations

from dataclasses import replace

from sluice.home import Generation
from sluice.stream import Stream


def as_begun(stream: Stream, record: Generation | None) -> Stream:
    """The same stream, whose columns that are names of folders have the types that the generation began with.

    Args:
        stream: The declaration.
        record: What is known of the generation; None before its first run.
    """
    if record is None or not record.folders:
        return stream
    sources = stream.sources.items()
    return replace(
        stream, sources={name: source.with_folders(record.folders.get(name, {})) for name, source in sources}
    )
