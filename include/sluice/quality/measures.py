"""Measures: aggregates that Spark observes per batch, how their values are read, and how batches merge into a run."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Literal

from sluice.quality.columns import Column
from sluice.quality.distant_times import DistantTime
from sluice.quality.distinct_sketch import LOG_SIZE, DistinctSketch
from sluice.sql_text import only_where

Merge = Literal["add", "least", "greatest", "deviation", "union", "sample", "distinct"]
"""How the values of several batches become the run's."""
Reading = Literal["integer", "double", "decimal", "date", "timestamp", "timestamp_ntz", "string", "boolean"]
"""How one observed value is read: Spark gives text for all but integers, so that JSON changes nothing."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONG = 2**63
_DIGITS = 80
"""More than sums of Spark's decimals have."""
_MOST_SHOWN = 500
"""How many letters of a sampled value are kept."""


@dataclass(frozen=True)
class Measure:
    """One aggregate of a plan."""

    name: str
    """The name that it is observed under."""
    sql: str
    """The aggregate as a Spark SQL expression."""
    merge: Merge
    reading: tuple[Reading, ...] = ("integer",)
    """One per value: samples of several columns have one for each."""
    weights: tuple[str, ...] = ()
    """Names of the measures that merging needs: count and sum for a deviation."""
    limit: int = 0
    """How many items a sample keeps."""


@dataclass(frozen=True)
class Unmeasured:
    """In place of a value that was not observed, or that can't be read: what needs it has to fail."""

    why: str


def reading_of(column: Column) -> Reading:
    """How values of a column come back."""
    match column.family:
        case "number":
            return (
                "decimal" if column.base == "decimal" else "double" if column.base in {"float", "double"} else "integer"
            )
        case "boolean" | "date" | "timestamp" | "timestamp_ntz" as same:
            return same
    return "string"


def as_text(column: Column, expression: str) -> str:
    """An aggregate or value of a column as text that `decode` reads back without loss."""
    match reading_of(column):
        case "double":
            return f"CAST(CAST({expression} AS DOUBLE) AS STRING)"
        case "timestamp":
            return f"CAST(unix_micros({expression}) AS STRING)"
    return f"CAST({expression} AS STRING)" if column.family != "binary" else f"hex({expression})"


def sample_sql(columns: Sequence[Column], unexpected: str, limit: int) -> str:
    """The smallest `limit` unexpected values: memory is bounded, and which they are does not depend on the order.

    Long texts are cut: a sample is for people, and stands in records, reports and pages.
    """
    values = ", ".join(_cut(as_text(column, column.sql)) for column in columns)
    order = ", ".join(column.sql for column in columns)
    return f"to_json(min_by(array({values}), {only_where(unexpected, f'struct({order})')}, {limit}))"


def _cut(text: str) -> str:
    return f"IF(length({text}) > {_MOST_SHOWN}, concat(left({text}, {_MOST_SHOWN}), '...'), {text})"


def distinct_sql(column: Column, condition: str | None) -> str:
    """A sketch of the distinct values that are not null.

    Each value gets a letter in front, for the sketch ignores empty strings; adding zero makes -0.0 the 0.0 it equals.
    """
    value = f"({column.sql} + 0)" if reading_of(column) == "double" else column.sql
    text = f"concat('v', {as_text(column, value)})"
    return f"base64(theta_sketch_agg({only_where(condition, text)}, {LOG_SIZE}))"


