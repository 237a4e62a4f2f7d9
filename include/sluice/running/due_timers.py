"""Time-outs and timers in processing time that become due while a run is at work, and when the next one is."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import msgspec

from sluice.checkpoint.reader import CheckpointState
from sluice.errors import StorageError
from sluice.generation_notes import KnownTimers
from sluice.planning.batch_clock import batch_clock_ms
from sluice.planning.timers import is_timer_due
from sluice.running.known_generation import KnownGeneration
from sluice.spark.query import Query
from sluice.spark.shown_error import spark_message
from sluice.times import Clock

logger = logging.getLogger(__name__)


@dataclass
class DueTimers:
    """Looks into the state behind the batches of a run, whose last word is what later runs are planned by."""

    query: Query
    known: KnownGeneration
    clock: Clock
    _has_fired: bool = False

    def take(self, state: CheckpointState) -> int | None:
        """The clock of the batch that fires what is due behind the newest batch; None when nothing is.

        One batch of a run does: what sets a time-out in the past would never come to an end.

        Args:
            state: The checkpoint, whose newest batch is committed.

        Returns:
            Milliseconds since the epoch.
        """
        if not self.query.has_timers or state.planned is None or state.is_pending:
            return None
        self._look(state)
        clock_ms = batch_clock_ms(self.clock(), state.planned)
        if self._has_fired or not is_timer_due(state, self.known.generation, clock_ms):
            return None
        self._has_fired = True
        return clock_ms

    def _look(self, state: CheckpointState) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            due_ms = self.query.next_timer_ms(state.location, self.known.home.storage)
        except (PySparkException, Py4JError, StorageError) as exc:
            # The next run begins a batch, then, whether one is due or not.
            logger.warning("Spark does not tell when the next time-out is due: %s", spark_message(exc))
            return
        if state.planned is not None:
            timers = KnownTimers(state.planned.batch_id, state.planned.timestamp_ms, due_ms)
            self.known.keep(lambda known: msgspec.structs.replace(known, timers=timers))
