"""What a stream is declared with: frozen data, no I/O, no Spark.

    Stream(name=..., sources={NAME: Source}, transform="module:function", sink=Sink)

A `Source` or a `Sink` is the declaration of one kind (files, Delta, ...); its module below `sluice.sources` or
`sluice.sinks` holds everything about that kind, with and without a JVM. Here is only what all kinds share: the
contract between them and planning.
"""

from __future__ import annotations

import inspect
import keyword
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import msgspec

from sluice.declaring import STREAM_WORDS, check_call, check_reference, declaring_line
from sluice.errors import DeclarationError, Problem
from sluice.times import parse_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sluice.storage import Storage


OutputMode = Literal["append", "update", "complete"]
Starting = Literal["earliest", "latest"] | datetime
"""Where the first run of a stream begins in a source."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_SOURCE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LATENESS = re.compile(r"\s*(\d{1,6})\s*(minute|hour|day|week)s?\s*")


class LogEntry(msgspec.Struct, frozen=True, gc=False, rename={"timestamp_ms": "timestamp", "batch_id": "batchId"}):
    """One file in the log that Spark's file source keeps in its checkpoint.

    A msgspec struct, not a dataclass: a log has as many as there were files, and each costs the planner.
    """

    path: str
    """The file as a URI, spelled as Java's `Path.toUri` spells it."""
    timestamp_ms: int
    """Its modification time, in milliseconds since the epoch."""
    batch_id: int
    """The log id that took it."""


@dataclass(frozen=True)
class Step:
    """What one batch takes from one source."""

    end: str
    """The offset that the batch ends at: JSON, byte for byte as Spark writes it."""
    files: int | None = None
    size_bytes: int | None = None
    rows: int | None = None
    """How many rows the source's own log promises; None when it does not know."""
    entries: tuple[LogEntry, ...] = ()
    """File source only: the files of the batch, for the source's log."""
    sizes: tuple[int, ...] = ()
    """File source only: the bytes of each of them, in this order; the source's log does not keep them."""
    is_logged: bool = False
    """File source only: the source's log holds these entries already (a crash came between the two logs)."""


@dataclass(frozen=True)
class Position:
    """How far a checkpoint has read one source."""

    offset: str | None
    """The end offset of the newest planned batch, as Spark wrote it; None when nothing was read yet."""
    log: SourceLog | None = None
    """What the source's own log in the checkpoint says; None when it keeps none."""
    started_at: Mapping[str, Any] = field(default_factory=dict)
    """What an earlier run resolved `starting` to; empty before the first run."""
    sizes: Callable[[int], Sequence[int]] = field(default=lambda _: (), compare=False)
    """File source only: the bytes of the files that a log id took, in the log's order; nothing where nobody knows."""

    def settled_start(self, declared: str) -> Mapping[str, Any] | None:
        """Where the source begins; None when that is to be found out.

        Args:
            declared: What a start is resolved from. Until something was read, another declaration counts anew.
        """
        is_unread = self.offset is None and (self.log is None or not self.log.entries)
        is_other = is_unread and self.started_at.get("declared", declared) != declared
        return self.started_at if self.started_at and not is_other else None


@dataclass(frozen=True)
class SourceLog:
    """The log of one file source: which files it has taken, by log id."""

    latest_id: int = -1
    entries: Sequence[LogEntry] = ()
    compact_ids: tuple[int, ...] = ()
    """The ids whose file is a `.compact` one, ascending."""

    @property
    def paths(self) -> set[str]:
        """Every path that was taken."""
        return {entry.path for entry in self.entries}

    def taken(self, first_id: int, last_id: int) -> tuple[LogEntry, ...]:
        """The files that the log ids from `first_id` to `last_id` took."""
        return tuple(entry for entry in self.entries if first_id <= entry.batch_id <= last_id)


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
    undrainable: str | None = None
    """Why AvailableNow would take something else; None when it would not."""
    later_files: int = 0
    """How many files have arrived beyond the bound, as far as the source tells."""


