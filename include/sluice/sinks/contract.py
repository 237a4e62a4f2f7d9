"""What every kind of sink promises: how Spark writes it, and what its own log says of a batch.

What only some can do are contracts of their own, found by what a sink can: an interval's rows replaced
(`replaceable.ReplaceableSink`), a batch written by a function (`BatchSink`), or aside, and published then
(`StagingSink`), rows replaced by their keys (`KeyedSink`), what was written read again (`ReadableSink`,
`VersionedSink`), a batch split between two of them (`splitting.SplittingSink`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from sluice.datasets import Dataset, dataset_at
from sluice.errors import Problem, SluiceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sluice.storage import Storage
    from sluice.surroundings import Surroundings

OutputMode = Literal["append", "update", "complete"]
FunctionLoader = Callable[[str], Callable[..., Any]]
"""Gives the function behind a `module:function`."""


@dataclass(frozen=True)
class BatchOutcome:
    """What a sink's own log says about one batch that it holds."""

    output_rows: int | None
    version: int | None = None
    """The table version that the batch made; None for sinks without versions."""
    has_changes: bool = True
    """Whether it has put rows there, or taken some out, as far as the log tells."""


@dataclass(frozen=True)
class SinkState:
    """What a sink says about itself, without a JVM."""

    exists: bool
    identity: str | None = None
    """What tells this table from another one at the same place; None when the sink has no identity."""
    last_batch: int | None = None
    """The newest batch of the query that the sink holds; None when none, or when the sink does not know."""
    version: int | None = None
    """The newest version of the table; None for sinks without versions."""
    notes_every_batch: bool = False
    """Whether every batch leaves its id in the sink, also one without rows."""
    forgotten: Problem | None = None
    """Why Spark's own writer would write that batch again, though the sink holds it; None when it would not."""
    forgetful: Problem | None = None
    """That the sink forgets which batches it holds, and what comes of it; None when it does not forget."""
    opened: object | None = field(default=None, compare=False, repr=False)
    """What the sink has opened to say this; it need not open it again for what else is asked for the same plan."""

    def holds(self, batch_id: int) -> bool:
        """Whether the sink is known to hold a batch of the query."""
        return self.last_batch is not None and self.last_batch >= batch_id


@dataclass(frozen=True)
class Unknown:
    """Why nobody can tell whether a sink holds a batch, and what a person can do about it."""

    why: str
    remedy: str


@dataclass(frozen=True)
class Clash:
    """Why two streams can't both write, though neither of their sinks is a place."""

    problem: str
    """What the other stream does, to go on after its name."""
    remedy: str


@dataclass(frozen=True)
class SinkUse:
    """How a stream writes into its sink: what is there already, and the result, have to go with it."""

    output_mode: OutputMode
    interval_column: str | None
    conf: Mapping[str, str] = field(repr=False)
    """The settings of Spark that the stream runs with."""
    place: str
    """The stream, for messages."""
    storage: Storage = field(repr=False)
    """Where to look."""
    written: str = field(default="", repr=False)
    """The columns that the newest batch was begun with, by `result_columns`; empty where nobody knows."""


