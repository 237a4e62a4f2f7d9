"""What the triggers that wait for a stream share: a trigger is a condition on what a reader sees."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, cast

from airflow.triggers.base import BaseTrigger, TriggerEvent

from sluice.errors import SluiceError
from sluice.monitoring.inspection import SourceLag, stream_lag
from sluice.monitoring.progress import Progress, ProgressReader
from sluice_airflow.triggers.declared import DeclaredStream, DeclaredStreams
from sluice_airflow.triggers.shared_poll import SharedPoll, Sighting, shared_poll

T = TypeVar("T")

Reader = Callable[[], T]


class StreamTrigger(BaseTrigger, Generic[T]):
    """Waits until something holds of a stream, then fires once.

    The event is `{"met": {...}}` with what was seen, or `{"problem": "...", "is_final": ...}` when waiting longer
    would not help. What passes by itself (a home that does not exist yet, a disk that is away) is waited for.

    Args:
        stream: The stream's name.
        project: The folder of `sluice.toml`; Airflow's own project when not given.
    """

    arguments: ClassVar[tuple[str, ...]] = ("stream", "project")
    """The keyword arguments, which are attributes of the same name: Airflow renders templates in those."""

    def __init__(self, *, stream: str, project: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stream = stream
        self.project = project

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, as Airflow keeps them."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {name: getattr(self, name) for name in self.arguments}

    @abstractmethod
    def follow(self) -> AsyncIterator[Sighting[T]]:
        """What a shared poll sees of the stream."""

    @abstractmethod
    def look(self) -> T:
        """The same, looked at once. Blocks.

        Raises:
            SluiceError: It can't be known.
        """

    @abstractmethod
    def met(self, seen: T) -> dict[str, Any] | None:
        """What is told when the condition holds; None while it does not.

        Raises:
            DeclarationError: An argument, now that its template is rendered, is not what it must be.
        """

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the stream until the condition holds."""
        async with aclosing(cast("Any", self.follow())) as sightings:
            async for seen in sightings:
                event = self._event(seen)
                if event is not None:
                    yield TriggerEvent(event)  # type: ignore[no-untyped-call]
                    return

    def _event(self, seen: Sighting[T]) -> dict[str, Any] | None:
        if seen.problem is not None:
            if seen.is_final:
                return {"problem": seen.problem, "is_final": True}
            self.log.warning("stream %s can't be looked at now, and is waited for: %s", self.stream, seen.problem)
            return None
        try:
            met = self.met(cast("T", seen.value))
        except SluiceError as exc:
            return {"problem": str(exc), "is_final": True}
        return None if met is None else {"met": met}


@dataclass
class _ProgressOf:
    """Reads how far a declared stream has come, also when its declaration changes."""

    streams: DeclaredStreams
    name: str
    _declared: DeclaredStream | None = None
    _reader: ProgressReader | None = None

    def __call__(self) -> Progress:
        declared = self.streams.find(self.name)
        if self._reader is None or declared is not self._declared:
            self._declared, self._reader = declared, ProgressReader(declared.home, declared.stream.output_mode)
        return self._reader.read()


@dataclass(frozen=True)
class _LagOf:
    """Reads what waits in the sources of a declared stream."""

    streams: DeclaredStreams
    name: str

    def __call__(self) -> dict[str, SourceLag]:
        declared = self.streams.find(self.name)
        return stream_lag(declared.stream, declared.home, datetime.now(UTC))


@cache
def watched_streams(what: str, project: str | None) -> DeclaredStreams:  # noqa: ARG001 - tells the polls apart
    """The declarations that one shared poll reads by: each poll, and so each thread, has its own."""
    return DeclaredStreams(project)


def follow_progress(stream: str, project: str | None) -> AsyncIterator[Sighting[Progress]]:
    """How far a stream has come, now and whenever that changes."""
    poll = cast("SharedPoll[Progress]", shared_poll(("progress", project)))
    return poll.follow(stream, _ProgressOf(watched_streams("progress", project), stream))


def follow_lag(stream: str, project: str | None) -> AsyncIterator[Sighting[dict[str, SourceLag]]]:
    """What waits in a stream's sources, now and whenever that changes."""
    poll = cast("SharedPoll[dict[str, SourceLag]]", shared_poll(("lag", project)))
    return poll.follow(stream, _LagOf(watched_streams("lag", project), stream))


def look_at_progress(stream: str, project: str | None) -> Progress:
    """How far a stream has come.

    Raises:
        SluiceError: It can't be known.
    """
    return _ProgressOf(DeclaredStreams(project), stream)()


def look_at_lag(stream: str, project: str | None) -> dict[str, SourceLag]:
    """What waits in a stream's sources.

    Raises:
        SluiceError: It can't be known.
    """
    return _LagOf(DeclaredStreams(project), stream)()
