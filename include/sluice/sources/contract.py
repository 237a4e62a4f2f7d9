"""What every kind of source promises: what is available and where a bound falls, and how Spark reads it.

What only some can do are contracts of their own, found by what a source can: tell what it reads from something else
that bears its offsets (`MarkedSource`), also what goes while Spark reads it (`ExpiringSource`), keep a log of files
(`LoggingSource`), give columns that are names of folders (`FolderTypedSource`), have versions that change rows which
were read (`VersionedSource`), tell that nothing is new though Spark alone decides its batches (`TellingSource`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from sluice.amounts import Amount, Waiting, total
from sluice.checkpoint.source_log import LogAddition, LogEntry, SourceLog
from sluice.datasets import Dataset, dataset_at
from sluice.errors import DeclarationError, Problem
from sluice.interval import Interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.storage import Storage
    from sluice.surroundings import Surroundings

Starting = Literal["earliest", "latest"] | datetime
"""Where the first run of a stream begins in a source."""
SOURCE_TAG = "sluice.source"
"""The reader option that carries a source's name into Spark's plan, where the order of sources is read from."""
SOURCE_METRICS = "sluice.source."
"""What the observed metrics of a source are named with, before the source's name: `malformed_rows`, `read_files`."""


@dataclass(frozen=True)
class Step:
    """What one batch takes from one source."""

    end: str
    """The offset that the batch ends at: JSON, byte for byte as Spark writes it."""
    amount: Amount = field(default_factory=dict)
    """How much that is; rows where the source's own log promises them."""
    added: LogAddition = LogAddition()
    """What the source's own log in the checkpoint has to say of it, before Spark reads it."""


@dataclass(frozen=True)
class OwnLog:
    """A source's own log in the checkpoint, with what the home has noted of the files in it."""

    taken: SourceLog = SourceLog()
    """What Spark reads there; empty where the source keeps no log."""
    sizes: Callable[[int], Sequence[int | None]] = field(default=lambda _: (), compare=False)
    """The bytes of the files that a log id took, in the log's order; nothing where nobody knows."""
    unread: Callable[[], Collection[str]] = field(default=tuple, compare=False)
    """The files in it of which Spark has read nothing, for they were away just then."""
    times_ms: Callable[[], Mapping[str, int]] = field(default=dict, compare=False)
    """The times of files that had another one when they were read than when they were taken: they were mended."""


@dataclass(frozen=True)
class Position:
    """How far a checkpoint has read one source."""

    offset: str | None
    """The end offset of the newest planned batch, as Spark wrote it; None when nothing was read yet."""
    log: OwnLog = OwnLog()
    """What the source's own log says."""
    started_at: Mapping[str, Any] = field(default_factory=dict)
    """What an earlier run resolved `starting` to; empty before the first run, and where it began at the earliest."""
    has_begun: bool = False
    """Whether the checkpoint has a planned batch, whatever that read of this source."""
    mark: str | None = None
    """What the source has told of what was read, or was about to be, when a run last began; see `MarkedSource.mark`."""
    pending: Position | None = None
    """The position before a batch that is planned, and that nobody has read yet; None where there is none."""
    read_before: Callable[[datetime], Collection[str]] = field(default=lambda _: (), compare=False)
    """Offsets up to which everything had arrived by a time; none where nobody knows. For a backfill alone."""
    earlier: Callable[[], Iterable[str]] = field(default=tuple, compare=False)
    """The ends of the batches before, as far as Spark keeps them: for offsets that have no order of their own."""

    def kept_start(self, declared: str, place: str) -> Mapping[str, Any] | None:
        """Where the source begins, empty for the earliest; None when that is to be found out.

        A source begins where it was declared to when the first batch was planned. What was read tells that it has
        begun, and where nothing was noted of it, it was at the earliest: so Spark does that was not told otherwise.

        Args:
            declared: What a start is resolved from: the declared one, and the place at the end. Until the first batch
                is planned, another declaration counts anew.
            place: What the source reads. Until something of it was read, another place counts anew.
        """
        if self.offset is not None or self.log.taken.entries:
            return self.started_at
        before = self.started_at.get("declared", declared)
        is_same = before.endswith(f", {place}") if self.has_begun else before == declared
        return self.started_at if is_same and (self.started_at or self.has_begun) else None


