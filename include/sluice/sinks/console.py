"""A sink that prints every batch to the driver's standard output: for looking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sluice.declaration_checks import check_booleans, check_limit, declares
from sluice.other_names import SINK_WORDS
from sluice.sinks.bench import BenchSink
from sluice.sinks.contract import FunctionLoader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class ConsoleSink(BenchSink):
    """Declared by `sinks.console`."""

    kind: ClassVar[str] = "console"
    is_shown: ClassVar[bool] = True
    live_kinds: ClassVar[tuple[str, ...]] = ("processing-time", "continuous", "real-time")

    num_rows: int
    truncate: bool

    def placed(self, place_of: Callable[[str], str], stream: str) -> ConsoleSink:
        return self

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        writer = frame.writeStream.format("console")
        return writer.option("numRows", self.num_rows).option("truncate", self.truncate)


@declares("sinks.console()", SINK_WORDS)
def console(*, num_rows: int = 20, truncate: bool = True) -> ConsoleSink:
    """Declare a sink that prints every batch.

    Args:
        num_rows: The most rows of one batch that are printed.
        truncate: Cut long values.

    Raises:
        DeclarationError: `num_rows` is not above 0, or `truncate` is neither True nor False.
    """
    check_booleans("sinks.console()", truncate=truncate)
    check_limit(num_rows, "num_rows", "sinks.console()")
    return ConsoleSink(num_rows, truncate)
