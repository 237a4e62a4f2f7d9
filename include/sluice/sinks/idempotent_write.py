"""Writes into Delta tables from a function of `sinks.foreach_batch`: each counts once, however often it is made."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from sluice.errors import DeclarationError
from sluice.sinks.running_query import query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

_PLACE = "sluice.idempotent()"
_OTHER_WRITES = ("csv", "insertInto", "jdbc", "json", "orc", "parquet", "text", "xml")
"""What a writer of Spark's has that is no write into a Delta table, or that leaves out its options."""


def idempotent(frame: DataFrame, batch_id: int) -> DataFrameWriter:
    """A writer into a Delta table that writes a batch once, for functions of `sinks.foreach_batch`.

    A driver may die once its function has written, and before Spark has noted the batch: the function is called again
    with the same id. Delta keeps with each write the query's id (`txnAppId`) and the batch's (`txnVersion`), and passes
    over a write whose batch the table has: it computes nothing, and adds no version.

    - Each table keeps this for itself: a function may write into several, one after the other.
    - A table takes one write of a batch. A second one would be passed over as well: unite the two first.
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
            tell its query's id; or, by the writer, the write is none into a Delta table.
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

        def format(self, source: str) -> DataFrameWriter:
            if source.lower() != "delta":
                _refuse_format(source)
            return self

    for name in _OTHER_WRITES:
        setattr(DeltaWriter, name, _refusing(name))
    return DeltaWriter


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
