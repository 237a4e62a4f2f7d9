"""What a stream of a bench has written, as rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from sluice.errors import DeclarationError
from sluice.locations import local_path, spark_location
from sluice.sinks.contract import Sink
from sluice.sinks.memory import batches_of
from sluice.testing.rows import as_value, rows_of, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_TYPELESS = ("csv", "json", "text", "xml")
"""The formats of files that do not tell the types of their columns."""

ResultSchema = Callable[[], "StructType"]
"""Gives the columns of the query's result."""


def read_rows(
    sink: Sink, session: SparkSession, result: ResultSchema, *, only_newest: bool = False
) -> tuple[StructType | None, list[dict[str, Any]]]:
    """The columns and the rows of a sink; no columns where there is nothing yet.

    Args:
        sink: One of the bench's.
        session: Spark.
        result: The columns that the query gives it.
        only_newest: Whether each batch takes the place of those before.

    Raises:
        DeclarationError: The sink keeps no rows, or not where they can be read.
    """
    if sink.kind == "delta":
        return _read_delta(cast("Any", sink).path, session)
    if sink.kind == "files":
        return _read_files(cast("Any", sink), session, result)
    if sink.kind == "memory":
        schema, batches = result(), sorted(batches_of(cast("Any", sink).name).items())
        kept = batches[-1:] if only_newest else batches
        return schema, [_typed(row.asDict(), schema) for _, rows in kept for row in rows]
    raise DeclarationError(
        f"a sink of {sink.kind} keeps no rows that a bench could read",
        where="bench.check_rows()",
        remedy="open the stream with another: bench.open(..., sink=sinks.memory())",
    )


def _read_delta(path: str, session: SparkSession) -> tuple[StructType | None, list[dict[str, Any]]]:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaProtocolError

    place = local_path(path)
    if not DeltaTable.is_deltatable(place):
        return None, []
    table = DeltaTable(place)
    schema = schema_of(table.schema().to_json())
    try:
        found = table.to_pyarrow_table().to_pylist()
    except DeltaProtocolError:
        # What only Delta itself reads, such as a table with deletion vectors.
        frame = session.read.format("delta").load(spark_location(path))
        return frame.schema, rows_of(frame)
    return schema, [{name: as_value(row[name], schema[name].dataType) for name in schema.fieldNames()} for row in found]


def _read_files(
    sink: Any, session: SparkSession, result: ResultSchema
) -> tuple[StructType | None, list[dict[str, Any]]]:
    if not os.path.isdir(os.path.join(local_path(sink.path), "_spark_metadata")):
        return None, []
    reader = session.read.format(sink.format).options(**sink.options)
    frame = (reader.schema(result()) if sink.format in _TYPELESS else reader).load(spark_location(sink.path))
    return frame.schema, rows_of(frame)


def _typed(row: dict[str, Any], schema: StructType) -> dict[str, Any]:
    """A row that pyspark has collected: its times are in the zone of this machine."""
    return {name: _in_utc(value, schema[name].dataType) for name, value in row.items()}


def _in_utc(value: Any, kind: Any) -> Any:
    from datetime import UTC, datetime

    from pyspark.sql import types

    if isinstance(kind, types.TimestampType) and isinstance(value, datetime) and value.tzinfo is None:
        return value.astimezone(UTC)
    if isinstance(kind, types.StructType) and value is not None:
        return {field.name: _in_utc(value[field.name], field.dataType) for field in kind}
    if isinstance(kind, types.ArrayType) and value is not None:
        return [_in_utc(item, kind.elementType) for item in value]
    if isinstance(kind, types.MapType) and value is not None:
        return {_in_utc(key, kind.keyType): _in_utc(item, kind.valueType) for key, item in value.items()}
    return as_value(value, kind)
