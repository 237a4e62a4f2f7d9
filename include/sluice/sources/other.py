"""Any source that Spark knows by a name of its format, and Sluice does not: Spark alone decides its batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from sluice.datasets import Dataset
from sluice.declaration_checks import declares
from sluice.errors import DeclarationError, Problem
from sluice.interval import Interval
from sluice.other_names import OTHER_SOURCE_WORDS
from sluice.paths import expand_all
from sluice.schema_text import schema_problem
from sluice.sources.contract import SOURCE_TAG, Available, Bound, Position, Slice, Source
from sluice.spark_options import any_options, check_format_name
from sluice.surroundings import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.storage import Storage


@dataclass(frozen=True)
class OtherSource(Source):
    """Declared by `sources.other`."""

    kind: ClassVar[str] = "other"
    live_kinds: ClassVar[tuple[str, ...]] = ("processing-time", "continuous", "real-time")
    unit: ClassVar[str] = "rows"

    format: str
    schema: str | None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def location(self) -> str:
        return self.format

    @property
    def reading(self) -> tuple[object, ...]:
        return self.format, self.schema, *sorted(self.options.items())

    def resolved(self, around: Surroundings) -> OtherSource:
        return replace(self, options=expand_all(self.options, place=f"sources.other({self.format!r})"))

    def datasets(self, end: Any) -> tuple[Dataset, ...]:
        return ()

    def reads_from(self, place: str) -> bool:
        return False

    def available(self, position: Position, bound: Bound, *, storage: Storage, now: datetime) -> Available:
        why = f"Spark alone knows the offsets of a source of format `{self.format}`"
        return Available(steps=(), unplannable=why, is_counted=False)

    def check_inputs(
        self, position: Position, end: str, *, storage: Storage, is_read: bool = True
    ) -> tuple[Problem, ...]:
        """Whether it is there is Spark's to say."""
        return ()

    def read_stream(self, spark: SparkSession, *, name: str, started_at: Mapping[str, Any]) -> DataFrame:
        reader = spark.readStream.format(self.format).options(**self.options).option(SOURCE_TAG, name)
        return (reader if self.schema is None else reader.schema(self.schema)).load()

    @property
    def backfill_obstacle(self) -> str:
        return f"what a source of format `{self.format}` has given can't be read again"

    def slice(self, position: Position, arrivals: Interval | None, *, storage: Storage) -> Slice:
        raise DeclarationError(self.backfill_obstacle, where=f"sources.other({self.format!r})", remedy="run the stream")

    def read_batch(self, spark: SparkSession, *, name: str, taken: Slice) -> DataFrame:
        raise DeclarationError(self.backfill_obstacle, where=f"sources.other({self.format!r})", remedy="run the stream")

    def columns(self, newest: str | None, *, storage: Storage) -> str | None:
        return self.schema


@declares("sources.other()", OTHER_SOURCE_WORDS)
def other(format: str, *, schema: str | None = None, **options: Any) -> OtherSource:  # noqa: A002 - Spark's word
    """Declare a source by the name of its format: `rate`, `socket`, or whatever is on Spark's class path.

    Spark decides its batches (a drained run): it can't be bounded, planned or backfilled, and each run starts Spark,
    also where nothing is new.

    Args:
        format: As `spark.readStream.format(...)` has it.
        schema: The columns as DDL, where the source wants to be told.
        options: Its options as Spark spells them; `${NAME}` stands for a variable of the environment.

    Raises:
        DeclarationError: The format is none, or one of Sluice's own, or an option is no text, number or boolean.
    """
    place = f"sources.other({format!r})"
    check_format_name(format, place)
    ours = OTHER_SOURCE_WORDS.get(format.lower().replace("-", "_"))
    if ours is not None:
        raise DeclarationError(f"Sluice has a source of its own for `{format}`", where=place, remedy=ours)
    if schema is not None and (wrong := schema_problem(schema)) is not None:
        raise DeclarationError(wrong.problem, where=place, remedy=wrong.remedy)
    return OtherSource(format, schema, any_options(options, place))
