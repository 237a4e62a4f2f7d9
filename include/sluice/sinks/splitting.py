"""What a sink must be able to do for a batch to be split between two of them: for rows that pass, and for the rest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sluice.sinks.contract import StagingSink, VersionedSink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sluice.storage import Storage


@dataclass(frozen=True)
class SplittingSink(StagingSink, VersionedSink):
    """Base of the sinks between which a batch can be split: those whose rows a quarantine takes, and quarantines.

    What is declared of one is its place, the columns that it is partitioned by, and the options of its writer: that is
    kept by whoever writes into it, and made into a sink again.
    """

    @classmethod
    @abstractmethod
    def at(cls, location: str, partition_by: Sequence[str] = (), options: Mapping[str, str] = {}) -> Self:
        """A table of this kind at a place.

        Args:
            location: The place.
            partition_by: See `partition_columns`.
            options: See `writer_options`.
        """

    @property
    @abstractmethod
    def writer_options(self) -> Mapping[str, str]:
        """The options of its writer, as Spark spells them."""

    @abstractmethod
    def beside(self, ending: str) -> SplittingSink:
        """A table beside this one, with an ending after its name, that follows a result as this one does."""

    @abstractmethod
    def check_same(self, frame: DataFrame, *, otherwise: str, storage: Storage) -> None:
        """Make sure that a table has the columns of a result with the very same types, or may follow it.

        Args:
            frame: The result, analysed.
            otherwise: What else can be done about it.
            storage: Where to look.

        Raises:
            DeclarationError: It has not.
            StorageError: It can't be read right now.
        """

    @abstractmethod
    def let_follow(self, frame: DataFrame, *, storage: Storage) -> None:
        """Let a table follow a result, as far as it may; what it has then is to be compared: see `check_same`.

        Raises:
            DeclarationError: It can't.
            StorageError: It can't be read right now.
        """

    @abstractmethod
    def is_restored(self, *, storage: Storage) -> bool:
        """Whether somebody has ever taken the table back to an earlier version, as far as its log tells.

        Raises:
            StorageError: It can't be read.
        """

    @abstractmethod
    def version_digest(self, version: int, *, storage: Storage) -> str | None:
        """What tells a version from another one of its number; None where the log does not tell of it any more.

        Raises:
            StorageError: It can't be read.
        """

    @abstractmethod
    def columns(self, *, storage: Storage) -> Mapping[str, str] | None:
        """The columns that the table has, as Spark's types by name; None where there is no table.

        Raises:
            StorageError: It can't be read.
        """

    @abstractmethod
    def add_column(self, spark: SparkSession, name: str, kind: str, *, storage: Storage) -> None:
        """Give a table that is there one more column, whatever its options say; its rows have no value in it.

        Args:
            spark: Spark.
            name: The column, which the table does not have.
            kind: The column's type.
            storage: Where the table is.
        """

    @abstractmethod
    def update_rows(self, spark: SparkSession, condition: Column, values: Mapping[str, Column]) -> None:
        """Give the rows that meet a condition other values, by column, in one commit."""

    @abstractmethod
    def delete_rows(self, spark: SparkSession, condition: Column) -> None:
        """Take the rows that meet a condition out of the table, in one commit."""

    @abstractmethod
    def seal(
        self,
        application: str,
        number: int,
        session: Callable[[], SparkSession],
        *,
        after: int | None,
        storage: Storage,
    ) -> bool:
        """Let whatever an application may write yet with a lower number be passed over: commit nothing as that number.

        Who wrote may stand still, past its lease, just before its commit.

        Args:
            application: Names the writer in the sink's own log.
            number: Of the transaction; nothing is done where the log has that one, or a newer one.
            session: Gives Spark, where nobody else may write the sink.
            after: The newest one that is known of; None for none.
            storage: Where the sink is.

        Returns:
            Whether it is so; False where the application has written something since.

        Raises:
            StorageError: The table can't be read or written.
        """

    @abstractmethod
    def replace_where(self, frame: DataFrame, condition: str, *, application: str, version: int) -> None:
        """Let Spark put rows in the place of those that meet a condition, in one commit.

        Args:
            frame: The new rows, all of which meet the condition.
            condition: In SQL.
            application: Names the replacement in the sink's own log.
            version: A version of that application that the log holds already is passed over.
        """
