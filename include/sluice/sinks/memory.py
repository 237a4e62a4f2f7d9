"""A sink that keeps the rows of each batch in this process: for tests and notebooks.

Spark's own memory sink takes no checkpoint that has begun, and so no plan; here a function keeps what Spark hands it.
What is kept ends with the process, while the checkpoint goes on: another process begins with the next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sluice.declaration_checks import declares
from sluice.errors import DeclarationError
from sluice.other_names import SINK_WORDS
from sluice.sinks.contract import BatchSink, Clash, FunctionLoader, Sink, SinkBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sluice.storage import Storage

_kept: dict[str, dict[int, list[Row]]] = {}


@dataclass(frozen=True)
class MemorySink(BatchSink):
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

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        _kept.setdefault(self.name, {})[batch_id] = frame.collect()


def batches_of(name: str = "memory") -> Mapping[int, list[Row]]:
    """The rows that this process keeps under a name, by batch; a batch that came twice is there once."""
    return _kept.get(name, {})


def keep_batches(name: str, batches: Mapping[int, list[Row]]) -> None:
    """Let this process keep these rows under a name, by batch, and no others."""
    _kept.pop(name, None)
    if batches:
        _kept[name] = dict(batches)


@declares("sinks.memory()", SINK_WORDS)
def memory(name: str = "memory") -> MemorySink:
    """Declare a sink that keeps the rows of each batch in this process; `sluice.sinks.memory.batches_of` has them.

    Args:
        name: What they are kept under: another one for each stream of a project.
    """
    return MemorySink(name)
