"""A sink that calls a function with every batch.

The function gets the batch's DataFrame and its id, and may be called again with the same id after a crash: it must
be idempotent by batch id. `idempotent_write.py` makes a write into a Delta table so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sluice.declaration_checks import check_reference, declares
from sluice.other_names import SINK_WORDS
from sluice.sinks.contract import BatchSink, FunctionLoader, SinkBatch
from sluice.sinks.idempotent_write import numbered_writes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sluice.storage import Storage


@dataclass(frozen=True)
class ForeachBatchSink(BatchSink):
    """Declared by `sinks.foreach_batch`."""

    kind: ClassVar[str] = "foreach_batch"

    reference: str

    @property
    def function(self) -> str:
        return self.reference

    def batch_function(self, load_function: FunctionLoader) -> Callable[[DataFrame, int], None]:
        function: Callable[[DataFrame, int], None] = load_function(self.reference)

        def write(frame: DataFrame, batch_id: int) -> None:
            with numbered_writes(frame):
                function(frame, batch_id)

        return write

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        return frame.writeStream.foreachBatch(load_function(self.reference))

    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        self.batch_function(load_function)(frame, batch.batch_id)


@declares("sinks.foreach_batch()", SINK_WORDS)
def foreach_batch(function: str) -> ForeachBatchSink:
    """Declare a sink that calls `function(frame, batch_id)` with every batch; see `sluice.idempotent` for its writes.

    Args:
        function: `module:function`.

    Raises:
        DeclarationError: It is no such reference.
    """
    check_reference(function, "`function`", "sinks.foreach_batch()")
    return ForeachBatchSink(function)