def merge_batches(measures: Sequence[Measure], batches: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Merge what was observed of each batch of a run into the values of the run.

    Counts, sums, extremes, sets, samples and sketches merge exactly; means are sums by counts; deviations merge by the
    rule of Chan, Golub and LeVeque, exact but for the last digits of a double. One batch keeps Spark's own values.
    A value that is missing in a batch, or can't be read, is `Unmeasured` for the run; the others keep theirs.

    Args:
        measures: Those of the plan.
        batches: One mapping of names to values per batch, as `observedMetrics` has them: rows, or JSON. None where
            nothing arrived.
    """
    seen = [batch for batch in batches if batch is not None]
    if lost := len(batches) - len(seen):
        nothing = Unmeasured(f"{lost} of {len(batches)} batches were not measured")
        return {measure.name: nothing for measure in measures}
    read = [{measure.name: _read(measure, batch) for measure in measures} for batch in seen]
    merged = read[0] if read else {measure.name: _nothing(measure) for measure in measures}
    for batch in read[1:]:
        merged = {measure.name: _merge(measure, merged, batch) for measure in measures}
    return merged


def decode(text: Any, reading: Reading) -> Any:
    """One value from what Spark observed: numbers, strings, dates and times; times with a zone are UTC.

    Dates and times that Python can't hold are `DistantTime`.

    Raises:
        ValueError: It is no such value.
    """
    if text is None:
        return None
    return _READERS[reading](text)


def _decimal(text: Any) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError("decimals are finite")
    return value


def _day(text: str) -> date | DistantTime:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return DistantTime.read(text)


def _long(text: Any) -> int:
    value = int(text)
    if not -_LONG <= value < _LONG:
        raise ValueError("Spark counts in 64 bits")
    return value


def _moment(text: Any) -> datetime | DistantTime:
    micros = _long(text)
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return DistantTime(micros)


def _local(text: str) -> datetime | DistantTime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return DistantTime.read(text)
    if moment.tzinfo is not None:
        raise ValueError("it has a zone")
    return moment


_READERS: Mapping[Reading, Callable[[Any], Any]] = {
    "integer": _long,
    "double": float,
    "decimal": _decimal,
    "boolean": lambda text: text == "true",
    "date": _day,
    "timestamp": _moment,
    "timestamp_ntz": _local,
    "string": str,
}


def _read(measure: Measure, batch: Mapping[str, Any]) -> Any:
    try:
        value = batch[measure.name]
    except (KeyError, ValueError):
        return _unread(measure, "was not observed")
    try:
        match measure.merge:
            case "sample":
                rows = json.loads(value) if value is not None else []
                return [
                    tuple(decode(item, how) for item, how in zip(row, measure.reading, strict=True)) for row in rows
                ]
            case "union":
                return frozenset(decode(item, measure.reading[0]) for item in json.loads(value or "[]"))
            case "distinct":
                return DistinctSketch.read(base64.b64decode(value)) if value is not None else DistinctSketch()
            case "add" if value is None and measure.reading == ("integer",):
                return 0
        return decode(value, measure.reading[0])
    except (ValueError, TypeError, OverflowError, InvalidOperation, binascii.Error, RecursionError):
        return _unread(measure, f"is {str(value)[:80]!r}")


def _unread(measure: Measure, what: str) -> Unmeasured:
    return Unmeasured(f"the quality measure `{measure.sql[:200]}` {what}")


def _nothing(measure: Measure) -> Any:
    match measure.merge:
        case "sample":
            return []
        case "union":
            return frozenset()
        case "distinct":
            return DistinctSketch()
        case "add" if measure.reading == ("integer",):
            return 0
    return None


def _merge(measure: Measure, run: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
    one, other = run[measure.name], batch[measure.name]
    for name in (measure.name, *measure.weights):
        for value in (run[name], batch[name]):
            if isinstance(value, Unmeasured):
                return value
    match measure.merge:
        case "sample":
            return sorted([*one, *other], key=lambda row: tuple(map(_order, row)))[: measure.limit]
        case "union":
            return one | other
        case "distinct":
            return one.union(other)
    return _merge_numbers(measure, run, batch)


def _merge_numbers(measure: Measure, run: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
    """Aggregates that are null when they saw nothing."""
    one, other = run[measure.name], batch[measure.name]
    if measure.merge == "deviation":
        return _deviation(measure, run, batch)
    if one is None or other is None:
        return other if one is None else one
    match measure.merge:
        case "add":
            with localcontext(prec=_DIGITS):
                return one + other
        case "least":
            return min(one, other, key=_order)
    return max(one, other, key=_order)


def _deviation(measure: Measure, run: Mapping[str, Any], batch: Mapping[str, Any]) -> float | None:
    """The sample standard deviation of both together. That of a single value is null, and its squares are 0."""
    count, total = measure.weights
    n, m = run[count], batch[count]
    if not (n and m):
        return run[measure.name] if n else batch[measure.name]  # type: ignore[no-any-return]  # a float or None
    if run[total] is None or batch[total] is None:
        return None
    distance = float(batch[total]) / m - float(run[total]) / n
    squares = (run[measure.name] or 0.0) ** 2 * (n - 1) + (batch[measure.name] or 0.0) ** 2 * (m - 1)
    return math.sqrt((squares + distance * distance * n * m / (n + m)) / (n + m - 1))


def _order(value: Any) -> tuple[int, Any]:
    """Spark's order: null first, then values, NaN above all numbers."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value.encode() if isinstance(value, str) else value)
