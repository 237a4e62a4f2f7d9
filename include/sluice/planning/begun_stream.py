"""A stream whose sources read as its generation began to."""

from __future__ import annotations

from dataclasses import replace

from sluice.home import Generation
from sluice.sources.contract import FolderTypedSource
from sluice.stream import Stream


def as_begun(stream: Stream, record: Generation | None) -> Stream:
    """The same stream, whose columns that are names of folders have the types that the generation began with.

    Args:
        stream: The declaration.
        record: What is known of the generation; None before its first run.
    """
    if record is None or not record.folders:
        return stream
    typed = {
        name: source.with_folders(record.folders.get(name, {}))
        for name, source in stream.sources.items()
        if isinstance(source, FolderTypedSource)
    }
    return replace(stream, sources={**stream.sources, **typed})
