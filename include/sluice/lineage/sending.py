"""Sends events beside the run: in a thread of its own, in order, and never in the run's way.

A lineage server that is away or slow costs a run a few seconds at its end at most, and fails nothing. What could not be
sent is said once, when the run is over.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.foreign_code import described
from sluice.lineage.settings import LineageSettings, lineage_settings
from sluice.lineage.table_work import TableWork
from sluice.project import Project
from sluice.runs.record import RunRecord
from sluice.stream import Stream

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from sluice.lineage.jobs import StreamJob

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""How long the end of a run waits for what is still to be sent."""
_PATIENCE_AFTER_FAILURE_SECONDS = 1.0
"""The same once something could not be sent: who was away is likely to be away still."""
_LAST_PATIENCE_SECONDS = 2.0
"""The same where somebody waits for the end of the process."""

_Made = Callable[["StreamJob"], Iterable["RunEvent"]]


def tell_run(project: Project, stream: Stream, record: RunRecord, *, is_own: bool = True) -> None:
    """Tell what has become of a run, by its record; returns at once, and never raises.

    Args:
        project: The project.
        stream: The stream.
        record: The run's.
        is_own: Whether it is a run of this process; of another one, nobody here knows what it was a part of.
    """

    def made(job: StreamJob) -> Iterable[RunEvent]:
        from sluice.lineage.run_events import run_events

        return run_events(job if is_own else job.without_parent(), record)

    _tell(project, stream, made)


def tell_end(project: Project, stream: Stream, record: RunRecord) -> None:
    """Tell what has become of a run whose process is about to be killed: waits a moment for it."""
    with lineage_sent(_LAST_PATIENCE_SECONDS):
        tell_run(project, stream, record)


def tell_work(project: Project, stream: Stream, work: TableWork) -> None:
    """Tell what has become of an audit or a release; returns at once, and never raises."""

    def made(job: StreamJob) -> Iterable[RunEvent]:
        from sluice.lineage.table_events import table_event

        return (table_event(job, work),)

    _tell(project, stream, made)


@contextmanager
def lineage_sent(seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """At its end, wait until all is sent that was told, for some seconds at most, and say once what was not."""
    try:
        yield
    finally:
        _sender.wait(seconds)


def _tell(project: Project, stream: Stream, made: _Made) -> None:
    try:
        settings = lineage_settings()
        if settings is not None:
            _sender.put(_Telling(project, stream, settings, made))
    except Exception:  # as where no thread can be started: no run fails for it
        logger.warning("lineage: an event could not be made, and is lost", exc_info=True)


@dataclass(frozen=True)
class _Telling:
    """Something that is to be told."""

    project: Project
    stream: Stream
    settings: LineageSettings
    made: _Made
    """Makes the events: in the thread that sends them, for it may look at files."""


@dataclass
class _Sender:
    """Sends what it is told to, one event after the other."""

    _waiting: queue.SimpleQueue[_Telling] = field(default_factory=queue.SimpleQueue)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _unsent: int = 0
    """How much is waiting, or under way."""
    _lost: int = 0
    _reason: str | None = None
    """Why something was lost that nobody has heard of yet."""
    _has_failed: bool = False
    _thread: threading.Thread | None = None

    def put(self, telling: _Telling) -> None:
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                # Nor is it alive in a process that was forked.
                self._thread = threading.Thread(target=self._send_all, name="sluice-lineage", daemon=True)
                self._thread.start()
            self._unsent += 1
            self._waiting.put(telling)

    def wait(self, seconds: float) -> None:
        with self._changed:
            patience = min(seconds, _PATIENCE_AFTER_FAILURE_SECONDS) if self._has_failed else seconds
            is_done = self._changed.wait_for(lambda: self._unsent == 0, patience)
            lost, reason = self._lost + self._unsent, self._reason
            if not is_done:
                self._has_failed = True
                reason = reason or f"the server has not answered in {patience:g} s"
                # What is under way may arrive yet; what waits behind it is not worth more of anybody's time.
                with contextlib.suppress(queue.Empty):
                    while True:
                        self._waiting.get_nowait()
                self._unsent = 0
                self._thread = None
            self._lost, self._reason = 0, None
        if lost:
            logger.warning("lineage: %s of the events could not be sent, and are lost: %s", lost, reason)

    def _send_all(self) -> None:
        own = threading.current_thread()
        while True:
            telling = self._waiting.get()
            try:
                _send(telling)
                failure = None
            except BaseException as exc:  # whatever it is, the run must not hear of it
                failure = described(exc)
            with self._changed:
                if self._thread is not own:
                    return
                self._unsent -= 1
                self._has_failed = failure is not None
                if failure is not None:
                    self._lost, self._reason = self._lost + 1, self._reason or failure
                self._changed.notify_all()


def _send(telling: _Telling) -> None:
    from sluice.lineage.emission import emitting
    from sluice.lineage.jobs import StreamJob

    with emitting(telling.project, telling.settings.config) as emit:
        for event in telling.made(StreamJob(telling.project, telling.stream, telling.settings)):
            emit(event)


_sender = _Sender()
