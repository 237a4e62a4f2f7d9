"""Gives a source rows: writes them as the source's kind has them, with the time of the bench's clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.errors import DeclarationError
from sluice.sources.bench import FedSource, Feed
from sluice.sources.contract import Source
from sluice.testing.rows import as_dicts, for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Input:
    """What is given to a source at once."""

    rows: object
    """Rows, a DataFrame, or the whole content of a file."""
    schema: str | None
    """The columns as DDL, where the source does not tell."""
    how: Feed


def write_input(source: Source, given: Input, session: Callable[[], SparkSession]) -> str:
    """Give rows to a source; tells in a few words what was written.

    Args:
        source: One of the bench's.
        given: What it gets.
        session: Gives Spark, which not every input needs.

    Raises:
        DeclarationError: The rows are not the source's, or it makes its own.
    """
    if not isinstance(source, FedSource):
        raise DeclarationError(
            f"a source of {source.kind} makes rows of its own", where=given.how.place, remedy="run the stream"
        )
    is_content = isinstance(given.rows, str | bytes)
    source.check_feed(given.how, is_content=is_content)
    if isinstance(given.rows, str | bytes):
        content = given.rows.encode() if isinstance(given.rows, str) else given.rows
        return f"{len(content)} bytes in {source.feed(content, given.how)}"
    frame, count = _frame(given, source.fed_columns(session), session)
    return f"{_rows(count)} in {source.feed(frame, given.how)}"


def _frame(
    given: Input, schema: StructType | None, session: Callable[[], SparkSession]
) -> tuple[DataFrame, int | None]:
    """What is given as a DataFrame, and how many rows that are; None where nobody has counted."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    if isinstance(given.rows, DataFrame):
        return given.rows, None
    if given.schema is not None:
        schema = session().createDataFrame([], given.schema).schema
    if schema is None:
        raise DeclarationError(
            "the table is not there yet, and nobody knows its columns",
            where=given.how.place,
            remedy='name them with its first rows: schema="id bigint, at timestamp"',
        )
    rows = as_dicts(given.rows, schema, given.how.place)
    values = [tuple(for_spark(row.get(name)) for name in schema.fieldNames()) for row in rows]
    try:
        return session().createDataFrame(values, schema), len(values)
    except (PySparkException, TypeError, ValueError) as exc:
        raise DeclarationError(
            f"the rows are not of the source's columns: {str(exc).partition(chr(10))[0]}",
            where=given.how.place,
            remedy=f"the columns are: {', '.join(f'{field.name} {field.dataType.simpleString()}' for field in schema)}",
        ) from exc


def _rows(count: int | None) -> str:
    return "a DataFrame" if count is None else "1 row" if count == 1 else f"{count} rows"
