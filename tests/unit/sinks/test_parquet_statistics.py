"""What a Parquet footer says of its columns, for the log of a Delta table."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sluice.sinks.parquet_statistics import file_statistics


def told(folder: Path, columns: dict[str, pa.Array], **options: Any) -> dict[str, Any]:
    file = folder / "t.parquet"
    parquet.write_table(pa.table(columns), file, **options)
    return dict(json.loads(file_statistics(parquet.read_metadata(file)), parse_float=str))


def test_extremes_and_nulls(tmp_path: Path) -> None:
    """Over all row groups, whole numbers and decimals with every digit, days as Delta writes them."""
    columns = {
        "n": pa.array([2**63 - 1, None, -(2**63), 5]),
        "small": pa.array([1, 2, None, None], pa.int8()),
        "money": pa.array([Decimal("1.50"), Decimal("-2.00"), None, Decimal("9.99")], pa.decimal128(7, 2)),
        "huge": pa.array(
            [Decimal("0.0000000001"), None, Decimal("1234567890123456789.5"), None], pa.decimal128(38, 10)
        ),
        "text": pa.array(["b", "é", None, "a"]),
        "day": pa.array([date(2013, 1, 2), None, date(2013, 12, 31), date(2013, 1, 1)]),
        "nothing": pa.array([None] * 4, pa.int64()),
    }

    found = told(tmp_path, columns, row_group_size=2, store_decimal_as_integer=True)

    assert found == {
        "numRecords": 4,
        "minValues": {
            "n": -(2**63), "small": 1, "money": "-2.00", "huge": "0.0000000001", "text": "a", "day": "2013-01-01"
        },
        "maxValues": {
            "n": 2**63 - 1,
            "small": 2,
            "money": "9.99",
            "huge": "1234567890123456789.5000000000",
            "text": "é",
            "day": "2013-12-31",
        },
        "nullCount": {"n": 1, "small": 2, "money": 1, "huge": 2, "text": 1, "day": 1, "nothing": 4},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "lowest", "highest"),
    [
        (["x" * 32], "x" * 32, "x" * 32),
        (["x" * 33], "x" * 32, "x" * 32 + "\U0010ffff"),
        (["a", "é" * 99], "a", "é" * 32 + "\U0010ffff"),
        (["\U0010ffff" * 33], "\U0010ffff" * 32, "\U0010ffff" * 33),
        (["\U0010ffff" * 34], "\U0010ffff" * 32, None),
    ],
)
def test_long_strings_are_cut(tmp_path: Path, values: list[str], lowest: str, highest: str | None) -> None:
    """What is cut is never above the smallest, nor below the greatest; else it is left out."""
    found = told(tmp_path, {"text": pa.array(values)})

    assert found["minValues"] == {"text": lowest}
    assert found["maxValues"] == ({} if highest is None else {"text": highest})


def test_what_has_no_certain_order_is_left_out(tmp_path: Path) -> None:
    """Floats (NaN), times, flags, what is nested, text that is none, days by another calendar, or too far away."""
    not_text = pa.Array.from_buffers(pa.string(), 1, [None, *pa.array([b"\x80"]).buffers()[1:]])
    columns = {
        "ratio": pa.array([1.5]),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)]),
        "flag": pa.array([True]),
        "blob": pa.array([b"x"]),
        "nested": pa.array([{"n": 1}]),
        "list": pa.array([[1]]),
        "broken": not_text,
        "old": pa.array([date(1582, 10, 14)]),
        "far": pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        "last": pa.array([7]),
    }

    assert told(tmp_path, columns) == {
        "numRecords": 1,
        "minValues": {"last": 7},
        "maxValues": {"last": 7},
        "nullCount": {"last": 0},
    }


def test_a_footer_without_statistics(tmp_path: Path) -> None:
    """The rows are all that is known."""
    found = told(tmp_path, {"n": pa.array([1, 2])}, write_statistics=False)

    assert found == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {}}


def test_the_first_columns_only(tmp_path: Path) -> None:
    """As many as Delta's own writer looks at: the log would grow with every column."""
    found = told(tmp_path, {f"c{number}": pa.array([number]) for number in range(40)})

    assert list(found["minValues"]) == [f"c{number}" for number in range(32)]


def test_fields_are_not_taken_for_columns(tmp_path: Path) -> None:
    """A column may be called as a field of a struct is written."""
    found = told(tmp_path, {"a": pa.array([{"b": 1}]), "a.b": pa.array([5])})

    assert found["minValues"] == {"a.b": 5}
