"""Sinks in which rows replace others by their keys."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sluice.sinks.contract import BatchSink, FunctionLoader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class KeyedSink(BatchSink):
    """Base of the sinks in which rows replace others by their keys. No stream writer of Spark's writes them."""

    needs_own_spark: ClassVar[bool] = True

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        raise TypeError(self.named)  # pragma: no cover - Spark has none

    @property
    @abstractmethod
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the result that tell a row from others."""

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (*super().named_columns, *self.key_columns)

    @property
    @abstractmethod
    def takes_keys_once(self) -> bool:
        """Whether no two rows of a batch may have the same keys."""
