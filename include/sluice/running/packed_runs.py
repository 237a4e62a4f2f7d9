"""Runs several streams with one Spark, one after the other, each as it would run alone.

Each has its own lease, record, verdict and session. They do not run side by side: a transform may ask Spark for "the"
session, Python for "the" module or "the" environment, and each must be its own stream's meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

from sluice.errors import (
    DeclarationError,
    LeaseTakenError,
    QualityFailedError,
    RefusedError,
    RunError,
    SluiceError,
)
from sluice.foreign_code import described, is_failure
from sluice.lineage.sending import lineage_sent
from sluice.planning.planner import Limits
from sluice.planning.stream_order import in_order, upstreams
from sluice.planning.verdict import Request, plan_stream
from sluice.project import Project
from sluice.running.observers import Observer
from sluice.running.runner import run_stream
from sluice.runs.record import RunRecord
from sluice.runs.stop import StopEvent
from sluice.sources.contract import Bound
from sluice.spark.java import Work
from sluice.spark.packed_sessions import PackedSessions
from sluice.spark.shown_error import unforeseen_words
from sluice.stream import Stream
from sluice.times import Clock, system_clock

logger = logging.getLogger(__name__)

_WORST_FIRST = tuple(
    kind.exit_code for kind in (SluiceError, DeclarationError, QualityFailedError, RefusedError, LeaseTakenError)
)
"""Exit codes: failed, declared wrongly, held by quality, refused, the lease is taken."""


@dataclass(frozen=True)
class PackedRun:
    """What became of one stream."""

    stream: str
    record: RunRecord | None = None
    """Of a run that came to its end without an error."""
    error: SluiceError | None = None
    """Why it did not; None, with no record, of a stream that was not begun."""

    @property
    def exit_code(self) -> int:
        """What the command line exits with for this stream alone."""
        return 0 if self.error is None else self.error.exit_code


def worst_exit_code(ended: list[PackedRun]) -> int:
    """The exit code of the worst of them: see `_WORST_FIRST`."""
    codes = {run.exit_code for run in ended}
    return next((code for code in _WORST_FIRST if code in codes), 0)


class PackStop(StopEvent):
    """Set, it ends the run that is at work between two batches, and no other begins."""

    def __init__(self) -> None:
        super().__init__()
        self._of_run = StopEvent()

    def of_next_run(self) -> StopEvent:
        """The event of the run that begins now: a request to end that one does not end the others."""
        self._of_run = StopEvent()
        if self.is_set():
            self._of_run.set()
        return self._of_run

    def set(self) -> None:
        """End the run that is at work, and begin no other."""
        super().set()
        self._of_run.set()


@dataclass
class Pack:
    """Streams that are run with one Spark.

    Args:
        project: Their project.
        streams: The streams by name, with absolute locations.
        limits: What holds for each run. A stream that reads what another of them writes has no bound, and takes what
            that one has left.
        observer: Makes who is told how the run of a stream goes on.
        say: Is told what concerns more than one stream.
        stop: Ends all of them.
        keys: The run keys, of runs that somebody has asked for and waits for. Such a run is not begun where one that it
            reads has not come to its end: whoever waits does it later.
        guard: Watches over the run of a stream while it is at work; sets its event to end it, or to let it not begin.
        clock: Tells the time.
    """

    project: Project
    streams: Mapping[str, Stream]
    limits: Limits
    observer: Callable[[str], Observer]
    say: Callable[[str], None]
    stop: PackStop = field(default_factory=PackStop)
    keys: Mapping[str, str] = field(default_factory=dict)
    guard: Callable[[str, StopEvent], AbstractContextManager[None]] = lambda _name, _stop: nullcontext()
    clock: Clock = system_clock

    def run(self) -> Iterator[PackedRun]:
        """Run one stream after the other; what becomes of one is no concern of the others.

        Yields:
            What became of each, as it ends; at last those that were not begun.
        """
        left: set[str] = set()
        with lineage_sent(), closing(PackedSessions(self._work(), self.say)) as sessions:
            for name in in_order(self._upstreams, alike=lambda name: self._start_settings(sessions, name)):
                is_left = self.stop.is_set() or (name in self.keys and not left.isdisjoint(self._upstreams[name]))
                ended = PackedRun(name) if is_left else self._run(name, sessions)
                if ended.record is None or ended.record.status == "stopped":
                    left.add(name)
                yield ended

    @cached_property
    def _upstreams(self) -> dict[str, list[str]]:
        return upstreams(self.streams)

    def _run(self, name: str, sessions: PackedSessions) -> PackedRun:
        stop = self.stop.of_next_run()
        try:
            with self.guard(name, stop):
                if stop.is_set():
                    return PackedRun(name)
                record = run_stream(
                    self.project,
                    self._request(name),
                    observer=self.observer(name),
                    stop=stop,
                    opener=sessions.open,
                    clock=self.clock,
                )
        except SluiceError as exc:
            ended = PackedRun(name, error=exc)
        except BaseException as exc:
            if not is_failure(exc):
                raise
            # What nobody foresaw ends this run, and no other.
            logger.exception("stream `%s` ended by an error of its own", name)
            ended = PackedRun(name, error=RunError(unforeseen_words(exc) or described(exc), where=f"stream `{name}`"))
        else:
            ended = PackedRun(name, record)
        sessions.forget()
        return ended

    def _request(self, name: str) -> Request:
        stream = self.streams[name]
        is_first = not set(self._upstreams[name]) - {name}
        limits = self.limits if is_first else replace(self.limits, bound=Bound())
        return Request(stream, limits, self.keys.get(name))

    def _work(self) -> Work | None:
        """What all of them are going to do together; None when nobody knows. Starts no JVM.

        A stream that reads what another one writes is going to read about as much as that one does, too.
        """
        known: dict[str, Work] = {}
        for name in in_order(self._upstreams):
            try:
                plan = plan_stream(self.project, self._request(name), clock=self.clock)
            except BaseException as exc:
                if not is_failure(exc):
                    raise
                # Told when it is its turn: it may have become right by then.
                logger.debug("stream `%s` can't be planned", name, exc_info=True)
                continue
            if plan.size_bytes is None:
                return None
            before = [known[other] for other in self._upstreams[name] if other in known]
            size_bytes = plan.size_bytes + sum(work.size_bytes for work in before)
            known[name] = Work(size_bytes, len(plan.batches) + sum(work.batches for work in before))
        return Work(sum(work.size_bytes for work in known.values()), sum(work.batches for work in known.values()))

    def _start_settings(self, sessions: PackedSessions, name: str) -> object:
        try:
            return sessions.start_settings(self.project, self.streams[name])
        except BaseException as exc:
            if not is_failure(exc):
                raise
            # Told when it is its turn.
            return None
