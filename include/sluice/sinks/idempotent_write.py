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
from sluice.locations import real_location, spark_location
from sluice.sinks.running_query import query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

_PLACE = "sluice.idempotent()"
_OTHER_WRITES = ("csv", "insertInto", "jdbc", "json", "orc", "parquet", "text", "xml")
"""What a writer of Spark's has that is no write into a Delta table, or that leaves out its options."""


@dataclass
class _Call:
    """One call of a function: how often it has written into each table by now."""

    done: Counter[str | None] = field(default_factory=Counter)
    under_way: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def numbered(self, table: Callable[[], str | None]) -> Iterator[int]:
        """Which write into a table it is, from 1; a write that fails is none.

        Args:
            table: Tells where the table is, whatever it is called; None where there is none, so that it has no write.
        """
        if (place := table()) is None:
            yield 1
            self.done[table()] += 1
            return
        with self.lock:
            if place in self.under_way:
                raise DeclarationError(
                    f"two threads write one batch into `{place}` at once: in which order, a repetition could not tell",
                    where=_PLACE,
                    remedy="let one write after the other, or unite what they write",
                )
            self.under_way.add(place)
        try:
            yield self.done[place] + 1
            self.done[place] += 1
        finally:
            self.under_way.discard(place)


_calls: dict[tuple[str, int], _Call] = {}


@contextmanager
def numbered_writes(frame: DataFrame, batch_id: int) -> Iterator[None]:
    """Tell the writes into one table apart that a function makes while this lasts, which is one call of it."""
    query_id = query_of(frame)
    if query_id is None:
        yield
        return
    _calls[query_id, batch_id] = _Call()
    try:
        yield
    finally:
        del _calls[query_id, batch_id]


def idempotent(frame: DataFrame, batch_id: int) -> DataFrameWriter:
    """A writer into a Delta table that writes a batch once, for functions of `sinks.foreach_batch`.

    A driver may die once its function has written, and before Spark has noted the batch: the function is called again
    with the same id. Delta keeps with each write the query's id (`txnAppId`) and the batch's (`txnVersion`), and passes
    over a write whose batch the table has: it computes nothing, and adds no version.

    - Each table keeps this for itself: a function may write into several, one after the other.
    - A function may write into one table several times, in the same order each time that it is called: the first write
      bears the query's id, the next ones `ID:2`, `ID:3`. Not so where Spark calls the function without a Sluice run
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
            tell its query's id; or, by the writer, the write is none into a Delta table, or is made while another one
            into the same table is under way.
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
            remedy="call it in a function of `sinks.foreach_batch`; on a Spark Connect server, which does not tell the"
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
            super().option("txnAppId", query_id).option("txnVersion", batch_id)
            self.query_id, self.call = query_id, _calls.get((query_id, batch_id), _Call())
            self.path: object = None

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

    if key.lower() == "path":
        self.path = value
    return DataFrameWriter.option(self, key, value)


def _options(self: Any, **options: Any) -> Any:
    for key, value in options.items():
        _option(self, key, value)
    return self


def _save(self: Any, path: str | None = None, *given: Any, **options: Any) -> None:
    from pyspark.sql import DataFrameWriter

    at = _place(str(path or options.get("path") or self.path))
    with _numbered(self, lambda: at):
        DataFrameWriter.save(self, path, *given, **options)


def _save_as_table(self: Any, name: str, *given: Any, **options: Any) -> None:
    from pyspark.sql import DataFrameWriter

    with _numbered(self, partial(_location, self._spark, name)):
        DataFrameWriter.saveAsTable(self, name, *given, **options)


def _location(session: SparkSession, name: str) -> str | None:
    """Where a table of a name is; None where there is none yet."""
    if not session.catalog.tableExists(name):
        return None
    return _place(str(session.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"]))


def _place(path: str) -> str:
    return real_location(spark_location(path)).rstrip("/")


@contextmanager
def _numbered(writer: Any, table: Callable[[], str | None]) -> Iterator[None]:
    with writer.call.numbered(table) as number:
        _option(writer, "txnAppId", writer.query_id if number == 1 else f"{writer.query_id}:{number}")
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
