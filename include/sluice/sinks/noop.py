"""A sink that computes everything and keeps nothing: for measuring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sluice.declaration_checks import declares
from sluice.other_names import SINK_WORDS
from sluice.sinks.bench import BenchSink
from sluice.sinks.contract import FunctionLoader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class NoopSink(BenchSink):
    """Declared by `sinks.noop`."""

    kind: ClassVar[str] = "noop"
    live_kinds: ClassVar[tuple[str, ...]] = ("processing-time", "continuous")

    def placed(self, place_of: Callable[[str], str], stream: str) -> NoopSink:
        return self

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        return frame.writeStream.format("noop")


@declares("sinks.noop()", SINK_WORDS)
def noop() -> NoopSink:
    """Declare a sink that keeps nothing."""
    return NoopSink()