@dataclass(frozen=True)
class Sink(ABC):
    """Base of every kind of sink."""

    kind: ClassVar[str]
    output_modes: ClassVar[tuple[OutputMode, ...]] = ("append", "update", "complete")
    is_idempotent: ClassVar[bool] = False
    """Whether the sink itself refuses a batch that it holds already, so that a second writer can't double rows."""
    called_with: ClassVar[tuple[str, ...]] = ("frame", "batch_id")
    """What it calls its function with, if it calls one."""
    live_kinds: ClassVar[tuple[str, ...]] = ("processing-time",)
    """Which triggers it takes that keep a query at work: `processing-time`, `continuous`, `real-time`."""
    is_of_one_query: ClassVar[bool] = False
    """Whether it takes batches by their ids alone, so that those of another query pass for done."""
    notes_first_batch: ClassVar[bool] = False
    """Whether a first batch leaves its id in a table that was there before, also one without rows."""
    needs_delta: ClassVar[bool] = False
    """Whether Spark writes it by Delta Lake's extension, with which its session has to be opened."""
    needs_own_spark: ClassVar[bool] = False
    """Whether it can't be written over Spark Connect."""

    is_shown: ClassVar[bool] = False
    """Whether what it writes is for whoever looks at the output of Spark's process."""

    @property
    def is_fenced(self) -> bool:
        """Whether a driver that was given up, and wakes up, does no harm beside the one that went on."""
        return self.is_idempotent

    @property
    def named(self) -> str:
        """What it is called in messages."""
        return f"a {self.kind} sink"

    @property
    def needs_jars(self) -> bool:
        """Whether Spark writes it by one of the pinned jars."""
        return self.needs_delta

    def mode_remedy(self, output_mode: str) -> str:
        """What to do about an output mode that it does not take."""
        return f"use one of: {', '.join(self.output_modes)}"

    @property
    def replace_obstacle(self) -> str:
        """Why no backfill can replace an interval's rows in it; asked of those alone that are no `ReplaceableSink`."""
        return f"{self.named} can't replace the rows of an interval; a Delta sink can"

    @property
    def split_obstacle(self) -> tuple[str, str]:
        """Why no row of a batch can go to a quarantine, and what to do; asked of those that are no `SplittingSink`."""
        return f"{self.named} can't be written twice without doubling rows", "use `drop`, or a Delta sink"

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

    def check_function(self, function: Callable[..., Any]) -> None:  # noqa: B027 - most take any
        """Make sure that what the sink calls, once it is imported, can be called.

        Raises:
            DeclarationError: It can't.
        """

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns of the result that it can't do without."""
        return ()

    @property
    def named_columns(self) -> tuple[str, ...]:
        """The columns of the result that its declaration names."""
        return self.partition_columns

    def partitions(self, kinds: Mapping[str, str], output_mode: OutputMode, *, storage: Storage) -> Mapping[str, str]:
        """The columns that partition what is written, with the types that they have there.

        Args:
            kinds: Those of the result, by name, as Spark names them.
            output_mode: The declared one.
            storage: Where to look.
        """
        folded = {name.lower() for name in self.partition_columns}
        return {name: kind for name, kind in kinds.items() if name.lower() in folded}

    @property
    def form(self) -> str:
        """What can't be changed once it is written: the kind, and what its rows are kept as."""
        return self.kind

    def check_settings(self, conf: Mapping[str, str], *, place: str) -> None:  # noqa: B027 - most have none
        """Make sure that Spark takes what is declared with the settings that a project has.

        Args:
            conf: The project's settings of Spark.
            place: What is declared, for messages.

        Raises:
            DeclarationError: It does not.
        """

    def check_table(self, use: SinkUse) -> None:  # noqa: B027 - most have none
        """Make sure that what is there already takes what is declared.

        Raises:
            DeclarationError: It does not.
            StorageError: It can't be read right now.
        """

    def check_result(self, frame: DataFrame, use: SinkUse) -> None:  # noqa: B027 - most have none
        """Make sure that the columns of what is there take the values of a result as they are.

        Args:
            frame: The result, once Spark has analysed it.
            use: How the stream writes it.

        Raises:
            DeclarationError: Values would be changed without a word, or fail their batch.
            StorageError: It can't be read right now.
        """

    def evolve(self, frame: DataFrame, use: SinkUse) -> None:  # noqa: B027 - most can't
        """Let what is there follow a result that `check_result` has let pass, before a batch of it is written.

        Raises:
            DeclarationError: It can't.
            StorageError: It can't be read right now.
        """

    def fitted(self, frame: DataFrame, output_mode: OutputMode, *, storage: Storage) -> DataFrame:
        """A result as the sink's stream writer is to get it: of the types of what is there, where no value changes."""
        return frame

    def cause(self, said: str) -> SluiceError | None:
        """What ended a batch, where the sink knows it better than Spark; None where it does not.

        Args:
            said: All that Spark said, its plan as well.
        """
        return None

    def clash(self, other: Sink, stream: str) -> Clash | None:
        """Why another stream's sink takes the rows of this one away, wherever they are; None when it does not.

        Args:
            other: The other stream's.
            stream: The name of the stream whose sink this is.
        """
        return None

    def streaming_queries(self, *, storage: Storage) -> Iterator[str]:
        """The ids of the queries that have streamed into the sink, as far as its own log tells; the newest first.

        Raises:
            RefusedError: The log is damaged.
            StorageError: It can't be read right now.
        """
        return iter(())

    def taken_back_since(self, version: int, *, is_pending: bool, storage: Storage) -> Problem | None:
        """What is to be said of a sink of which somebody has taken back a version that it has had; None without one.

        Args:
            version: The version of a batch.
            is_pending: Whether Spark has not committed that batch.
            storage: Where the sink is.

        Raises:
            StorageError: It can't be read right now.
        """
        return None

    def why_unknown(
        self, application: str | None, version: int, since_ms: int | None, *, storage: Storage
    ) -> Unknown | None:
        """Why the sink may hold a batch that its state does not show; None when it does not hold it.

        Args:
            application: Names who writes it: a query's id, or the name of a release; None for anybody.
            version: The batch, as the application numbers it.
            since_ms: When it was begun, in milliseconds since the epoch; None when nobody knows.
            storage: Where the sink is.

        Raises:
            StorageError: The sink can't be read right now.
        """
        return None

    def outcome(self, query_id: str, batch_id: int, *, storage: Storage) -> BatchOutcome | None:
        """What the sink's log says about one batch; None when it does not know the batch."""
        return None

    def outcomes(self, query_id: str, batch_ids: Collection[int], *, storage: Storage) -> dict[int, BatchOutcome]:
        """What the sink's log says about batches, by their ids, of those that it knows; see `outcome`."""
        found = {batch_id: self.outcome(query_id, batch_id, storage=storage) for batch_id in batch_ids}
        return {batch_id: outcome for batch_id, outcome in found.items() if outcome is not None}

    def resolved(self, around: Surroundings) -> Self:
        """The same sink with its path made absolute, or a `DeclarationError` where one leaves the project."""
        return self

    @property
    def location(self) -> str | None:
        """Where the sink writes, as a location; None for sinks without a place."""
        return None

    @property
    def shown_place(self) -> str:
        """Where it is, for messages."""
        return self.location or self.kind

    @property
    def side_tables(self) -> Mapping[str, str]:
        """The tables that it writes beside its own: their locations, by what they are to it."""
        return {}

    @property
    def dataset(self) -> Dataset | None:
        """What it writes, by the name that other tools have for it; None for what is in no store."""
        return None if self.location is None else dataset_at(self.location)

    @property
    def function(self) -> str | None:
        """The `module:function` that the sink calls; None for sinks that call nothing."""
        return None


