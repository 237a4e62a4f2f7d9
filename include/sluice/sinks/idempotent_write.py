"""Writes into Delta tables from a function of `sinks.foreach_batch`: each counts once, however often it is made."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

from sluice.errors import DeclarationError
from sluice.sinks.running_query import query_of
from sluice.sql_text import identifier
from sluice.table_names import SPARK_CATALOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

_PLACE = "sluice.idempotent()"
_MOST_PARTS = 2
"""How many parts a name has without Spark's own catalog at the most: Delta looks tables up there by these."""
_OF_WRITES = ("format", "mode", "partitionBy")
"""What `save` and `saveAsTable` take beside options."""
_OTHER_WRITES = ("csv", "insertInto", "jdbc", "json", "orc", "parquet", "text", "xml")
"""What a writer of Spark's has that is no write into a Delta table, or that leaves out its options."""


@dataclass
class _Call:
    """One call of a function: what it has written into each table by now."""

    done: Counter[tuple[str, ...]] = field(default_factory=Counter)
    threads: dict[tuple[str, ...], int] = field(default_factory=dict)
    failed: dict[tuple[str, ...], DataFrame] = field(default_factory=dict)

    @contextmanager
    def numbered(self, frame: DataFrame, table: Callable[[], str], *about: str) -> Iterator[int]:
        """Which write into a table it is, from 1; one that fails, and is made again, is one.

        Args:
            frame: What is written.
            table: Tells which table it is, whatever it is called: another one only once a write has made it.
            about: As whose write it counts, and of which batch.
        """
        key = table(), *about
        if self.threads.setdefault(key, threading.get_ident()) != threading.get_ident():
            raise _untold(key[0], "by another thread: in which order, a repetition could not tell")
        if (before := self.failed.get(key)) is not None and not frame.sameSemantics(before):
            raise _untold(key[0], "in place of one that has failed: a repetition could take it for that one")
        try:
            yield self.done[key] + 1
        except BaseException:
            self.failed[table(), *about] = frame
            raise
        self.failed.pop(key, None)
        key = table(), *about
        self.done[key] += 1
        self.threads[key] = threading.get_ident()


def _untold(table: str, what: str) -> DeclarationError:
    return DeclarationError(
        f"one batch is written into the table `{table}` once more, {what}",
        where=_PLACE,
        remedy="let one write after the other, and an error end the function: the batch is run again; or unite what is"
        " written",
    )


_calls: dict[str, _Call] = {}


@contextmanager
def numbered_writes(frame: DataFrame) -> Iterator[None]:
    """Tell the writes into one table apart that a function makes while this lasts, which is one call of it."""
    query_id = query_of(frame)
    if query_id is None:
        yield
        return
    _calls[query_id] = _Call()
    try:
        yield
    finally:
        del _calls[query_id]


def idempotent(frame: DataFrame, batch_id: int) -> DataFrameWriter:
    """A writer into a Delta table that writes a batch once, for functions of `sinks.foreach_batch`.

    A driver may die once its function has written, and before Spark has noted the batch: the function is called again
    with the same id. Delta keeps with each write the query's id (`txnAppId`) and the batch's (`txnVersion`), and passes
    over a write whose batch the table has: it computes nothing, and adds no version.

    - Each table keeps this for itself: a function may write into several, one after the other.
    - A function may write into one table several times, in the same order each time that it is called: the first write
      bears the query's id, the next ones `ID:2`, `ID:3`. A write that has failed may be made again, and nothing else in
      its place; and one thread makes all of them. Not so where Spark calls the function without a Sluice run
      around it: there a table takes one write of a batch, and a second one is passed over.
    - Another query, or the same stream under another name, has another id: its batches are new to the table.
    - A checkpoint that was restored from a backup, without the tables, plans batches whose ids they have: their rows
      are passed over. Nothing notices that, for no table is this stream's sink: restore both.
    - The mode is `append`, unless the caller says otherwise; `merge` takes no writer, and is not helped by this.

    Args:
        frame: What is to be written: the frame that the function was given, or what it has made of it.
        batch_id: The batch's, as the function was given it.

    Returns:
        Spark's writer of the format `delta`, to be ended with `save` or `saveAsTable`.

    Raises:
        DeclarationError: It is called elsewhere than in such a function, or on a Spark Connect server, which does not
            tell its query's id; or, by the writer, the write is none into a Delta table, or comes into a table
            from a second thread, or in place of one that has failed.
    """
    if not isinstance(batch_id, int) or isinstance(batch_id, bool) or batch_id < 0:
        raise DeclarationError(
            f"`batch_id` is {batch_id!r}", where=_PLACE, remedy="give the second argument of your function"
        )
    query_id = query_of(frame)
    if query_id is None:
        raise DeclarationError(
            "no query runs here that would name the write",
            where=_PLACE,
            remedy="call it in a function of `sinks.foreach_batch`, there in the function's own thread or in one of"
            " pyspark's `InheritableThread`; on a Spark Connect server, which does not tell the"
            " query, give the options `txnAppId` (a fixed name of the stream's own) and `txnVersion` (the batch's id)",
        )
    writer: DataFrameWriter = _delta_writer()(frame, query_id, batch_id)
    return writer


