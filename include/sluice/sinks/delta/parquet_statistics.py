"""What the footer of a Parquet file tells of its columns, as Delta's log has it: readers skip files by it.

All or nothing: delta-rs's PyArrow dataset takes a column without extremes, beside others that have them, for one that
no value of a filter is in, and finds no row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData

_MOST_COLUMNS = 32
"""As many as Delta's own writers look at."""
_MOST_CHARACTERS = 32
"""As long as Delta's own writer lets a string be."""
_HIGHEST_ASCII, _HIGHEST_CHARACTER = "\x7f", "\U0010ffff"
"""What Delta's own writer puts in the place of what it cuts off: the first where it is enough."""
_KINDS = {
    "BOOLEAN": ("NONE",),
    "INT32": ("NONE", "INT", "DECIMAL", "DATE"),
    "INT64": ("NONE", "INT", "DECIMAL", "TIMESTAMP"),
    "INT96": ("NONE",),
    "FLOAT": ("NONE",),
    "DOUBLE": ("NONE",),
    "BYTE_ARRAY": ("STRING", "DECIMAL"),
    "FIXED_LEN_BYTE_ARRAY": ("DECIMAL",),
}
"""The columns that have extremes: their logical types, by the physical one."""
_FIRST_DAY, _FIRST_MOMENT = date(1582, 10, 15), datetime(1900, 1, 1, tzinfo=UTC)
"""Spark may write what is before by another calendar, or another zone."""
_MILLISECOND = timedelta(milliseconds=1)


def file_statistics(metadata: FileMetaData) -> str:
    """The `stats` of an action that adds the file: its rows and, if every column says so, its extremes and nulls."""
    told: dict[str, Any] = {"numRecords": metadata.num_rows}
    found = {name: _read(chunks) for name, chunks in _columns(metadata)}
    if None not in found.values():
        read = {name: column for name, column in found.items() if column is not None}
        told |= {
            "minValues": {name: _as_json(least) for name, (least, _, _) in read.items() if least is not None},
            "maxValues": {name: _as_json(most) for name, (_, most, _) in read.items() if most is not None},
            "nullCount": {name: nulls for name, (_, _, nulls) in read.items()},
        }
    return msgspec.json.encode(told).decode()


def _columns(metadata: FileMetaData) -> Iterator[tuple[str, list[ColumnChunkMetaData]]]:
    """The first top-level columns that have an order, by name."""
    count = 0
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        is_nested = column.path != column.name
        if count < _MOST_COLUMNS and not is_nested and column.logical_type.type in _KINDS.get(column.physical_type, ()):
            count += 1
            yield column.name, [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]


def _read(chunks: list[ColumnChunkMetaData]) -> tuple[Any, Any, int] | None:
    """Bounds of a column's values, null for nulls only, and how many nulls there are; None when nobody can say."""
    values: list[Any] = []
    nulls = 0
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        nulls += statistics.null_count
        if statistics.null_count == chunk.num_values:
            continue
        if not statistics.has_min_max:
            return None
        try:
            values += [statistics.min, statistics.max]
        except (UnicodeDecodeError, OverflowError, ValueError):
            # Bytes that are no text, or a year that Python's dates do not have.
            return None
    if not values:
        return None, None, nulls
    if not all(map(_is_certain, values)):
        return None
    least, most = _lowered(min(values)), _raised(max(values))
    return None if most is None else (least, most, nulls)


def _is_certain(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case datetime():
            return value.tzinfo is not None and value >= _FIRST_MOMENT
        case date():
            return value >= _FIRST_DAY
    return True


def _lowered(value: Any) -> Any:
    """The value, or a shorter one that no value of this beginning is below."""
    match value:
        case str():
            return value[:_MOST_CHARACTERS]
        case datetime():
            return value - value.microsecond % 1000 * timedelta(microseconds=1)
    return value


def _raised(value: Any) -> Any:
    """The value, or a shorter one that no value of this beginning is beyond; None when there is none."""
    match value:
        case str() if len(value) > _MOST_CHARACTERS:
            begun, cut = value[:_MOST_CHARACTERS], value[_MOST_CHARACTERS]
            raised = begun + (_HIGHEST_ASCII if cut < _HIGHEST_ASCII else _HIGHEST_CHARACTER)
            return raised if raised >= value else None
        case datetime() if value.microsecond % 1000:
            return _lowered(value) + _MILLISECOND if value.year < MAXYEAR else None
    return value


def _as_json(value: Any) -> Any:
    match value:
        case Decimal():
            # A number with every digit, where the encoder would write a string.
            return msgspec.Raw(format(value, "f").encode())
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
