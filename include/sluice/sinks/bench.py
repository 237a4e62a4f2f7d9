"""What a sink promises that a test bench can use: to write elsewhere than it is declared to, and to be read there.

Only what a bench has on this machine is read and written so.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sluice.sinks.contract import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class BenchSink(Sink):
    """A sink that a bench can use: one that can write elsewhere than it is declared to, or that writes nowhere."""

    @abstractmethod
    def placed(self, place_of: Callable[[str], str], stream: str) -> Self:
        """The same sink, which writes nothing outside of the bench, nor what another stream writes.

        Args:
            place_of: Gives the place in the bench of a declared location.
            stream: The name of the stream whose sink it is.
        """


class ReadBackSink(BenchSink):
    """A sink whose rows a bench reads, and takes back to what they were at a moment of a run."""

    commits_folder: ClassVar[str] = ""
    """The folder below its place whose entries make a batch's rows count; empty where it has no place."""

    @abstractmethod
    def kept_rows(
        self, spark: SparkSession, result: Callable[[], StructType], *, only_newest: bool
    ) -> tuple[StructType | None, Iterable[Mapping[str, Any]]]:
        """Its columns, and its rows by column, as Arrow gives them; no columns where there is nothing yet.

        Args:
            spark: Spark.
            result: Gives the columns of the query's result.
            only_newest: Whether each batch takes the place of those before.
        """

    def remember(self) -> object:
        """What it keeps in this process, which no disk has; None for nothing."""
        return None

    def bring_back(self, kept: object) -> None:
        """Let this process keep what `remember` gave, and nothing else."""

    def newest_commit(self) -> int:
        """The newest commit of its own log, if that has times; -1 for none."""
        return -1

    def stamp_commits(self, now: datetime, *, after: int) -> None:
        """Give the commits after one the time of the bench."""
