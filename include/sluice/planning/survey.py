"""Looks at everything that a plan is decided from: the checkpoint's logs, the sources, the sink. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import OffsetFile, read_offset_file
from sluice.checkpoint.places import offsets_folder
from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.checkpoint.source_log import SourceLog
from sluice.checkpoint.state_store import has_state
from sluice.errors import DeclarationError, Problem, RefusedError, StorageError
from sluice.gate.decided_batch import is_pending_decided
from sluice.home import Generation, SourceLine, StreamHome, log_keys
from sluice.paths import check_folder
from sluice.planning.forgotten_batches import pending_forgotten
from sluice.planning.missing_checkpoint import writers_before
from sluice.planning.next_watermark import usable
from sluice.planning.older_table import older_sink
from sluice.planning.pending_inputs import pending_problems
from sluice.sinks.contract import SinkState
from sluice.sources.contract import Available, Bound, OwnLog, Position, VersionedSource
from sluice.storage import Storage
from sluice.stream import Stream
from sluice.watermarks import Watermarks


@dataclass(frozen=True)
class Survey:
    """What was seen."""

    stream: Stream
    generation: int
    known: Generation | None
    """What is known of the generation; None before its first run."""
    checkpoint: CheckpointState
    lines: tuple[SourceLine, ...] | None
    """The order of sources in Spark's plan; None when only Spark can tell."""
    available: Mapping[str, Available]
    started_at: dict[str, Mapping[str, Any]]
    """By source, what `starting` was resolved to; empty before the first run."""
    unreadable: Mapping[str, StorageError]
    """Sources that could not be read, with the reason."""
    pending_problems: tuple[Problem, ...] = ()
    """What the planned, uncommitted batch lacks."""
    sink: SinkState = SinkState(exists=False)
    forgotten: Problem | None = None
    """Why the sink can't tell whether it has the planned, uncommitted batch."""
    older: Problem | None = None
    """That the sink lacks a batch that was written into it, or, not blocking, that it can't tell."""
    unnoted: Problem | None = None
    """That a sink of which the home notes nothing has none of the batches; see `unnoted_sink`."""
    logs: Mapping[str, OwnLog] = field(default_factory=dict)
    """The sources' own logs, by their folders below `sources/`."""
    refusal: Problem | None = None
    """Why a source or the sink does not allow going on."""
    is_decided: bool = False
    """Whether a run that died has decided where the rows of the planned, uncommitted batch go."""
    has_other_inputs: bool = False
    """Whether files of that batch have changed since they were read."""
    watermarks: Watermarks | None = None
    """How far each `withWatermark` has come; None when nothing was measured on this checkpoint."""
    foreign_owner: Problem | None = None
    """Whose checkpoint it is, if it is not the stream's."""
    writers_before: frozenset[str] = frozenset()
    """Which other streams of the home wrote the tables of one without a checkpoint: see `renamed`."""

    @property
    def starts(self) -> dict[str, Mapping[str, Any]]:
        """By source, where it begins, as far as `starting` says anything; kept or found now."""
        found = {name: found.started_at for name, found in self.available.items()}
        return {name: start for name, start in (self.started_at | found).items() if start or name in self.started_at}


def survey(stream: Stream, home: StreamHome, bound: Bound, now: datetime) -> Survey:
    """Look at a stream.

    Args:
        stream: The declaration, with absolute locations.
        home: The stream's folder in the home.
        bound: Where the run must stop taking input.
        now: The time of planning.

    Raises:
        StorageError: The checkpoint can't be read.
        RefusedError: A file of the home is damaged.
        DeclarationError: A source is not what the declaration says, or a file is where a folder has to be.
    """
    for location, what in ((home.location, "the home"), (stream.checkpoint, "the checkpoint")):
        check_folder(location, f"{what} of {stream.place}")
    number = home.current_generation()
    known = home.generation(number)
    checkpoint = read_checkpoint(
        home.checkpoint_location(number),
        storage=home.storage,
        log_keys=log_keys(known),
        known_id=known.query_id if known is not None else None,
    )
    lines = source_lines(stream, known, checkpoint)
    seen = Survey(stream, number, known, checkpoint, lines, {}, _started_at(home, number, known), {})
    watermarks = usable(home.watermarks(number), checkpoint)
    seen = replace(
        seen,
        watermarks=watermarks,
        foreign_owner=home.foreign_owner(),
        logs=own_logs(home, number, checkpoint.source_logs),
    )
    if seen.foreign_owner is not None or checkpoint.blocking is not None or lines is None:
        return seen
    try:
        query_id = known.query_id if known else checkpoint.query_id
        sink = stream.sink.state(query_id, storage=home.storage)
        lost = pending_forgotten(stream, stream.sink, sink, checkpoint, query_id, storage=home.storage)
        older = older_sink(stream, sink, known, checkpoint.committed_id, storage=home.storage)
        writers = writers_before(stream, home, checkpoint, sink, number)
        seen = replace(seen, sink=sink, forgotten=lost, older=older, writers_before=writers)
        return _survey_sources(seen, home, bound, now)
    except RefusedError as refused:
        return replace(seen, refusal=refused.finding)


def _started_at(home: StreamHome, number: int, known: Generation | None) -> dict[str, Mapping[str, Any]]:
    """What `starting` was resolved to, by the first run that was planned."""
    checked = home.checked() if known is None else None
    before = known.sources if known is not None else checked.sources if checked is not None else {}
    return {**before, **home.started(number)}


