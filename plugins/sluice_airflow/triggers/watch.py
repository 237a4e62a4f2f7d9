"""What the asset watchers share: nothing that happens is lost over a restart of the triggerer, or told twice.

What is about to be told is written into the asset's state store before it is told; it is struck out when Airflow
confirms that the event is in its database (the shared stream's acknowledgement), and what was told moves on. After
a restart, what was not struck out is told again, with the very same payload: only a triggerer that is killed in the
second between the two can repeat an event, and then the repetition can be known by its payload.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, cast

from airflow.sdk import Asset
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from sluice_airflow.triggers.shared_poll import Sighting

T = TypeVar("T")

Position = dict[str, Any]
"""How far a watcher has told, as JSON; empty at first."""


@dataclass(frozen=True)
class News:
    """What a sighting gives to tell."""

    payload: dict[str, Any] | None
    """None to tell nothing, and move on nevertheless."""
    position: Position
    """Where the watcher is afterwards."""


@dataclass
class _Turn(Generic[T]):
    """One sighting on its way through Airflow, and what the watcher told because of it."""

    sighting: Sighting[T]
    watch: StreamWatch[T] | None = None
    told: list[int] = field(default_factory=list)


class _Turns(SharedStreamProducer, Generic[T]):
    """Hands the sightings of a shared poll to one watcher, and hears from Airflow which events are safe."""

    def __init__(self, sightings: AsyncIterator[Sighting[T]]) -> None:
        self._sightings = sightings

    async def open_stream(self) -> AsyncIterator[tuple[_Turn[T], _Turn[T]]]:
        async with aclosing(cast("Any", self._sightings)) as sightings:
            async for sighting in sightings:
                turn = _Turn(sighting)
                yield turn, turn

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        for item in batch:
            turn: _Turn[T] = item.broker_payload
            if turn.watch is not None and turn.told and not item.outcome.failed:
                await turn.watch.strike_out(turn.told)


class StreamWatch(BaseEventTrigger, Generic[T]):
    """Watches a stream for an asset, for good.

    Args:
        asset: The name of the asset that bears the watcher; what was told is kept with it.
        stream: The stream's name.
        project: The folder of `sluice.toml`; Airflow's own project when not given.
    """

    key: ClassVar[str]
    """Under which the state store keeps what was told."""

    def __init__(self, *, asset: str, stream: str, project: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.asset = asset
        self.stream = stream
        self.project = project
        self._told: Position = {}
        self._telling: dict[int, dict[str, Any]] = {}
        self._numbers = 0
        self._writing = asyncio.Lock()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, as Airflow keeps them."""
        kind = type(self)
        arguments = {"asset": self.asset, "stream": self.stream, "project": self.project}
        return f"{kind.__module__}.{kind.__qualname__}", arguments

    def shared_stream_key(self) -> Hashable:
        """One stream of turns per watcher: the reading is shared below it, by `shared_poll`."""
        return (*self.serialize()[0:1], self.asset, self.stream, self.project)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """What Airflow asks for turns, and tells of events that are safe."""
        return _Turns(cls.follow(kwargs["stream"], kwargs["project"]))

    @classmethod
    @abstractmethod
    def follow(cls, stream: str, project: str | None) -> AsyncIterator[Sighting[T]]:
        """What a shared poll sees of the stream."""

    @abstractmethod
    def news(self, told: Position, seen: T) -> News | None:
        """What there is beyond what was told; None for nothing."""

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Tell the news of every turn."""
        again = await self._recall()
        problem = None
        async for turn in shared_stream:
            turn.watch = self
            for number in again:
                turn.told.append(number)
                yield TriggerEvent(self._telling[number]["payload"])  # type: ignore[no-untyped-call]
            again = []
            if turn.sighting.problem is not None:
                if turn.sighting.problem != problem:
                    problem = turn.sighting.problem
                    self.log.warning("stream %s can't be watched, and is waited for: %s", self.stream, problem)
                continue
            found = self.news(self._newest(), turn.sighting.value)
            if found is None:
                continue
            if found.payload is None:
                self._move(found.position)
                await self._write()
                continue
            self._numbers += 1
            self._telling[self._numbers] = {"payload": found.payload, "position": found.position}
            await self._write()
            turn.told.append(self._numbers)
            yield TriggerEvent(found.payload)  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Never: Airflow calls `filter_shared_stream`, because there is a shared stream.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("a watcher runs on its shared stream")
        yield  # type: ignore[unreachable] # which makes it the generator that Airflow declares

    async def strike_out(self, numbers: Sequence[int]) -> None:
        """Note that these events are in Airflow's database."""
        for number in numbers:
            self._told = self._telling.pop(number)["position"]
        await self._write()

    def _newest(self) -> Position:
        """The position after everything that was told, confirmed or not."""
        return cast("Position", [*self._telling.values()][-1]["position"]) if self._telling else self._told

    def _move(self, position: Position) -> None:
        if self._telling:
            [*self._telling.values()][-1]["position"] = position
        else:
            self._told = position

    async def _recall(self) -> list[int]:
        """Read what was told before the triggerer started; returns what must be told again."""
        kept = await self._store().aget(self.key)
        document: Mapping[str, Any] = kept if isinstance(kept, dict) else {}
        self._told = document.get("told") or {}
        self._telling = dict(enumerate(document.get("telling") or [], start=1))
        self._numbers = len(self._telling)
        return list(self._telling)

    async def _write(self) -> None:
        # One at a time, and each the newest: two writes under way could arrive in the other order.
        async with self._writing:
            await self._store().aset(self.key, {"told": self._told, "telling": list(self._telling.values())})

    def _store(self) -> Any:
        if self.asset_state_store is None:
            raise RuntimeError(f"the watcher of {self.stream} belongs to an asset: use it in an AssetWatcher")
        return self.asset_state_store[Asset.ref(name=self.asset)]