@cache
def _delta_writer() -> Any:
    from pyspark.sql import DataFrameWriter

    class DeltaWriter(DataFrameWriter):
        """Spark's writer, which refuses whatever would make a write count twice."""

        def __init__(self, frame: DataFrame, query_id: str, batch_id: int) -> None:
            super().__init__(frame)
            super().format("delta").mode("append")
            self.frame, self.call = frame, _calls.get(query_id, _Call())
            self.told: dict[str, Any] = {}
            self.option("txnAppId", query_id).option("txnVersion", batch_id)

        def format(self, source: str) -> DataFrameWriter:
            if source.lower() != "delta":
                _refuse_format(source)
            return self

    for name in _OTHER_WRITES:
        setattr(DeltaWriter, name, _refusing(name))
    for name, method in {"option": _option, "options": _options, "save": _save, "saveAsTable": _save_as_table}.items():
        setattr(DeltaWriter, name, method)
    return DeltaWriter


def _option(self: Any, key: str, value: Any) -> Any:
    from pyspark.sql import DataFrameWriter

    self.told[key.lower()] = value
    return DataFrameWriter.option(self, key, value)


def _options(self: Any, **options: Any) -> Any:
    for key, value in options.items():
        _option(self, key, value)
    return self


def _save(self: Any, path: str | None = None, *given: Any, **options: Any) -> None:
    from pyspark.sql import DataFrameWriter

    written = _told(self, options)
    at = str(path or self.told.get("path"))
    with _numbered(self, partial(_table_at, self._spark, at)):
        DataFrameWriter.save(self, path, *given, **written)


def _save_as_table(self: Any, name: str, *given: Any, **options: Any) -> None:
    from pyspark.sql import DataFrameWriter

    written = _told(self, options)
    with _numbered(self, partial(_table_named, self._spark, name)):
        DataFrameWriter.saveAsTable(self, name, *given, **written)


def _told(self: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Take the options out of what a write is called with; gives what is left: its format, its mode, its columns."""
    _options(self, **{key: value for key, value in options.items() if key not in _OF_WRITES})
    return {key: value for key, value in options.items() if key in _OF_WRITES}


def _table_at(session: Any, path: str) -> str:
    """The id of the Delta table at a path; the path where there is none yet."""
    log = _logs(session).forTable(session._jsparkSession, path)
    return str(log.unsafeVolatileSnapshot().metadata().id()) if log.tableExists() else path


def _table_named(session: Any, name: str) -> str:
    """The id of the Delta table of a name; the name where there is none yet."""
    from pyspark.errors import AnalysisException

    parser = session._jsparkSession.sessionState().sqlParser()
    try:
        parts = parser.parseMultipartIdentifier(name)
        named = [str(parts.apply(number)) for number in range(parts.size())]
        own = named[1:] if named[0].lower() == SPARK_CATALOG and len(named) > _MOST_PARTS else named
        table = parser.parseTableIdentifier(".".join(map(identifier, own)))
        log = _logs(session).forTable(session._jsparkSession, table)
    except AnalysisException:
        return name
    return str(log.unsafeVolatileSnapshot().metadata().id()) if log.tableExists() else name


def _logs(session: Any) -> Any:
    return getattr(session._jvm, "org.apache.spark.sql.delta.DeltaLog")


@contextmanager
def _numbered(writer: Any, table: Callable[[], str]) -> Iterator[None]:
    from pyspark.sql import DataFrameWriter

    query, batch = str(writer.told["txnappid"]), str(writer.told["txnversion"])
    with writer.call.numbered(writer.frame, table, query, batch) as number:
        DataFrameWriter.option(writer, "txnAppId", query if number == 1 else f"{query}:{number}")
        yield


def _refusing(name: str) -> Any:
    def refuse(self: object, *args: object, **options: object) -> NoReturn:  # noqa: ARG001 - Spark's signature
        _refuse_format(name)

    return refuse


def _refuse_format(name: str) -> NoReturn:
    raise DeclarationError(
        f"a write by `{name}` can't be told from its repetition: only Delta keeps which batches a table has",
        where=_PLACE,
        remedy="end the writer with `save(PATH)`; of another format, write what may be there twice, or let one folder"
        " per batch be overwritten",
    )