@dataclass(frozen=True)
class Interval:
    """Which rows a backfill recomputes: those whose interval column lies in `[start, end)`."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None or self.start >= self.end:
            raise DeclarationError(
                f"the interval from {self.start.isoformat()} to {self.end.isoformat()} is none",
                where="--start, --end",
                remedy="give two times with a zone, the first before the second; the end is exclusive",
            )

    @classmethod
    def parse(cls, start: str, end: str) -> Interval:
        """Read an interval as somebody wrote it; a date alone is its midnight, UTC.

        Raises:
            DeclarationError: One is missing or no time, or the end is not after the start.
        """
        first, last = parse_time(start, where="--start"), parse_time(end, where="--end")
        if first is None or last is None:
            raise DeclarationError(
                "an interval has a start and an end", where="--start, --end", remedy="give both, the end is exclusive"
            )
        return cls(first, last)

    def condition(self, column: str, kind: str) -> str:
        """The rows of the interval in SQL; `kind` is the column's type: `date`, `timestamp` or `timestamp_ntz`."""
        return f"`{column}` >= {_literal(self.start, kind)} AND `{column}` < {_literal(self.end, kind)}"

    def overlaps(self, other: Interval) -> bool:
        """Whether a moment lies in both."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class Slice:
    """What a backfill reads of one source: all that the live generation has read, and what lies before it."""

    end: str | None
    """The offset that a stream over the slice ends at, when it begins without one.

    None when the slice is empty, and when no offset describes it: some of a version is to be left out.
    """
    entries: tuple[LogEntry, ...] = ()
    """File source only: the files, as the log of a new checkpoint takes them."""
    version: int | None = None
    """Delta only: the table version whose rows these are."""
    left_out: tuple[str, ...] = ()
    """Delta only: URIs of files of that version that are not read: the live generation has yet to read them, or passes
    over them for good."""
    files: int | None = None
    size_bytes: int | None = None

    @property
    def is_beyond_offsets(self) -> bool:
        """Whether it has rows, and only a batch can read them."""
        return self.end is None and self.version is not None


@dataclass(frozen=True)
class Source(ABC):
    """Base of every kind of source. Frozen; holds both sides of its kind."""

    kind: ClassVar[str]

    @abstractmethod
    def available(self, position: Position, bound: Bound, *, storage: Storage, now: datetime) -> Available:
        """Find what is there beyond `position`: without a JVM, read-only, and the same for the same input.

        Raises:
            StorageError: The source can't be read right now.
            DeclarationError: The source is not what the declaration says.
            RefusedError: What the checkpoint has read, and the source, contradict each other.
        """

    @abstractmethod
    def check_inputs(self, position: Position, end: str, *, storage: Storage) -> tuple[Problem, ...]:
        """Check that what a planned batch reads, from `position` to `end`, is still there."""

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

    def columns(self, newest: str | None, *, storage: Storage) -> str | Mapping[str, str] | None:
        """The columns that the source has, without a JVM: as DDL, or Spark's types by name; None when it does not tell.

        Args:
            newest: The newest file that is planned, as a URI; None where none is, or where a source has no files.
            storage: Where to look.

        Raises:
            StorageError: The source can't be read right now.
        """
        return None

    def blind_obstacle(self, position: Position) -> str | None:
        """Why AvailableNow would take something else than is declared, though nobody has looked; None when not so."""
        return None

    @property
    def backfill_obstacle(self) -> str | None:
        """Why a stream of this source can't be backfilled; None when it can."""
        return None

    def check_one_batch(self, taken: Slice) -> None:  # noqa: B027 - most kinds can
        """Make sure that a stream can read a slice in one batch.

        Raises:
            DeclarationError: It can't.
        """

    @abstractmethod
    def resolved(self, project_root: str) -> Source:
        """The same source with its path made absolute.

        Raises:
            DeclarationError: A relative path leaves the project.
        """

    @property
    @abstractmethod
    def location(self) -> str:
        """What the source reads, as a location."""

    def reads_from(self, place: str) -> bool:
        """Whether the source reads what is written to a place."""
        return place.rstrip("/") == self.location.rstrip("/")


