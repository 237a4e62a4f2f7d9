"""What a sink promises in which a backfill can replace the rows of an interval in one step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.interval import Interval
from sluice.sinks.contract import Aside, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.storage import Storage

RETURN_PREFIX = "sluice-release-"
"""What names a return of quarantined rows in the log begins so: such rows are recomputed with the interval."""
_PER_ATTEMPT = 4
"""How many transactions an attempt of a backfill may make in one table."""


@dataclass(frozen=True)
class SinkSnapshot:
    """A version of a sink that a backfill replaces rows of."""

    version: int
    identity: str
    last_batch: int | None
    """The newest batch of the query that this version holds; None when it holds none."""
    column_kind: str
    """The type of the interval column: `date`, `timestamp` or `timestamp_ntz`."""
    obstacle: str | None
    """Why an interval can't be replaced by a commit of metadata alone; None when it can."""


@dataclass(frozen=True)
class Replacement:
    """What a backfill puts in the place of an interval's rows."""

    column: str
    interval: Interval
    version: int
    """The version whose rows are replaced: what was committed after it stays."""
    application: str
    """Names the backfill in the sink's own log, for its retries."""
    attempt: int

    @property
    def number(self) -> int:
        """That of the attempt among the application's transactions in the sink's log."""
        return number_of(self.attempt)


def number_of(attempt: int) -> int:
    """The transaction by which an attempt writes."""
    return _PER_ATTEMPT * attempt


def sealed_number(attempt: int) -> int:
    """The transaction that lets whatever an attempt may write yet be passed over; see `SplittingSink.seal`."""
    return _PER_ATTEMPT * attempt + 1


def removed_number(attempt: int) -> int:
    """The transaction that takes away what a sealed attempt has put into a quarantine."""
    return _PER_ATTEMPT * attempt + 2


@dataclass(frozen=True)
class Replaced:
    """A replacement that the sink's own log holds."""

    version: int
    """The version that it made."""
    read_version: int
    """The version whose rows it replaced."""
    attempt: int
    rows_replaced: int | None
    """None when the sink's log does not know."""
    rows_written: int | None
    conflict: str | None
    """What happened to the replaced rows in between, so that rows may be doubled now; None when nothing did."""
    later: tuple[str, ...] = ()
    """Which other backfills have replaced rows since, of whatever interval, by their applications."""


@dataclass(frozen=True)
class ReplaceableSink(Sink):
    """Base of the sinks in which a backfill can replace an interval's rows in one step."""

    @abstractmethod
    def snapshot(self, column: str, query_id: str, *, storage: Storage) -> SinkSnapshot | None:
        """The newest version; None when there is no table yet.

        Raises:
            DeclarationError: The table has no such column, or no date or time in it.
            StorageError: The table can't be read right now.
        """

    @abstractmethod
    def may_have_rows(self, version: int, column: str, interval: Interval, *, storage: Storage) -> bool:
        """Whether a version may have rows of an interval; False where its log says that there are none.

        Raises:
            StorageError: The table can't be read right now.
        """

    @abstractmethod
    def undated_rows(self, frame: DataFrame, wanted: Replacement, *, storage: Storage) -> int:
        """How many rows of the table have a null in the interval column, and are else like rows of the interval.

        Args:
            frame: The result of the transform; rows outside of the interval are left out.
            wanted: What is to be replaced.
            storage: Where the table is.

        Raises:
            StorageError: The table can't be read right now.
        """

    @abstractmethod
    def other_query(self, own: Collection[str], since_ms: int, *, storage: Storage) -> str | None:
        """A streaming query, by its id, that has written batches since a moment; None when only some known ones have.

        Args:
            own: The ids of those.
            since_ms: In milliseconds since the epoch. What the log does not tell any more is not known.
            storage: Where the table is.

        Raises:
            RefusedError: The log is damaged.
            StorageError: It can't be read right now.
        """

    @abstractmethod
    def write_aside(self, frame: DataFrame, wanted: Replacement, *, storage: Storage) -> Aside:
        """Write the interval's rows of a batch DataFrame aside, in files that count for nobody yet.

        Args:
            frame: The result of the transform; rows outside of the interval are left out.
            wanted: What they are for.
            storage: Where the table is.

        Raises:
            DeclarationError: The columns are not the table's.
        """

    @abstractmethod
    def publish(self, wanted: Replacement, aside: Aside, *, storage: Storage) -> Replaced | None:
        """Replace the interval's rows by what was written aside, by one commit of metadata; None when they changed.

        Raises:
            StorageError: The commit failed, or could not be written.
        """

    @abstractmethod
    def interval_rows(self, frame: DataFrame, wanted: Replacement) -> DataFrame:
        """The interval's rows of a batch DataFrame, with the table's columns in its order.

        Raises:
            DeclarationError: The columns are not the table's.
        """

    @abstractmethod
    def replace_rows(self, rows: DataFrame, wanted: Replacement) -> None:
        """Let Spark replace the interval's rows in one commit; nobody else may write the table meanwhile.

        Args:
            rows: By `interval_rows`.
            wanted: What they are for.
        """

    @abstractmethod
    def tells_since(self, version: int, *, storage: Storage) -> bool:
        """Whether the log still has what became of everything after a version: else a replacement may not be found.

        Raises:
            StorageError: The log can't be read.
        """

    @abstractmethod
    def find_replacement(self, application: str, since: int, *, storage: Storage) -> Replaced | None:
        """The newest replacement of a backfill in the versions after `since`; None when the sink shows none of them."""
