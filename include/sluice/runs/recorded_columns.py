"""What a run record keeps of the columns of its result: their types, and the columns of the sources behind them."""

from __future__ import annotations

import msgspec


class ColumnOrigin(msgspec.Struct, frozen=True, order=True):
    """A column of a source."""

    source: str
    """The source's name in the declaration."""
    column: str


class ResultColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column of the result."""

    name: str
    type: str = ""
    """As Spark has it in SQL: `bigint`."""
    origins: tuple[ColumnOrigin, ...] = ()
    """Of what it is made; empty for what no source has, and where Spark's plan does not tell."""
    is_same: bool = False
    """Whether it is that column as it is, under whatever name."""


class RecordedColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a query."""

    result: tuple[ResultColumn, ...] = ()
    sources: dict[str, dict[str, str]] = {}
    """By source, the types of its columns."""
    rows_by: dict[str, tuple[ColumnOrigin, ...]] = {}
    """The columns that decide which rows there are: those of each `filter`, `join` and `group_by`."""
    tables: dict[str, int] = {}
    """By location, the versions of the Delta tables that the query reads beside its sources."""
