"""Tables that a stream declares by their names, beside what the session's catalog says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import dropwhile
from typing import TYPE_CHECKING, TypeVar

from sluice.declared_table import DeclaredTable
from sluice.delta_log.table import open_log
from sluice.errors import DeclarationError, Problem, SluiceError
from sluice.locations import local_path, same_for_every_name, spark_location
from sluice.spark.shown_error import spark_message
from sluice.sql_text import identifier, string_literal
from sluice.storage import Storage
from sluice.stream import Stream
from sluice.table_names import SPARK_CATALOG, NamedTable, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_NOT_THERE = frozenset({"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"})
_DETAILS = "# Detailed Table Information"
"""The row of a described table below which its place is told; above it are its columns, one of which may be `Location`.
"""


def check_tables(stream: Stream, session: SparkSession) -> None:
    """Make sure that the catalog has each table where the plan has it, or does not have it.

    Raises:
        DeclarationError: It has it elsewhere, or has no place for a table that the stream makes.
    """
    for table in _sources(stream):
        _check_place(table, stream, session)
    for table in _sinks(stream):
        if not _check_place(table, stream, session) and not _has_database(table, stream, session):
            raise DeclarationError(
                f"there is no database for the table `{table.name}` in Spark's catalog",
                where=stream.place,
                remedy=f"make it: CREATE DATABASE {identifier(table.name.catalog, table.name.database)}",
            )


def register_tables(stream: Stream, session: SparkSession, *, storage: Storage) -> Problem | None:
    """Let the catalog know the tables that a run has written, if it lasts and has them not; why it can't.

    Where nothing was written yet, there is none: to register it would make one without columns.

    What fails here fails after the rows are in their table: the next run tries again.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for table in _sinks(stream):
        if not _lasts(table.name, session):
            continue
        try:
            if open_log(table.location, storage=storage) is not None and _told(table.name, session) is None:
                place = string_literal(spark_location(table.location))
                session.sql(f"CREATE TABLE IF NOT EXISTS {table.name.quoted} USING delta LOCATION {place}")
        except (PySparkException, Py4JError, SluiceError) as exc:
            return Problem(
                code="TABLE_NOT_REGISTERED",
                file=table.location,
                cause=f"Spark's catalog has not taken the table `{table.name}`: {spark_message(exc)}",
                consequence="it has its rows, and can be read by its path alone",
                remedy="see to it that the catalog takes it: the next run that writes rows registers it; or declare"
                " it by its path",
                is_blocking=False,
            )
    return None


def _sources(stream: Stream) -> Iterator[NamedTable]:
    yield from _named(stream.sources.values())


def _sinks(stream: Stream) -> Iterator[NamedTable]:
    several = [output.sink for output in stream.outputs.values()]
    yield from _named([*(several or [stream.sink]), stream.quarantine])


def _named(declared: Iterable[object]) -> Iterator[NamedTable]:
    for one in declared:
        if isinstance(one, DeclaredTable) and (table := one.named_table) is not None:
            yield table


def _check_place(table: NamedTable, stream: Stream, session: SparkSession) -> bool:
    """Whether the catalog has the table, where the plan has it.

    Raises:
        DeclarationError: It has it elsewhere, or something else by that name; or it can't be asked.
    """
    told = _asked(table, stream, lambda: _told(table.name, session))
    if told is None:
        return False
    kind, place = told.get("Provider", told.get("Type", "something else")), told.get("Location")
    if kind.lower() != "delta" or place is None:
        raise DeclarationError(
            f"`{table.name}` is no Delta table in Spark's catalog: it is {kind}",
            where=stream.place,
            remedy="name a table of Delta",
        )
    if same_for_every_name(place) != same_for_every_name(table.location):
        raise DeclarationError(
            f"the table `{table.name}` is at {place} by Spark's catalog, and the plan has it at {table.location}",
            where=stream.place,
            remedy="if that is the one that is meant, let [tables] in sluice.toml say so:"
            f' `"{table.name}" = "{local_path(place)}"`',
        )
    return True


def _told(name: TableName, session: SparkSession) -> dict[str, str] | None:
    """What the catalog says of a table; None where it has none of this name.

    Raises:
        PySparkException: It can't be asked.
    """
    from pyspark.errors import AnalysisException

    try:
        rows = session.sql(f"DESCRIBE TABLE EXTENDED {name.quoted}").collect()
    except AnalysisException as exc:
        if exc.getCondition() in _NOT_THERE:
            return None
        raise
    below = dropwhile(lambda row: row.col_name != _DETAILS, rows)
    return {row.col_name: row.data_type for row in below}


def _lasts(name: TableName, session: SparkSession) -> bool:
    """Whether the catalog has its tables also when the session is over: by default Spark's own has them in memory."""
    return name.catalog != SPARK_CATALOG or session.conf.get("spark.sql.catalogImplementation") != "in-memory"


def _has_database(table: NamedTable, stream: Stream, session: SparkSession) -> bool:
    """Whether the catalog can get the table, as far as that is seen; one that does not last gets none."""
    name = table.name
    if not _lasts(name, session):
        return True
    database = identifier(name.catalog, name.database)
    return _asked(table, stream, lambda: session.catalog.databaseExists(database))


def _asked(table: NamedTable, stream: Stream, ask: Callable[[], T]) -> T:
    """What a catalog answers.

    Raises:
        DeclarationError: It does not.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return ask()
    except (PySparkException, Py4JError) as exc:
        raise DeclarationError(
            f"Spark's catalog can't be asked for the table `{table.name}`: {spark_message(exc)}",
            where=stream.place,
            remedy="see to it that the catalog is one of the session's, and answers; drop a table whose files are gone",
        ) from exc
