"""What the footer of a Parquet file tells of its columns, as Delta's log has it: readers skip files by it.

Only what can't be misread: whole numbers, decimals, dates and strings at the top level. A float may be NaN, a timestamp
may be stored in a way that has no order.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData

_MOST_COLUMNS = 32
"""As many as Delta's own writer looks at."""
_MOST_CHARACTERS = 32
"""As long as Delta's own writer lets a string be."""
_HIGHEST_CHARACTER = "\U0010ffff"
_KINDS = {"INT32": ("NONE", "INT", "DECIMAL", "DATE"), "INT64": ("NONE", "INT", "DECIMAL")} | dict.fromkeys(
    ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"), ("STRING", "DECIMAL")
)
"""The logical types that are understood, by the physical one."""
_GREGORIAN = date(1582, 10, 15)
"""Spark may write days before it by another calendar."""


def file_statistics(metadata: FileMetaData) -> str:
    """The `stats` of an action that adds the file: its rows and, of columns that say so, extremes and nulls."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(min(metadata.num_columns, _MOST_COLUMNS)):
        column = metadata.schema.column(index)
        is_nested = column.path != column.name
        if is_nested or column.logical_type.type not in _KINDS.get(column.physical_type, ()):
            continue
        found = _read([metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)])
        if found is None:
            continue
        least, greatest, nulls[column.name] = found
        if least is not None:
            lowest[column.name] = _as_json(_lowered(least))
        if (raised := _raised(greatest)) is not None:
            highest[column.name] = _as_json(raised)
    told = {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return msgspec.json.encode(told).decode()


def _read(chunks: list[ColumnChunkMetaData]) -> tuple[Any, Any, int] | None:
    """The extremes, null for nulls only, and the nulls of a column; None when they are not all there."""
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
    if any(isinstance(value, date) and value < _GREGORIAN for value in values):
        return None
    return (min(values), max(values), nulls) if values else (None, None, nulls)


def _lowered(value: Any) -> Any:
    """The value, or a short string that no value of this beginning is below."""
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else value


def _raised(value: Any) -> Any:
    """The value, or a short string that no value of this beginning is beyond; None when there is none."""
    if not isinstance(value, str) or len(value) <= _MOST_CHARACTERS:
        return value
    raised = value[:_MOST_CHARACTERS] + _HIGHEST_CHARACTER
    return raised if raised >= value else None


def _as_json(value: Any) -> Any:
    # A number with every digit, also where the encoder would write a string.
    return msgspec.Raw(format(value, "f").encode()) if isinstance(value, Decimal) else value
