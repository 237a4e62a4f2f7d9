"""One poll for everything that this process watches in a project.

A triggerer runs a thousand triggers in one loop. None of them reads a file in that loop, and none polls by itself:
they follow a shared poll, which reads all that is followed in one visit to a thread and wakes only those for whom
something has changed. After each round it rests 124 times as long as the round worked: however much is watched,
reading it costs at most 0.8 percent of a core, and what gets longer is the delay.

A reading that hangs, as on a disk that does not answer, is left alone with its thread: the others go on in another
one, and what hangs is not read again before it has come back.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from sluice.errors import SluiceError
from sluice.foreign_code import described, is_failure

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""The shortest rest between two rounds."""
_REST_PER_WORK = 124.0
_CERTAIN_AFTER = 2
"""How many rounds in a row must fail before a problem is told: a file may be seen half-written."""

_PATIENCE_SECONDS = 10.0
"""How long one reading may take until the others go on without it."""
_MOST_HANGING = 32
"""How many readings may hang until the others wait for one of them: each has a thread."""

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
    key: Hashable
    read: Callable[[], T]
    followers: set[asyncio.Event] = field(default_factory=set)
    sighting: Sighting[T] | None = None
    failures: int = 0
    is_new: bool = True

    def see(self, seen: Sighting[T]) -> None:
        self.is_new = False
        self.failures = 0 if seen.problem is None else self.failures + 1
        if not 0 < self.failures < _CERTAIN_AFTER:
            self._tell(seen)

    def see_hanging(self) -> None:
        self.is_new = False
        self._tell(Sighting(problem=f"it has not answered for {_PATIENCE_SECONDS:g} s"))

    def _tell(self, seen: Sighting[T]) -> None:
        if seen == self.sighting:
            return
        self.sighting = seen
        for follower in self.followers:
            follower.set()


class _Visit(Generic[T]):
    """One thread's way through some readings, until one of them hangs."""

    def __init__(self, reads: Sequence[Callable[[], T]], seconds: Callable[[], float]) -> None:
        self._reads = reads
        self._seconds = seconds
        self._guard = threading.Lock()
        self._since = seconds()
        self._is_left = False
        self.sightings: list[Sighting[T]] = []
        self.worked = 0.0
        """The processor time that it took, in seconds."""

    def go(self) -> None:
        """Read one after the other; for a thread."""
        for read in self._reads:
            began = time.thread_time()
            seen = look(read)
            with self._guard:
                self.sightings.append(seen)
                self.worked += time.thread_time() - began
                self._since = self._seconds()
                if self._is_left:
                    return

    def patience(self) -> float:
        """How many more seconds the reading that is under way may take."""
        return max(0.0, self._since + _PATIENCE_SECONDS - self._seconds())

    def leave(self) -> int | None:
        """Let the thread end after the reading that is under way, if that hangs; says which one that is."""
        with self._guard:
            hanging = len(self.sightings)
            self._is_left = self.patience() == 0.0 and hanging < len(self._reads)
            return hanging if self._is_left else None


class SharedPoll(Generic[T]):
    """Reads everything that is followed, round by round. Belongs to one event loop."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        """Args: `seconds` tells seconds that pass, from any start."""
        self._seconds = seconds
        self._watches: dict[Hashable, _Watch[T]] = {}
        self._newcomer = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._hanging: dict[Hashable, asyncio.Task[None]] = {}

    async def follow(self, key: Hashable, read: Callable[[], T]) -> AsyncIterator[Sighting[T]]:
        """What is there now, then whatever comes; what changed twice while nobody asked is told once.

        Args:
            key: Those with the same key share one reading.
            read: Reads it; called in a thread, and by one thread at a time.
        """
        watch = self._watches.setdefault(key, _Watch(key, read))
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
        worked = 0.0
        for watch in watches:
            if watch.key in self._hanging:
                watch.see_hanging()
        waiting = [watch for watch in watches if watch.key not in self._hanging]
        while waiting and len(self._hanging) < _MOST_HANGING:
            visit = _Visit([watch.read for watch in waiting], self._seconds)
            # A thread that hangs in a file system is left behind when the triggerer ends. It counts for nobody else:
            # what hangs elsewhere must not use up the threads of the poll.
            limiter = anyio.CapacityLimiter(1)
            going = asyncio.create_task(anyio.to_thread.run_sync(visit.go, abandon_on_cancel=True, limiter=limiter))
            hanging: int | None = None
            while hanging is None and not going.done():
                await asyncio.wait({going}, timeout=visit.patience())
                hanging = None if going.done() else visit.leave()
            if hanging is None and (problem := going.exception()) is not None:
                # Such as no thread to be had: who follows must not wait for a poll that has died.
                logger.error("nothing could be read in this round; the next one tries again", exc_info=problem)
                return worked
            worked += visit.worked
            for watch, seen in zip(waiting, visit.sightings[:hanging], strict=False):
                watch.see(seen)
            if hanging is None:
                break
            self._leave(waiting[hanging], visit, going)
            waiting = waiting[hanging + 1 :]
        return worked

    def _leave(self, watch: _Watch[T], visit: _Visit[T], going: asyncio.Task[None]) -> None:
        logger.warning("%s has not answered for %g s; the others go on without it", watch.key, _PATIENCE_SECONDS)
        self._hanging[watch.key] = going
        watch.see_hanging()

        def come_back(_: object) -> None:
            del self._hanging[watch.key]
            followed = self._watches.get(watch.key)
            if followed is not None and not going.cancelled() and going.exception() is None:
                logger.info("%s answers again", watch.key)
                followed.see(visit.sightings[-1])

        going.add_done_callback(come_back)


def look(read: Callable[[], T]) -> Sighting[T]:
    """Read one thing; whatever goes wrong becomes the sighting's problem, and fails nobody else's trigger."""
    try:
        return Sighting(read())
    except SluiceError as exc:
        return Sighting(problem=str(exc), is_final=not exc.retryable)
    except BaseException as exc:
        if not is_failure(exc):
            raise
        return Sighting(problem=described(exc))


_POLLS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, SharedPoll[object]]] = WeakKeyDictionary()


def shared_poll(key: Hashable) -> SharedPoll[object]:
    """The poll of this key in the running event loop."""
    return _POLLS.setdefault(asyncio.get_running_loop(), {}).setdefault(key, SharedPoll())
