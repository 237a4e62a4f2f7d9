"""Any sink that Spark knows by a name of its format, and Sluice does not: a batch may come twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from sluice.declaration_checks import declares
from sluice.errors import DeclarationError
from sluice.other_names import OTHER_SINK_WORDS
from sluice.paths import expand_all
from sluice.sinks.contract import FormatSink, FunctionLoader
from sluice.spark_options import any_options, check_format_name
from sluice.surroundings import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class OtherSink(FormatSink):
    """Declared by `sinks.other`."""

    kind: ClassVar[str] = "other"
    live_kinds: ClassVar[tuple[str, ...]] = ("processing-time", "continuous", "real-time")

    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def form(self) -> str:
        return f"{self.kind} {self.format}"

    def resolved(self, around: Surroundings) -> OtherSink:
        return replace(self, options=expand_all(self.options, place=f"sinks.other({self.format!r})"))

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        return frame.writeStream.format(self.format).options(**self.options)


@declares("sinks.other()", OTHER_SINK_WORDS)
def other(format: str, **options: Any) -> OtherSink:  # noqa: A002 - Spark's word
    """Declare a sink by the name of its format: whatever is on Spark's class path.

    What becomes of a batch that comes twice, after a driver that died, is the sink's business.

    Args:
        format: As `writeStream.format(...)` has it.
        options: Its options as Spark spells them; `${NAME}` stands for a variable of the environment.

    Raises:
        DeclarationError: The format is none, or one of Sluice's own, or an option is no text, number or boolean.
    """
    place = f"sinks.other({format!r})"
    check_format_name(format, place)
    ours = OTHER_SINK_WORDS.get(format.lower())
    if ours is not None:
        raise DeclarationError(f"Sluice has a sink of its own for `{format}`", where=place, remedy=ours)
    return OtherSink(format, any_options(options, place))
