"""Ending a query that goes on by itself, between two of its batches.

`StreamingQuery.stop` interrupts the batch under way: it runs again at the next start, and a sink that takes it twice
has its rows twice. A Spark in this process can be told to begin no further batch. A server can't: there the query is
stopped when it waits for its next trigger, or has committed a batch, which may leave one that has just begun to the
next run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sluice.spark.classic_plan import java_class
from sluice.trigger import LiveTrigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_ENDED = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"
_LOOK_MS = 20
"""How often it is looked whether a query waits: one that is behind does so for a moment only."""


class Ending(Protocol):
    """A query that is to end once it is between two batches."""

    def is_idle(self, seconds: float) -> bool:
        """Wait until it has no batch under way; tells whether that is so by now.

        Args:
            seconds: How long to wait at the most.
        """
        ...


def ending_query(
    session: SparkSession, query: StreamingQuery, trigger: LiveTrigger, newest_committed: Callable[[], int]
) -> Ending:
    """Ask a query to begin no further batch, as far as it can be asked.

    Args:
        session: Where it runs.
        query: The query.
        trigger: What keeps it at work.
        newest_committed: Gives the newest batch that the commit log has; -1 for none.
    """
    execution = _execution(query)
    if execution is None or trigger.kind == "continuous":
        # An epoch ends with each interval, and may take another one to be committed.
        patience = 2 * trigger.interval_ms / 1000 if trigger.kind == "continuous" else None
        until = None if patience is None else time.monotonic() + patience
        return _Watched(query, newest_committed, newest_committed(), until)
    execution.state().set(getattr(java_class(session, _ENDED), "MODULE$"))
    return _Asked(query, execution)


def is_at_work(query: StreamingQuery) -> bool:
    """Whether a query runs, also one that was asked to begin no further batch."""
    execution = None if query.isActive else _execution(query)
    return query.isActive if execution is None else bool(execution.queryExecutionThread().isAlive())


@dataclass(frozen=True)
class _Asked:
    """A query of a Spark in this process, which begins no further batch."""

    query: StreamingQuery
    execution: Any

    def is_idle(self, seconds: float) -> bool:
        thread, until = self.execution.queryExecutionThread(), time.monotonic() + seconds
        while thread.isAlive() and self.query.status["isTriggerActive"]:
            if time.monotonic() > until:
                return False
            thread.join(_LOOK_MS)
        return True


@dataclass(frozen=True)
class _Watched:
    """A query that can't be asked: it is caught where it waits, or has just committed something."""

    query: StreamingQuery
    newest_committed: Callable[[], int]
    before: int
    """The newest batch that was committed as it was to end."""
    until: float | None
    """When nothing is waited for any more, by the monotonic clock, of a continuous query: it never waits itself."""

    def is_idle(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.query.isActive and self.newest_committed() == self.before and not self._waits():
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_MS / 1000)
        return True

    def _waits(self) -> bool:
        return not self.query.status["isTriggerActive"] if self.until is None else time.monotonic() > self.until


def _execution(query: Any) -> Any:
    """Spark's own object of a query in this process; None of one on a server."""
    started = getattr(query, "_jsq", None)
    return None if started is None else started.streamingQuery()
