"""Values that take a while, computed in the background: one that hangs keeps nobody else waiting."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Job(Generic[T]):
    """One computation."""

    work: Callable[[], T]
    asked_at: float
    value: Future[T] = field(default_factory=Future)
    began_at: float | None = None
    is_overdue: bool = False
    """Whether it took longer than the deadline, so that its thread counts no more."""
    before: Future[T] | None = None
    """The last value that was done: shown while this one is computed."""


class Backstage(Generic[T]):
    """Computes values by name in a few threads, keeps them for a while, and waits for them only so long.

    A computation that takes longer than the deadline gives its place to another thread: threads can't be ended, but
    those that hang are beside the few. A name is never computed twice at once, so that at most one thread hangs for it.

    Args:
        keep_seconds: How old a value may be before it is computed anew.
        deadline_seconds: How long a computation may take before it is told, and its place is given away.
        overdue: What is told in place of a value that is overdue, by the seconds that it has taken so far.
        threads: How many are computed at once.
    """

    def __init__(
        self, keep_seconds: float, *, deadline_seconds: float, overdue: Callable[[float], T], threads: int = 4
    ) -> None:
        self._keep_seconds, self._deadline_seconds = keep_seconds, deadline_seconds
        self._overdue, self._threads = overdue, threads
        self._jobs: dict[str, _Job[T]] = {}
        self._queue: deque[_Job[T]] = deque()
        self._working = 0
        """Threads that work, without those that are overdue."""
        self._lock = Lock()

    def get(self, works: Mapping[str, Callable[[], T]], patience_seconds: float) -> dict[str, T]:
        """The values of those that have one by then, by name. What one of them raises, this raises."""
        with self._lock:
            self._give_places_away()
            # What hung when it was asked for last comes last.
            for name in sorted(works, key=self._was_overdue):
                self._ask(name, works[name])
            self._forget(works)
            self._hire()
            jobs = {name: self._jobs[name] for name in works}
        wait([job.value for job in jobs.values() if not job.is_overdue], timeout=patience_seconds)
        with self._lock:
            self._give_places_away()
            self._hire()
        told = {name: self._told(job) for name, job in jobs.items()}
        return {name: value for name, (is_known, value) in told.items() if is_known}  # type: ignore[misc]

    def _told(self, job: _Job[T]) -> tuple[bool, T | None]:
        """Whether there is something to tell of a job, and what."""
        if job.value.done():
            return True, job.value.result()
        if job.is_overdue and job.began_at is not None:
            return True, self._overdue(time.monotonic() - job.began_at)
        return (False, None) if job.before is None else (True, job.before.result())

    def _was_overdue(self, name: str) -> bool:
        last = self._jobs.get(name)
        return last is not None and last.is_overdue

    def _ask(self, name: str, work: Callable[[], T]) -> None:
        last = self._jobs.get(name)
        if last is not None and (not last.value.done() or time.monotonic() - last.asked_at < self._keep_seconds):
            return
        job = _Job(work, time.monotonic(), before=last.value if last else None)
        self._jobs[name] = job
        self._queue.append(job)

    def _give_places_away(self) -> None:
        horizon = time.monotonic() - self._deadline_seconds
        for job in self._jobs.values():
            is_at_work = job.began_at is not None and not job.value.done()
            if is_at_work and not job.is_overdue and job.began_at is not None and job.began_at < horizon:
                job.is_overdue = True
                self._working -= 1

    def _hire(self) -> None:
        for _ in range(min(len(self._queue), self._threads - self._working)):
            self._working += 1
            # Daemons: a thread that hangs does not keep the server from ending.
            Thread(target=self._work, name="sluice-ui", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._working -= 1
                    return
                job = self._queue.popleft()
                job.began_at = time.monotonic()
            try:
                job.value.set_result(job.work())
            except BaseException as exc:
                job.value.set_exception(exc)  # whoever asked for it gets it
            with self._lock:
                if job.is_overdue:
                    return  # another thread has its place

    def _forget(self, asked_for: Container[str]) -> None:
        """Drop what nobody has asked for in a long time, such as streams that are gone."""
        horizon = time.monotonic() - 100 * self._keep_seconds
        for name, job in list(self._jobs.items()):
            if name not in asked_for and job.asked_at < horizon and job.value.done():
                del self._jobs[name]
