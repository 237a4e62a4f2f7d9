"""Sources that are declared otherwise than when the newest batch was begun.

The checkpoint knows a source by its name and its line alone. One that is declared as another one was reads with its own
log, or from its own offset, what that other one has read already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from sluice.errors import Problem
from sluice.planning.survey import Survey
from sluice.stream import Stream


def source_fingerprints(stream: Stream) -> dict[str, str]:
    """By what it is called in words, what tells each source of a stream from another, and what it passes over."""
    found = {_called(name): _digest((source.kind, source.reading)) for name, source in stream.sources.items()}
    left_out = {_left_out_by(name): source.leaves_out for name, source in stream.sources.items()}
    return found | {key: _digest(files) for key, files in left_out.items() if files is not None}


def exchanged_sources(seen: Survey) -> Problem | None:
    """A source that is declared as another one was, which is declared otherwise itself; None where there is none."""
    edited = _edited(seen)
    for name, (_, now) in edited.items():
        was_so = next((other for other, (then, _) in edited.items() if then == now), None)
        if was_so is not None:
            return Problem(
                code="SOURCES_EXCHANGED",
                file=seen.stream.sources[name].location,
                cause=f"{_called(name)} is declared as {_called(was_so)} was when the newest batch was begun",
                consequence="it would read what the other has read already: rows would be there twice, or as others",
                remedy="declare each source as it was, or declare a new stream with a sink of its own",
            )
    return None


def filtered_otherwise(seen: Survey) -> Problem | None:
    """A source that passes over other files than when the planned batch was begun; None where there is none."""
    if not seen.checkpoint.is_pending or seen.known is None or _is_done_with(seen):
        return None
    begun, now = seen.known.newest_declared, source_fingerprints(seen.stream)
    for name, source in seen.stream.sources.items():
        key = _left_out_by(name)
        if key in begun and begun[key] != now.get(key):
            return Problem(
                code="INPUT_LEFT_OUT",
                file=source.location,
                cause=f"a planned batch reads {_called(name)}, whose `exclude_regex` was another one when it was begun",
                consequence="Spark would pass over rows of the batch and commit it without them",
                remedy="declare `exclude_regex` as it was, run the stream once, and change it then",
            )
    return None


def _is_done_with(seen: Survey) -> bool:
    """Whether nothing of the planned batch is read: the sink holds it, and no state or suite needs its rows."""
    checkpoint, stream = seen.checkpoint, seen.stream
    is_there = (
        stream.sink.is_idempotent and checkpoint.planned_id is not None and seen.sink.holds(checkpoint.planned_id)
    )
    return is_there and not checkpoint.operators and stream.quality is None


def read_by_another(seen: Survey) -> Iterator[Problem]:
    """The sources that were edited and now wait for files which another source of the stream has read."""
    for name in _edited(seen):
        if name not in seen.available:
            continue
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


def _edited(seen: Survey) -> dict[str, tuple[str, str]]:
    """The sources that are declared otherwise than when the newest batch was begun, with what told them then, and now.

    None before the first batch, and where nobody has kept it.
    """
    begun = seen.known.newest_declared if seen.known is not None and seen.checkpoint.planned is not None else {}
    now = source_fingerprints(seen.stream)
    known = {name: (begun[key], now[key]) for name in seen.stream.sources if (key := _called(name)) in begun}
    return {name: (before, after) for name, (before, after) in known.items() if before != after}


def _called(name: str) -> str:
    return f"source `{name}`"


def _left_out_by(name: str) -> str:
    return f"what source `{name}` leaves out"


def _digest(declared: object) -> str:
    # What is in it may be secret, as an option is.
    return hashlib.sha256(repr(declared).encode()).hexdigest()[:16]