@dataclass(frozen=True)
class Bound:
    """Where a run must stop taking input."""

    until: datetime | None = None
    """Exclusive: what arrived before it counts."""
    to_version: int | None = None
    """Delta sources: the last table version that counts."""


@dataclass(frozen=True)
class Available:
    """What a source has beyond a position and below a bound, cut into batches."""

    steps: Sequence[Step]
    started_at: Mapping[str, Any] = field(default_factory=dict)
    """What `starting` resolves to; kept when the first run begins, so that later runs agree."""
    problems: tuple[Problem, ...] = ()
    oldest_ms: int | None = None
    """Arrival time of the oldest thing that waits, in milliseconds since the epoch."""
    unplannable: str | None = None
    """Why the batches can't be decided from outside of Spark; None when they can."""
    is_counted: bool = True
    """Whether the steps are all that waits: False where Spark alone knows."""
    undrainable: str | None = None
    """Why Spark would take something else where it decides the batches; None when it would not."""
    later: Amount = field(default_factory=dict)
    """What has arrived beyond the bound, as far as the source tells."""
    mark: str | None = None
    """What tells what was seen from something else, where it is known only now; see `MarkedSource.mark`."""
    set_aside: Amount = field(default_factory=dict)
    """What is left out because it looks like something that was read, under another name."""
    partitions: Mapping[str, Waiting] = field(default_factory=dict)
    """What waits below the bound in each partition, by its name; empty of a source that has none."""


@dataclass(frozen=True)
class Slice:
    """What a backfill reads of one source: all that the live generation has read, and what lies before it.

    A kind that needs to know more of it than that has a slice of its own.
    """

    end: str | None
    """The offset that a stream over the slice ends at, when it begins without one.

    None when the slice is empty, and when no offset describes it: some of a version is to be left out.
    """
    amount: Amount = field(default_factory=dict)
    added: LogAddition = LogAddition()
    """What the source's own log says of it, in a new checkpoint."""

    @property
    def is_beyond_offsets(self) -> bool:
        """Whether it has rows, and only a batch can read them."""
        return False

    @property
    def version(self) -> int | None:
        """The version of the source whose rows these are; None where it has none."""
        return None