SOURCE_TAG = "sluice.source"
"""The reader option that carries a source's name into Spark's plan, where the order of sources is read from."""

SOURCE_METRICS = "sluice.source."
"""What the observed metrics of a source are named with, before the source's name: `malformed_rows`, `read_files`."""

WATERMARK_METRICS = "sluice.watermark."
"""What the observed event time of a `withWatermark` is named with, before its number; see `connect_plan.py`."""


@dataclass(frozen=True)
class BatchOutcome:
    """What a sink's own log says about one batch that it holds."""

    output_rows: int | None
    version: int | None = None
    """The table version that the batch made; None for sinks without versions."""


@dataclass(frozen=True)
class SinkState:
    """What a sink says about itself, without a JVM."""

    exists: bool
    identity: str | None = None
    """What tells this table from another one at the same place; None when the sink has no identity."""
    last_batch: int | None = None
    """The newest batch of the query that the sink holds; None when none, or when the sink does not know."""
    notes_every_batch: bool = False
    """Whether every batch leaves its id in the sink, also one without rows."""

    def holds(self, batch_id: int) -> bool:
        """Whether the sink is known to hold a batch of the query."""
        return self.last_batch is not None and self.last_batch >= batch_id


@dataclass(frozen=True)
class Sink(ABC):
    """Base of every kind of sink."""

    kind: ClassVar[str]
    output_modes: ClassVar[tuple[OutputMode, ...]] = ("append", "update", "complete")
    is_idempotent: ClassVar[bool] = False
    """Whether the sink itself refuses a batch that it holds already, so that a second writer can't double rows."""

    @abstractmethod
    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        """A stream writer for `frame` with everything set that is the sink's: format, options, partitions."""

    def state(self, query_id: str | None, *, storage: Storage) -> SinkState:
        """What the sink holds. The default is for sinks that keep nothing that can be asked for.

        Raises:
            RefusedError: Something else is at the sink's place.
            StorageError: The sink can't be read right now.
        """
        return SinkState(exists=True)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns of the result that it can't do without."""
        return ()

    def check_table(self, output_mode: OutputMode, *, place: str, storage: Storage) -> None:  # noqa: B027 - most have none
        """Make sure that what is there already takes what is declared.

        Args:
            output_mode: The stream's.
            place: The stream, for messages.
            storage: Where to look.

        Raises:
            DeclarationError: It does not.
            StorageError: It can't be read right now.
        """

    def streaming_queries(self, *, storage: Storage) -> Iterator[str]:
        """The ids of the queries that have streamed into the sink, as far as its own log tells; the newest first.

        Raises:
            RefusedError: The log is damaged.
            StorageError: It can't be read right now.
        """
        return iter(())

    def outcome(self, query_id: str, batch_id: int, *, storage: Storage) -> BatchOutcome | None:
        """What the sink's log says about one batch; None when it does not know the batch."""
        return None

    def resolved(self, project_root: str) -> Sink:
        """The same sink with its path made absolute.

        Raises:
            DeclarationError: A relative path leaves the project.
        """
        return self

    @property
    def location(self) -> str | None:
        """Where the sink writes, as a location; None for sinks without a place."""
        return None

    @property
    def function(self) -> str | None:
        """The `module:function` that the sink calls; None for sinks that call nothing."""
        return None


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
class Aside:
    """Parquet files that Spark has written below a table, and that count for nobody yet."""

    folder: str
    files: tuple[str, ...]
    """Where they are: exactly these are published."""
    columns: str | None = None
    """The columns, as Spark's JSON, of a table that is not there yet; None where it is."""
    partition_by: tuple[str, ...] = ()
    """What such a table is partitioned by."""


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
    def replace_rows(self, frame: DataFrame, wanted: Replacement) -> None:
        """Let Spark replace the interval's rows in one commit; nobody else may write the table meanwhile."""

    @abstractmethod
    def find_replacement(self, application: str, since: int, *, storage: Storage) -> Replaced | None:
        """The newest replacement of a backfill in the versions after `since`; None when there is none."""


