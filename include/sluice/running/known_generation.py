"""What is known of a generation while its run is at work: a drain reads a batch while the one before is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import msgspec

from sluice.generation_notes import WrittenBatch
from sluice.home import Generation, StreamHome
from sluice.planning.survey import Survey
from sluice.several_sinks import SeveralSinks
from sluice.sinks.contract import Sink, SinkState
from sluice.spark.fingerprints import read_by
from sluice.spark.query import Query
from sluice.storage import Storage


@dataclass
class KnownGeneration:
    """One generation, and its file in the home."""

    generation: Generation
    home: StreamHome
    planned_with: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """By the pending batch, where its rows did not count when that was looked at, what it was planned with."""
    _writing: Lock = field(default_factory=Lock)

    def keep(self, changed: Callable[[Generation], Generation]) -> None:
        """Change what is known, durably.

        Raises:
            LeaseLostError: Another run has taken over.
            StorageError: It could not be written.
        """
        with self._writing:
            found = changed(self.generation)
            if found != self.generation:
                self.home.keep_generation(found)
                self.generation = found

    def is_anothers(self, batch_id: int) -> bool:
        """Whether a batch whose rows count by now, and did not before, was planned with something else than now.

        Then it is noted as made by that: another driver has woken up and written it.

        Raises:
            LeaseLostError: Another run has taken over.
            StorageError: It could not be written.
        """
        then = self.planned_with.get(batch_id)
        if not then or not read_by(then, self.generation.newest_declared, with_tables=True):
            return False
        self.keep(lambda known: known.beginning(batch_id, then))
        return True

    def keep_first(self, sink: Sink, batch_id: int) -> None:
        """Note which table a first batch went into, as soon as it is there: before Spark says that the batch is done.

        Raises:
            LeaseLostError: Another run has taken over.
            RefusedError: Something else is at the sink's place.
            StorageError: It could not be read or written.
        """
        if self.generation.sink_identity is not None:
            return
        storage = self.home.storage
        state = sink.state(self.generation.query_id, storage=storage)
        if state.identity is not None:
            self.keep(lambda known: _with_written(known, sink, state, batch_id, storage=storage))


def as_in_sink(known: Generation, seen: Survey, *, storage: Storage) -> Generation:
    """What is known of a generation, with what its sink's own log tells, and no driver lived to note.

    Args:
        known: What is known.
        seen: What was seen of the checkpoint and the sink.
        storage: Where the sink is.

    Raises:
        StorageError: A table can't be read right now.
    """
    sink, committed = seen.stream.sink, seen.checkpoint.committed_id
    if committed is None and known.sink_identity not in {None, seen.sink.identity}:
        # What a first batch had made that is done again is gone.
        return msgspec.structs.replace(known, sink_identity=None, written=None, written_parts={})
    if committed is None or not sink.is_idempotent:
        return known
    return _with_written(known, sink, seen.sink, committed, storage=storage)


def _with_written(known: Generation, sink: Sink, state: SinkState, newest: int, *, storage: Storage) -> Generation:
    """What is known of a generation, with which table it is, and what is in it up to a batch."""
    changes: dict[str, Any] = {}
    if known.sink_identity is None and state.last_batch is not None:
        changes["sink_identity"] = state.identity
    main = sink.main if isinstance(sink, SeveralSinks) else sink
    written = _newer(known, main, known.written, state, newest=newest, storage=storage)
    if written is not None:
        changes["written"] = written
    if isinstance(sink, SeveralSinks):
        states = sink.table_states(known.query_id, storage=storage)
        found = {
            name: _newer(known, sink.parts[name], known.written_parts.get(name), there, newest=newest, storage=storage)
            for name, there in states.items()
        }
        newer = {
            name: msgspec.structs.replace(part, identity=states[name].identity)
            for name, part in found.items()
            if part is not None
        }
        changes["written_parts"] = {**known.written_parts, **newer}
    return msgspec.structs.replace(known, **changes)


def _newer(
    known: Generation, table: Sink, written: WrittenBatch | None, state: SinkState, *, newest: int, storage: Storage
) -> WrittenBatch | None:
    """The newest batch of a table, where that is newer than what is noted, and not beyond a batch."""
    last = state.last_batch
    if last is None or state.version is None or last > newest or (written is not None and written.batch_id >= last):
        return None
    outcome = table.outcome(known.query_id, last, storage=storage)
    # Its own version: what others have done since, such as taking it back, is theirs.
    own = outcome.version if outcome is not None and outcome.version is not None else state.version
    return WrittenBatch(last, own)


def known_folders(seen: Survey, query: Query) -> dict[str, dict[str, str]]:
    """The types of the columns that are names of folders: those of the query, and what is not there just now."""
    found = query.folders
    before = seen.known.folders if seen.known is not None and seen.checkpoint.planned is not None else {}
    every = {name: {**before.get(name, {}), **found.get(name, {})} for name in {**before, **found}}
    return {name: types for name, types in every.items() if types}