def source_lines(
    stream: Stream, known: Generation | None, checkpoint: CheckpointState
) -> tuple[SourceLine, ...] | None:
    """The order of sources, as far as it can be told without Spark."""
    if known is not None:
        return known.lines
    if checkpoint.planned is not None and checkpoint.planned.version == 2:
        return tuple(SourceLine(key, key) for key in checkpoint.planned.offsets)
    if checkpoint.is_new or len(stream.sources) == 1:
        return tuple(SourceLine(name, str(index)) for index, name in enumerate(stream.sources))
    return None


def own_logs(home: StreamHome, number: int, logs: Mapping[str, SourceLog]) -> Mapping[str, OwnLog]:
    """The own logs of a generation's sources, by their folders, with what the home has noted of them."""
    noted = {name: home.taken(number, name) for name in logs}
    return {
        name: OwnLog(log, noted[name].sizes, noted[name].unread, noted[name].times_ms) for name, log in logs.items()
    }


def positions(seen: Survey, planned: OffsetFile | None) -> dict[str, Position]:
    """How far a planned batch reads every declared source."""
    offsets = _by_source(seen, planned)
    found: dict[str, Position] = {}
    for line in seen.lines or ():
        if line.source not in found:
            found[line.source] = Position(
                offset=offsets.get(line.source),
                log=seen.logs.get(line.log, OwnLog()),
                started_at=seen.started_at.get(line.source, {}),
                has_begun=seen.checkpoint.planned is not None,
                mark=seen.known.marks.get(line.source) if seen.known is not None else None,
            )
    return {name: found.get(name, Position(None)) for name in seen.stream.sources}


def _by_source(seen: Survey, planned: OffsetFile | None) -> dict[str, str | None]:
    """The offsets of a batch; the second format of Spark's log has a key in each line, the first an order."""
    names = [line.source for line in seen.lines or ()]
    if planned is None or (planned.version == 2 and planned.offsets.keys() <= set(names)):
        return {} if planned is None else dict(planned.offsets)
    # Of a source that is read twice, the first line counts.
    return dict(reversed(list(zip(names, planned.offsets.values(), strict=False))))


def _earlier(seen: Survey, source: str, storage: Storage) -> Iterator[str]:
    """Where the batches before the newest planned one end; what can't be read tells nothing, nor does Spark read it."""
    log = list_log(offsets_folder(seen.checkpoint.location), storage=storage)
    if log is None:
        return
    for batch_id in log.ids[:-1]:
        with suppress(RefusedError):
            batch = read_offset_file(log.file(batch_id), batch_id, storage=storage)
            if (offset := positions(seen, batch)[source].offset) is not None:
                yield offset


def sink_has_newest(seen: Survey) -> bool:
    """Whether the sink has the newest planned batch."""
    planned_id = seen.checkpoint.planned_id
    return seen.stream.sink.is_idempotent and planned_id is not None and seen.sink.holds(planned_id)


def rows_count(seen: Survey) -> bool:
    """Whether the rows of the pending batch count already: the sink has them, or it is decided that it will."""
    return sink_has_newest(seen) or seen.is_decided


def pending_id(seen: Survey) -> int | None:
    """The batch that is planned and not committed; None when there is none."""
    return seen.checkpoint.planned_id if seen.checkpoint.is_pending else None


def first_computed(seen: Survey) -> int:
    """The first batch whose rows are made by what is declared now: a pending one, unless its rows count already."""
    pending, planned_id = pending_id(seen), seen.checkpoint.planned_id
    if pending is not None and not rows_count(seen):
        return pending
    return 0 if planned_id is None else planned_id + 1


def _survey_sources(seen: Survey, home: StreamHome, bound: Bound, now: datetime) -> Survey:
    stream, checkpoint = seen.stream, seen.checkpoint
    has_versions = any(isinstance(source, VersionedSource) for source in stream.sources.values())
    if bound.to_version is not None and not has_versions:
        raise DeclarationError(
            "the run is bounded by a table version, and no source is a Delta table",
            where=stream.place,
            remedy="bound it by a time (`--until`)",
        )
    at = positions(seen, checkpoint.planned)
    before = positions(seen, checkpoint.previous)
    available: dict[str, Available] = {}
    unreadable: dict[str, StorageError] = {}
    pending: list[Problem] = []
    has_changed = False
    read_sources = {line.source for line in seen.lines or ()}
    seen = replace(seen, is_decided=is_pending_decided(home, seen.generation, checkpoint))
    is_in_sink, is_counted = sink_has_newest(seen), rows_count(seen)
    for name, source in stream.sources.items():
        if name not in read_sources:
            continue
        try:
            end = at[name].offset
            if checkpoint.is_pending and end is not None and end != before[name].offset:
                changed = source.read_otherwise(before[name], end, home.storage)
                has_changed |= bool(changed)
                pending += pending_problems(
                    stream,
                    source,
                    before[name],
                    end,
                    is_in_sink=is_in_sink,
                    is_decided=seen.is_decided,
                    has_state=is_counted and has_state(checkpoint.location, storage=home.storage),
                    changed=changed if is_counted else (),
                    storage=home.storage,
                )
                if not is_counted:
                    at[name] = replace(at[name], pending=before[name])
            position = replace(at[name], earlier=partial(_earlier, seen, name, home.storage))
            available[name] = source.available(position, bound, storage=home.storage, now=now)
        except StorageError as exc:
            unreadable[name] = exc
        except DeclarationError as exc:
            raise exc.at(f"{stream.place}, source `{name}`") from exc
    return replace(
        seen,
        available=available,
        unreadable=unreadable,
        pending_problems=tuple(pending),
        has_other_inputs=has_changed,
    )
