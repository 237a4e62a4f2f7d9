"""A sink that hands each row to an object of somebody's class, in Spark's workers.

For each partition of each try of a batch, Spark makes one, and calls `open(partition_id, batch_id)`, `process(row)` for
each row, and `close(error)`. The same partition of a batch may come again: `open` returns False to pass over it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sluice.declaration_checks import check_reference, declares
from sluice.errors import DeclarationError
from sluice.foreign_code import foreign_code
from sluice.other_names import SINK_WORDS
from sluice.sinks.contract import FunctionLoader, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class ForeachSink(Sink):
    """Declared by `sinks.foreach`."""

    kind: ClassVar[str] = "foreach"
    live_kinds: ClassVar[tuple[str, ...]] = ("processing-time", "real-time")
    called_with: ClassVar[tuple[str, ...]] = ("row",)

    reference: str

    @property
    def function(self) -> str:
        return self.reference

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        made = load_function(self.reference)
        # Of a class, Spark wants one object, which it copies; a function gets each row itself.
        if isinstance(made, type):
            with foreign_code(f"no `{self.reference}` can be made", where=lambda _: "sinks.foreach()"):
                made = made()
        return frame.writeStream.foreach(made)

    def check_function(self, function: Callable[..., Any]) -> None:
        if isinstance(function, type) and not callable(getattr(function, "process", None)):
            raise DeclarationError(
                f"`{self.reference}` has no method `process`",
                where="sinks.foreach()",
                remedy="give it `process(self, row)`, and if wanted `open(self, partition_id, batch_id)` and"
                " `close(self, error)`",
            )
        if isinstance(function, type) and (wanted := _wanted(function)):
            raise DeclarationError(
                f"`{self.reference}` can't be made without arguments: it wants {', '.join(wanted)}",
                where="sinks.foreach()",
                remedy="give them defaults, or set in `open` what it needs",
            )


def _wanted(made: type) -> list[str]:
    """The arguments without a default that a class is made with, as far as it tells them."""
    try:
        parameters = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):
        return []
    empty, several = inspect.Parameter.empty, {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return [f"`{found.name}`" for found in parameters if found.default is empty and found.kind not in several]


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