@dataclass(frozen=True)
class FormatSink(Sink):
    """One that Spark knows by a name, and nobody else: whether it takes a stream, Spark is asked."""

    format: str
    """As `writeStream.format(...)` has it."""


@dataclass(frozen=True)
class TableForm:
    """Which table it is for which rows were written aside, and what they were fitted to."""

    identity: str
    columns: Mapping[str, str]
    """Their types, by name."""
    partition_by: tuple[str, ...]


@dataclass(frozen=True)
class Aside:
    """Parquet files that Spark has written below a table, and that count for nobody yet."""

    folder: str
    files: tuple[str, ...]
    """Where they are: exactly these are published."""
    table: TableForm | None = None
    """The table as it was then; None where there was none."""
    columns: str | None = None
    """The columns, as Spark's JSON, of a table that is not there yet; None where it is."""
    partition_by: tuple[str, ...] = ()
    """What such a table is partitioned by."""


@dataclass(frozen=True)
class SinkBatch:
    """A batch on its way into a sink that is written by a function."""

    query_id: str
    batch_id: int
    output_mode: OutputMode
    token: int
    """The lease's: what a driver wrote aside is told from what an earlier one wrote."""


@dataclass(frozen=True)
class BatchSink(Sink):
    """Base of the sinks that a function can write batch by batch, so that a batch can be audited before it counts."""

    def batch_function(self, load_function: FunctionLoader) -> Callable[[DataFrame, int], None] | None:
        """The function that Spark calls with each batch; None where Spark has a stream writer for the sink."""
        return None

    def check_rows(self, frame: DataFrame, *, storage: Storage) -> None:
        """Make sure that the rows of a batch can be written, before it is decided that they will be.

        Raises:
            DeclarationError: They can't; nothing was written.
        """

    @property
    def step(self) -> str:
        """What is done with a batch, for the stages of a plan."""
        return f"hand it to `{self.function}`" if self.function is not None else "hand it to the sink's function"

    @abstractmethod
    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        """Write a batch as the stream writer would; the same id written twice counts once if the sink is idempotent.

        Args:
            frame: The batch, which may be read more than once.
            batch: Whose it is.
            load_function: Gives the function of the user's that the sink calls.
            storage: Where the sink is.
        """


def only_by_function(sink: Sink) -> bool:
    """Whether a function alone gets batches into a sink: nothing can be written aside, and published then."""
    return isinstance(sink, BatchSink) and not isinstance(sink, StagingSink)


@dataclass(frozen=True)
class StagingSink(BatchSink):
    """Base of the sinks that can publish a batch, after it was written aside, by a commit of metadata."""

    @property
    @abstractmethod
    def can_rename(self) -> bool:
        """Whether Spark moves the files that it commits; in an object store it copies them, which is dear."""

    @abstractmethod
    def aside_obstacle(
        self,
        output_mode: OutputMode,
        frame: DataFrame | None = None,
        *,
        state: SinkState | None = None,
        storage: Storage,
    ) -> str | None:
        """Why this table can't be written so; None when it can.

        Args:
            output_mode: The stream's.
            frame: The result, once Spark has analysed it.
            state: What the sink has said of itself a moment ago; None where it was not asked.
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
            StorageError: A file is gone, the table has got a rule that only Spark heeds or is not the one, or not of
                the columns and partitions, that the files were written for, or the commit could not be written; nothing
                was published.
        """

    @abstractmethod
    def forget_batch(self, batch: SinkBatch, *, storage: Storage) -> None:
        """Delete what this driver wrote aside for a batch that was not published; an earlier driver's is not touched.

        Raises:
            StorageError: Something is still there.
        """


@dataclass(frozen=True)
class ReadableSink(Sink):
    """Base of the sinks that give back their rows."""

    @abstractmethod
    def read_rows(self, spark: SparkSession) -> DataFrame:
        """All rows of a table that is there, as it is now."""

    @abstractmethod
    def read_table(self, spark: SparkSession, version: int) -> DataFrame:
        """All rows of the table as a version left it."""


@dataclass(frozen=True)
class VersionedSink(ReadableSink):
    """Base of those whose log tells which rows a version added, and gives them back."""

    @abstractmethod
    def read_versions(self, spark: SparkSession, versions: Sequence[int], *, storage: Storage) -> DataFrame:
        """The rows that versions of the table added.

        Raises:
            RefusedError: A version can't be read any more.
        """
