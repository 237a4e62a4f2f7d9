"""Sources that are declared otherwise than when the newest batch was begun.

The checkpoint knows a source by its name and its line alone. One that is declared as another one was reads with its own
log, or from its own offset, what that other one has read already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from sluice.errors import Problem
from sluice.planning.survey import Survey
from sluice.sources.contract import Source
from sluice.stream import Stream


def source_fingerprints(stream: Stream) -> dict[str, str]:
    """By what it is called in words, what tells each source of a stream from another."""
    return {_called(name): _digest(source) for name, source in stream.sources.items()}


def exchanged_sources(seen: Survey) -> Problem | None:
    """A source that is declared as another one was, which is declared otherwise itself; None where there is none."""
    then, now = _then(seen), source_fingerprints(seen.stream)
    for name, source in seen.stream.sources.items():
        key = _called(name)
        taken = [other for other in now if then.get(other) == now[key] != now[other]]
        if taken and then.get(key, now[key]) != now[key]:
            return Problem(
                code="SOURCES_EXCHANGED",
                file=source.location,
                cause=f"{key} is declared as {taken[0]} was when the newest batch was begun",
                consequence="it would read what the other has read already: rows would be there twice, or as others",
                remedy="declare each source as it was, or declare a new stream with a sink of its own",
            )
    return None


def read_by_another(seen: Survey) -> Iterator[Problem]:
    """The sources that were edited and now wait for files which another source of the stream has read."""
    then, now = _then(seen), source_fingerprints(seen.stream)
    edited = [name for name in seen.available if then.get(_called(name), now[_called(name)]) != now[_called(name)]]
    for name in edited:
        waiting = {entry.path for step in seen.available[name].steps for entry in step.added.entries}
        for line in {line.source: line for line in seen.lines or () if line.source != name}.values():
            twice = waiting & seen.logs[line.log].taken.paths if line.log in seen.logs else set()
            if twice:
                yield Problem(
                    code="READ_BY_ANOTHER_SOURCE",
                    file=min(twice),
                    cause=f"source `{name}` was edited, and {len(twice):,} of the files that wait for it were read by"
                    f" source `{line.source}`",
                    consequence="each source has a log of its own: this one reads them, too",
                    remedy=f"declare `{name}` as it was, if they are not to be read by it",
                    is_blocking=False,
                )


def _then(seen: Survey) -> dict[str, str]:
    """What was declared when the newest batch was begun; nothing before the first, or where nobody has kept it."""
    record = seen.record
    if record is None or not record.begun_with or seen.checkpoint.planned is None:
        return {}
    return record.begun_with[-1].declared


def _called(name: str) -> str:
    return f"source `{name}`"


def _digest(source: Source) -> str:
    # What is in it may be secret, as an option is.
    return hashlib.sha256(repr((source.kind, source.reading)).encode()).hexdigest()[:16]
