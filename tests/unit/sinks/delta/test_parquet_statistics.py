"""What a Parquet footer says of its columns, for the log of a Delta table."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet
from pyarrow.compute import field

from sluice.sinks.contract import Aside
from sluice.sinks.delta import parquet_aside
from sluice.sinks.delta.parquet_statistics import file_statistics
from sluice.storage import Storage


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


def test_times_flags_and_fractions(tmp_path: Path) -> None:
    """Times to the millisecond, outwards; flags too, though few readers look."""
    first, last = datetime(2026, 1, 1, 5, 0, 0, 1999, UTC), datetime(2026, 1, 2, 6, 30, 0, 1, UTC)
    columns = {
        "at": pa.array([first, None, last]),
        "flag": pa.array([True, False, None]),
        "ratio": pa.array([-0.1, 1e300, None]),
        "single": pa.array([0.5, -2.0, None], pa.float32()),
    }

    found = told(tmp_path, columns)

    assert found["minValues"] == {"at": "2026-01-01T05:00:00.001Z", "flag": False, "ratio": "-0.1", "single": "-2.0"}
    assert found["maxValues"] == {"at": "2026-01-02T06:30:00.001Z", "flag": True, "ratio": "1e300", "single": "0.5"}
    assert found["nullCount"] == {"at": 1, "flag": 1, "ratio": 1, "single": 1}


@pytest.mark.parametrize(
    ("text", "lowest", "highest"),
    [
        ("x" * 32, "x" * 32, "x" * 32),
        ("x" * 33, "x" * 32, "x" * 32 + "\x7f"),
        ("x" * 32 + "\x7f", "x" * 32, "x" * 32 + "\U0010ffff"),
        ("é" * 99, "é" * 32, "é" * 32 + "\U0010ffff"),
        ("\U0010ffff" * 33, "\U0010ffff" * 32, "\U0010ffff" * 33),
    ],
)
def test_long_strings_are_cut(tmp_path: Path, text: str, lowest: str, highest: str) -> None:
    """What is cut is never above the smallest, nor below the greatest."""
    found = told(tmp_path, {"text": pa.array([text])})

    assert (found["minValues"], found["maxValues"]) == ({"text": lowest}, {"text": highest})


@pytest.mark.parametrize(
    "column",
    [
        pa.array([math.nan]),
        pa.array([1.0, math.inf]),
        pa.array(["\U0010ffff" * 34]),
        pa.Array.from_buffers(pa.string(), 1, [None, *pa.array([b"\x80"]).buffers()[1:]]),
        pa.array([date(1582, 10, 14)]),
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([datetime(1899, 12, 31, tzinfo=UTC)]),
        pa.array([datetime.fromisoformat("2026-01-01")], pa.timestamp("us")),
    ],
    ids=["nan", "infinite", "nothing beyond", "no text", "julian", "year 5,881,580", "old zones", "no zone"],
)
def test_a_column_that_nobody_can_say_of(tmp_path: Path, column: pa.Array) -> None:
    """Then nothing is said of the others either: a reader takes what is missing for nothing."""
    numbers = pa.array(range(len(column)))

    assert told(tmp_path, {"n": numbers, "odd": column}) == {"numRecords": len(column)}


def test_what_has_no_order_is_passed_over(tmp_path: Path) -> None:
    """Bytes, and what is nested; a column may be called as a field of a struct is written."""
    columns = {
        "blob": pa.array([b"x"]),
        "a": pa.array([{"b": 1}]),
        "list": pa.array([[1]]),
        "a.b": pa.array([5]),
    }

    found = told(tmp_path, columns)

    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"a.b": 5}, {"a.b": 5}, {"a.b": 0})


def test_a_footer_without_statistics(tmp_path: Path) -> None:
    """The rows are all that is known."""
    assert told(tmp_path, {"n": pa.array([1, 2])}, write_statistics=False) == {"numRecords": 2}


def test_the_first_columns_only(tmp_path: Path) -> None:
    """As many as Delta's own writers look at, not counting what has no order: the log would grow with every column."""
    columns = {"blob": pa.array([b"x"])} | {f"c{number}": pa.array([number]) for number in range(40)}

    assert list(told(tmp_path, columns)["minValues"]) == [f"c{number}" for number in range(32)]


@pytest.mark.parametrize("column", ["f", "n", "b", "at", "c20"])
def test_delta_rs_finds_rows_by_every_column(tmp_path: Path, column: str) -> None:
    """Its PyArrow dataset skips a file of which it knows the extremes of some columns only: so it knows all of them."""
    rows = pa.table(
        {"bytes": [b"x"], "n": [1], "f": [1.5], "b": [True], "at": [datetime(2026, 1, 1, tzinfo=UTC)]}
        | {f"c{number}": [number] for number in range(40)}
    )
    write_deltalake(str(tmp_path), rows.slice(0, 0))
    (tmp_path / "aside").mkdir()
    parquet.write_table(rows, tmp_path / "aside" / "1.parquet")
    aside = Aside(str(tmp_path / "aside"), (str(tmp_path / "aside" / "1.parquet"),))
    added, _ = parquet_aside.find_added(str(tmp_path), aside, [], storage=Storage())
    table = DeltaTable(str(tmp_path))
    table.create_write_transaction(added, "append", table.schema())

    found = DeltaTable(str(tmp_path)).to_pyarrow_dataset().filter(field(column) == rows.column(column)[0])

    assert found.count_rows() == 1
