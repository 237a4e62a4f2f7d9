"""Whether a query goes on with the checkpoint that is there: asked by `sluice check`, and by a run before it plans."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.errors import Problem, RefusedError
from sluice.gate.decided_batch import is_pending_decided
from sluice.generation_notes import KeptState
from sluice.home import Generation, StreamHome, log_keys, source_order
from sluice.planning.kept_mode import may_have_written
from sluice.planning.survey import Survey
from sluice.sinks.contract import SinkState
from sluice.spark.kept_state import check_kept_state, read_kept_state
from sluice.spark.query import Query
from sluice.spark.state_check import check_state
from sluice.storage import Storage
from sluice.stream import Stream


@dataclass(frozen=True)
class Begun:
    """What is there of a stream, and a query has to go on with."""

    known: Generation | None
    """What is known of the generation; None before its first run."""
    checkpoint: CheckpointState
    sink: SinkState
    is_decided: bool
    """Whether it is decided where the rows of the pending batch go."""

    @classmethod
    def of(cls, seen: Survey) -> Begun:
        """What a run has seen."""
        return cls(seen.known, seen.checkpoint, seen.sink, seen.is_decided)

    @classmethod
    def read(cls, stream: Stream, home: StreamHome, known: Generation) -> Begun:
        """Read what is there of a generation, without what its sources have.

        Raises:
            RefusedError: A file of the home is damaged, or something else is at the sink's place.
            StorageError: Something can't be read right now.
        """
        number, storage = known.generation, home.storage
        checkpoint = read_checkpoint(
            home.checkpoint_location(number), storage=storage, log_keys=log_keys(known), known_id=known.query_id
        )
        sink = stream.sink.state(known.query_id, storage=storage)
        return cls(known, checkpoint, sink, is_pending_decided(home, number, checkpoint))

    @property
    def is_nothing(self) -> bool:
        """Whether no batch counts yet: what was planned of a first one, and what is pinned with it, is planned anew."""
        checkpoint = self.checkpoint
        if checkpoint.is_new:
            return True
        is_first = checkpoint.planned_id == 0 and checkpoint.committed is None
        return is_first and not self.is_decided and not self.sink.holds(0)

    def has_written(self, stream: Stream) -> bool:
        """Whether rows that the state has made may be anywhere."""
        return may_have_written(stream, self.checkpoint, self.sink, is_decided=self.is_decided)


def check_order(query: Query, begun: Begun) -> None:
    """Make sure that Spark numbers the sources as it did.

    Raises:
        RefusedError: It does not.
    """
    known = begun.known
    if known is None or known.lines == query.lines:
        return
    was, now = source_order(known.lines), source_order(query.lines)
    raise RefusedError(
        Problem(
            code="SOURCE_ORDER_CHANGED",
            file=begun.checkpoint.location,
            cause=f"the query reads its sources as ({now}), the checkpoint was made with ({was})",
            consequence="Spark would take the offsets of one source for those of another",
            remedy="restore the order in the transform (of unions and joins), or declare a new stream with"
            " a sink of its own",
        )
    )


def check_fits(query: Query, begun: Begun, *, storage: Storage) -> tuple[bool, KeptState]:
    """Make sure that a query goes on with the state of a checkpoint, and that it means to it what it has meant.

    Args:
        query: The query.
        begun: What is there.
        storage: Where the checkpoint is.

    Returns:
        Whether it is sure that Spark takes that state, and what the query keeps.

    Raises:
        RefusedError: It does not.
        BatchFailedError: Spark can't optimise the query.
        StorageError: The checkpoint can't be read.
    """
    checkpoint, stream = begun.checkpoint, query.stream
    fits = check_state(query.frame, checkpoint, stream.output_mode, place=query.place, storage=storage)
    kept = read_kept_state(query)
    then = begun.known.state if begun.known is not None else None
    if begun.has_written(stream):
        check_kept_state(kept, then, checkpoint.location, query.place)
    return fits, kept
