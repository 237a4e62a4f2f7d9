"""A sink that keeps the rows of each batch in this process: for tests and notebooks.

Spark's own memory sink takes no checkpoint that has begun, and so no plan; here a function keeps what Spark hands it.
What is kept ends with the process, while the checkpoint goes on: another process begins with the next batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sluice.declaration_checks import declares
from sluice.errors import DeclarationError
from sluice.other_names import SINK_WORDS
from sluice.sinks.bench import ReadBackSink
from sluice.sinks.contract import BatchSink, Clash, FunctionLoader, Sink, SinkBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import DataType, StructType

    from sluice.storage import Storage

_kept: dict[str, dict[int, list[Row]]] = {}


@dataclass(frozen=True)
class MemorySink(BatchSink, ReadBackSink):
    """Declared by `sinks.memory`."""

    kind: ClassVar[str] = "memory"
    is_idempotent: ClassVar[bool] = True

    name: str

    def clash(self, other: Sink, stream: str) -> Clash | None:
        if other != self:
            return None
        # Both number their batches from 0 on.
        return Clash(
            f"keeps its rows in memory under the same name, `{self.name}`: each batch of one would take the place of a"
            " batch of the other",
            remedy=f'give each a name of its own: `sinks.memory("{stream}")`',
        )

    def batch_function(self, load_function: FunctionLoader) -> Callable[[DataFrame, int], None]:
        return self._keep

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        raise DeclarationError(
            "what a server keeps in memory is not in this process",
            where="sinks.memory()",
            remedy="run it with a Spark of its own: `[spark] master`",
        )

    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        self._keep(frame, batch.batch_id)

    def placed(self, place_of: Callable[[str], str], stream: str) -> MemorySink:
        # What another test's stream keeps under the same name stays apart.
        return MemorySink(f"{stream}-{uuid.uuid4().hex[:8]}")

    def kept_rows(
        self, spark: SparkSession, result: Callable[[], StructType], *, only_newest: bool
    ) -> tuple[StructType | None, Iterable[Mapping[str, Any]]]:
        schema, batches = result(), sorted(batches_of(self.name).items())
        kept = [row for _, rows in (batches[-1:] if only_newest else batches) for row in rows]
        return schema, [{field.name: _in_utc(row[field.name], field.dataType) for field in schema} for row in kept]

    def remember(self) -> Mapping[int, list[Row]]:
        return dict(batches_of(self.name))

    def bring_back(self, kept: object) -> None:
        _kept.pop(self.name, None)
        if kept:
            _kept[self.name] = dict(cast("Mapping[int, list[Row]]", kept))

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        _kept.setdefault(self.name, {})[batch_id] = frame.collect()


def _in_utc(value: Any, kind: DataType) -> Any:
    """A value that pyspark has collected: its times are in the zone of this machine."""
    from pyspark.sql import types

    if isinstance(kind, types.TimestampType) and isinstance(value, datetime) and value.tzinfo is None:
        return value.astimezone(UTC)
    if isinstance(kind, types.StructType) and value is not None:
        return {field.name: _in_utc(value[field.name], field.dataType) for field in kind}
    if isinstance(kind, types.ArrayType) and value is not None:
        return [_in_utc(item, kind.elementType) for item in value]
    if isinstance(kind, types.MapType) and value is not None:
        return {_in_utc(key, kind.keyType): _in_utc(item, kind.valueType) for key, item in value.items()}
    return value


def batches_of(name: str = "memory") -> Mapping[int, list[Row]]:
    """The rows that this process keeps under a name, by batch; a batch that came twice is there once."""
    return _kept.get(name, {})


@declares("sinks.memory()", SINK_WORDS)
def memory(name: str = "memory") -> MemorySink:
    """Declare a sink that keeps the rows of each batch in this process; `sluice.sinks.memory.batches_of` has them.

    Args:
        name: What they are kept under: another one for each stream of a project.
    """
    return MemorySink(name)
