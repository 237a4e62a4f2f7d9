"""A sink that hands each row to an object of somebody's class, in Spark's workers.

For each partition of each try of a batch, Spark makes one, and calls `open(partition_id, batch_id)`, `process(row)` for
each row, and `close(error)`. The same partition of a batch may come again: `open` returns False to pass over it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sluice.declaring import check_reference, declares
from sluice.errors import DeclarationError
from sluice.other_names import SINK_WORDS
from sluice.sinks.contract import FunctionLoader, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class ForeachSink(Sink):
    """Declared by `sinks.foreach`."""

    kind: ClassVar[str] = "foreach"
    called_with: ClassVar[tuple[str, ...]] = ("row",)

    reference: str

    @property
    def function(self) -> str:
        return self.reference

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        made = load_function(self.reference)
        # Of a class, Spark wants one object, which it copies; a function gets each row itself.
        return frame.writeStream.foreach(made() if isinstance(made, type) else made)

    def check_function(self, function: Callable[..., Any]) -> None:
        if isinstance(function, type) and not callable(getattr(function, "process", None)):
            raise DeclarationError(
                f"`{self.reference}` has no method `process`",
                where="sinks.foreach()",
                remedy="give it `process(self, row)`, and if wanted `open(self, partition_id, batch_id)` and"
                " `close(self, error)`",
            )


@declares("sinks.foreach()", SINK_WORDS)
def foreach(writer: str) -> ForeachSink:
    """Declare a sink that hands each row to a class or a function.

    Args:
        writer: `module:Class`, made without arguments, with a method `process(row)`; or `module:function`, called with
            each row.

    Raises:
        DeclarationError: It is no such reference.
    """
    check_reference(writer, "`writer`", "sinks.foreach()")
    return ForeachSink(writer)
