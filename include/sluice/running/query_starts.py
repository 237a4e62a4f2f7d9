"""A start of a run's query: as long as the lease holds, and with what failed in our words."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from sluice.auditing.audit import Audit
from sluice.checkpoint.places import state_folder
from sluice.errors import BatchFailedError, LeaseLostError, RefusedError, SluiceError, StorageError
from sluice.running.batch_logs import BatchLogs
from sluice.running.known_generation import KnownGeneration
from sluice.runs.lease import Lease
from sluice.spark.connect_session import is_connected
from sluice.spark.query import Query, spark_failed
from sluice.spark.query_end import ending_query, is_at_work
from sluice.spark.shown_error import OF_BATCH_FUNCTION
from sluice.spark.state_check import state_changed
from sluice.stream import Stream
from sluice.trigger import LiveTrigger, StartTrigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

_POLL_SECONDS = 1


@dataclass
class QueryStarts:
    """Starts the query of a run, once per batch or once for all, and waits for its end."""

    stream: Stream
    """Its sink knows more of what failed, too."""
    place: str
    """Where its transform is, for messages."""
    lease: Lease
    logs: BatchLogs
    audit: Audit | None
    """Knows more of what failed, of streams with a suite."""
    known: KnownGeneration
    """Is told which table a function of ours has written."""
    _failure: BaseException | None = None
    """What ended a batch in a function of ours that wrote it; Spark only tells that something did."""

    def start(self, query: Query, *, trigger: StartTrigger) -> StreamingQuery:
        """Start a query for its next batch, for all that there are, or for what comes while it is at work.

        Raises:
            SluiceError: It did not start.
        """
        function = query.function_of_batches()
        if function is not None and not is_connected(query.frame.sparkSession):
            query = replace(query, write=self._while_leased(function))
        try:
            started = query.start(self.logs.location, trigger=trigger)
        except SluiceError:
            raise
        except Exception as exc:
            raise self._failed(exc) from exc
        # Whoever stood still just before has to know before Spark commits anything.
        self._check_lease(started)
        return started

    def wait(self, query: StreamingQuery) -> None:
        """Wait for the end of a query.

        Raises:
            LeaseLostError: Another run goes on with the checkpoint.
            SluiceError: Spark failed.
        """
        while not self.has_ended(query):
            pass
        self.check_exception(query)

    def has_ended(self, query: StreamingQuery, seconds: float = _POLL_SECONDS) -> bool:
        """Wait for the end of a query; end it where the lease is lost, for another run goes on with it.

        Args:
            query: The query.
            seconds: How long to wait at the most.

        Raises:
            LeaseLostError: It is.
            BatchFailedError: Spark failed.
        """
        try:
            # Spark takes parts of a second, too.
            if query.awaitTermination(cast("int", seconds)):
                return True
        except Exception as exc:
            raise self._failed(exc) from exc
        self._check_lease(query)
        return False

    def _check_lease(self, query: StreamingQuery) -> None:
        try:
            self.lease.check()
        except LeaseLostError:
            try:
                query.stop()
            except Exception:
                # On a server, whoever took the lease over has ended the session, and the query with it.
                logger.warning("the query can't be stopped", exc_info=True)
            raise
        except StorageError:
            # It is looked at again in a second, and before anything is written here.
            logger.warning("the lease can't be looked at", exc_info=True)

    def check_exception(self, query: StreamingQuery) -> None:
        """Raise what a query ended with, if it has failed.

        Raises:
            SluiceError: It has.
        """
        exception = query.exception()
        if exception is not None:
            raise self._failed(exception) from exception

    def end_between_batches(self, session: SparkSession, query: StreamingQuery, trigger: LiveTrigger) -> None:
        """End a query that goes on by itself, once the batch under way is done.

        Raises:
            LeaseLostError: Another run goes on with the checkpoint.
        """
        ending = ending_query(session, query, trigger, self.logs.newest_commit)
        while not ending.is_idle(_POLL_SECONDS):
            self._check_lease(query)
        query.stop()

    def end(self, query: StreamingQuery) -> None:
        """Stop a query, if it runs: it may plan and commit batches by itself, which nobody would record."""
        try:
            if is_at_work(query):
                query.stop()
        except Exception:
            logger.warning("the query can't be stopped", exc_info=True)

    def keeping_failure(self, write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        """A function that writes a batch, and whose error is told as it was raised."""

        def keeping(frame: DataFrame, batch_id: int) -> None:
            try:
                write(frame, batch_id)
            except Exception as exc:
                self._failure = exc
                raise
            except BaseException as exc:
                # Spark would wait for an answer for ever: what a thread of py4j ends by is no answer.
                self._failure = failed = BatchFailedError(
                    f"what writes batch {batch_id} ended by {type(exc).__name__}",
                    where=self.stream.place,
                    remedy="let the function return, or raise an error; the next run repeats this batch as planned",
                )
                raise failed from exc

        return keeping

    def _while_leased(self, function: Callable[[DataFrame, int], object]) -> Callable[[DataFrame, int], None]:
        """A sink's function, called as long as the lease holds: nothing else keeps a second writer out of its sink."""

        def write(frame: DataFrame, batch_id: int) -> None:
            self.lease.check()
            function(frame, batch_id)
            self.known.keep_first(self.stream.sink, batch_id)

        return write

    def _failed(self, exc: Exception) -> SluiceError:
        try:
            self.lease.check()
        except LeaseLostError as lost:
            # Whatever Spark says: two of them were at one checkpoint.
            return lost
        except SluiceError:
            logger.warning("the lease can't be looked at", exc_info=True)
        if isinstance(self._failure, SluiceError):
            return self._failure
        if self.audit is not None and (cause := self.audit.cause(exc, self.logs.newest_planned)) is not None:
            return cause
        if (known := self.stream.sink.cause(f"{exc}\n{self._failure}")) is not None:
            return known
        changed = state_changed(str(exc), state_folder(self.logs.location), self.place)
        if changed is not None:
            return RefusedError(changed)
        where, condition = f"{self.stream.place}, {self.logs.location}", ""
        if isinstance(self._failure, Exception):
            # What Spark says of a function that raised is where it was called from.
            is_users = self.stream.sink.function is not None and OF_BATCH_FUNCTION in str(exc)
            exc, condition = self._failure, OF_BATCH_FUNCTION if is_users else ""
        consequence = "the next run repeats this batch as planned"
        return spark_failed(exc, where=where, consequence=consequence, condition=condition)