@dataclass(frozen=True)
class SinkBatch:
    """A batch on its way into a sink that is written by a function."""

    query_id: str
    batch_id: int
    output_mode: OutputMode
    token: int
    """The lease's: what a driver wrote aside is told from what a former one wrote."""


@dataclass(frozen=True)
class BatchSink(Sink):
    """Base of the sinks that a function can write batch by batch, so that a batch can be audited before it counts."""

    @abstractmethod
    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        """Write a batch as the stream writer would; the same id written twice counts once if the sink is idempotent."""


@dataclass(frozen=True)
class StagingSink(BatchSink):
    """Base of the sinks that can publish a batch, after it was written aside, by a commit of metadata."""

    @property
    @abstractmethod
    def can_rename(self) -> bool:
        """Whether Spark moves the files that it commits; in an object store it copies them, which is dear."""

    @abstractmethod
    def aside_obstacle(
        self, output_mode: OutputMode, frame: DataFrame | None = None, *, storage: Storage
    ) -> str | None:
        """Why this table can't be written so; None when it can.

        Args:
            output_mode: The stream's.
            frame: The result, once Spark has analysed it.
            storage: Where the table is.

        Raises:
            StorageError: The table can't be read right now.
        """

    @abstractmethod
    def write_batch_aside(self, frame: DataFrame, batch: SinkBatch, *, storage: Storage) -> Aside | None:
        """Write a batch aside, in files that count for nobody yet.

        Returns:
            These files; None when the table can't be written so, or has other columns, and nothing was written.
        """

    @abstractmethod
    def publish_batch(self, batch: SinkBatch, aside: Aside, *, storage: Storage) -> None:
        """Let what was written aside count, by one commit of metadata; a batch that is there already stays as it is.

        Raises:
            StorageError: A file is gone, the table has got a rule that only Spark heeds, or the commit could not be
                written; nothing was published.
        """

    @abstractmethod
    def forget_batch(self, batch: SinkBatch, *, storage: Storage) -> None:
        """Delete what this driver wrote aside for a batch that was not published; a former driver's is not touched.

        Raises:
            StorageError: Something is still there.
        """

    @property
    @abstractmethod
    def takes_new_columns(self) -> bool:
        """Whether a batch with columns that the table does not have adds them to it."""

    @abstractmethod
    def beside(self, ending: str) -> StagingSink:
        """A table beside this one, with an ending after its name."""

    @abstractmethod
    def replace_where(self, frame: DataFrame, condition: str, *, application: str, version: int) -> None:
        """Let Spark put rows in the place of those that meet a condition, in one commit.

        Args:
            frame: The new rows, all of which meet the condition.
            condition: In SQL.
            application: Names the replacement in the sink's own log.
            version: A version of that application that the log holds already is passed over.
        """

    @abstractmethod
    def read_versions(self, spark: SparkSession, versions: Sequence[int], *, storage: Storage) -> DataFrame:
        """The rows that versions of the table added.

        Raises:
            RefusedError: A version can't be read any more.
        """

    @abstractmethod
    def read_table(self, spark: SparkSession, version: int) -> DataFrame:
        """All rows of the table as a version left it."""


