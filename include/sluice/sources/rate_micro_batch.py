"""Spark's generator of numbered rows: the same rows with every try, so many in a batch; for tests and for trying out.

Spark's offset `{"offset": N, "timestamp": T}` means: N rows were made, and those that come next bear the time T, in
milliseconds since the epoch. Every batch adds `rows_per_batch` and `advance_millis_per_batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from sluice.amounts import known
from sluice.datasets import Dataset
from sluice.declaration_checks import check_limit, declares
from sluice.errors import DeclarationError, Problem, RefusedError
from sluice.interval import Interval
from sluice.other_names import SOURCE_WORDS
from sluice.sources.bench import BenchSource
from sluice.sources.contract import (
    SOURCE_TAG,
    Available,
    Bound,
    Position,
    Slice,
    Step,
    offset_of_another_kind,
    parse_starting,
)
from sluice.surroundings import Surroundings
from sluice.typed_json import decode_as

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.storage import Storage

_FORMAT = "rate-micro-batch"
_MOST_BATCHES = 10_000
"""In one run: its time may lie anywhere, and a bound that is far away is reached by several."""


class _Offset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    offset: int
    timestamp: int


@dataclass(frozen=True)
class RateMicroBatchSource(BenchSource):
    """Declared by `sources.rate_micro_batch`."""

    kind: ClassVar[str] = "rate_micro_batch"
    unit: ClassVar[str] = "rows"

    rows_per_batch: int
    start_ms: int
    advance_ms: int

    @property
    def location(self) -> str:
        return _FORMAT

    @property
    def reading(self) -> tuple[object, ...]:
        return self.rows_per_batch, self.start_ms, self.advance_ms

    def resolved(self, around: Surroundings) -> RateMicroBatchSource:
        return self

    def placed(self, place_of: Callable[[str], str]) -> RateMicroBatchSource:
        return self

    def datasets(self, end: Any) -> tuple[Dataset, ...]:
        return ()

    def reads_from(self, place: str) -> bool:
        return False

    def available(self, position: Position, bound: Bound, *, storage: Storage, now: datetime) -> Available:
        """One batch, as Spark makes one at each trigger; with a bound, every batch that is over before it."""
        at = self._at(position)
        until_ms = None if bound.until is None else int(bound.until.timestamp() * 1000)
        steps: list[Step] = []
        while len(steps) < (1 if until_ms is None or not self.advance_ms else _MOST_BATCHES):
            at = _Offset(at.offset + self.rows_per_batch, at.timestamp + self.advance_ms)
            if until_ms is not None and at.timestamp > until_ms:
                break
            steps.append(Step(msgspec.json.encode(at).decode(), known(rows=self.rows_per_batch)))
        return Available(steps, started_at={"declared": self._declared})

    def check_inputs(
        self, position: Position, end: str, *, storage: Storage, is_read: bool = True
    ) -> tuple[Problem, ...]:
        """Rows that are made can't be gone."""
        self._at(position)
        self._read(end)
        return ()

    def read_stream(self, spark: SparkSession, *, name: str, started_at: Mapping[str, Any]) -> DataFrame:
        reader = spark.readStream.format(_FORMAT).option(SOURCE_TAG, name).option("rowsPerBatch", self.rows_per_batch)
        reader = reader.option("startTimestamp", self.start_ms).option("advanceMillisPerBatch", self.advance_ms)
        return reader.load()

    def slice(self, position: Position, arrivals: Interval | None, *, storage: Storage) -> Slice:
        return Slice(position.offset, amount=known(rows=self._at(position).offset))

    def read_batch(self, spark: SparkSession, *, name: str, taken: Slice) -> DataFrame:
        from pyspark.sql import functions

        batch = functions.floor(functions.col("id") / self.rows_per_batch)
        made_at = functions.timestamp_millis(functions.lit(self.start_ms) + batch * self.advance_ms)
        rows = spark.range(self._read(taken.end).offset)
        return rows.select(made_at.alias("timestamp"), functions.col("id").alias("value"))

    def columns(self, newest: str | None, *, storage: Storage) -> str:
        return "timestamp timestamp, value bigint"

    @property
    def _declared(self) -> str:
        return f"{self.rows_per_batch:,} rows and {self.advance_ms:,} ms a batch from {self.start_ms:,} on"

    def _at(self, position: Position) -> _Offset:
        """How far rows were made; they must have been made as they would be now."""
        at = self._read(position.offset)
        if position.offset is not None and position.started_at.get("declared", self._declared) != self._declared:
            raise RefusedError(offset_of_another_kind(position.offset, f"{_FORMAT} of {self._declared}", self.location))
        return at

    def _read(self, offset: str | None) -> _Offset:
        if offset is None:
            return _Offset(0, self.start_ms)
        try:
            found = decode_as(offset, _Offset)
        except msgspec.ValidationError as exc:
            raise RefusedError(offset_of_another_kind(offset, _FORMAT, self.location)) from exc
        batches, rest = divmod(found.offset, self.rows_per_batch)
        if rest or found.timestamp != self.start_ms + batches * self.advance_ms:
            # Rows that were made once would bear other times when they are made again.
            raise RefusedError(offset_of_another_kind(offset, f"{_FORMAT} of {self._declared}", self.location))
        return found


@declares("sources.rate_micro_batch()", SOURCE_WORDS)
def rate_micro_batch(
    *, rows_per_batch: int, start_timestamp: str | datetime | None = None, advance_millis_per_batch: int = 1000
) -> RateMicroBatchSource:
    """Declare a source that makes rows: `timestamp timestamp, value bigint`, the values counted from 0.

    A run takes one batch; one with a bound takes every batch whose time is over before it.

    Args:
        rows_per_batch: How many rows each batch has.
        start_timestamp: The time of the rows of the first batch; the epoch when it is not given.
        advance_millis_per_batch: How much later the rows of each next batch are, in milliseconds; 0 for not at all.

    Raises:
        DeclarationError: A number is not above 0, or the time is none.
    """
    place = "sources.rate_micro_batch()"
    check_limit(rows_per_batch, "rows_per_batch", place)
    if advance_millis_per_batch != 0:
        check_limit(advance_millis_per_batch, "advance_millis_per_batch", place)
    start = None if start_timestamp is None else parse_starting(start_timestamp, place)
    if isinstance(start, str) or (start is not None and start.timestamp() < 0):
        remedy = "give an ISO 8601 time, from 1970 on"
        raise DeclarationError(f"`start_timestamp` is {start_timestamp!r}", where=place, remedy=remedy)
    return RateMicroBatchSource(
        rows_per_batch, 0 if start is None else int(start.timestamp() * 1000), advance_millis_per_batch
    )
