"""Rows as people write them, as values of Spark's types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types

from sluice.errors import DeclarationError
from sluice.testing.rows import as_dicts, as_value

SCHEMA = types.StructType().add("id", types.LongType()).add("page", types.StringType())
AT = datetime(2026, 1, 1, 9, tzinfo=UTC)
NAIVE = AT.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (types.TimestampType(), "2026-01-01T10:00:00+01:00", AT),
        (types.TimestampType(), "2026-01-01T09:00", AT),
        (types.TimestampType(), NAIVE, AT),
        (types.TimestampType(), "2026-01-01", datetime(2026, 1, 1, tzinfo=UTC)),
        (types.TimestampType(), date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
        (types.TimestampType(), "yesterday", "yesterday"),
        (types.TimestampNTZType(), "2026-01-01T09:00:00", NAIVE),
        (types.DateType(), "2026-01-01", date(2026, 1, 1)),
        (types.DateType(), datetime(2026, 1, 1), date(2026, 1, 1)),  # noqa: DTZ001
        (types.DecimalType(10, 2), "1.5", Decimal("1.50")),
        (types.DecimalType(10, 2), 0.1, Decimal("0.1")),
        (types.DecimalType(10, 2), "much", "much"),
        (types.BinaryType(), "ab", b"ab"),
        (types.BinaryType(), bytearray(b"ab"), b"ab"),
        (types.ArrayType(types.DateType()), ("2026-01-01",), [date(2026, 1, 1)]),
        (types.MapType(types.StringType(), types.DateType()), [("k", "2026-01-01")], {"k": date(2026, 1, 1)}),
        (SCHEMA, (1, "/"), {"id": 1, "page": "/"}),
        (SCHEMA, {"id": 1}, {"id": 1}),
        (types.LongType(), None, None),
    ],
)
def test_values(kind: types.DataType, given: Any, expected: Any) -> None:
    """What is of a type in another spelling is read as one; anything else is left for the comparison to show."""
    assert as_value(given, kind) == expected


def test_rows_by_name_and_by_place() -> None:
    """Both are the same, and a row of Spark's own, too."""
    rows = [{"page": "/", "id": 1}, (1, "/"), [1, "/"], types.Row(id=1, page="/")]
    assert as_dicts(rows, SCHEMA, "here") == [{"id": 1, "page": "/"}] * 4
    assert as_dicts(iter([{}]), SCHEMA, "here") == [{}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"id": 1}, "here]; give a list of dicts"),
        ("text", "here]; give a list of dicts"),
        (5, "here]; give a list of dicts"),
        ([{"pge": "/"}], "no column `pge` [here, row 1]; did you mean `page`?"),
        ([{}, {"x": 1}], "no column `x` [here, row 2]; the columns are: id, page"),
        ([(1,)], "it has 1 values, and there are 2 columns [here, row 1]"),
        ([1], "it is 1 [here, row 1]; give a dict"),
        (["ab"], "it is 'ab' [here, row 1]; give a dict"),
    ],
)
def test_no_rows(rows: object, message: str) -> None:
    """The message says which row, and what there is."""
    with pytest.raises(DeclarationError) as caught:
        as_dicts(rows, SCHEMA, "here")
    assert message in str(caught.value)