@dataclass(frozen=True)
class Source(ABC):
    """Base of every kind of source. Frozen; holds both sides of its kind."""

    kind: ClassVar[str]
    unit: ClassVar[str]
    """What its amounts are counted in first of all: one of `amounts.UNITS`."""
    live_kinds: ClassVar[tuple[str, ...]] = ("processing-time",)
    """With which triggers that keep a query at work Spark reads it: `processing-time`, `continuous`, `real-time`."""
    needs_delta: ClassVar[bool] = False
    """Whether Spark reads it by Delta Lake's extension, with which its session has to be opened."""
    counts_more_rows: ClassVar[bool] = False
    """Whether Spark may count rows that it does not give, as the deleted ones in a table's files."""

    def waiting(self, found: Available) -> Amount:
        """How much it has; nothing is known where Spark alone knows."""
        if not found.is_counted:
            return {}
        return total(step.amount for step in found.steps) if found.steps else {self.unit: 0, "bytes": 0, "rows": 0}

    def check_settings(self, conf: Mapping[str, str], *, place: str) -> None:  # noqa: B027 - most have none
        """Make sure that Spark takes what is declared with the settings that a project has.

        Args:
            conf: The project's settings of Spark.
            place: What is declared, for messages.

        Raises:
            DeclarationError: It does not.
        """

    @property
    def needs_jars(self) -> bool:
        """Whether Spark reads it by one of the pinned jars."""
        return self.needs_delta

    @abstractmethod
    def available(self, position: Position, bound: Bound, *, storage: Storage, now: datetime) -> Available:
        """Find what is there beyond `position`: without a JVM, read-only, and the same for the same input.

        Raises:
            StorageError: The source can't be read right now.
            DeclarationError: The source is not what the declaration says.
            RefusedError: What the checkpoint has read, and the source, contradict each other.
        """

    @abstractmethod
    def check_inputs(
        self, position: Position, end: str, *, storage: Storage, is_read: bool = True
    ) -> tuple[Problem, ...]:
        """Check that what a planned batch reads, from `position` to `end`, is still there.

        Args:
            position: Where it begins.
            end: Where it ends.
            storage: Where to look.
            is_read: Whether its rows are read; False where Spark only plans it, for the sink holds it.
        """

    @abstractmethod
    def read_stream(self, spark: SparkSession, *, name: str, started_at: Mapping[str, Any]) -> DataFrame:
        """The streaming DataFrame of this source; its plan bears `name` as the option `SOURCE_TAG`."""

    @abstractmethod
    def slice(self, position: Position, arrivals: Interval | None, *, storage: Storage) -> Slice:
        """Everything up to a position, also what lies before the checkpoint's start. Without a JVM, read-only.

        Args:
            position: How far the live generation has read.
            arrivals: What arrived outside of it need not be read; None when all is needed.
            storage: Where to look.

        Raises:
            RefusedError: Something that the live generation has read is gone (`INPUT_GONE`).
            StorageError: The source can't be read right now.
        """

    @abstractmethod
    def read_batch(self, spark: SparkSession, *, name: str, taken: Slice) -> DataFrame:
        """The rows of a slice as a batch DataFrame, with the columns that `read_stream` gives."""

    @property
    def leaves_out(self) -> str | None:
        """The files that a stream passes over, also those of a planned batch, as declared; None where none can be."""
        return None

    def columns(self, newest: str | None, *, storage: Storage) -> str | Mapping[str, str] | None:
        """The columns that the source has, without a JVM: as DDL, or Spark's types by name; None when it does not tell.

        Args:
            newest: The newest file that is planned, as a URI; None where none is, or where a source has no files.
            storage: Where to look.

        Raises:
            StorageError: The source can't be read right now.
        """
        return None

    def read_otherwise(self, position: Position, end: str, storage: Storage) -> tuple[Problem, ...]:
        """What of a batch, which a try before has read, has changed since: read again, it would give other rows.

        Raises:
            StorageError: The source can't be read right now.
        """
        return ()

    def blind_obstacle(self, position: Position) -> str | None:
        """Why Spark would take something else than is declared, though nobody has looked; None when not so."""
        return None

    @property
    def backfill_obstacle(self) -> str | None:
        """Why a stream of this source can't be backfilled; None when it can."""
        return None

    @abstractmethod
    def resolved(self, around: Surroundings) -> Source:
        """The same source with its path made absolute.

        Raises:
            DeclarationError: A relative path leaves the project.
        """

    def under(self, conf: Mapping[str, str]) -> Source:
        """The same source as Spark reads it with some of its settings."""
        return self

    @property
    @abstractmethod
    def location(self) -> str:
        """What the source reads, as a location."""

    @property
    @abstractmethod
    def reading(self) -> tuple[object, ...]:
        """What tells it from others of its kind: where it reads, what of that, and how; not how much at once."""

    def datasets(self, end: Any) -> tuple[Dataset, ...]:
        """What it reads, by the names that other tools have for it; none for what is in no store.

        Args:
            end: The newest offset that was read, decoded; None where none is known.
        """
        return (dataset_at(self.location),)

    @property
    def reads_below(self) -> str:
        """How the location begins of everything that it may read."""
        return self.location

    def reads_from(self, place: str) -> bool:
        """Whether the source reads what is written to a place."""
        return place.rstrip("/") == self.location.rstrip("/")


class MarkedSource(Source):
    """A source in whose place something else may come that bears its offsets, and that can be told from it."""

    @abstractmethod
    def mark(self, *ends: str, storage: Storage) -> str | None:
        """What tells what is read up to some offsets from something else that bears them; None where nothing does.

        Args:
            ends: The offsets: a run that reads up to the last of them may end behind any.
            storage: Where the source is.

        Raises:
            StorageError: The source can't be read right now.
        """

    def mark_after(self, before: str | None, mark: str, now: datetime) -> str:
        """What is noted once a run begins: its mark, with what has to be kept of the one before.

        Args:
            before: What was noted until now; None for nothing.
            mark: See `mark`.
            now: When that was found.
        """
        return mark


