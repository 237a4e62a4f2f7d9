"""A sink that calls a function with every batch.

The function gets the batch's DataFrame and its id, and may be called again with the same id after a crash: it must
be idempotent by batch id. For a Delta table, the options `txnAppId` (the query id) and `txnVersion` (the batch id)
make a write so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sluice.errors import DeclarationError
from sluice.stream import BatchSink, FunctionLoader, SinkBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class ForeachBatchSink(BatchSink):
    """Declared by `sinks.foreach_batch`."""

    kind: ClassVar[str] = "foreach_batch"

    reference: str

    @property
    def function(self) -> str:
        return self.reference

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        return frame.writeStream.foreachBatch(load_function(self.reference))

    def write_batch(self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader) -> None:
        load_function(self.reference)(frame, batch.batch_id)


def foreach_batch(function: str) -> ForeachBatchSink:
    """Declare a sink that calls `function(frame, batch_id)` with every batch.

    Args:
        function: `module:function`.

    Raises:
        DeclarationError: It is no such reference.
    """
    if not isinstance(function, str) or not _REFERENCE.fullmatch(function):
        raise DeclarationError(
            f"the function is {function!r}", where="sinks.foreach_batch()", remedy='write it as "module:function"'
        )
    return ForeachBatchSink(function)
