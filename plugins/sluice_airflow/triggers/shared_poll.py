"""One poll for everything that this process watches in a project.

A triggerer runs a thousand triggers in one loop. None of them reads a file in that loop, and none polls by itself:
they follow a shared poll, which reads all that is followed in one visit to a thread and wakes only those for whom
something has changed. After each round it rests a hundred times as long as the round took: however much is watched,
it costs at most one percent of a core, and what gets longer is the delay.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio.to_thread

from sluice.errors import SluiceError

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""The shortest rest between two rounds."""
_REST_PER_WORK = 99.0
_CERTAIN_AFTER = 2
"""How many rounds in a row must fail before a problem is told: a file may be seen half-written."""

T = TypeVar("T")


@dataclass(frozen=True)
class Sighting(Generic[T]):
    """What a round saw of one thing: its value, or why it can't be known."""

    value: T | None = None
    problem: str | None = None
    is_final: bool = False
    """Whether waiting does not help: a person must do something about the problem."""


@dataclass(eq=False)
class _Watch(Generic[T]):
    read: Callable[[], T]
    followers: set[asyncio.Event] = field(default_factory=set)
    sighting: Sighting[T] | None = None
    failures: int = 0
    is_new: bool = True

    def see(self, seen: Sighting[T]) -> None:
        self.is_new = False
        self.failures = 0 if seen.problem is None else self.failures + 1
        if seen == self.sighting or 0 < self.failures < _CERTAIN_AFTER:
            return
        self.sighting = seen
        for follower in self.followers:
            follower.set()


class SharedPoll(Generic[T]):
    """Reads everything that is followed, round by round. Belongs to one event loop."""

    def __init__(self) -> None:
        self._watches: dict[Hashable, _Watch[T]] = {}
        self._newcomer = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def follow(self, key: Hashable, read: Callable[[], T]) -> AsyncIterator[Sighting[T]]:
        """What is there now, then whatever comes; what changed twice while nobody asked is told once.

        Args:
            key: Those with the same key share one reading.
            read: Reads it; called in a thread, and by one thread at a time.
        """
        watch = self._watches.setdefault(key, _Watch(read))
        changed = asyncio.Event()
        watch.followers.add(changed)
        self._newcomer.set()
        if self._task is None or self._task.done():
            # In a context of its own: it outlives the trigger that happened to be the first.
            self._task = asyncio.create_task(self._poll(), context=contextvars.Context())
        told: Sighting[T] | None = None
        try:
            while True:
                while watch.sighting is None or watch.sighting is told:
                    await changed.wait()
                    changed.clear()
                told = watch.sighting
                yield told
        finally:
            watch.followers.discard(changed)
            if not watch.followers and self._watches.get(key) is watch:
                del self._watches[key]

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        while self._watches:
            self._newcomer.clear()
            worked = await self._round(list(self._watches.values()))
            rested_at = loop.time() + max(POLL_SECONDS, _REST_PER_WORK * worked)
            while (rest := rested_at - loop.time()) > 0:
                try:
                    await asyncio.wait_for(self._newcomer.wait(), rest)
                except TimeoutError:
                    break
                self._newcomer.clear()
                worked = await self._round([watch for watch in self._watches.values() if watch.is_new])
                rested_at += _REST_PER_WORK * worked

    async def _round(self, watches: Sequence[_Watch[T]]) -> float:
        """Read what is given; returns the processor time that it took, in seconds."""
        # A thread that hangs in a file system is left behind when the triggerer ends.
        reads = [watch.read for watch in watches]
        try:
            sightings, worked = await anyio.to_thread.run_sync(_read_all, reads, abandon_on_cancel=True)
        except Exception:
            # Such as no thread to be had: who follows must not wait for a poll that has died.
            logger.exception("nothing could be read in this round; the next one tries again")
            return 0.0
        for watch, seen in zip(watches, sightings, strict=True):
            watch.see(seen)
        return worked


def _read_all(reads: Sequence[Callable[[], T]]) -> tuple[list[Sighting[T]], float]:
    began = time.thread_time()
    return [look(read) for read in reads], time.thread_time() - began


def look(read: Callable[[], T]) -> Sighting[T]:
    """Read one thing; whatever goes wrong becomes the sighting's problem, and fails nobody else's trigger."""
    try:
        return Sighting(read())
    except SluiceError as exc:
        return Sighting(problem=str(exc), is_final=not exc.retryable)
    except Exception as exc:
        return Sighting(problem=f"{type(exc).__name__}: {exc}")


_POLLS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, SharedPoll[object]]] = WeakKeyDictionary()


def shared_poll(key: Hashable) -> SharedPoll[object]:
    """The poll of this key in the running event loop."""
    return _POLLS.setdefault(asyncio.get_running_loop(), {}).setdefault(key, SharedPoll())