class ExpiringSource(MarkedSource):
    """A source whose input may go, or become another one, while Spark reads it, without a word from Spark.

    A run looks at it before every batch, also one that it has just planned.
    """

    @property
    @abstractmethod
    def may_lose(self) -> bool:
        """Whether it is declared that some of its input may go unread: records tell of what did."""

    @abstractmethod
    def check_read(self, position: Position, end: str, rows: int | None, *, storage: Storage) -> tuple[Problem, ...]:
        """What shows, once a batch was read, of its not having been read as it was planned.

        Args:
            position: Where the batch began to read.
            end: Where it ends.
            rows: How many Spark has read; None where that is not known.
            storage: Where to look.

        Returns:
            Problems that block where its rows may be others; those that do not, where some may be missing, as declared.
        """

    @abstractmethod
    def mark_read(self, position: Position, end: str, *, storage: Storage) -> str | None:
        """The mark with what a batch has read that was not there when the run began; None for nothing. See `mark`.

        Args:
            position: Where the batch began to read.
            end: Where it ends.
            storage: Where to look.

        Raises:
            StorageError: The source can't be read right now.
        """


class LoggingSource(Source):
    """A source whose own log has each file that it takes; one that is gone by then, Spark takes for empty."""

    @property
    @abstractmethod
    def ignores_missing(self) -> bool:
        """Whether a file that is gone when Spark would read it may be passed over."""

    @abstractmethod
    def read_twice(self, taken: Sequence[LogEntry]) -> str | None:
        """The file of a batch whose name lets Spark read others of it twice; None for none."""

    @abstractmethod
    def read_again(self, entries: Sequence[LogEntry], position: Position, storage: Storage) -> dict[str, str]:
        """The files of a batch that Spark planned itself which were read under another name, and that name."""

    @abstractmethod
    def check_one_batch(self, taken: Slice) -> None:
        """Make sure that a stream can read a slice in one batch.

        Raises:
            DeclarationError: It can't.
        """


class FolderTypedSource(Source):
    """A source that has columns whose values are names of folders: what is there tells their types."""

    @abstractmethod
    def with_folders(self, types: Mapping[str, str]) -> Self:
        """The same source, in which those columns have these types, by name; others are found out."""

    @abstractmethod
    def folder_types(self, frame: DataFrame) -> Mapping[str, str]:
        """The types of those columns, by name, in a DataFrame that the source has read."""


class VersionedSource(Source):
    """A source with versions, by one of which a run can be bounded, and which may change rows that were read."""

    @property
    @abstractmethod
    def bears_changes(self) -> bool:
        """Whether a stream goes on reading it once rows are changed that it has read already."""

    @abstractmethod
    def slice_again(self, position: Position, arrivals: Interval | None, taken: Slice, *, storage: Storage) -> Slice:
        """What `slice` gives now in the place of one that it gave before: an equal one where it is the same input.

        What was only added to the source since makes no other one of it.

        Raises:
            SluiceError: See `slice`.
        """

    @abstractmethod
    def added_again(self, start: str, end: str, storage: Storage) -> Problem | None:
        """Why what Spark has read from one offset to another, by itself, may have been read before; None for nothing.

        Raises:
            StorageError: The source can't be read right now.
        """


class TellingSource(Source):
    """A source that tells without a JVM that nothing is new, also where Spark alone can decide its batches."""

    @abstractmethod
    def is_idle(self, found: Available, position: Position) -> bool:
        """Whether Spark would find nothing new, and nothing is left to note of what it has read.

        It is never said where it may find something.

        Args:
            found: What the source has, as it was seen.
            position: How far it was read.
        """


def offset_of_another_kind(offset: str, kind: str, location: str) -> Problem:
    """An offset in a checkpoint that is none of the declared source's.

    Args:
        offset: The offset as Spark wrote it.
        kind: What the declared source's offsets are called.
        location: The source.
    """
    return Problem(
        code="OFFSET_OF_ANOTHER_KIND",
        file=location,
        cause=f"the checkpoint's offset for this source is no {kind} offset: {offset[:100]}",
        consequence="Spark fails at the next start",
        remedy="declare the sources that the checkpoint was made with, or declare a new stream with a sink of its own",
    )


def parse_starting(value: str | datetime, place: str) -> Starting:
    """Read a `starting=` value: `earliest`, `latest`, or a time (ISO 8601, UTC unless it names a zone).

    Raises:
        DeclarationError: It is none of them.
    """
    if value == "earliest":
        return "earliest"
    if value == "latest":
        return "latest"
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as exc:
        raise DeclarationError(
            f"`starting` is {value!r}", where=place, remedy='use "earliest", "latest" or an ISO 8601 time'
        ) from exc
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