FunctionLoader = Callable[[str], Callable[..., Any]]
"""Gives the function behind a `module:function`."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A declared stream: from sources through a transform into a sink.

    Args:
        name: Letters, digits, `_` and `-`; names the stream's folder in the home.
        sources: The sources by the names of the transform's parameters.
        transform: `module:function`; gets one DataFrame per source, by name, and returns one.
        sink: Where the result goes.
        output_mode: Spark's output mode.
        checkpoint: An existing Spark checkpoint to use in place of a generation in the home.
        interval_column: The date or time column of the result by which a backfill replaces rows.
        lateness: How long after its interval column says a row may arrive (`"3 days"`); a backfill reads no file that
            arrived later. All that was ever read, when it is not given.
        quality: The suite that its rows are checked with: a JSON file of Great Expectations, `module:function`, or a
            Python file.
        quarantine: The Delta table for rows that fail an expectation with the policy `quarantine`; beside the sink,
            with `_quarantine` after its name, when it is not given.

    Raises:
        DeclarationError: A field is not what it must be.
    """

    name: str
    sources: Mapping[str, Source]
    transform: str
    sink: Sink
    output_mode: OutputMode = "append"
    checkpoint: str | None = None
    interval_column: str | None = None
    lateness: str | None = None
    quality: str | None = None
    quarantine: Sink | None = None
    declared_at: str | None = field(default=None, compare=False, repr=False)
    """`file:line` of its declaration; found out, not declared."""

    def __new__(cls, *args: object, **given: object) -> Self:
        # Copies and pickles are made without arguments.
        if args or given:
            parameters = [inspect.Parameter(found.name, inspect.Parameter.KEYWORD_ONLY, default=_default(found))
                          for found in fields(cls)]  # fmt: skip
            check_call(parameters, args, given, place="Stream(...)", words=STREAM_WORDS)
        return super().__new__(cls)

    @property
    def place(self) -> str:
        """Where it is declared, for messages."""
        named = f"stream `{self.name}`"
        return named if self.declared_at is None else f"{self.declared_at}: {named}"

    @property
    def backfill_obstacle(self) -> str | None:
        """Why the stream can't be backfilled, by its declaration alone; None when it can."""
        if not isinstance(self.sink, ReplaceableSink):
            return f"a {self.sink.kind} sink can't replace the rows of an interval; a Delta sink can"
        if self.output_mode != "append":
            return f"in output mode `{self.output_mode}` the next batch of the live stream writes all rows anew"
        if self.interval_column is None:
            return "it declares no `interval_column`, by which rows could be replaced"
        obstacles = (source.backfill_obstacle for source in self.sources.values())
        return next((obstacle for obstacle in obstacles if obstacle is not None), None)

    @property
    def quarantine_table(self) -> StagingSink | None:
        """Where rows go that `quarantine` takes; None when the sink has no place for them."""
        if isinstance(self.quarantine, StagingSink):
            return self.quarantine
        return self.sink.beside("_quarantine") if isinstance(self.sink, StagingSink) else None

    @property
    def lateness_time(self) -> timedelta | None:
        """`lateness` as a time; None when it is not declared."""
        match = _LATENESS.fullmatch(self.lateness or "")
        return timedelta(**{f"{match[2]}s": int(match[1])}) if match else None

    def __post_init__(self) -> None:
        if self.declared_at is None:
            object.__setattr__(self, "declared_at", declaring_line())
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise DeclarationError(
                f"`name` is {self.name!r}",
                where="Stream(name=...)",
                remedy="start with a letter; use letters, digits, `_` and `-`, at most 100",
            )
        place = f"stream `{self.name}`"
        if not isinstance(self.sources, Mapping) or not self.sources:
            raise DeclarationError(
                "`sources` is empty or not a mapping",
                where=place,
                remedy='give each a name, a parameter of the transform: sources={"visits": sources.files(...)}',
            )
        for name, source in self.sources.items():
            if not isinstance(name, str) or not _SOURCE_NAME.fullmatch(name):
                raise DeclarationError(
                    f"source name {name!r} can't be a parameter name", where=place, remedy="use letters, digits and `_`"
                )
            if keyword.iskeyword(name):
                raise DeclarationError(
                    f"source name {name!r} can't be a parameter name",
                    where=place,
                    remedy="use another one: Python has it for itself",
                )
            if not isinstance(source, Source):
                raise DeclarationError(
                    f"source `{name}` is {_shown(source)}",
                    where=place,
                    remedy="declare it by a function of `sluice.sources`, such as `sources.files(PATH, ...)`",
                )
        check_reference(self.transform, "`transform`", place)
        if not isinstance(self.sink, Sink):
            raise DeclarationError(
                f"`sink` is {_shown(self.sink)}",
                where=place,
                remedy="declare it by a function of `sluice.sinks`, such as `sinks.delta(PATH)`",
            )
        if self.output_mode not in self.sink.output_modes:
            raise DeclarationError(
                f"`output_mode` is {self.output_mode!r}, which a {self.sink.kind} sink does not take",
                where=place,
                remedy=f"use one of: {', '.join(self.sink.output_modes)}",
            )
        self._check_quality(place)
        self._check_backfill(place)

    def _check_quality(self, place: str) -> None:
        if self.quality is not None and (not isinstance(self.quality, str) or not self.quality.strip()):
            raise DeclarationError(
                f"`quality` is {self.quality!r}", where=place, remedy="name a suite's file, or `module:function`"
            )
        if self.quarantine is not None and (self.quality is None or not isinstance(self.quarantine, StagingSink)):
            what = f"is {self.quarantine!r}" if self.quality is not None else "is set without `quality`"
            raise DeclarationError(
                f"`quarantine` {what}", where=place, remedy="give `sinks.delta(PATH)`, for rows that fail the suite"
            )

    def _check_backfill(self, place: str) -> None:
        column = self.interval_column
        if column is not None and (not isinstance(column, str) or not column or "`" in column):
            raise DeclarationError(
                f"`interval_column` is {column!r}", where=place, remedy="name a date or time column of the result"
            )
        if column is not None and self.backfill_obstacle is not None:
            raise DeclarationError(
                f"`interval_column` is set, but {self.backfill_obstacle}",
                where=place,
                remedy="leave it out, or correct the sink or the output mode",
            )
        if self.lateness is None:
            return
        if column is None:
            raise DeclarationError(
                "`lateness` is set without `interval_column`",
                where=place,
                remedy="declare the column, too; or leave it out: it says which late rows a backfill may pass over",
            )
        if not isinstance(self.lateness, str) or self.lateness_time is None:
            raise DeclarationError(
                f"`lateness` is {self.lateness!r}",
                where=place,
                remedy='give a number and a unit, such as "3 days", "12 hours" or "30 minutes"',
            )


def _shown(value: object) -> str:
    """What was given in place of a source or a sink; functions and modules would show where they are in memory."""
    if inspect.isroutine(value):
        return "a function that was not called"
    if isinstance(value, Source | Sink):
        return "a source" if isinstance(value, Source) else "a sink"
    return "a module" if inspect.ismodule(value) else repr(value)


def _default(declared: Field[Any]) -> Any:
    return inspect.Parameter.empty if declared.default is MISSING else declared.default


def _literal(moment: datetime, kind: str) -> str:
    at = moment.astimezone(UTC)
    if kind == "date":
        return f"DATE'{at:%Y-%m-%d}'"
    zone = " UTC" if kind == "timestamp" else ""
    return f"{kind.upper()}'{at:%Y-%m-%d %H:%M:%S.%f}{zone}'"


def check_limit(value: int | None, name: str, place: str) -> None:
    """Refuse a per-batch limit that is not a positive number.

    Raises:
        DeclarationError: It is not.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise DeclarationError(
            f"`{name}` is {value!r}", where=place, remedy="give a whole number above 0, or leave it out"
        )


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
