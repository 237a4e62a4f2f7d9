"""Several sinks that get what one read gives: the first is written last, and tells which batches are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

from sluice.errors import DeclarationError
from sluice.locations import canonical_location, same_for_every_name
from sluice.sinks.bench import BenchSink
from sluice.sinks.contract import (
    BatchOutcome,
    BatchSink,
    FunctionLoader,
    OutputMode,
    Sink,
    SinkBatch,
    SinkState,
    SinkUse,
    Unknown,
)
from sluice.sinks.keyed import KeyedSink
from sluice.sinks.splitting import SplittingSink
from sluice.storage import Storage
from sluice.surroundings import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class SeveralSinks(BatchSink, BenchSink):
    """Declared by `Stream(sinks={...})`."""

    kind: ClassVar[str] = "several"
    output_modes: ClassVar[tuple[OutputMode, ...]] = ("append",)
    is_idempotent: ClassVar[bool] = True
    live_kinds: ClassVar[tuple[str, ...]] = ()
    needs_delta: ClassVar[bool] = True
    needs_own_spark: ClassVar[bool] = True

    parts: Mapping[str, BatchSink]
    """The sinks by their names, in the order in which they are declared."""

    @property
    def main(self) -> BatchSink:
        """The one that is written last: what it holds, the others hold."""
        return next(iter(self.parts.values()))

    @property
    def others(self) -> Mapping[str, BatchSink]:
        """The ones that are written before it."""
        return dict(list(self.parts.items())[1:])

    @property
    def tables(self) -> Mapping[str, BatchSink]:
        """Those that know which batches they hold."""
        return {name: part for name, part in self.parts.items() if part.is_idempotent}

    @property
    def is_fenced(self) -> bool:
        # The transaction of a batch is that of one table alone.
        return False

    @property
    def named(self) -> str:
        return "a stream with several sinks"

    @property
    def needs_jars(self) -> bool:
        return True

    @property
    def step(self) -> str:
        return f"write the rows of all sinks aside, then {', '.join(f'`{name}`' for name in self.written_order)}"

    @property
    def written_order(self) -> tuple[str, ...]:
        """The names of the sinks, in the order in which a batch is written into them."""
        first, *others = self.parts
        return (*others, first)

    @property
    def replace_obstacle(self) -> str:
        return f"{self.named} can't have the rows of an interval replaced: one could have the new ones without the rest"

    @property
    def split_obstacle(self) -> tuple[str, str]:
        return "its sinks get what the transform gives each", "give a sink to the rows that are to be kept elsewhere"

    @property
    def named_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.named_columns))

    @property
    def form(self) -> str:
        return ", ".join(f"{name}: {part.form}" for name, part in self.parts.items())

    @property
    def location(self) -> str | None:
        return self.main.location

    @property
    def side_tables(self) -> Mapping[str, str]:
        return {f"sink `{name}`": part.location for name, part in self.others.items() if part.location is not None}

    @property
    def shown_place(self) -> str:
        return ", ".join(f"`{name}` at {part.shown_place}" for name, part in self.parts.items())

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        raise TypeError(self.named)  # pragma: no cover - Spark has none

    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        raise TypeError(self.named)  # pragma: no cover - each gets rows of its own

    def resolved(self, around: Surroundings) -> SeveralSinks:
        found = replace(self, parts={name: part.resolved(around) for name, part in self.parts.items()})
        _check_apart(found.parts)
        _check_not_nested(found.parts)
        return found

    def placed(self, place_of: Callable[[str], str], stream: str) -> SeveralSinks:
        placed: dict[str, BatchSink] = {}
        for name, part in self.parts.items():
            found = part.placed(place_of, stream) if isinstance(part, BenchSink) else None
            if not isinstance(found, BatchSink):
                raise DeclarationError(
                    f"sink `{name}` is {part.named}, and a bench does not know where it writes",
                    where=f"stream `{stream}`",
                    remedy="open a copy of the stream that has Delta tables alone:"
                    " bench.open(dataclasses.replace(STREAM, sink=None, sinks={...}))",
                )
            placed[name] = found
        return replace(self, parts=placed)

    def check_settings(self, conf: Mapping[str, str], *, place: str) -> None:
        for name, part in self.parts.items():
            part.check_settings(conf, place=f"{place} `{name}`")

    def check_table(self, use: SinkUse) -> None:
        for part in self.parts.values():
            part.check_table(use)

    def clash(self, other: Sink, stream: str) -> None:
        return None

    def state(self, query_id: str | None, *, storage: Storage) -> SinkState:
        tables = self.table_states(query_id, storage=storage)
        identities = {name: state.identity for name, state in tables.items()}
        is_whole = None not in identities.values()
        has_others = len(tables) < len(self.parts)
        return replace(
            next(iter(tables.values())),
            # What does not tell is there, and is asked whether it takes what is declared.
            exists=has_others or any(state.exists for state in tables.values()),
            identity=", ".join(f"{name} {identity}" for name, identity in identities.items()) if is_whole else None,
            forgotten=next((state.forgotten for state in tables.values() if state.forgotten), None),
            opened=None,
        )

    def table_states(self, query_id: str | None, *, storage: Storage) -> dict[str, SinkState]:
        """What those of them say of themselves that know which batches they hold, by name; see `state`."""
        return {name: table.state(query_id, storage=storage) for name, table in self.tables.items()}

    def streaming_queries(self, *, storage: Storage) -> Iterator[str]:
        for part in self.parts.values():
            yield from part.streaming_queries(storage=storage)

    def why_unknown(
        self, application: str | None, version: int, since_ms: int | None, *, storage: Storage
    ) -> Unknown | None:
        for part in self.parts.values():
            # Some may have a batch that others have not got yet.
            if not part.state(application, storage=storage).holds(version):
                unknown = part.why_unknown(application, version, since_ms, storage=storage)
                if unknown is not None:
                    return unknown
        return None

    def outcome(self, query_id: str, batch_id: int, *, storage: Storage) -> BatchOutcome | None:
        found = self.main.outcome(query_id, batch_id, storage=storage)
        # How many rows there were for all of them, what was decided of the batch tells.
        return None if found is None else BatchOutcome(None, found.version)


def several(sinks: Mapping[str, object], *, place: str) -> SeveralSinks:
    """The sinks of a stream that has more than one.

    Args:
        sinks: What is declared, by name.
        place: The stream, for messages.

    Raises:
        DeclarationError: One is no sink, or none that can be written beside others.
    """
    parts: dict[str, BatchSink] = {}
    for name, sink in sinks.items():
        if not isinstance(sink, BatchSink) or isinstance(sink, KeyedSink) or sink.function is not None:
            what = sink.named if isinstance(sink, Sink) else "no sink"
            raise DeclarationError(
                f"sink `{name}` is {what}, which can't be one of several",
                where=place,
                remedy="use a Delta table without keys or a topic of Kafka; a stream that follows one of its tables"
                " can write any other",
            )
        parts[name] = sink
    first = next(iter(parts))
    if not isinstance(parts[first], SplittingSink):
        raise DeclarationError(
            f"the first of `sinks`, `{first}`, is {parts[first].named}, which does not tell what batches it holds",
            where=place,
            remedy="put a Delta table first: it is written last, and a batch that it holds is done",
        )
    _check_apart(parts)
    return SeveralSinks(parts)


def _check_apart(parts: Mapping[str, BatchSink]) -> None:
    places = {name: part.location for name, part in parts.items() if part.location is not None}
    for (name, place), (other, beside) in combinations(places.items(), 2):
        if same_for_every_name(place) == same_for_every_name(beside):
            raise _shared(name, other, beside, "the same place")


def _check_not_nested(parts: Mapping[str, BatchSink]) -> None:
    """What cleans up a table would take one below it for its own."""
    tables = [(name, part.location) for name, part in parts.items() if part.is_idempotent]
    places = [(name, f"{canonical_location(place).rstrip('/')}/") for name, place in tables if place is not None]
    for (name, place), (other, beside) in combinations(places, 2):
        if place.startswith(beside) or beside.startswith(place):
            raise _shared(name, other, beside, "one place below the other's")


def _shared(name: str, other: str, place: str, what: str) -> DeclarationError:
    return DeclarationError(
        f"the sinks `{name}` and `{other}` write to {what}",
        where=place,
        remedy="give each a place of its own; or make one result of both in the transform",
    )
