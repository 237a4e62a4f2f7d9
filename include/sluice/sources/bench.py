"""What a source promises that a test bench can use: to read elsewhere than it is declared to, and to be given rows.

Only what a bench has on this machine is read and written so.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Self

from sluice.sources.contract import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class BenchSource(Source):
    """A source that a bench can use: one that reads a place, or that makes rows of its own, the same with every try."""

    @abstractmethod
    def placed(self, place_of: Callable[[str], str]) -> Self:
        """The same source, which reads nothing outside of the bench.

        Args:
            place_of: Gives the place in the bench of a declared location.
        """


@dataclass(frozen=True)
class Feed:
    """How a source is given rows."""

    number: int
    """Counts what was given to the stream's sources before."""
    folder: str
    """Below the source's: `day=2026-01-01`; empty for none."""
    now: datetime
    """When they arrive."""
    place: str
    """For messages."""


class FedSource(BenchSource):
    """A source that a bench gives rows to, in the form in which it reads them."""

    @abstractmethod
    def check_feed(self, feed: Feed, *, is_content: bool) -> None:
        """Make sure that it can be given rows so.

        Args:
            feed: How.
            is_content: Whether the rows are the whole content of a file.

        Raises:
            DeclarationError: It can't.
        """

    @abstractmethod
    def fed_columns(self, session: Callable[[], SparkSession]) -> StructType | None:
        """The columns of the rows that it is given; None where nobody knows them."""

    @abstractmethod
    def feed(self, rows: DataFrame | bytes, feed: Feed) -> str:
        """Give it rows, all at once; tells what they are in now: `0001.json`, `version 3`.

        Args:
            rows: Its rows, or the content of a file, after `check_feed`.
            feed: How.
        """
